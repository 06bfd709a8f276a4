"""The Hindsight API server as a process: started, watched until it is ready, and stopped."""

from __future__ import annotations

import http.client
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from langchain_hindsight.embedded.environment import LOOPBACK
from langchain_hindsight.embedded.errors import EmbeddedServerError
from langchain_hindsight.embedded.processes import ProcessId

_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_COMMAND = "from hindsight_api.main import main; main()"
_ERROR = re.compile(r"[\s|]*((?:\w+\.)*\w*(?:Error|Exception|Refused)\w*: .+)")
_ERRORS = 6
_LAST_LINES = 20
_POLL = 0.1
_STOP_TIMEOUT = 15.0


class HindsightApi:
    """One API server on one port.

    Args:
        port: The port to listen on, at 127.0.0.1.
        variables: Its whole environment.
        folder: A folder of its own for its log and its working directory.
    """

    def __init__(self, port: int, variables: Mapping[str, str], folder: Path) -> None:
        """Start the process; ``wait_until_ready`` says when it answers."""
        self.url = f"http://{LOOPBACK}:{port}"
        self._port = port
        self._log = folder / "server.log"
        work = folder / "work"
        folder.mkdir(mode=0o700, exist_ok=True)
        work.mkdir(mode=0o700, exist_ok=True)
        # The server loads the first .env found upwards from its working directory, and lets it win
        # over the environment. An empty one keeps it from somebody else's.
        (work / ".env").touch()
        if self._log.exists():
            self._log.replace(self._log.with_suffix(".old.log"))
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter
                [sys.executable, "-c", _COMMAND, "--host", LOOPBACK, "--port", str(port)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=work,
                env=dict(variables),
                creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
            )
        self.process_id = ProcessId.of(self._process.pid)

    @property
    def ended(self) -> bool:
        """Whether the process has ended."""
        return self._process.poll() is not None

    def wait_until_ready(self, deadline: float, abandoned: Callable[[], bool]) -> None:
        """Wait until ``/health`` says that it serves and reaches its database.

        Args:
            deadline: The latest moment, by ``time.monotonic``.
            abandoned: Whether nobody waits for it any more.

        Raises:
            EmbeddedServerError: It ended, or the time is up, or it was abandoned.
        """
        while not self._healthy():
            if self.ended:
                msg = f"The Hindsight server ended at once, with exit code {self._process.poll()}."
                raise EmbeddedServerError(msg)
            if time.monotonic() > deadline:
                msg = "The Hindsight server was not ready in time; startup_timeout allows it more."
                raise EmbeddedServerError(msg)
            if abandoned():
                msg = "The start of the Hindsight server was abandoned."
                raise EmbeddedServerError(msg)
            time.sleep(_POLL)

    def last_words(self) -> str:
        """Give the errors its log names and its last lines, as they were written: not masked."""
        lines = _ANSI.sub("", self._log.read_text(errors="replace")).splitlines()
        written = [line for line in lines if line.strip()]
        # A long traceback pushes the error it began with out of the last lines.
        errors = [found[1] for line in written if (found := _ERROR.match(line))]
        return "\n".join([*dict.fromkeys(errors[-_ERRORS:]), "...", *written[-_LAST_LINES:]])

    def stop(self) -> None:
        """Stop it, in order where it can be."""
        if self.process_id is not None:
            self.process_id.stop(_STOP_TIMEOUT)
        self._process.wait()

    def _healthy(self) -> bool:
        # http.client, which follows no proxy of the environment.
        connection = http.client.HTTPConnection(LOOPBACK, self._port, timeout=5)
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == http.client.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()
