"""The outbox's database: entries, leases and what became of them, each step one transaction.

Every method is synchronous and safe to call from any thread; what it does is on disk when it
returns, or not done at all. Several processes, on one machine or many, may share the database.
"""

from __future__ import annotations

import contextlib
import json
import logging
import threading
import time
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar
from uuid import NAMESPACE_URL, uuid4, uuid5

from sqlalchemy import (
    Connection,
    CursorResult,
    Engine,
    and_,
    bindparam,
    delete,
    exists,
    func,
    insert,
    not_,
    or_,
    select,
    update,
)
from sqlalchemy.exc import DatabaseError, DBAPIError, IntegrityError

from langchain_hindsight.errors import HindsightError
from langchain_hindsight.fork import abandon, hold_for_fork
from langchain_hindsight.outbox.batching import (
    NAMESPACE,
    Batch,
    Entry,
    Item,
    Unit,
    operation_id,
    plan,
)
from langchain_hindsight.outbox.ledger import Known, News, whats_new
from langchain_hindsight.outbox.schema import (
    ACCEPTED,
    BATCHED,
    BUSY_TIMEOUT_MS,
    DEAD,
    DELIVERED,
    DONE,
    FAILED,
    READS,
    RECORDED,
    WAITING,
    WITHHELD,
    batches,
    entries,
    is_file,
    lanes,
    open_engine,
    outbox_url,
    says_damaged,
    set_aside,
    threads,
    usage,
)
from langchain_hindsight.settings import OutboxSettings
from langchain_hindsight.transcript import Transcript, clean

T = TypeVar("T")

LEASE = 10.0
"""How long a process holds a bank without a sign of life, in seconds."""
_LOOK_AGAIN = 1.0
"""How long to leave a bank to the process that holds it, in seconds."""
_DOUBTS = 3
"""After how many failures of the server the request itself is suspected."""
_TRIES = 6
_NEARBY = 64
_BREATHER = 5.0
"""How long a database that others kept locked is not written to, in seconds."""
_CLOSE_WAIT = 0.1
_SHORTLY = 0.02
_BUSY = ("database is locked", "database table is locked", "database is busy")

_logger = logging.getLogger(__name__)


class OutboxFullError(HindsightError):
    """The outbox holds as much as its caps allow."""


@dataclass(frozen=True, slots=True)
class Scope:
    """A conversation, or a bank's notes: where entries belong."""

    server: str
    bank_id: str
    tag: str = ""
    thread: str = ""

    @property
    def key(self) -> str:
        """The scope as one short value; the thread's name itself is not written down."""
        return str(uuid5(NAMESPACE, json.dumps([self.server, self.bank_id, self.tag, self.thread])))

    def document(self, message: str) -> str:
        """The document of one message."""
        return str(uuid5(NAMESPACE, json.dumps([self.bank_id, self.tag, self.thread, message])))


@dataclass(frozen=True, slots=True)
class Draft:
    """A message as it is to be written down, already masked."""

    index: int
    message_id: str | None
    fingerprint: str
    speech: bool
    starts_turn: bool
    payload: str | None
    """None where the message is only to be known, so that nothing keeps it later."""


@dataclass(frozen=True, slots=True)
class Lane:
    """A bank that this process delivers to for now."""

    id: int
    bank_id: str
    due: float
    failures: int
    paused: bool


@dataclass(frozen=True, slots=True)
class Counts:
    """How many entries of one server stand where."""

    waiting: int = 0
    in_flight: int = 0
    dead: int = 0
    delivered: int = 0
    oldest: float | None = None
    last_error: str | None = None
    paused: tuple[str, ...] = ()
    other_servers: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NoteState:
    """How an explicit note stands."""

    state: str
    operation_id: str | None
    error: str | None
    lane_error: str | None
    lane_failed_at: float | None


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """An entry that cannot be delivered, without its content."""

    id: int
    server: str
    bank_id: str
    created: float
    size: int
    error: str


class Store:
    """The outbox of one place, opened with its first use.

    Args:
        settings: Where it is and how much it may hold.
        url: Another place than the settings name, such as memory.

    Raises:
        ConfigurationError: If the settings name no place that can work.
    """

    def __init__(self, settings: OutboxSettings, url: str | None = None) -> None:
        """Check where the outbox is; open nothing."""
        named = settings if url is None else settings.model_copy(update={"url": url})
        self._settings = settings
        self._url = outbox_url(named)
        self._forget()
        if is_file(self._url):
            hold_for_fork(self, "_put_away", "_take_up")

    def _put_away(self) -> None:
        """Close the file before a fork: SQLite's locks on it belong to one process.

        A child that inherits an open one believes that it holds locks which it does not, and what
        it commits is lost.
        """
        self._lock.acquire()
        self._close()

    def _take_up(self) -> None:
        self._lock.release()

    def renew_after_fork(self) -> None:
        """Leave what was inherited alone; this process opens its own."""
        abandon(self._engine, self._reader, self._writer, self._lock)
        self._forget()

    def _forget(self) -> None:
        self.owner = uuid4().hex
        self._lock = threading.RLock()
        self._locked_until = 0.0
        self._engine: Engine | None = None
        self._reader: Connection | None = None
        self._writer: Connection | None = None

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
            open_ones = (self._reader, self._writer)
            engine = self._engine
            self._reader = self._writer = self._engine = None
            for connection in open_ones:
                if connection is not None:
                    connection.close()
            if engine is not None:
                engine.dispose()

    def retain(
        self,
        scope: Scope,
        transcript: Transcript,
        draft: Callable[[Sequence[int], Container[int]], list[Draft]],
        *,
        keep: bool = True,
    ) -> int:
        """Write down what is new in a conversation, and remember that it was.

        Args:
            scope: Whose conversation it is.
            transcript: The conversation, or its new part.
            draft: Makes what is written down of the messages at some positions; told which others
                were withheld, and so are nobody's context.
            keep: Whether the messages are kept, or only known, so that nothing keeps them later.

        Returns:
            How many messages were new or edited.

        Raises:
            OutboxFullError: If the caps leave no room.
            SQLAlchemyError: If the database cannot be written.
            OSError: If the file cannot be made.
        """
        for _ in range(_TRIES):
            news, row, edits, hidden = self._run(
                lambda c: self._look(c, scope, transcript, keep=keep), reads=True
            )
            if not news.fresh and not edits:
                return 0
            fresh = draft(news.fresh, hidden)
            texts = {one.index: one for one in draft([index for _, index in edits], hidden)}
            work = _Writing(scope, row, news, fresh, [(e, texts[i]) for e, i in edits])
            with contextlib.suppress(_OvertakenError):
                self._run(partial(self._write, work=work))
                return len(fresh) + len(news.edited)
        msg = "The conversation is being retained by too many others at once."
        raise HindsightError(msg)

    def _look(
        self, connection: Connection, scope: Scope, transcript: Transcript, *, keep: bool
    ) -> tuple[News, _ThreadRow | None, list[tuple[_Edit, int]], frozenset[int]]:
        row = _ThreadRow.find(connection, scope)
        news = whats_new(transcript, row, keep=keep)
        if row is None:
            return news, row, [], frozenset()
        if news.edited:
            withheld = row.withheld([known.seq for _, known in news.edited])
            kept = tuple(one for one in news.edited if one[1].seq not in withheld)
            news = replace(news, edited=kept)
        edits = _edits(connection, row, transcript, news.edited) if news.edited else []
        changed = [*news.fresh, *(index for _, index in edits)] if keep else []
        return news, row, edits, row.hidden(transcript, changed, set(news.fresh))

    def _write(self, connection: Connection, work: _Writing) -> None:
        """Write it all, or nothing where another was faster."""
        thread = work.claim(connection)
        if thread is None:
            raise _OvertakenError
        lane, thread_id, last_seq = thread
        rows = self._rows(connection, work, lane, thread_id, last_seq)
        waiting = [row["size"] for row in rows if row["state"] == WAITING]
        room = _Room(len(waiting), sum(waiting))
        for edit, text in work.edits:
            if not edit.apply(connection, text, room):
                raise _OvertakenError
        self._take_room(connection, room)
        if rows:
            connection.execute(insert(entries), rows)

    def _rows(
        self, connection: Connection, work: _Writing, lane: int, thread: int, last_seq: int
    ) -> list[dict[str, Any]]:
        now, parent, seq = time.time(), work.news.parent, last_seq
        seen: dict[str, int] = {}
        ids: set[str] = set()
        rows = []
        for one in work.fresh:
            seq += 1
            name = one.message_id if one.message_id not in ids else None
            if name is None:
                if one.fingerprint not in seen and not last_seq:
                    seen[one.fingerprint] = 0
                elif one.fingerprint not in seen:
                    seen[one.fingerprint] = _occurrences(connection, thread, one.fingerprint)
                key = f"{one.fingerprint}#{seen[one.fingerprint]}"
                seen[one.fingerprint] += 1
            else:
                ids.add(name)
                key = name
            rows.append(
                {
                    "lane": lane,
                    "thread": thread,
                    "seq": seq,
                    "parent": parent,
                    "message_id": name,
                    "fingerprint": one.fingerprint,
                    "speech": one.speech,
                    "starts_turn": one.starts_turn,
                    "document": work.scope.document(key),
                    "state": WITHHELD if one.payload is None else WAITING,
                    "payload": one.payload,
                    "size": len(one.payload or ""),
                    "created": now,
                }
            )
            parent = seq
        return rows

    def add_note(self, scope: Scope, payload: str) -> str:
        """Write down one explicit note.

        Returns:
            Its document, by which `note_state` finds it.
        """
        document = str(uuid4())

        def write(connection: Connection) -> None:
            self._take_room(connection, _Room(1, len(payload)))
            connection.execute(
                insert(entries).values(
                    lane=_lane(connection, scope),
                    seq=0,
                    fingerprint=uuid5(NAMESPACE_URL, payload).hex,
                    speech=False,
                    starts_turn=True,
                    document=document,
                    state=WAITING,
                    payload=payload,
                    size=len(payload),
                    created=time.time(),
                )
            )

        self._run(write)
        return document

    def note_state(self, document: str) -> NoteState | None:
        """How a note stands; None if there is none."""
        query = (
            select(
                entries.c.state,
                entries.c.batch,
                entries.c.error,
                lanes.c.error.label("lane_error"),
                lanes.c.failed_at,
            )
            .join_from(entries, lanes)
            .where(entries.c.document == document)
        )
        row = self._run(lambda c: c.execute(query).first(), reads=True)
        return None if row is None else NoteState(*row)

    def claim(self, server: str) -> list[Lane]:
        """Take the banks of a server that have work, are due and are nobody's."""
        now = time.time()
        horizon = now + self._longest_wait
        free = or_(
            lanes.c.owner.is_(None),
            lanes.c.owner == self.owner,
            lanes.c.lease_until < now,
            lanes.c.lease_until > now + 2 * LEASE,  # the clock went back
        )
        due = or_(lanes.c.due <= now, lanes.c.due > horizon)
        query = (
            select(lanes.c.id, lanes.c.bank, lanes.c.due, lanes.c.failures, lanes.c.paused)
            .where(lanes.c.server == server, free, due, _has_work(_due(now, self._longest_wait)))
            .with_for_update(skip_locked=True)
        )

        def take(connection: Connection) -> list[Lane]:
            found = [Lane(*row) for row in connection.execute(query)]
            self._lease(connection, [lane.id for lane in found], now + LEASE)
            return found

        return self._run(take)

    def keep(self, lane_ids: Sequence[int]) -> None:
        """Give a sign of life for banks that this process delivers to."""
        until = time.time() + LEASE
        self._run(lambda c: self._lease(c, lane_ids, until))

    def release(self, lane_ids: Sequence[int]) -> None:
        """Leave banks to whoever wants them."""

        def give(connection: Connection) -> None:
            mine = and_(lanes.c.id.in_(lane_ids), lanes.c.owner == self.owner)
            connection.execute(update(lanes).where(mine).values(owner=None, lease_until=0.0))

        self._run(give)

    def _lease(self, connection: Connection, lane_ids: Sequence[int], until: float) -> None:
        if lane_ids:
            connection.execute(
                update(lanes)
                .where(lanes.c.id.in_(lane_ids))
                .values(owner=self.owner, lease_until=until)
            )

    def next_due(self, server: str, but: Collection[int] = ()) -> float | None:
        """Seconds until a bank with work is worth a look; None without one.

        Args:
            server: Whose banks.
            but: Banks that are being delivered to.
        """
        now = time.time()
        mine = and_(lanes.c.server == server, lanes.c.id.not_in(list(but)))
        ready = select(lanes.c.due, lanes.c.owner).where(
            mine, _has_work(_due(now, self._longest_wait))
        )
        held = (
            select(batches.c.due, lanes.c.owner)
            .join_from(batches, lanes)
            .where(mine, batches.c.state == RECORDED)
        )
        found = self._run(lambda c: [*c.execute(ready), *c.execute(held)], reads=True)
        waits = [
            max(
                min(due - now, self._longest_wait),
                0.0 if owner in {None, self.owner} else _LOOK_AGAIN,
            )
            for due, owner in found
        ]
        return max(0.0, min(waits)) if waits else None

    def hurry(self, server: str, bank_id: str | None = None) -> None:
        """Make banks due now, whatever they were waiting for."""
        which = and_(lanes.c.server == server, lanes.c.due > 0)
        if bank_id is not None:
            which = and_(which, lanes.c.bank == bank_id)

        def write(connection: Connection) -> None:
            connection.execute(update(lanes).where(which).values(due=0.0))
            if bank_id is None:
                mine = select(lanes.c.id).where(lanes.c.server == server)
                connection.execute(
                    update(batches)
                    .where(batches.c.lane.in_(mine), batches.c.state == RECORDED, batches.c.due > 0)
                    .values(due=0.0)
                )

        self._run(write)

    def next_batch(self, lane: Lane, *, unit: Unit, limit: int) -> Batch | None:
        """The next request to a bank: one recorded before, else one formed and recorded.

        One that failed waits for its own time, and keeps only its own documents waiting.
        """

        def form(connection: Connection) -> Batch | None:
            recorded = connection.execute(
                select(batches.c.operation_id)
                .where(
                    batches.c.lane == lane.id,
                    batches.c.state == RECORDED,
                    _due(time.time(), self._longest_wait),
                )
                .order_by(batches.c.failures, batches.c.created, batches.c.operation_id)
                .limit(1)
            ).scalar()
            if recorded is not None:
                return _load(connection, lane.bank_id, recorded)
            waiting = _readable(connection, _next_rows(connection, lane.id, limit + 1))
            busy = connection.execute(
                select(entries.c.document)
                .where(entries.c.lane == lane.id, entries.c.state == BATCHED)
                .distinct()
            ).scalars()
            items = plan(waiting, unit=unit, limit=limit, busy=set(busy))
            return _record(connection, lane.id, lane.bank_id, items) if items else None

        return self._run(form)

    def role(self, lane: Lane) -> str | None:
        """The role in which a bank is written to; None where nothing waits for it."""
        query = (
            select(entries.c.payload)
            .where(
                entries.c.lane == lane.id,
                entries.c.state.in_([WAITING, BATCHED]),
                entries.c.payload.is_not(None),
            )
            .order_by(entries.c.id)
            .limit(1)
        )
        payload = self._run(lambda c: c.execute(query).scalar(), reads=True)
        if payload is None:
            return None
        try:
            return str(json.loads(payload)["role"])
        except (ValueError, TypeError, KeyError):  # damaged, and soon laid by
            return None

    def accepted(self, lane: Lane) -> list[str]:
        """Operations of a bank that were accepted and have not ended, oldest first."""
        query = (
            select(batches.c.operation_id)
            .where(batches.c.lane == lane.id, batches.c.state == ACCEPTED)
            .order_by(batches.c.created, batches.c.operation_id)
        )
        return list(self._run(lambda c: c.execute(query).scalars().all(), reads=True))

    def mark_accepted(self, lane: Lane, operation: str) -> None:
        """Hindsight has taken a request; its bank is well again."""

        def write(connection: Connection) -> None:
            _batch_state(connection, operation, ACCEPTED)
            connection.execute(
                update(lanes)
                .where(lanes.c.id == lane.id)
                .values(due=0.0, failures=0, paused=False, error=None, failed_at=None)
            )

        self._run(write)

    def mark_lost(self, operation: str) -> None:
        """Hindsight does not know a request: it is sent again as it was."""
        self._run(lambda c: _batch_state(c, operation, RECORDED))

    def mark_done(self, lane: Lane, operation: str) -> int:
        """Hindsight has stored a request: its content leaves the outbox."""

        def write(connection: Connection) -> int:
            again = _take_back_edited(connection, operation)
            left = and_(entries.c.batch == operation, entries.c.state == BATCHED)
            count, size = _measure(connection, left)
            connection.execute(
                update(entries).where(left).values(state=DELIVERED, payload=None, error=None)
            )
            connection.execute(
                update(lanes)
                .where(lanes.c.id == lane.id)
                .values(delivered=lanes.c.delivered + count)
            )
            _give_room(connection, count, size)
            _batch_state(connection, operation, DONE)
            return count + again

        return self._run(write)

    def mark_failed(
        self, lane: Lane, operation: str, *, delay: Callable[[int], float], error: str
    ) -> bool:
        """The server failed over a request: it waits, and is cut in two once it is suspected.

        Args:
            lane: The bank.
            operation: The request.
            delay: The seconds to wait, from how often it failed before.
            error: What the server said.

        Returns:
            Whether the request is suspected, rather than the server.
        """

        def write(connection: Connection) -> bool:
            mine = batches.c.operation_id == operation
            failures = connection.execute(select(batches.c.failures).where(mine)).scalar_one()
            suspected = failures + 1 >= _DOUBTS
            batch = _load(connection, lane.bank_id, operation)
            if suspected and len(batch.items) > 1:
                _halve(connection, lane, batch, failures=_DOUBTS - 1)
                return True
            wait = min(delay(failures), self._longest_wait)
            connection.execute(
                update(batches)
                .where(mine)
                .values(failures=failures + 1, due=time.time() + wait, error=clean(error))
            )
            return bool(suspected)

        return self._run(write)

    def mark_refused(self, lane: Lane, operation: str, reason: str) -> int:
        """Hindsight will not take a request: cut it in two to find why, or lay it by.

        Returns:
            How many entries became dead letters.
        """

        def write(connection: Connection) -> int:
            batch = _load(connection, lane.bank_id, operation)
            if len(batch.items) > 1:
                _halve(connection, lane, batch)
                return 0
            return _lay_by(connection, operation, reason)

        return self._run(write)

    def mark_expired(self, operation: str, reason: str) -> int:
        """A request was tried for as long as it may be: lay it by as a whole."""
        return self._run(lambda c: _lay_by(c, operation, reason))

    def postpone(
        self,
        lane: Lane,
        *,
        delay: Callable[[int], float],
        error: str,
        paused: bool,
        counts: bool = True,
    ) -> bool:
        """A bank cannot be delivered to for now.

        Args:
            lane: The bank.
            delay: The seconds to wait, from how often it failed before.
            error: Why.
            paused: Whether only a person can help.
            counts: Whether the next pause is to be longer.

        Returns:
            Whether it was paused before.
        """
        mine = lanes.c.id == lane.id

        def write(connection: Connection) -> bool:
            failures, was_paused = connection.execute(
                select(lanes.c.failures, lanes.c.paused).where(mine)
            ).one()
            now = time.time()
            values = {
                "due": now + min(delay(failures), self._longest_wait),
                "failures": failures + int(counts),
                "paused": paused,
                "error": clean(error),
                "failed_at": now,
            }
            connection.execute(update(lanes).where(mine).values(**values))
            return bool(was_paused)

        return self._run(write)

    def left(self, server: str, since: float) -> int:
        """How many entries a flush waits for: not those of banks that are paused since it began."""
        held = and_(lanes.c.paused, lanes.c.failed_at >= since)
        query = (
            select(func.count())
            .select_from(entries.join(lanes))
            .where(
                lanes.c.server == server,
                entries.c.state.in_((WAITING, BATCHED)),
                func.coalesce(held, False).is_(False),
            )
        )
        return int(self._run(lambda c: c.execute(query).scalar_one(), reads=True))

    def counts(self, server: str) -> Counts:
        """How the outbox stands, for one server."""

        def read(connection: Connection) -> Counts:
            mine: dict[str, int] = {}
            others: dict[str, int] = {}
            for url, state, number in connection.execute(_BY_STATE):
                if url == server:
                    mine[state] = number
                elif state != DEAD:
                    others[url] = others.get(url, 0) + number
            banks = connection.execute(
                select(lanes.c.bank, lanes.c.paused, lanes.c.error, lanes.c.delivered)
                .where(lanes.c.server == server)
                .order_by(lanes.c.failed_at.desc())
            ).all()
            held = connection.execute(
                select(batches.c.error)
                .join_from(batches, lanes)
                .where(
                    lanes.c.server == server,
                    batches.c.state == RECORDED,
                    batches.c.error.is_not(None),
                )
                .limit(1)
            ).scalar()
            oldest = connection.execute(
                select(func.min(entries.c.created))
                .join_from(entries, lanes)
                .where(lanes.c.server == server, entries.c.state.in_((WAITING, BATCHED)))
            ).scalar()
            return Counts(
                waiting=mine.get(WAITING, 0),
                in_flight=mine.get(BATCHED, 0),
                dead=mine.get(DEAD, 0),
                delivered=sum(bank.delivered for bank in banks),
                oldest=oldest,
                last_error=next((bank.error for bank in banks if bank.error), held),
                paused=tuple(bank.bank for bank in banks if bank.paused),
                other_servers=others,
            )

        return self._run(read, reads=True)

    def prune(self) -> None:
        """Forget records of requests that are older than is asked for."""
        before = time.time() - self._settings.keep_receipts
        old = and_(batches.c.state.in_((DONE, FAILED)), batches.c.finished < before)

        def write(connection: Connection) -> None:
            connection.execute(
                delete(entries).where(
                    entries.c.thread.is_(None),
                    entries.c.state == DELIVERED,
                    entries.c.created < before,
                )
            )
            connection.execute(delete(batches).where(old))

        self._run(write)

    def dead_letters(self, limit: int = 1000) -> list[DeadLetter]:
        """What cannot be delivered, oldest first, for every server."""
        query = (
            select(
                entries.c.id,
                lanes.c.server,
                lanes.c.bank,
                entries.c.created,
                entries.c.size,
                func.coalesce(entries.c.error, ""),
            )
            .join_from(entries, lanes)
            .where(entries.c.state == DEAD)
            .order_by(entries.c.id)
            .limit(limit)
        )
        return self._run(lambda c: [DeadLetter(*row) for row in c.execute(query)], reads=True)

    def content(self, entry_id: int) -> str | None:
        """What an entry holds, for a person who asks to see it; None once it is delivered."""
        query = select(entries.c.payload).where(entries.c.id == entry_id)
        payload = self._run(lambda c: c.execute(query).scalar(), reads=True)
        return None if payload is None else str(json.loads(payload)["content"])

    def retry(self, ids: Sequence[int] | None = None) -> int:
        """Let dead letters wait for delivery again; all of them, or some and their documents."""

        def write(connection: Connection) -> int:
            chosen = _dead(connection, ids)
            _wait_again(connection, entries.c.id.in_(chosen))
            return len(chosen)

        return self._run(write)

    def drop(self, ids: Sequence[int] | None = None) -> int:
        """Give up dead letters; that they were seen is remembered."""

        def write(connection: Connection) -> int:
            chosen = _dead(connection, ids)
            count, size = _measure(connection, entries.c.id.in_(chosen))
            connection.execute(
                update(entries)
                .where(entries.c.id.in_(chosen))
                .values(state=DELIVERED, payload=None, batch=None)
            )
            _give_room(connection, count, size)
            return len(chosen)

        return self._run(write)

    @property
    def _longest_wait(self) -> float:
        return max(3600.0, 2 * self._settings.retry_max_delay)

    def _take_room(self, connection: Connection, room: _Room) -> None:
        if room.entries <= 0 and room.bytes <= 0:
            _give_room(connection, -room.entries, -room.bytes)
            return
        caps = self._settings
        taken: CursorResult[Any] = connection.execute(
            _TAKE_ROOM,
            {
                "more": room.entries,
                "more_bytes": room.bytes,
                "cap": caps.max_entries,
                "cap_bytes": caps.max_bytes,
            },
        )
        if taken.rowcount != 1:
            msg = (
                f"The outbox is full (outbox.max_entries = {caps.max_entries}, outbox.max_bytes = "
                f"{caps.max_bytes}), so nothing more is retained until Hindsight takes some. "
                "Is the server running?"
            )
            raise OutboxFullError(msg)

    def _run(self, work: Callable[[Connection], T], *, reads: bool = False) -> T:
        """One transaction; run again where another process was in the way, or the file damaged.

        A database that stays locked is waited for once, and then left alone for a while: a turn
        does not pay for it again and again.
        """
        with self._lock:
            started = time.monotonic()
            if not reads and started < self._locked_until:
                msg = "database is locked by another process"
                raise TimeoutError(msg)
            for attempt in range(_TRIES):
                try:
                    connection = self._connection(reads=reads)
                    with connection.begin():
                        return work(connection)
                except DatabaseError as error:
                    if _is_busy(error):
                        waited = time.monotonic() - started
                        if waited > BUSY_TIMEOUT_MS / 2000 or attempt == _TRIES - 1:
                            self._locked_until = time.monotonic() + _BREATHER
                            raise
                        time.sleep(_SHORTLY)
                    elif not self._recovers(error, attempt):
                        raise
            msg = "The outbox is changed by others faster than this process can."
            raise HindsightError(msg)

    def _connection(self, *, reads: bool) -> Connection:
        """One of two connections that stay open: taking one anew costs as much as the work."""
        if self._engine is None or self._writer is None or self._reader is None:
            engine = open_engine(self._url, self._settings)
            self._writer = engine.connect()
            self._reader = engine.connect().execution_options(**{READS: True})
            self._engine = engine
        return self._reader if reads else self._writer

    def _recovers(self, error: DBAPIError, attempt: int) -> bool:
        """Whether the same work may succeed when it is done once more."""
        if isinstance(error, IntegrityError):
            return attempt == 0  # another process made the same row first
        if is_file(self._url) and attempt == 0 and says_damaged(error):
            self._close()
            set_aside(self._url)
            return True
        return error.connection_invalidated and attempt == 0


def _is_busy(error: DBAPIError) -> bool:
    text = str(error.orig).lower()
    return any(sign in text for sign in _BUSY)


class _OvertakenError(Exception):
    """Another process changed a row between reading and writing it."""


@dataclass(slots=True)
class _Room:
    """What a transaction adds to the outbox."""

    entries: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class _ThreadRow:
    """What is known of one conversation, read within a transaction."""

    connection: Connection
    id: int
    lane: int
    version: int
    last_seq: int
    length: int

    @classmethod
    def find(cls, connection: Connection, scope: Scope) -> _ThreadRow | None:
        row = connection.execute(_FIND_THREAD, {"scope": scope.key}).first()
        return None if row is None else cls(connection, *row)

    def by_id(self, ids: Sequence[str]) -> dict[str, Known]:
        found = self.connection.execute(_BY_ID, {"thread": self.id, "ids": list(ids)})
        return {row.message_id: Known(row.seq, row.fingerprint) for row in found}

    def head(self, limit: int) -> list[Known]:
        found = self.connection.execute(_HEAD, {"thread": self.id, "most": limit})
        return [Known(*row) for row in found]

    def tail(self, limit: int) -> list[Known]:
        found = self.connection.execute(_TAIL, {"thread": self.id, "most": limit}).all()
        return [Known(*row) for row in reversed(found)]

    def after(self, seq: int, fingerprint: str) -> Known | None:
        values = {"thread": self.id, "after": seq, "print": fingerprint}
        row = self.connection.execute(_AFTER, values).first()
        return None if row is None else Known(*row)

    def has(self, fingerprints: Sequence[str]) -> set[str]:
        known: set[str] = set()
        for start in range(0, len(fingerprints), 500):
            chunk = fingerprints[start : start + 500]
            found = self.connection.execute(_HAS, {"thread": self.id, "prints": chunk})
            known.update(found.scalars())
        return known

    def withheld(self, seqs: Sequence[int]) -> set[int]:
        """Those of the messages that nothing may keep."""
        values = {"thread": self.id, "seqs": list(seqs)}
        return set(self.connection.execute(_WITHHELD_SEQS, values).scalars())

    def hidden(
        self, transcript: Transcript, changed: Sequence[int], fresh: Container[int]
    ) -> frozenset[int]:
        """The positions of withheld messages that stand right before changed ones."""
        before: dict[int, tuple[str | None, str]] = {}
        for index in changed:
            said = next(transcript.speech(index), None)
            if said is not None and said[0] not in fresh:
                before[said[0]] = (said[1].message_id, said[1].fingerprint)
        if not before:
            return frozenset()
        values = {
            "thread": self.id,
            "ids": [name for name, _ in before.values() if name],
            "prints": [fingerprint for _, fingerprint in before.values()],
        }
        rows = self.connection.execute(_WITHHELD, values).all()
        names = {row.message_id for row in rows if row.message_id}
        prints = {row.fingerprint for row in rows}
        return frozenset(
            index
            for index, (name, fingerprint) in before.items()
            if name in names or fingerprint in prints
        )


@dataclass(frozen=True, slots=True)
class _Writing:
    """What one retain writes."""

    scope: Scope
    row: _ThreadRow | None
    news: News
    fresh: list[Draft]
    edits: list[tuple[_Edit, Draft]]

    def claim(self, connection: Connection) -> tuple[int, int, int] | None:
        """Lane, thread and last number, once the thread is this transaction's; else None."""
        count = len(self.fresh)
        if self.row is None:
            lane = _lane(connection, self.scope)
            known = connection.execute(_FIND_THREAD, {"scope": self.scope.key}).first()
            if known is not None:
                return None
            made = connection.execute(
                insert(threads).values(
                    scope=self.scope.key,
                    lane=lane,
                    version=1,
                    last_seq=count,
                    length=self.news.length,
                )
            )
            return lane, _key(made), 0
        taken: CursorResult[Any] = connection.execute(
            _CLAIM_THREAD,
            {
                "row": self.row.id,
                "seen": self.row.version,
                "more": count,
                "now_length": self.news.length,
            },
        )
        return (self.row.lane, self.row.id, self.row.last_seq) if taken.rowcount == 1 else None


@dataclass(frozen=True, slots=True)
class _Edit:
    """A known message whose content goes out again."""

    id: int
    state: str
    size: int
    document: str
    has_payload: bool

    def apply(self, connection: Connection, text: Draft, room: _Room) -> bool:
        """Write it down; False where another process changed the row meanwhile."""
        values: dict[str, Any] = {"fingerprint": text.fingerprint}
        if text.payload is None:
            pass  # the new words are known, and go nowhere
        elif self.state == BATCHED:
            values["next_payload"] = text.payload
        else:
            values |= {
                "payload": text.payload,
                "size": len(text.payload),
                "document": self.document,
                "revision": entries.c.revision + 1,
                "state": WAITING,
                "error": None,
            }
            if self.state != WAITING:
                values |= {"regrouped": True, "batch": None}
            room.entries += 0 if self.has_payload else 1
            room.bytes += len(text.payload) - (self.size if self.has_payload else 0)
        changed: CursorResult[Any] = connection.execute(
            update(entries)
            .where(entries.c.id == self.id, entries.c.state == self.state)
            .values(**values)
        )
        return bool(changed.rowcount == 1)


_FIND_THREAD = select(
    threads.c.id, threads.c.lane, threads.c.version, threads.c.last_seq, threads.c.length
).where(threads.c.scope == bindparam("scope"))

_CLAIM_THREAD = (
    update(threads)
    .where(threads.c.id == bindparam("row"), threads.c.version == bindparam("seen"))
    .values(
        version=threads.c.version + 1,
        last_seq=threads.c.last_seq + bindparam("more"),
        length=bindparam("now_length"),
    )
)

_BY_ID = select(entries.c.message_id, entries.c.seq, entries.c.fingerprint).where(
    entries.c.thread == bindparam("thread"),
    entries.c.message_id.in_(bindparam("ids", expanding=True)),
)

_TAIL = (
    select(entries.c.seq, entries.c.fingerprint)
    .where(entries.c.thread == bindparam("thread"), entries.c.speech)
    .order_by(entries.c.seq.desc())
    .limit(bindparam("most"))
)

_HEAD = (
    select(entries.c.seq, entries.c.fingerprint)
    .where(entries.c.thread == bindparam("thread"), entries.c.speech)
    .order_by(entries.c.seq)
    .limit(bindparam("most"))
)

_AFTER = (
    select(entries.c.seq, entries.c.fingerprint)
    .where(
        entries.c.thread == bindparam("thread"),
        entries.c.fingerprint == bindparam("print"),
        entries.c.parent == bindparam("after"),
    )
    .order_by(entries.c.seq.desc())
    .limit(1)
)

_HAS = select(entries.c.fingerprint).where(
    entries.c.thread == bindparam("thread"),
    entries.c.fingerprint.in_(bindparam("prints", expanding=True)),
)

_WITHHELD_SEQS = select(entries.c.seq).where(
    entries.c.thread == bindparam("thread"),
    entries.c.state == WITHHELD,
    entries.c.seq.in_(bindparam("seqs", expanding=True)),
)

_WITHHELD = select(entries.c.message_id, entries.c.fingerprint).where(
    entries.c.thread == bindparam("thread"),
    entries.c.state == WITHHELD,
    or_(
        entries.c.message_id.in_(bindparam("ids", expanding=True)),
        entries.c.fingerprint.in_(bindparam("prints", expanding=True)),
    ),
)

_TAKE_ROOM = (
    update(usage)
    .where(
        usage.c.entries + bindparam("more") <= bindparam("cap"),
        usage.c.bytes + bindparam("more_bytes") <= bindparam("cap_bytes"),
    )
    .values(
        entries=usage.c.entries + bindparam("more"), bytes=usage.c.bytes + bindparam("more_bytes")
    )
)

_BY_STATE = (
    select(lanes.c.server, entries.c.state, func.count())
    .join_from(entries, lanes)
    .where(entries.c.state.in_((WAITING, BATCHED, DEAD)))
    .group_by(lanes.c.server, entries.c.state)
)


def _due(now: float, longest: float) -> Any:  # noqa: ANN401 - SQLAlchemy's own expression
    """Whether a request may be sent; one that waits longer than anything may was misdated."""
    return or_(batches.c.due <= now, batches.c.due > now + longest)


def _has_work(due: Any) -> Any:  # noqa: ANN401 - SQLAlchemy's own expressions
    """Whether there is something to send or to ask after, but for requests that wait."""
    under_way = exists().where(
        batches.c.lane == lanes.c.id,
        or_(batches.c.state == ACCEPTED, and_(batches.c.state == RECORDED, due)),
    )
    kept_back = entries.alias()
    behind = exists().where(
        kept_back.c.document == entries.c.document,
        kept_back.c.lane == entries.c.lane,
        kept_back.c.state == BATCHED,
    )
    waiting = exists().where(entries.c.lane == lanes.c.id, entries.c.state == WAITING, not_(behind))
    return or_(waiting, under_way)


def _lane(connection: Connection, scope: Scope) -> int:
    """The bank's lane, made if need be; one that another makes at once is an IntegrityError."""
    query = select(lanes.c.id).where(lanes.c.server == scope.server, lanes.c.bank == scope.bank_id)
    found = connection.execute(query).scalar()
    if found is not None:
        return int(found)
    made = connection.execute(insert(lanes).values(server=scope.server, bank=scope.bank_id))
    return _key(made)


def _key(made: CursorResult[Any]) -> int:
    """The number that the database gave to a new row."""
    if made.inserted_primary_key is None:
        msg = "The database gave a new row no number."
        raise HindsightError(msg)
    return int(made.inserted_primary_key[0])


def _occurrences(connection: Connection, thread: int, fingerprint: str) -> int:
    query = select(func.count()).where(
        entries.c.thread == thread, entries.c.fingerprint == fingerprint
    )
    return int(connection.execute(query).scalar_one())


def _edits(
    connection: Connection,
    thread: _ThreadRow,
    transcript: Transcript,
    edited: Sequence[tuple[int, Known]],
) -> list[tuple[_Edit, int]]:
    """The rows to write for edited messages; a turn that went out as one goes out again whole."""
    at = {known.seq: index for index, known in edited}
    done: dict[int, tuple[_Edit, int]] = {}
    for index, known in edited:
        row = connection.execute(_rows_of(thread.id, entries.c.seq == known.seq)).one()
        edit = _Edit(row.id, row.state, row.size, row.document, row.payload is not None)
        if row.state in {WAITING, BATCHED}:
            done[row.id] = (edit, index)
            continue
        others = connection.execute(
            _rows_of(
                thread.id, and_(entries.c.document == row.document, entries.c.seq != known.seq)
            )
        ).all()
        found = {other.id: at.get(other.seq, _near(transcript, index, other)) for other in others}
        if all(place is not None for place in found.values()):
            done[row.id] = (edit, index)
            for other in others:
                place = found[other.id]
                if place is not None:
                    whole = _Edit(
                        other.id, other.state, other.size, other.document, other.payload is not None
                    )
                    done.setdefault(other.id, (whole, place))
        else:
            own = str(uuid5(NAMESPACE, f"{row.document}/{row.seq}"))
            done[row.id] = (_Edit(row.id, row.state, row.size, own, edit.has_payload), index)
    return list(done.values())


def _rows_of(thread: int, which: Any) -> Any:  # noqa: ANN401 - SQLAlchemy's own expressions
    return select(entries).where(entries.c.thread == thread, which).order_by(entries.c.seq)


def _near(transcript: Transcript, index: int, row: Any) -> int | None:  # noqa: ANN401 - a row
    """Where another message of the same turn stands."""
    for distance in range(1, _NEARBY):
        for place in (index - distance, index + distance):
            if not 0 <= place < len(transcript):
                continue
            if row.message_id is not None and transcript.message_id(place) == row.message_id:
                return place
            line = transcript.line(place)
            if row.message_id is None and line and line.fingerprint == row.fingerprint:
                return place
    return None


def _entry_rows(connection: Connection, which: Any, limit: int | None = None) -> list[Any]:  # noqa: ANN401
    query = select(entries).where(which).order_by(entries.c.id).limit(limit).with_for_update()
    return list(connection.execute(query))


def _next_rows(connection: Connection, lane: int, limit: int) -> list[Any]:
    """The oldest waiting rows; of a document that goes out again, all of it."""
    waiting = and_(entries.c.lane == lane, entries.c.state == WAITING)
    rows = _entry_rows(connection, waiting, limit)
    documents = {row.document for row in rows if row.regrouped}
    if documents:
        whole = _entry_rows(connection, and_(waiting, entries.c.document.in_(documents)))
        rows = sorted({row.id: row for row in (*rows, *whole)}.values(), key=_id)
    return rows


def _id(row: Any) -> int:  # noqa: ANN401 - a row
    return int(row.id)


def _readable(connection: Connection, rows: Sequence[Any]) -> list[Entry]:
    """The entries of rows; one whose payload is damaged becomes a dead letter."""
    found = []
    for row in rows:
        try:
            payload = json.loads(row.payload)
            _ = payload["content"], payload["said_at"], payload["metadata"], payload["tags"]
        except (ValueError, TypeError, KeyError):
            _logger.error("Entry %d of the outbox is unreadable; laid by", row.id)  # noqa: TRY400
            connection.execute(
                update(entries)
                .where(entries.c.id == row.id)
                .values(state=DEAD, error="its content is damaged")
            )
            continue
        found.append(
            Entry(
                id=row.id,
                thread=row.thread,
                seq=row.seq,
                parent=row.parent,
                starts_turn=row.starts_turn,
                document=row.document,
                regrouped=row.regrouped,
                revision=row.revision,
                fingerprint=row.fingerprint,
                payload=payload,
                created=row.created,
            )
        )
    return found


def _load(connection: Connection, bank_id: str, operation: str) -> Batch:
    """A request as it was recorded."""
    rows = _entry_rows(connection, and_(entries.c.batch == operation, entries.c.state == BATCHED))
    groups: dict[str, list[Entry]] = {}
    for entry in _readable(connection, rows):
        groups.setdefault(entry.document, []).append(entry)
    return Batch(operation, bank_id, tuple(Item(doc, tuple(g)) for doc, g in groups.items()))


def _record(
    connection: Connection, lane: int, bank_id: str, items: Sequence[Item], failures: int = 0
) -> Batch:
    """Record a request and its members, before it is sent."""
    operation = operation_id(bank_id, items)
    count = sum(len(item.entries) for item in items)
    connection.execute(
        insert(batches).values(
            operation_id=operation,
            lane=lane,
            state=RECORDED,
            entries=count,
            created=time.time(),
            failures=failures,
        )
    )
    connection.execute(
        update(entries)
        .where(entries.c.id == bindparam("entry"))
        .values(state=BATCHED, batch=operation, document=bindparam("into")),
        [{"entry": entry.id, "into": item.document} for item in items for entry in item.entries],
    )
    return Batch(operation, bank_id, tuple(items))


def _halve(connection: Connection, lane: Lane, batch: Batch, failures: int = 0) -> None:
    """Record a request anew as two."""
    connection.execute(delete(batches).where(batches.c.operation_id == batch.operation_id))
    half = len(batch.items) // 2
    for items in (batch.items[:half], batch.items[half:]):
        _record(connection, lane.id, lane.bank_id, items, failures)


def _batch_state(connection: Connection, operation: str, state: str) -> None:
    finished = time.time() if state in {DONE, FAILED} else None
    connection.execute(
        update(batches)
        .where(batches.c.operation_id == operation)
        .values(state=state, finished=finished)
    )


def _take_back_edited(connection: Connection, operation: str) -> int:
    """Documents of a request that were edited since it was recorded wait to go out again."""
    edited = (
        select(entries.c.document)
        .where(entries.c.batch == operation, entries.c.next_payload.is_not(None))
        .distinct()
    )
    documents = list(connection.execute(edited).scalars())
    if not documents:
        return 0
    members = and_(entries.c.batch == operation, entries.c.document.in_(documents))
    changed = and_(members, entries.c.next_payload.is_not(None))
    length = func.length(entries.c.next_payload)
    grown = connection.execute(select(func.sum(length - entries.c.size)).where(changed)).scalar()
    connection.execute(
        update(entries)
        .where(changed)
        .values(payload=entries.c.next_payload, size=length, next_payload=None)
    )
    _give_room(connection, 0, -int(grown or 0))
    return _wait_again(connection, members)


def _wait_again(connection: Connection, which: Any) -> int:  # noqa: ANN401 - an expression
    changed: CursorResult[Any] = connection.execute(
        update(entries)
        .where(which)
        .values(
            state=WAITING,
            batch=None,
            error=None,
            regrouped=True,
            revision=entries.c.revision + 1,
        )
    )
    return int(changed.rowcount)


def _lay_by(connection: Connection, operation: str, reason: str) -> int:
    reason = clean(reason)
    _take_back_edited(connection, operation)
    changed: CursorResult[Any] = connection.execute(
        update(entries)
        .where(entries.c.batch == operation, entries.c.state == BATCHED)
        .values(state=DEAD, error=reason)
    )
    connection.execute(
        update(batches)
        .where(batches.c.operation_id == operation)
        .values(state=FAILED, finished=time.time(), error=reason)
    )
    return int(changed.rowcount)


def _dead(connection: Connection, ids: Sequence[int] | None) -> list[int]:
    """Dead letters by id, with those of the same documents."""
    query = select(entries.c.id).where(entries.c.state == DEAD)
    if ids is not None:
        documents = select(entries.c.document).where(entries.c.id.in_(ids))
        query = query.where(entries.c.document.in_(documents))
    return list(connection.execute(query).scalars())


def _measure(connection: Connection, which: Any) -> tuple[int, int]:  # noqa: ANN401 - an expression
    count, size = connection.execute(
        select(func.count(), func.coalesce(func.sum(entries.c.size), 0)).where(which)
    ).one()
    return int(count), int(size)


def _give_room(connection: Connection, count: int, size: int) -> None:
    connection.execute(
        update(usage).values(entries=usage.c.entries - count, bytes=usage.c.bytes - size)
    )
