"""The process that owns the parts of one data folder's server, and ends them when it is not used.

Started by ``EmbeddedHindsight``, detached from its terminal. It says on its standard output, as one
JSON object a line, how the start goes (``progress``, then ``ready`` or ``failed``). Its standard
input stands for the starter until that has taken a lease: when it closes early, the starter has
died, and the start is given up.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import signal
import sys
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType

from langchain_hindsight.embedded.api import HindsightApi
from langchain_hindsight.embedded.embeddings import EmbeddingsEndpoint
from langchain_hindsight.embedded.environment import Piece, ServerEnvironment, mask
from langchain_hindsight.embedded.errors import EmbeddedServerError
from langchain_hindsight.embedded.lease import LeaseServer, State
from langchain_hindsight.embedded.postgres import Postgres
from langchain_hindsight.embedded.processes import ProcessId, free_port, port_is_free
from langchain_hindsight.embedded.server import LOG_FOLDER

_LAST_PORT = "port"
_GRACE = 1.0
_POLL = 0.1
_ATTEMPTS = 3
_OTHER_DIMENSION = re.compile(r"Cannot change embedding dimension from (\d+) to (\d+)")


@dataclass(frozen=True, slots=True)
class Request:
    """What to start: ``port`` 0 means any free one; ``timeout`` is in seconds."""

    data_dir: Path
    port: int
    timeout: float


class Supervisor:
    """Starts the parts, waits until nobody needs them, and stops them in order."""

    def __init__(self, request: Request, environment: ServerEnvironment) -> None:
        """Prepare; ``run`` does the work."""
        self._request = request
        self._environment = environment
        self._stop = threading.Event()
        self._deadline = time.monotonic() + request.timeout
        self._leases = LeaseServer(token := secrets.token_urlsafe(24))
        self._secrets = {token}
        self._postgres: Postgres | None = None
        self._embeddings: EmbeddingsEndpoint | None = None
        self._api: HindsightApi | None = None
        me = ProcessId.of(os.getpid())
        if me is None:  # we run, so there is such a process
            raise AssertionError
        self._state = State(me, token, self._leases.port, environment.digests(token))

    def run(self) -> int:
        """Run until nobody holds a lease; give the exit code."""
        signal.signal(signal.SIGTERM, self._on_signal)
        signal.signal(signal.SIGINT, self._on_signal)
        threading.Thread(target=self._watch_starter, daemon=True).start()
        try:
            self._state.write(self._request.data_dir)
            self._start()
        except EmbeddedServerError as error:
            self._end()
            _say("failed", self._explain(str(error)))
            return 1
        except BaseException:
            self._end()
            raise
        try:
            self._wait()
        finally:
            self._end()
        return 0

    def _start(self) -> None:
        asked = self._request.port
        if asked and not port_is_free(asked):
            msg = f"Port {asked} is taken. Choose another, or leave it out to get a free one."
            raise EmbeddedServerError(msg)
        postgres = self._start_postgres() if self._environment.needs_postgres else None
        embeddings = self._start_embeddings() if self._environment.needs_embeddings else None
        variables = self._environment.variables(postgres, embeddings)
        _say("progress", "Starting Hindsight ...")
        api = self._start_api(variables)
        self._state = replace(self._state, url=api.url)
        self._state.write(self._request.data_dir)
        _say("ready", api.url)

    def _start_postgres(self) -> Piece:
        _say("progress", "Starting PostgreSQL ...")
        self._postgres = Postgres(self._request.data_dir)
        return self._keep_secret(self._postgres.start())

    def _start_embeddings(self) -> Piece:
        _say("progress", "Loading embeddings ...")
        self._embeddings = EmbeddingsEndpoint()
        return self._keep_secret(self._embeddings.start())

    def _keep_secret(self, piece: Piece) -> Piece:
        self._secrets.add(piece.secret)
        return piece

    def _start_api(self, variables: dict[str, str]) -> HindsightApi:
        asked = self._request.port
        port = asked or self._last_port() or free_port()
        for attempt in range(1, _ATTEMPTS + 1):
            self._api = HindsightApi(port, variables, self._request.data_dir / LOG_FOLDER)
            self._state = replace(self._state, api=self._api.process_id)
            self._state.write(self._request.data_dir)
            try:
                self._api.wait_until_ready(self._deadline, self._abandoned)
            except EmbeddedServerError:
                # Between our look for a free port and its use, another process may have taken it.
                if asked or attempt == _ATTEMPTS or "cannot bind" not in self._api.last_words():
                    raise
                port = free_port()
            else:
                (self._request.data_dir / _LAST_PORT).write_text(str(port))
                return self._api
        raise AssertionError

    def _last_port(self) -> int | None:
        """The port of the last start, where it is free: what waits in an outbox waits for it."""
        file = self._request.data_dir / _LAST_PORT
        kept = file.read_text() if file.is_file() else ""
        return int(kept) if kept.isdigit() and port_is_free(int(kept)) else None

    def _wait(self) -> None:
        while not self._stop.wait(_POLL):
            if self._leases.close_if_unused(_GRACE) or (self._api and self._api.ended):
                return

    def _end(self) -> None:
        """Stop what was started, the last first; one failure keeps no other part running."""
        self._leases.close()
        try:
            if self._api is not None:
                self._api.stop()
        finally:
            try:
                if self._postgres is not None:
                    self._postgres.stop()
            finally:
                if self._embeddings is not None:
                    self._embeddings.stop()
                State.remove(self._request.data_dir)

    def _explain(self, message: str) -> str:
        words = self._api.last_words() if self._api is not None else ""
        other = _OTHER_DIMENSION.search(words)
        if other is not None:
            message = (
                f"{self._request.data_dir} holds memories with embeddings of {other[1]} "
                f"dimensions, and the embeddings chosen now have {other[2]}. Use the embeddings it "
                "was filled with, or another data folder."
            )
        elif words:
            log = self._request.data_dir / LOG_FOLDER / "server.log"
            message = f"{message} Its last log lines (all of them are in {log}):\n{words}"
        return mask(message, self._environment.base, self._secrets)

    def _abandoned(self) -> bool:
        return self._stop.is_set() or self._leases.close_if_unused(0)

    def _watch_starter(self) -> None:
        while sys.stdin.buffer.read(1):
            continue
        self._leases.starter_left()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self._stop.set()


def _say(kind: str, text: str) -> None:
    try:
        sys.stdout.write(json.dumps({kind: text}) + "\n")
        sys.stdout.flush()
    except OSError:
        # The starter is gone: its closed standard input ends the start, and nobody reads this.
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123 - open until the process ends


def main(arguments: list[str]) -> int:
    """Run the supervisor of a data folder: ``DATA_DIR PORT TIMEOUT``."""
    folder, port, timeout = arguments
    request = Request(Path(folder), int(port), float(timeout))
    return Supervisor(request, ServerEnvironment.of(os.environ)).run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
