"""A relay between us and the real server that knows where a request ends and an answer begins.

It can therefore go wrong at an exact moment of an exchange, hold one back until a test lets it go,
and say what passes to whoever watches.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import BufferedReader
from typing import Literal
from urllib.parse import urlsplit

Moment = Literal["arrived", "taken", "answered"]
"""A request is here and not passed on; the server has answered it; its answer is passed back."""

_LONGEST_WAIT = 60.0
_RESET = struct.pack("ii", 1, 0)


@dataclass(frozen=True, slots=True)
class Request:
    """A request as it came."""

    line: str
    headers: dict[str, str]
    raw: bytes

    @property
    def retains(self) -> bool:
        """Whether it is a retain."""
        return self.line.startswith("POST") and self.line.split()[1].endswith("/memories")


class HttpRelay:
    """Passes requests on to a server, or does what ``fault`` names instead.

    What they do is said where they are done, in ``FAULTS``; with ``"refuse"`` nobody listens at
    the port. Setting ``fault`` to None heals everything.
    """

    def __init__(self, upstream: str) -> None:
        """Listen on a free port of this machine."""
        parts = urlsplit(upstream)
        self._upstream = (parts.hostname, parts.port)
        self._fault: str | None = None
        self._open: set[socket.socket] = set()
        self._changed = threading.Condition()
        self.healed = threading.Event()
        self.gate = threading.Event()
        self.gate.set()
        self.gate_was_never_opened = False
        self.faults = 0
        self.watch: Callable[[Moment, Request], None] = lambda _moment, _request: None
        self._listen(0)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    @property
    def fault(self) -> str | None:
        """What goes wrong for now."""
        return self._fault

    @fault.setter
    def fault(self, name: str | None) -> None:
        before, self._fault = self._fault, name
        if name is None:
            self.healed.set()
        else:
            self.healed.clear()
        if name == "refuse":
            self.close()
        elif before == "refuse":
            self._listen(int(self.url.rpartition(":")[2]))

    def wait_for_faults(self, count: int) -> None:
        """Wait until so many exchanges went wrong."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.faults >= count, _LONGEST_WAIT)

    def count_fault(self) -> None:
        """One more exchange went wrong."""
        with self._changed:
            self.faults += 1
            self._changed.notify_all()

    def close(self) -> None:
        """Take no more connections, and break those that there are."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()
        for client in list(self._open):
            reset(client)

    def _listen(self, port: int) -> None:
        self._listener = socket.create_server(("127.0.0.1", port), backlog=128)
        self._thread = threading.Thread(target=self._serve, args=(self._listener,), daemon=True)
        self._thread.start()

    def _serve(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:  # closed
                return
            self._open.add(client)
            threading.Thread(target=self._exchange_all, args=(client,), daemon=True).start()

    def _exchange_all(self, client: socket.socket) -> None:
        """Serve one connection to its end; whichever side ends it, the other is ended too."""
        try:
            with (
                contextlib.suppress(OSError),
                client,
                socket.create_connection(self._upstream) as server,
                client.makefile("rb") as requests,
                server.makefile("rb") as answers,
            ):
                while (request := _read_request(requests)) is not None:
                    if not self._exchange(request, client, server, answers):
                        return
        finally:
            self._open.discard(client)

    def _exchange(
        self,
        request: Request,
        client: socket.socket,
        server: socket.socket,
        answers: BufferedReader,
    ) -> bool:
        """Pass one request on and its answer back; whether the connection can go on."""
        self.watch("arrived", request)
        if not self.gate.wait(_LONGEST_WAIT):
            self.gate_was_never_opened = True

        def ask() -> bytes | None:
            server.sendall(request.raw)
            return _read_message(answers)

        if self._fault in FAULTS:
            self.count_fault()
            FAULTS[self._fault](self, client, ask)
            return False
        answer = ask()
        if answer is None:
            return False
        self.watch("taken", request)
        client.sendall(answer)
        self.watch("answered", request)
        return True


def reset(client: socket.socket) -> None:
    """Break a connection, so that the other side sees a reset."""
    with contextlib.suppress(OSError):
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    with contextlib.suppress(OSError):
        # A close alone sends nothing while another reader of the socket holds it open.
        client.shutdown(socket.SHUT_RDWR)
    client.close()


@contextlib.contextmanager
def relaying_requests(upstream: str) -> Iterator[HttpRelay]:
    """A relay that runs while the block does."""
    relay = HttpRelay(upstream)
    try:
        yield relay
    finally:
        relay.gate.set()
        relay.fault = None
        relay.close()


Ask = Callable[[], bytes | None]


def _reset_before(_relay: HttpRelay, client: socket.socket, _ask: Ask) -> None:
    """The connection breaks before the server sees the request."""
    reset(client)


def _reset_after(_relay: HttpRelay, client: socket.socket, ask: Ask) -> None:
    """The server has done it, and the connection breaks before the answer."""
    ask()
    reset(client)


def _stall_before(relay: HttpRelay, _client: socket.socket, _ask: Ask) -> None:
    """Nothing happens at all."""
    relay.healed.wait(_LONGEST_WAIT)


def _stall_after(relay: HttpRelay, _client: socket.socket, ask: Ask) -> None:
    """The server has done it, and nothing comes back."""
    ask()
    relay.healed.wait(_LONGEST_WAIT)


def _drip(relay: HttpRelay, client: socket.socket, ask: Ask) -> None:
    """The answer comes a byte at a time, and never whole while the fault lasts."""
    answer = ask() or b""
    for byte in answer[:-1]:
        client.sendall(bytes([byte]))
        if relay.healed.wait(0.1):
            break
    relay.healed.wait(_LONGEST_WAIT)


def _truncate(_relay: HttpRelay, client: socket.socket, ask: Ask) -> None:
    """The answer ends in its middle."""
    answer = ask() or b""
    client.sendall(answer[: len(answer) - 5])


def _nonsense_before(_relay: HttpRelay, client: socket.socket, _ask: Ask) -> None:
    """A page of a proxy comes back, and the server saw nothing."""
    client.sendall(_answer(200, b"<html>Please sign in.</html>", "text/html"))


def _nonsense_after(_relay: HttpRelay, client: socket.socket, ask: Ask) -> None:
    """The server has done it, and a page of a proxy comes back."""
    ask()
    client.sendall(_answer(200, b"<html>Please sign in.</html>", "text/html"))


def _other_json(_relay: HttpRelay, client: socket.socket, ask: Ask) -> None:
    """The server has done it, and JSON of another kind comes back."""
    ask()
    client.sendall(_answer(200, b'{"status": "ok"}', "application/json"))


def _busy(_relay: HttpRelay, client: socket.socket, _ask: Ask) -> None:
    client.sendall(_answer(429, b'{"detail": "slow down"}', "application/json", "Retry-After: 1"))


def _unavailable(_relay: HttpRelay, client: socket.socket, _ask: Ask) -> None:
    client.sendall(_answer(503, b"overloaded", "text/plain", "Retry-After: 1"))


def _bad_gateway_after(_relay: HttpRelay, client: socket.socket, ask: Ask) -> None:
    """The server has done it, and the proxy says that it did not."""
    ask()
    client.sendall(_answer(502, b"<html>Bad gateway</html>", "text/html"))


FAULTS: dict[str, Callable[[HttpRelay, socket.socket, Ask], None]] = {
    "reset before": _reset_before,
    "reset after": _reset_after,
    "stall before": _stall_before,
    "stall after": _stall_after,
    "drip": _drip,
    "truncate": _truncate,
    "nonsense before": _nonsense_before,
    "nonsense after": _nonsense_after,
    "other JSON": _other_json,
    "429": _busy,
    "503": _unavailable,
    "502 after": _bad_gateway_after,
}


def _answer(status: int, body: bytes, kind: str, *headers: str) -> bytes:
    head = [f"HTTP/1.1 {status} x", f"Content-Type: {kind}", f"Content-Length: {len(body)}"]
    return "\r\n".join([*head, *headers, "Connection: close", "", ""]).encode() + body


def _read_request(stream: BufferedReader) -> Request | None:
    raw = _read_message(stream)
    if raw is None:
        return None
    line, *fields = raw.partition(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")
    pairs = (field.partition(":") for field in fields)
    return Request(line, {name.lower(): value.strip() for name, _, value in pairs}, raw)


def _read_message(stream: BufferedReader) -> bytes | None:
    """A request or an answer, whole; None where the other side has ended."""
    head = bytearray()
    while not head.endswith(b"\r\n\r\n"):
        line = stream.readline()
        if not line:
            return None
        head += line
    length = 0
    for line in bytes(head).lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            length = int(line.partition(b":")[2])
        assert not line.startswith(b"transfer-encoding:"), "Hindsight sends whole answers"
    return bytes(head) + stream.read(length)


def wait_until(holds: Callable[[], bool], timeout: float = _LONGEST_WAIT) -> None:
    """Wait for what no event tells."""
    deadline = time.monotonic() + timeout
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)
