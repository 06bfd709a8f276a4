"""A file that cannot be used: a damaged outbox is moved out of the way, another's is left alone."""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

from sqlalchemy.engine import URL

from langchain_hindsight.errors import ConfigurationError
from langchain_hindsight.outbox.default_file import default_file
from langchain_hindsight.outbox.engine import BUSY_TIMEOUT_MS
from langchain_hindsight.outbox.place import is_file
from langchain_hindsight.outbox.schema import version

_HEADER = b"SQLite format 3\x00"
_MARKS = (b"hindsight_outbox_", b'"said_at": "')
"""What is in every outbox: its tables' names, and a field of what it holds."""
_DAMAGED = ("malformed", "not a database", "file is encrypted")

_logger = logging.getLogger(__name__)


class ForeignFileError(ConfigurationError):
    """``outbox.url`` names a file that is no outbox."""


def refuse_foreign(url: URL) -> None:
    """See that a SQLite file holds an outbox, or nothing yet; without changing it.

    Raises:
        ForeignFileError: If it is another's database, or no database and no damaged outbox.
    """
    path = Path(str(url.database))
    if not is_file(url) or not path.is_file() or not path.stat().st_size:
        return
    with path.open("rb") as file:
        is_database = file.read(len(_HEADER)) == _HEADER
    foreign = _holds_other_tables(path) if is_database else not bears_our_mark(path)
    if foreign:
        raise _foreign(path)


def bears_our_mark(path: Path) -> bool:
    """Whether a file, however damaged, was an outbox: something of it is still to be found."""
    if path == default_file():
        return True
    return any(
        _holds(path.with_name(path.name + suffix))
        for suffix in ("", "-wal")
        if path.with_name(path.name + suffix).is_file()
    )


def _holds(path: Path) -> bool:
    end = b""
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            if any(mark in end + chunk for mark in _MARKS):
                return True
            end = chunk[-max(map(len, _MARKS)) :]
    return False


def _holds_other_tables(path: Path) -> bool:
    """Whether a database has tables and none is an outbox's."""
    # Without a log beside it nobody has it open, and a look must not make one.
    how = "mode=ro" if path.with_name(f"{path.name}-wal").exists() else "immutable=1"
    address = f"{path.absolute().as_uri()}?{how}"
    try:
        with contextlib.closing(sqlite3.connect(address, uri=True)) as looking:
            names = {name for (name,) in looking.execute("SELECT name FROM sqlite_master")}
    except sqlite3.OperationalError:  # somebody has locked it: the opening itself will show
        return False
    except sqlite3.DatabaseError:
        return not bears_our_mark(path)
    return bool(names) and version.name not in names


def _foreign(path: Path) -> ForeignFileError:
    msg = (
        f"outbox.url names {path}, which is a file of something else and was left untouched. "
        "Name a file of its own, which is made when it is needed."
    )
    return ForeignFileError(msg)


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
