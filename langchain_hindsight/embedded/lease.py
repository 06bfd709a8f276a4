"""Who uses the server of a data folder: the state file, and a lease that no crash can leave behind.

The supervisor writes ``state.json`` (readable by its owner alone) and listens on a loopback port.
A holder's lease is an open connection to that port, opened with the token of the state file. The
operating system closes the connection of a process that dies, however it dies, so the supervisor
always learns that the last holder is gone.
"""

from __future__ import annotations

import hmac
import json
import os
import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from langchain_hindsight.embedded.environment import LOOPBACK
from langchain_hindsight.embedded.processes import ProcessId

_STATE_FILE = "state.json"
_HELD = b"held\n"
_BYE = b"bye\n"
_LONGEST_LINE = 256
_HANDSHAKE_TIMEOUT = 5.0


@dataclass(frozen=True, slots=True)
class State:
    """What a supervisor says about itself in its data folder.

    ``settings`` holds a salted digest of each setting, never the setting itself.
    """

    supervisor: ProcessId
    token: str
    lease_port: int
    settings: Mapping[str, str]
    api: ProcessId | None = None
    url: str | None = None

    def write(self, data_dir: Path) -> None:
        """Write it for other processes, whole or not at all."""
        path = data_dir / _STATE_FILE
        draft = path.with_suffix(".new")
        draft.unlink(missing_ok=True)
        descriptor = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        with os.fdopen(descriptor, "w") as file:
            json.dump(asdict(self), file)
        draft.replace(path)

    @classmethod
    def read(cls, data_dir: Path) -> State | None:
        """Read it; None where there is none that can be understood."""
        try:
            found: dict[str, Any] = json.loads((data_dir / _STATE_FILE).read_text())
            api = found.pop("api")
            return cls(
                supervisor=ProcessId(**found.pop("supervisor")),
                api=ProcessId(**api) if api else None,
                **found,
            )
        except (OSError, ValueError, TypeError, KeyError):
            return None

    @staticmethod
    def remove(data_dir: Path) -> None:
        """Remove it: there is no supervisor any more."""
        (data_dir / _STATE_FILE).unlink(missing_ok=True)


class Lease:
    """A holder's claim on the running server."""

    def __init__(self, connection: socket.socket, state: State, url: str) -> None:
        """Keep the connection; use ``take`` to get a lease."""
        self._connection = connection
        self._supervisor = state.supervisor
        self._pid = os.getpid()
        self.url = url

    @classmethod
    def take(cls, state: State) -> Lease | None:
        """Take a lease; None where the supervisor is gone, not ready, or on its way out."""
        if state.url is None:
            return None
        try:
            connection = socket.create_connection(
                (LOOPBACK, state.lease_port), timeout=_HANDSHAKE_TIMEOUT
            )
        except OSError:
            return None
        try:
            connection.sendall(state.token.encode() + b"\n")
            held = connection.recv(_LONGEST_LINE) == _HELD
        except OSError:
            held = False
        if not held:
            connection.close()
            return None
        return cls(connection, state, state.url)

    def alive(self) -> bool:
        """Whether the supervisor still holds up its side, and this process may use the lease."""
        if os.getpid() != self._pid:
            return False
        try:
            self._connection.settimeout(0)
            return self._connection.recv(1, socket.MSG_PEEK) != b""
        except BlockingIOError:
            return True
        except OSError:
            return False

    def release(self, timeout: float) -> None:
        """Give it back; when it is the last, wait until all that was started has stopped."""
        connection, self_made = self._connection, os.getpid() == self._pid
        with connection:
            if not self_made:
                return  # a fork's copy: the lease is its parent's, who says good-bye itself
            try:
                connection.settimeout(timeout)
                connection.sendall(_BYE)
                stopping = connection.recv(_LONGEST_LINE) == b""
            except OSError:
                stopping = True
        if stopping:
            self._supervisor.wait(timeout)


class LeaseServer:
    """The supervisor's side: it counts the leases.

    Args:
        token: What a holder must send to get a lease.
    """

    def __init__(self, token: str) -> None:
        """Listen on a free loopback port; until the first lease, the starter counts as one."""
        self._token = token.encode()
        self._lock = threading.Lock()
        self._held = 0
        self._starter = True
        self._idle_since = 0.0
        self._closing = False
        self._leaving: list[socket.socket] = []
        self._listener = socket.create_server((LOOPBACK, 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def starter_left(self) -> None:
        """Count the starter no longer: it has died, or has taken a proper lease before."""
        with self._lock:
            if self._starter:
                self._starter = False
                self._idle_since = time.monotonic()

    def close_if_unused(self, grace: float) -> bool:
        """Close for good when nobody has held a lease for ``grace`` seconds, or the last said bye.

        The grace lets a holder that died be followed by the next without a restart.
        """
        with self._lock:
            unused = not self._in_use() and time.monotonic() - self._idle_since >= grace
            self._closing = self._closing or unused
            return self._closing

    def close(self) -> None:
        """Take no more leases."""
        with self._lock:
            self._closing = True
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return  # closed, and with it this thread's work
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            if not self._admit(connection):
                connection.close()
                return
            said = self._await_end(connection)
        except OSError:
            connection.close()
            return
        with self._lock:
            self._drop()
            if said == _BYE and not self._in_use():
                # Left open: its end, when this process ends, tells the holder that all is stopped.
                self._closing = True
                self._leaving.append(connection)
                return
        _say_and_close(connection, b"shared\n")

    def _admit(self, connection: socket.socket) -> bool:
        connection.settimeout(_HANDSHAKE_TIMEOUT)
        with connection.makefile("rb") as reader:
            token = reader.readline(_LONGEST_LINE).strip()
        if not hmac.compare_digest(token, self._token):
            return False
        with self._lock:
            if self._closing:
                return False
            self._held += 1
            # The first lease is the starter's own: nobody else can start while it does.
            self._starter = False
        try:
            connection.settimeout(None)
            connection.sendall(_HELD)
        except OSError:
            with self._lock:
                self._drop()
            raise
        return True

    def _await_end(self, connection: socket.socket) -> bytes:
        try:
            return connection.recv(_LONGEST_LINE)
        except OSError:
            return b""  # reset: the holder died, which ends its lease as well as a word does

    def _in_use(self) -> bool:
        return self._starter or self._held > 0

    def _drop(self) -> None:
        self._held -= 1
        self._idle_since = time.monotonic()


def _say_and_close(connection: socket.socket, word: bytes) -> None:
    with connection:
        try:
            connection.sendall(word)
        except OSError:
            return  # nobody is left to hear it
