"""The outbox on disk: its tables, and how its database is opened.

A row of ``entries`` is a message or a note. It holds a payload until Hindsight has it; what is left
of the row is the ledger by which the same message is known again. ``lanes`` are banks, each
delivered by one process at a time under a lease; ``batches`` are requests, recorded before they are
sent; ``threads`` are conversations.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

from platformdirs import user_state_path
from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Engine,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    create_engine,
    event,
    insert,
    inspect,
    select,
    update,
)
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, IntegrityError, NoSuchModuleError, ProgrammingError
from sqlalchemy.pool import StaticPool

from langchain_hindsight.errors import ConfigurationError
from langchain_hindsight.settings import OutboxSettings

SCHEMA_VERSION = 2
_WITHOUT_PATIENCE = 1
"""The version in which a request had no back-off of its own."""
BUSY_TIMEOUT_MS = 800
"""How long SQLite waits for another process's transaction."""

READS = "hindsight_reads"
"""The execution option of a connection that only reads, and so takes no lock of SQLite's."""

WAITING, BATCHED, DELIVERED, DEAD = "waiting", "batched", "delivered", "dead"
WITHHELD = "withheld"
"""Known, and never to be kept: the run in which it was said kept nothing."""
RECORDED, ACCEPTED, DONE, FAILED = "recorded", "accepted", "done", "failed"

_DAMAGED = ("malformed", "not a database", "file is encrypted")

_logger = logging.getLogger(__name__)

metadata = MetaData()

_Large = BigInteger().with_variant(Integer, "sqlite")
"""SQLite numbers rows by itself only in an INTEGER, which holds as much there."""

version = Table("hindsight_outbox_version", metadata, Column("version", Integer, nullable=False))

usage = Table(
    "hindsight_outbox_usage",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("entries", Integer, nullable=False),
    Column("bytes", _Large, nullable=False),
)

lanes = Table(
    "hindsight_outbox_lanes",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("server", Text, nullable=False),
    Column("bank", Text, nullable=False),
    Column("owner", String(64)),
    Column("lease_until", Float, nullable=False, default=0.0),
    Column("due", Float, nullable=False, default=0.0),
    Column("failures", Integer, nullable=False, default=0),
    Column("paused", Boolean, nullable=False, default=False),
    Column("error", Text),
    Column("failed_at", Float),
    Column("delivered", _Large, nullable=False, default=0),
    UniqueConstraint("server", "bank"),
)

threads = Table(
    "hindsight_outbox_threads",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("scope", String(36), nullable=False, unique=True),
    Column("lane", ForeignKey("hindsight_outbox_lanes.id"), nullable=False),
    Column("version", Integer, nullable=False, default=0),
    Column("last_seq", Integer, nullable=False, default=0),
    Column("length", Integer, nullable=False, default=0),
)

batches = Table(
    "hindsight_outbox_batches",
    metadata,
    Column("operation_id", String(36), primary_key=True),
    Column("lane", ForeignKey("hindsight_outbox_lanes.id"), nullable=False),
    Column("state", String(16), nullable=False),
    Column("entries", Integer, nullable=False),
    Column("created", Float, nullable=False),
    Column("finished", Float),
    Column("error", Text),
    Column("failures", Integer, nullable=False, server_default="0"),
    Column("due", Float, nullable=False, server_default="0"),
    Index("hindsight_outbox_batches_lane", "lane", "state"),
)

entries = Table(
    "hindsight_outbox_entries",
    metadata,
    Column("id", _Large, primary_key=True),
    Column("lane", ForeignKey("hindsight_outbox_lanes.id"), nullable=False),
    Column("thread", ForeignKey("hindsight_outbox_threads.id")),
    Column("seq", Integer, nullable=False),
    Column("parent", Integer),
    Column("message_id", Text),
    Column("fingerprint", String(32), nullable=False),
    Column("speech", Boolean, nullable=False),
    Column("starts_turn", Boolean, nullable=False),
    Column("document", String(36), nullable=False),
    Column("regrouped", Boolean, nullable=False, default=False),
    Column("revision", Integer, nullable=False, default=0),
    Column("state", String(16), nullable=False),
    Column("batch", String(36)),
    Column("payload", Text),
    Column("next_payload", Text),
    Column("size", Integer, nullable=False),
    Column("created", Float, nullable=False),
    Column("error", Text),
    UniqueConstraint("thread", "seq"),
    UniqueConstraint("thread", "message_id"),
    Index("hindsight_outbox_entries_fingerprint", "thread", "fingerprint"),
    Index("hindsight_outbox_entries_state", "lane", "state", "id"),
    Index("hindsight_outbox_entries_batch", "batch"),
    Index("hindsight_outbox_entries_document", "document"),
)


_PACKAGES = {"psycopg": "psycopg[binary]", "psycopg2": "psycopg2-binary"}


class NewerOutboxError(ConfigurationError):
    """The outbox was written by a newer version of this package."""


def outbox_url(settings: OutboxSettings) -> URL:
    """Where the outbox is.

    Raises:
        ConfigurationError: If ``outbox.url`` is no SQLAlchemy URL of SQLite or PostgreSQL, or its
            driver is not installed.
    """
    if settings.url is None:
        folder = user_state_path("langchain-hindsight")
        return URL.create("sqlite", database=str(folder / "outbox.db"))
    try:
        url = make_url(settings.url)
        url.get_dialect()
    except (ArgumentError, NoSuchModuleError, ImportError) as error:
        msg = (
            "outbox.url must be a SQLAlchemy URL such as sqlite:////var/lib/app/outbox.db or "
            f"postgresql+psycopg://host/database ({type(error).__name__})."
        )
        raise ConfigurationError(msg) from None
    if url.get_backend_name() not in {"sqlite", "postgresql"}:
        msg = (
            f"outbox.url names {url.get_backend_name()}; only sqlite and postgresql are supported."
        )
        raise ConfigurationError(msg)
    _check_driver(url)
    return url


def _check_driver(url: URL) -> None:
    dialect = url.get_dialect()
    driver = str(dialect.driver)
    if dialect.is_async:
        msg = f"outbox.url names {driver}, which is asynchronous; use postgresql+psycopg or sqlite."
        raise ConfigurationError(msg)
    try:
        dialect.import_dbapi()
    except ImportError as error:
        package = _PACKAGES.get(driver, driver)
        msg = (
            f"outbox.url needs the database driver {driver}, which cannot be imported "
            f"({type(error).__name__}); install it with: pip install '{package}'"
        )
        raise ConfigurationError(msg) from None


def is_file(url: URL) -> bool:
    """Whether the outbox is a SQLite file."""
    return url.get_backend_name() == "sqlite" and url.database not in {None, "", ":memory:"}


def open_engine(url: URL, settings: OutboxSettings) -> Engine:
    """An engine over an outbox whose tables exist and are of this version.

    Raises:
        NewerOutboxError: If a newer version wrote it; nothing is changed.
        SQLAlchemyError: If the database cannot be opened.
        OSError: If the file or its folder cannot be made.
    """
    engine = _sqlite(url, settings) if url.get_backend_name() == "sqlite" else _postgresql(url)
    try:
        _prepare(engine)
    except BaseException:
        engine.dispose()
        raise
    return engine


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
    if not path.exists():
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


def _sqlite(url: URL, settings: OutboxSettings) -> Engine:
    options: dict[str, Any] = {"pool_reset_on_return": None}
    if is_file(url):
        _make_private(Path(str(url.database)))
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
    return create_engine(url, pool_size=2, max_overflow=0, pool_pre_ping=True)


def _make_private(path: Path) -> None:
    """Create file and folder for their owner alone; what exists is left as it is."""
    if not path.parent.exists():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not path.exists():
        with contextlib.suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


def _prepare(engine: Engine) -> None:
    """Create what is missing, in one transaction; refuse what is newer."""
    try:
        with engine.begin() as connection:
            _check_version(connection)
    except (IntegrityError, ProgrammingError):
        # another process created the tables at the same moment
        with engine.begin() as connection:
            _check_version(connection)


def _check_version(connection: Connection) -> None:
    if not inspect(connection).has_table(version.name):
        metadata.create_all(connection)
        connection.execute(insert(version).values(version=SCHEMA_VERSION))
        connection.execute(insert(usage).values(id=1, entries=0, bytes=0))
        return
    found = connection.execute(select(version.c.version)).scalar_one()
    if found == _WITHOUT_PATIENCE:
        for column in (batches.c.failures, batches.c.due):
            kind = column.type.compile(connection.dialect)
            connection.exec_driver_sql(
                f"ALTER TABLE {batches.name} ADD COLUMN {column.name} {kind} NOT NULL DEFAULT 0"
            )
        connection.execute(update(version).values(version=SCHEMA_VERSION))
        return
    if found > SCHEMA_VERSION:
        msg = (
            f"The outbox has schema {found}, written by a newer langchain-hindsight; this one "
            f"knows up to {SCHEMA_VERSION}. Upgrade the package, or set outbox.url to another "
            "place. Nothing was changed."
        )
        raise NewerOutboxError(msg)


Row = Mapping[str, Any]
