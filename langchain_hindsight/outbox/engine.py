"""How the outbox's database is opened: SQLite as several processes can share it, or PostgreSQL."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, StaticPool, create_engine, event, inspect

from langchain_hindsight.outbox.migrations import bring_up_to_date, is_up_to_date
from langchain_hindsight.outbox.place import is_file
from langchain_hindsight.outbox.schema import version
from langchain_hindsight.settings import OutboxSettings

BUSY_TIMEOUT_MS = 800
"""How long SQLite waits for another process's transaction."""

_OF_LIBPQ = ("psycopg", "psycopg2")
_PATIENCE = {"connect_timeout": 3, "keepalives_idle": 30}
"""Options of libpq's, in seconds, which ``outbox.url`` may give too: how long a PostgreSQL may take
to answer a new connection, where the driver waits for minutes, and after how long one that is idle
is kept alive, so that no router forgets it."""

READS = "hindsight_reads"
"""The execution option of a connection that only reads, and so takes no lock of SQLite's."""


def is_there(url: URL) -> bool:
    """Whether there is an outbox already; looking makes none.

    Raises:
        SQLAlchemyError: If a PostgreSQL server cannot be reached.
    """
    if url.get_backend_name() == "sqlite":
        return is_file(url) and Path(str(url.database)).exists()
    engine = _postgresql(url)
    try:
        return inspect(engine).has_table(version.name)
    finally:
        engine.dispose()


def open_engine(url: URL, settings: OutboxSettings) -> Engine:
    """An engine over an outbox whose tables exist and are of this version.

    Raises:
        NewerOutboxError: If a newer version wrote it; nothing is changed.
        SQLAlchemyError: If the database cannot be opened.
        OSError: If the file or its folder cannot be made.
    """
    engine = _sqlite(url, settings) if url.get_backend_name() == "sqlite" else _postgresql(url)
    try:
        with engine.connect().execution_options(**{READS: True}) as connection:
            is_current = is_up_to_date(connection)
        if not is_current:  # one that is can be opened while another process writes to it
            bring_up_to_date(engine)
    except BaseException:
        engine.dispose()
        raise
    return engine


def _sqlite(url: URL, settings: OutboxSettings) -> Engine:
    options: dict[str, Any] = {"pool_reset_on_return": None}
    if is_file(url):
        make_private(Path(str(url.database)))
        options |= {"pool_size": 2, "max_overflow": 0}
    else:
        options = {"poolclass": StaticPool}
    engine = create_engine(
        url,
        connect_args={"check_same_thread": False, "timeout": BUSY_TIMEOUT_MS / 1000},
        **options,
    )

    @event.listens_for(engine, "connect")
    def _configure(connection: Any, _record: object) -> None:  # noqa: ANN401 - the driver's own
        connection.isolation_level = None  # transactions are begun below, and only there
        for pragma in (
            "journal_mode = WAL",
            f"synchronous = {settings.synchronous}",
            f"busy_timeout = {BUSY_TIMEOUT_MS}",
            "foreign_keys = ON",
        ):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        if not connection.get_execution_options().get(READS, False):
            connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine


def _postgresql(url: URL) -> Engine:
    given: dict[str, Any] = {}
    if str(url.get_dialect().driver) in _OF_LIBPQ:
        given = {name: value for name, value in _PATIENCE.items() if name not in url.query}
    return create_engine(url, pool_size=2, max_overflow=0, pool_pre_ping=True, connect_args=given)


def make_private(path: Path) -> None:
    """Create file and folder for their owner alone; what exists is left as it is."""
    if not path.parent.exists():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not path.exists():
        with contextlib.suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
