"""A relay between us and the real server, that can go away and come back."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

_CHUNK = 65_536


class Relay:
    """Passes TCP on to a server; ``fault`` says what it does instead with what comes next.

    ``"reset"`` breaks a connection before the request is passed on, ``"swallow"`` passes the
    request on and breaks the connection before the answer, ``"stall"`` holds what contains
    ``stalls_on`` back until there is another fault or none.
    """

    def __init__(self, upstream: str) -> None:
        """Listen on a free port; nothing is passed on before `run`."""
        parts = urlsplit(upstream)
        self._upstream = (parts.hostname, parts.port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.fault: str | None = None
        self.stalls_on = b""
        self.faults = 0

    def serve(self) -> None:
        """Take connections until closed."""
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:  # closed: the test is over
                return
            threading.Thread(target=self._pass_on, args=(client,), daemon=True).start()

    def close(self) -> None:
        """Take no more connections."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _pass_on(self, client: socket.socket) -> None:
        with client, socket.create_connection(self._upstream) as server:
            back = threading.Thread(target=self._copy_back, args=(server, client), daemon=True)
            back.start()
            with contextlib.suppress(OSError):
                while data := client.recv(_CHUNK):
                    if self.fault == "reset":
                        self._break(client)
                        break
                    if self.fault == "stall" and self.stalls_on in data:
                        self._hold()
                    server.sendall(data)
            with contextlib.suppress(OSError):
                server.shutdown(socket.SHUT_RDWR)
            back.join()

    def _copy_back(self, server: socket.socket, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(_CHUNK):
                if self.fault == "swallow":
                    self._break(client)
                    return
                client.sendall(data)

    def _hold(self) -> None:
        self.faults += 1
        while self.fault == "stall":
            time.sleep(0.02)

    def _break(self, client: socket.socket) -> None:
        self.faults += 1
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        with contextlib.suppress(OSError):
            client.shutdown(socket.SHUT_RDWR)
        client.close()


@contextlib.contextmanager
def relaying(upstream: str) -> Iterator[Relay]:
    """A relay that runs while the block does."""
    relay = Relay(upstream)
    thread = threading.Thread(target=relay.serve, daemon=True)
    thread.start()
    try:
        yield relay
    finally:
        relay.close()
        thread.join()
