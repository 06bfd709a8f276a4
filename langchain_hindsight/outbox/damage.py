"""A damaged outbox is moved out of the way."""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

from sqlalchemy import URL

from langchain_hindsight.outbox.engine import BUSY_TIMEOUT_MS

_DAMAGED = ("malformed", "not a database", "file is encrypted")

_logger = logging.getLogger(__name__)


def set_aside(url: URL) -> Path | None:
    """Move a damaged SQLite file out of the way, with what belongs to it.

    Several processes may meet the damage at once: under a lock the first moves the file, and the
    others find a healthy one in its place and leave that alone.

    Returns:
        Where it was moved to; None where the file in place is not damaged.
    """
    path = Path(str(url.database))
    with _held(path.with_name(f"{path.name}.recovery")):
        if not _is_damaged(path):
            return None
        stamp = f"{time.strftime('%Y%m%dT%H%M%S')}-{uuid4().hex[:6]}"
        moved = path.with_name(f"{path.name}.damaged-{stamp}")
        for suffix in ("", "-wal", "-shm"):
            with contextlib.suppress(FileNotFoundError):
                path.with_name(path.name + suffix).replace(moved.with_name(moved.name + suffix))
    _logger.error("The outbox %s is damaged; set aside as %s, and a new one begun", path, moved)
    return moved


def says_damaged(error: BaseException) -> bool:
    """Whether SQLite says of a file that it is damaged."""
    text = str(error).lower()
    return any(sign in text for sign in _DAMAGED)


def _is_damaged(path: Path) -> bool:
    if not path.exists() or not path.stat().st_size:
        return False
    try:
        with contextlib.closing(sqlite3.connect(path, timeout=BUSY_TIMEOUT_MS / 1000)) as probe:
            return bool(probe.execute("PRAGMA integrity_check(1)").fetchone() != ("ok",))
    except sqlite3.DatabaseError as error:
        return says_damaged(error)


@contextlib.contextmanager
def _held(path: Path) -> Iterator[None]:
    """Hold a lock of the operating system's, which ends with the process that holds it."""
    with path.open("a+b") as file:
        if sys.platform == "win32":
            import msvcrt

            file.seek(0)
            msvcrt.locking(file.fileno(), msvcrt.LK_LOCK, 1)
            try:
                yield
            finally:
                file.seek(0)
                msvcrt.locking(file.fileno(), msvcrt.LK_UNLCK, 1)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)
            yield
