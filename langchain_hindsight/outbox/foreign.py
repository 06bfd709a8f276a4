"""Another's file, named by mistake as the outbox, is left alone; no database library is loaded."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

from langchain_hindsight.errors import ConfigurationError
from langchain_hindsight.outbox.default_file import default_file

VERSION_TABLE = "hindsight_outbox_version"
_HEADER = b"SQLite format 3\x00"
_PATIENCE = 0.1
"""How long a look waits for another process's lock, in seconds: each turn may wait for it."""
_MARKS = (b"hindsight_outbox_", b'"said_at": "')
"""What is in every outbox: its tables' names, and a field of what it holds."""


class ForeignFileError(ConfigurationError):
    """``outbox.url`` names a file that is no outbox."""


def refuse_foreign(path: Path) -> None:
    """See that a file holds an outbox, or nothing yet; without changing it.

    Raises:
        ForeignFileError: If it is another's database, or no database and no damaged outbox.
    """
    if not path.is_file() or not path.stat().st_size:
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
        with contextlib.closing(sqlite3.connect(address, timeout=_PATIENCE, uri=True)) as looking:
            names = {name for (name,) in looking.execute("SELECT name FROM sqlite_master")}
    except sqlite3.OperationalError:  # somebody has locked it: the opening itself will show
        return False
    except sqlite3.DatabaseError:
        return not bears_our_mark(path)
    return bool(names) and VERSION_TABLE not in names


def _foreign(path: Path) -> ForeignFileError:
    msg = (
        f"outbox.url names {path}, which is a file of something else and was left untouched. "
        "Name a file of its own, which is made when it is needed."
    )
    return ForeignFileError(msg)
