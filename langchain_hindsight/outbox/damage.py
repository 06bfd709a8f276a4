"""A damaged outbox is moved out of the way, and one that was deleted is written anew."""

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

from langchain_hindsight.outbox.engine import BUSY_TIMEOUT_MS, make_private

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


def write_anew(deleted: sqlite3.Connection, path: Path) -> bool:
    """Write a file that somebody deleted from a connection to what was in it.

    Args:
        deleted: A connection that was opened before; what it reads is still on the disk.
        path: Where the file was.

    Returns:
        Whether it was written; otherwise another process was faster, or began a new one.

    Raises:
        OSError: If it cannot be written.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    made = path.with_name(f"{path.name}.{uuid4().hex}")
    with _held(path.with_name(f"{path.name}.recovery")):
        if path.exists():
            return False
        for suffix in ("-wal", "-shm"):  # of the one that is gone
            path.with_name(path.name + suffix).unlink(missing_ok=True)
        try:
            make_private(made)
            with contextlib.closing(sqlite3.connect(made)) as copy:
                deleted.backup(copy)
            made.replace(path)
        except sqlite3.Error as error:
            raise OSError(str(error)) from None
        finally:
            made.unlink(missing_ok=True)
    return True


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
