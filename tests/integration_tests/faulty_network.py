"""What stands between us and Hindsight when things go wrong: a server that answers amiss."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

HTML = b"<html><body>It works!</body></html>"


def closed_port() -> int:
    """A port of this machine on which nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@contextlib.contextmanager
def answering(
    status: int = 200,
    body: bytes = HTML,
    *,
    kind: str = "text/html",
    headers: dict | None = None,
    after: threading.Event | None = None,
) -> Iterator[ThreadingHTTPServer]:
    """A server that gives every request one answer, once `after` is set where it is given.

    Its ``asked`` counts the requests, its ``seen`` holds them: path, headers and body.
    """

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            self.server.asked += 1
            body_sent = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.server.seen.append((self.path, dict(self.headers), body_sent))
            if after is not None:
                after.wait(60)
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_PUT = answer  # noqa: N815 - the names that http.server calls

        def log_message(self, *args: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.asked = 0
    server.seen = []
    server.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextlib.contextmanager
def hanging() -> Iterator[str]:
    """The URL of a server that takes requests and never answers."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@contextlib.contextmanager
def resetting() -> Iterator[str]:
    """The URL of a server that takes a request and resets the connection."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                peer, _ = listener.accept()
            except OSError:  # closed: the test is over
                return
            peer.recv(65536)
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            peer.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()
