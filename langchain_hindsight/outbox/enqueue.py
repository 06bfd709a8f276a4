"""Writing down what is new: all of it in one transaction, or nothing where another was faster."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from sqlalchemy import Connection, CursorResult, Select, bindparam, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from langchain_hindsight.errors import HindsightError
from langchain_hindsight.outbox.edits import Edit, edits_of
from langchain_hindsight.outbox.known_thread import (
    FIND_THREAD,
    KnownLane,
    KnownThread,
    Mark,
    another_ledger,
    find_lane,
    is_taken,
)
from langchain_hindsight.outbox.ledger import News, whats_new
from langchain_hindsight.outbox.prepared import Prepared
from langchain_hindsight.outbox.recent import RecentThread, newest
from langchain_hindsight.outbox.room import Room, take_room
from langchain_hindsight.outbox.schema import (
    BATCHED,
    DEAD,
    DELIVERED,
    WAITING,
    WITHHELD,
    entries,
    lanes,
    threads,
)
from langchain_hindsight.outbox.scope import Draft, Scope
from langchain_hindsight.settings import OutboxSettings
from langchain_hindsight.transcript import Transcript

Drafting = Callable[[Sequence[int], Container[int]], list[Draft]]
"""Makes what is written down of the messages at some positions, without a word of hidden ones."""

_FIRST_VERSIONS = 2**30
"""A thread begins with any of these, so that none is taken for another of the same number in an
outbox that was made anew."""

_CLAIM_THREAD = Prepared(
    update(threads)
    .where(threads.c.id == bindparam("row"), threads.c.version == bindparam("seen"))
    .values(
        version=threads.c.version + 1,
        last_seq=threads.c.last_seq + bindparam("more"),
        length=bindparam("now_length"),
    )
)


_STATES = (WITHHELD, DELIVERED, WAITING, BATCHED, DEAD)
"""Those of a message, in the order in which they count where it stands as several."""

_WRITTEN = (
    *("lane", "thread", "seq", "parent", "message_id", "fingerprint", "speech", "starts_turn"),
    *("document", "regrouped", "revision", "state", "payload", "size", "created"),
)
_WRITE = Prepared(insert(entries).values({name: bindparam(name) for name in _WRITTEN}))


class OvertakenError(Exception):
    """What was read, or remembered, is not what is there."""


@dataclass(frozen=True, slots=True)
class Findings:
    """What of a conversation is new, and what is known of it."""

    news: News
    thread: KnownThread | RecentThread | None = None
    edits: tuple[tuple[Edit, int], ...] = ()
    """Rows to write anew, each with the position of its message."""
    hidden: frozenset[int] = frozenset()
    """Positions of withheld messages, which are nobody's context."""
    marks: Mapping[int, Mark] = field(default_factory=dict)
    """How fresh messages stand that are to be known and not to wait: answers to withheld ones of a
    run that ended before they were written down, and what another outbox has settled."""
    left_out: int = 0
    """How many messages are left out of which nobody can say whether they are new."""
    elsewhere: Mapping[str, Collection[str]] = field(default_factory=dict)
    """The documents that the words of fresh messages have in another outbox, by fingerprint."""

    @property
    def is_nothing(self) -> bool:
        """Whether there is nothing to write."""
        return not self.news.fresh and not self.edits


def find_news(
    connection: Connection, scope: Scope, transcript: Transcript, *, keep: bool
) -> Findings:
    """What of a conversation is to be written down."""
    thread = KnownThread.find(connection, scope)
    news = whats_new(transcript, thread, keep=keep)
    if thread is None:
        return Findings(news)
    if news.edited:
        withheld = thread.withheld([known.seq for _, known in news.edited])
        kept = tuple(one for one in news.edited if one[1].seq not in withheld)
        news = replace(news, edited=kept)
    edits = tuple(edits_of(connection, thread, transcript, news.edited)) if news.edited else ()
    changed = [*news.fresh, *(index for _, index in edits)] if keep else []
    fresh = frozenset(news.fresh)
    hidden = thread.hidden(transcript, changed, fresh)
    answered = thread.answers_to_withheld(transcript, news.fresh) if keep else frozenset()
    marks = {index: Mark(WITHHELD) for index in answered}
    return Findings(news, thread, edits, hidden | answered, marks)


Narrowing = Callable[[Findings], Findings]
"""Leaves out of what is new what is not: see `narrowed`."""


def narrowed(
    connection: Connection,
    scope: Scope,
    transcript: Transcript,
    found: Findings,
    *,
    keep: bool,
    is_whole: bool,
) -> Findings:
    """What is new in one outbox without what another knows, such as the one in memory.

    Args:
        connection: The other's.
        scope: Whose conversation it is.
        transcript: The conversation.
        found: What is new in the one.
        keep: Whether it is to be kept.
        is_whole: Whether the other knows conversations from their beginnings. One that does not may
            hold what came after messages that it never saw, which are not known by their place.
    """
    thread = KnownThread.find(connection, scope)
    if thread is None:
        return found
    there = find_news(connection, scope, transcript, keep=keep)
    new = {*there.news.fresh, *(index for index, _ in there.news.edited)}
    known = [one for one in found.news.fresh if one not in new]
    standing = thread.marks_at(transcript, known, _STATES)
    marks = {index: mark for index, mark in standing.items() if mark.state == WITHHELD}
    unseen = set() if is_whole else {index for index in known if index not in standing}
    fresh = tuple(one for one in found.news.fresh if one in new or one in marks or one in unseen)
    said = {line.fingerprint for one in fresh if (line := transcript.line(one))}
    return replace(
        found,
        news=replace(found.news, fresh=fresh),
        hidden=found.hidden | there.hidden,
        marks={**found.marks, **there.marks, **marks},
        elsewhere=thread.documents(said),
    )


def newest_turn(transcript: Transcript, found: Findings) -> Findings:
    """What is surely new where the outbox that knows the conversation cannot be read.

    That is what this run said. What was said before it may have been withheld, or stored.
    """
    begin = transcript.newest_turn()
    older = frozenset(index for index in found.news.fresh if index < begin)
    fresh = tuple(index for index in found.news.fresh if index >= begin)
    return replace(
        found,
        news=replace(found.news, fresh=fresh),
        hidden=found.hidden | older,
        left_out=len(older),
    )


def settled(
    connection: Connection, scope: Scope, transcript: Transcript, found: Findings, *, keep: bool
) -> Findings:
    """Of what is new in one outbox, what another has delivered or withheld, as known there.

    What was said before that and the other never saw, since it was left out, comes with it where it
    is to be kept: once the later is known, its place would make it known too.

    Args:
        connection: The other's, such as that of the one in memory.
        scope: Whose conversation it is.
        transcript: The conversation.
        found: What is new in the one.
        keep: Whether it is to be kept.
    """
    thread = KnownThread.find(connection, scope)
    if thread is None:
        return Findings(News())
    unknown = set(find_news(connection, scope, transcript, keep=True).news.fresh)
    standing = thread.marks_at(transcript, found.news.fresh, _STATES)
    marks = {
        index: mark
        for index, mark in standing.items()
        if index not in unknown and mark.state in {WITHHELD, DELIVERED}
    }
    last = max(marks, default=-1)
    left_out = {one for one in found.news.fresh if keep and one < last and one not in standing}
    fresh = tuple(one for one in found.news.fresh if one in marks or one in left_out)
    news = replace(found.news, fresh=fresh, edited=())
    return replace(found, news=news, edits=(), marks={**found.marks, **marks})


@dataclass(frozen=True, slots=True)
class Writing:
    """What one retain writes."""

    scope: Scope
    thread: KnownThread | RecentThread | None
    news: News
    fresh: list[Draft]
    edits: list[tuple[Edit, Draft]]
    marks: Mapping[int, Mark] = field(default_factory=dict)
    """How fresh ones stand that do not wait, by position."""
    elsewhere: Mapping[str, Collection[str]] = field(default_factory=dict)
    """The documents that their words have in another outbox, by fingerprint."""

    @classmethod
    def of(cls, scope: Scope, found: Findings, draft: Drafting) -> Writing:
        """What is to be written of what was found."""
        fresh = [
            _marked(one, found.marks.get(one.index))
            for one in draft(found.news.fresh, found.hidden)
        ]
        again = draft([index for _, index in found.edits], found.hidden)
        texts = {one.index: one for one in again}
        # One that says nothing any more has no text, and leaves the document that it was in.
        edits = [(edit, texts[index]) for edit, index in found.edits if index in texts]
        return cls(scope, found.thread, found.news, fresh, edits, found.marks, found.elsewhere)

    @property
    def count(self) -> int:
        """How many messages are new or edited."""
        fresh = sum(one.index not in self.marks for one in self.fresh)
        return fresh + len(self.news.edited)

    def claim(self, connection: Connection) -> _Claim | None:
        """Make the thread this transaction's; None where another was faster."""
        if self.thread is None:
            lane = _lane(connection, self.scope)
            key = self.scope.key(lane.ledger)
            if connection.execute(FIND_THREAD, {"scope": key}).first() is not None:
                return None
            version = secrets.randbelow(_FIRST_VERSIONS)
            made = connection.execute(
                insert(threads).values(
                    scope=key,
                    lane=lane.id,
                    version=version,
                    last_seq=len(self.fresh),
                    length=self.news.length,
                )
            )
            return _Claim(_key(made), lane.id, version, 0)
        known = self.thread
        taken = _CLAIM_THREAD.run(
            connection,
            {
                "row": known.id,
                "seen": known.version,
                "more": len(self.fresh),
                "now_length": self.news.length,
            },
        )
        if taken.rowcount != 1:
            return None
        return _Claim(known.id, known.lane, known.version + 1, known.last_seq)

    def remembered(self, claim: _Claim) -> RecentThread | None:
        """The thread as it is once this is written; None where the database had better be asked."""
        added = {one.message_id: one.fingerprint for one in self.fresh if one.message_id}
        is_plain = all(one.message_id and one.payload for one in self.fresh)
        if not added or not is_plain or self.edits or self.news.unnamed:
            return None
        before = self.thread.kept if self.thread else {}
        return RecentThread(
            claim.thread,
            claim.lane,
            claim.version,
            claim.last_seq + len(self.fresh),
            newest({**before, **added}),
        )


def _marked(fresh: Draft, mark: Mark | None) -> Draft:
    """A message as it is written down: without its words where it does not wait."""
    if mark is None:
        return fresh
    return replace(fresh, payload=None, fingerprint=mark.fingerprint or fresh.fingerprint)


@dataclass(frozen=True, slots=True)
class _Claim:
    """A thread that is a transaction's own, as it was before what is written to it."""

    thread: int
    lane: int
    version: int
    """The one that it has from now on."""
    last_seq: int


def write(connection: Connection, work: Writing, caps: OutboxSettings) -> RecentThread | None:
    """Write it all.

    Returns:
        What may be remembered of the conversation.

    Raises:
        OvertakenError: If another process was faster, or an id is known for longer than is
            remembered; nothing is written.
        OutboxFullError: If the caps leave no room.
    """
    claim = work.claim(connection)
    if claim is None:
        raise OvertakenError
    rows = _rows(connection, work, claim)
    waiting = [row["size"] for row in rows if row["state"] == WAITING]
    room = Room(len(waiting), sum(waiting))
    for edit, text in work.edits:
        if not edit.apply(connection, text, room):
            raise OvertakenError
    take_room(connection, room, caps)
    try:
        if rows:
            _WRITE.run_each(connection, rows)
    except IntegrityError:
        if isinstance(work.thread, RecentThread):
            raise OvertakenError from None
        raise
    return work.remembered(claim)


def find_and_write(
    connection: Connection,
    scope: Scope,
    transcript: Transcript,
    draft: Drafting,
    *,
    caps: OutboxSettings,
    narrow: Narrowing,
    keep: bool,
) -> tuple[RecentThread | None, int]:
    """`find_news` and `write` in one transaction that nobody can overtake.

    It is held for as long as the messages take to be masked, which others wait for.

    Returns:
        What may be remembered of the conversation, and how many messages were new or edited.
    """
    known = KnownThread.find(connection, scope)
    if known is not None:  # SQLite's transaction has locked everything, PostgreSQL's nothing yet
        connection.execute(select(threads.c.id).where(threads.c.id == known.id).with_for_update())
    found = narrow(find_news(connection, scope, transcript, keep=keep))
    if found.is_nothing:
        return None, 0
    work = Writing.of(scope, found, draft)
    return write(connection, work, caps), work.count


def _rows(connection: Connection, work: Writing, claim: _Claim) -> list[dict[str, Any]]:
    now, seq = time.time(), claim.last_seq
    parent: int | None = None
    seen: dict[str, int] = {}
    ids: set[str] = set()
    rows = []
    for one in work.fresh:
        seq += 1
        is_named = one.message_id not in ids and one.index not in work.news.unnamed
        name = one.message_id if is_named else None
        if name is None:
            if one.fingerprint not in seen:
                elsewhere = work.elsewhere.get(one.fingerprint, ())
                seen[one.fingerprint] = _occurrences(connection, claim, one.fingerprint, elsewhere)
            key = f"{one.fingerprint}#{seen[one.fingerprint]}"
            seen[one.fingerprint] += 1
        else:
            ids.add(name)
            key = name
        mark = work.marks.get(one.index) or Mark(WITHHELD if one.payload is None else WAITING)
        rows.append(
            {
                "lane": claim.lane,
                "thread": claim.thread,
                "seq": seq,
                "parent": work.news.follows.get(one.index, parent),
                "message_id": name,
                "fingerprint": one.fingerprint,
                "speech": one.speech,
                "starts_turn": one.starts_turn,
                "document": mark.document or work.scope.document(key),
                "regrouped": False,
                "revision": 0,
                "state": mark.state,
                "payload": one.payload,
                "size": len(one.payload or ""),
                "created": now,
            }
        )
        parent = seq
    return rows


def write_note(
    connection: Connection, scope: Scope, payload: str, name: str, caps: OutboxSettings
) -> str:
    """Write down one explicit note, unless there is one of that name; its document.

    Raises:
        OutboxFullError: If the caps leave no room.
    """
    document = scope.document(name)
    if connection.execute(_find_document(document)).first() is not None:
        return document
    take_room(connection, Room(1, len(payload)), caps)
    connection.execute(
        insert(entries).values(
            lane=_lane(connection, scope).id,
            seq=0,
            fingerprint=uuid5(NAMESPACE_URL, name).hex,
            speech=False,
            starts_turn=True,
            document=document,
            state=WAITING,
            payload=payload,
            size=len(payload),
            created=time.time(),
        )
    )
    return document


def _find_document(document: str) -> Select[tuple[int]]:
    return select(entries.c.id).where(entries.c.document == document).limit(1)


def _lane(connection: Connection, scope: Scope) -> KnownLane:
    """The bank's lane, made if need be; one that another makes at once is an IntegrityError."""
    found = find_lane(connection, scope)
    if found is not None:
        return found
    # What was known here and went to another address keeps its name there.
    ledger = another_ledger(scope.server) if is_taken(connection, scope) else None
    values = {"server": scope.server, "bank": scope.bank_id, "ledger": ledger}
    made = connection.execute(insert(lanes).values(values))
    return KnownLane(_key(made), ledger)


def _key(made: CursorResult[Any]) -> int:
    """The number that the database gave to a new row."""
    if made.inserted_primary_key is None:
        msg = "The database gave a new row no number."
        raise HindsightError(msg)
    return int(made.inserted_primary_key[0])


def _occurrences(
    connection: Connection, claim: _Claim, fingerprint: str, elsewhere: Collection[str]
) -> int:
    """How often the words of a message are known, here or in another outbox."""
    if not claim.last_seq:
        return len(elsewhere)
    known = (entries.c.thread == claim.thread, entries.c.fingerprint == fingerprint)
    if not elsewhere:
        return int(connection.execute(select(func.count()).where(*known)).scalar_one())
    here = connection.execute(select(entries.c.document).where(*known)).scalars()
    return len({*here, *elsewhere})
