"""The outbox's database: two connections that stay open, and transactions that are tried again.

Every transaction is synchronous and may run on any thread. A file is closed before a fork and
opened again when it is needed; one that is damaged is set aside for a new one.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DatabaseError, DBAPIError, IntegrityError

from langchain_hindsight.errors import HindsightError, reason
from langchain_hindsight.fork import abandon, hold_for_fork
from langchain_hindsight.outbox.damage import says_damaged, set_aside, write_anew
from langchain_hindsight.outbox.engine import BUSY_TIMEOUT_MS, READS, is_there, open_engine
from langchain_hindsight.outbox.foreign import refuse_foreign
from langchain_hindsight.outbox.place import is_file, outbox_url
from langchain_hindsight.outbox.watchdog import Watchdog
from langchain_hindsight.settings import OutboxSettings

T = TypeVar("T")

_logger = logging.getLogger(__name__)

_TRIES = 6
_LONG = BUSY_TIMEOUT_MS / 2000
"""How long a database may take to fail before it is left alone for a while, in seconds."""
_REST = 6.0
"""For how many times as long as it took, so that few turns pay for it."""
_ANSWER_TIMEOUT = 5.0
"""How long a server may take over a transaction, in seconds."""
_ANSWER_TIMEOUT_EACH = 0.02
"""How much longer for each of the rows or messages that it is about."""
_CLOSE_WAIT = 0.1
_SHORTLY = 0.02
_OVERTAKEN = {"40001", "40P01"}
"""What PostgreSQL calls a transaction that lost to another: serialization failure, deadlock."""
_BUSY = ("database is locked", "database table is locked", "database is busy")


class Database:
    """The database of one outbox, opened with its first transaction.

    Args:
        settings: Where it is.
        lock: Held by each transaction; by default one of its own.

    Raises:
        ConfigurationError: If the settings name no place that can work.
    """

    def __init__(self, settings: OutboxSettings, lock: threading.RLock | None = None) -> None:
        """Check where the database is; open nothing."""
        self._settings = settings
        self._url = outbox_url(settings)
        self._forget(lock)
        if is_file(self._url):
            hold_for_fork(self, "_put_away", "_take_up")

    def _forget(self, lock: threading.RLock | None = None) -> None:
        self._lock = lock or threading.RLock()
        self._rests = {True: _Rest(), False: _Rest()}
        self._engine: Engine | None = None
        self._file: tuple[int, int] | None = None
        self._reader: Connection | None = None
        self._writer: Connection | None = None

    def _put_away(self) -> None:
        """Close the file before a fork: SQLite's locks on it belong to one process.

        A child that inherits an open one believes that it holds locks which it does not, and what
        it commits is lost.
        """
        self._lock.acquire()
        try:
            self._find_again()
        except OSError as error:
            _logger.error(  # noqa: TRY400 - the message says it all
                "The outbox was deleted and cannot be written anew: %s. What waited in it is lost",
                error,
            )
        self._close()

    def _take_up(self) -> None:
        self._lock.release()

    def renew_after_fork(self) -> None:
        """Leave what was inherited alone; this process opens its own."""
        abandon(self._engine, self._reader, self._writer, self._lock)
        self._forget()

    @property
    def place(self) -> str:
        """Where it is, without a password."""
        return self._url.render_as_string(hide_password=True)

    @property
    def is_open(self) -> bool:
        """Whether its connections are open."""
        return self._engine is not None

    @property
    def is_missing(self) -> bool:
        """Whether it is a file that is not there, and so holds nothing."""
        return not self.is_open and is_file(self._url) and not is_there(self._url)

    def exists(self) -> bool:
        """Whether there is an outbox already; looking makes none.

        Raises:
            SQLAlchemyError: If a server cannot be reached.
            TimeoutError: If it is left alone for a while.
        """
        if self._engine is not None:
            return True
        with self._keeping_few_waiting(reads=True):
            return is_there(self._url)

    def close(self) -> None:
        """Close the connections; a use after this opens them again.

        Whoever is using them is not waited for long: they are closed when that has ended.
        """
        if not self._lock.acquire(timeout=_CLOSE_WAIT):
            with contextlib.suppress(RuntimeError):  # the interpreter is ending, and closes them
                threading.Thread(target=self._close, daemon=True).start()
            return
        try:
            self._close()
        finally:
            self._lock.release()

    def _close(self) -> None:
        with self._lock:
            open_ones = self._open_ones()
            opened = self._engine
            self._reader = self._writer = self._engine = None
            for connection in open_ones:
                connection.close()
            if opened is not None:
                opened.dispose()

    def run(self, work: Callable[[Connection], T], *, reads: bool = False, size: float = 0) -> T:
        """One transaction; run again where another process was in the way, or the file damaged.

        A database that is locked, or does not answer, is waited for once, and then left alone for a
        while: a turn does not pay for it again and again.

        Args:
            work: What is done.
            reads: Whether it changes nothing.
            size: How many rows or messages it is about, which a server has more time for; infinite
                for what no turn waits for.

        Raises:
            SQLAlchemyError: If the database fails.
            OSError: If the file cannot be made, the database did not answer, or is left alone.
        """
        with self._lock:
            if not reads:
                self._find_again()
            with self._keeping_few_waiting(reads=reads), self._watching(size):
                for attempt in range(_TRIES):
                    started = time.monotonic()
                    try:
                        connection = self._connection(reads=reads)
                        with connection.begin():
                            return work(connection)
                    except DatabaseError as error:
                        took_long = time.monotonic() - started > _LONG
                        if not self._recovers(error, attempt, took_long=took_long):
                            raise
            msg = "The outbox is changed by others faster than this process can."
            raise HindsightError(msg)

    @contextlib.contextmanager
    def _keeping_few_waiting(self, *, reads: bool) -> Iterator[None]:
        """Refuse at once while a database that failed slowly is left alone.

        Raises:
            TimeoutError: If it is.
        """
        started = time.monotonic()
        self._rests[reads].refuse(started)
        try:
            yield
        except (DatabaseError, OSError) as error:
            now = time.monotonic()
            if now - started > _LONG:
                rest = _Rest(now + _REST * (now - started), reason(error))
                # A file that nobody can write to can often be read; a server fails for all.
                self._rests[False] = rest
                if reads or not is_file(self._url):
                    self._rests[True] = rest
            raise

    def _watching(self, size: float) -> contextlib.AbstractContextManager[None]:
        # SQLite has a time-out of its own.
        if self._url.get_backend_name() == "sqlite" or size == math.inf:
            return contextlib.nullcontext()
        return Watchdog(self._open_ones).watching(_ANSWER_TIMEOUT + _ANSWER_TIMEOUT_EACH * size)

    def _open_ones(self) -> tuple[Connection, ...]:
        return tuple(one for one in (self._reader, self._writer) if one is not None)

    def _find_again(self) -> None:
        """See that the open file is the one in its place: what nobody finds again would be lost."""
        if self._engine is None or self._reader is None or self._file is None:
            return
        path = str(self._url.database)
        if _identity(path) == self._file:
            return
        opened: Any = self._reader.connection.driver_connection
        if write_anew(opened, Path(path)):
            _logger.warning("The outbox %s was deleted; it was written anew with all it held", path)
        else:
            _logger.error(
                "The outbox %s was deleted, and another is in its place: what waited in the one "
                "that is gone is lost, unless it was written anew there",
                path,
            )
        self._close()

    def _connection(self, *, reads: bool) -> Connection:
        """One of two connections that stay open: taking one anew costs as much as the work."""
        if self._engine is None or self._writer is None or self._reader is None:
            if is_file(self._url):
                refuse_foreign(Path(str(self._url.database)))
            engine = open_engine(self._url, self._settings)
            self._writer = engine.connect()
            self._reader = engine.connect().execution_options(**{READS: True})
            self._engine = engine
            if is_file(self._url):
                self._file = _identity(str(self._url.database))
        return self._reader if reads else self._writer

    def _recovers(self, error: DBAPIError, attempt: int, *, took_long: bool) -> bool:
        """Whether the same work may succeed when it is done once more."""
        if isinstance(error, IntegrityError):
            return attempt < _TRIES // 2  # another process made the same row first
        if is_file(self._url) and attempt == 0 and says_damaged(error):
            self._close()
            set_aside(self._url)
            return True
        if getattr(error.orig, "sqlstate", None) in _OVERTAKEN:
            return True
        if took_long or attempt == _TRIES - 1:
            return False
        if _is_busy(error):
            time.sleep(_SHORTLY)
            return True
        return error.connection_invalidated and attempt == 0


@dataclass(frozen=True, slots=True)
class _Rest:
    """Until when a database is left alone, and what it failed with."""

    until: float = 0.0
    why: str = ""

    def refuse(self, now: float) -> None:
        """Raise while it lasts.

        Raises:
            TimeoutError: If it does.
        """
        if now < self.until:
            raise TimeoutError(self.why)


def _identity(path: str) -> tuple[int, int] | None:
    """What tells a file from another of its name; None where there is none."""
    try:
        found = os.stat(path)  # noqa: PTH116 - each turn waits for it, and a Path is slower
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _is_busy(error: DBAPIError) -> bool:
    text = str(error.orig).lower()
    return any(sign in text for sign in _BUSY)
