"""Ends the wait for a database server that does not answer, which no driver bounds by itself."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

from sqlalchemy import Connection


class Watchdog:
    """Breaks connections under whoever waits for an answer on them for too long.

    Args:
        connections: The connections to break.
    """

    def __init__(self, connections: Callable[[], tuple[Connection, ...]]) -> None:
        """Watch nothing yet."""
        self._connections = connections

    @contextlib.contextmanager
    def watching(self, seconds: float) -> Iterator[None]:
        """Watch what the block does.

        Args:
            seconds: How long it may take.

        Raises:
            TimeoutError: If it took too long, and failed when its connection broke.
        """
        broke = threading.Event()

        def break_them() -> None:
            broke.set()
            for connection in self._connections():
                _break(connection)

        timer = threading.Timer(seconds, break_them)
        timer.daemon = True
        with contextlib.suppress(RuntimeError):  # the interpreter is ending and starts no thread
            timer.start()
        try:
            yield
        except Exception as error:
            if broke.is_set():
                msg = f"the database did not answer within {seconds:g} s"
                raise TimeoutError(msg) from error
            raise
        finally:
            timer.cancel()


def _break(connection: Connection) -> None:
    """Shut a connection's socket, which wakes whoever waits on it; its owner closes it."""
    if connection.invalidated:  # to ask it for its socket would connect it anew
        return
    with contextlib.suppress(Exception):  # it is closed, or closes at this moment
        opened: Any = connection.connection.driver_connection
        shared = socket.socket(fileno=opened.fileno())
        try:
            shared.shutdown(socket.SHUT_RDWR)
        finally:
            shared.detach()
