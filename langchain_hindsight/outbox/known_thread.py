"""What the database knows of one conversation, as the ledger asks for it."""

from __future__ import annotations

from collections.abc import Collection, Container, Sequence
from dataclasses import dataclass, field
from itertools import islice
from uuid import uuid4

from sqlalchemy import Connection, Select, bindparam, or_, select

from langchain_hindsight.outbox.ledger import Known
from langchain_hindsight.outbox.schema import WITHHELD, entries, lanes, threads
from langchain_hindsight.outbox.scope import Scope
from langchain_hindsight.transcript import CONTEXT_MESSAGES, Transcript

_FIND_LANE = select(lanes.c.id, lanes.c.ledger).where(
    lanes.c.server == bindparam("at"), lanes.c.bank == bindparam("to")
)

_THREAD = (threads.c.id, threads.c.lane, threads.c.version, threads.c.last_seq, threads.c.length)

FIND_THREAD = select(*_THREAD).where(threads.c.scope == bindparam("scope"))

_FIND = (
    select(lanes.c.ledger, *_THREAD)
    .select_from(lanes.outerjoin(threads, threads.c.scope == bindparam("scope")))
    .where(lanes.c.server == bindparam("at"), lanes.c.bank == bindparam("to"))
)

_BY_ID = select(entries.c.message_id, entries.c.seq, entries.c.fingerprint, entries.c.state).where(
    entries.c.thread == bindparam("thread"),
    entries.c.message_id.in_(bindparam("ids", expanding=True)),
)

_TAIL = (
    select(entries.c.seq, entries.c.fingerprint)
    .where(entries.c.thread == bindparam("thread"), entries.c.speech)
    .order_by(entries.c.seq.desc())
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

_DOCUMENTS = select(entries.c.fingerprint, entries.c.document).where(
    entries.c.thread == bindparam("thread"),
    entries.c.fingerprint.in_(bindparam("prints", expanding=True)),
)

_WITHHELD_SEQS = select(entries.c.seq).where(
    entries.c.thread == bindparam("thread"),
    entries.c.state == WITHHELD,
    entries.c.seq.in_(bindparam("seqs", expanding=True)),
)

_MARK = (entries.c.message_id, entries.c.fingerprint, entries.c.state, entries.c.document)

_MARKS_BY_ID = select(*_MARK).where(
    entries.c.thread == bindparam("thread"),
    entries.c.message_id.in_(bindparam("names", expanding=True)),
    entries.c.state.in_(bindparam("states", expanding=True)),
)

_MARKS_BY_PRINT = select(*_MARK).where(
    entries.c.thread == bindparam("thread"),
    entries.c.fingerprint.in_(bindparam("names", expanding=True)),
    entries.c.state.in_(bindparam("states", expanding=True)),
)


@dataclass(frozen=True, slots=True)
class KnownLane:
    """A bank at an address, and the address under which its conversations were first known."""

    id: int
    ledger: str | None


def another_ledger(known_as: str) -> str:
    """A name for what begins anew where conversations were known by one and went elsewhere.

    It begins with the address where they were known first, as `is_taken` wants it, for ever.
    """
    return f"{known_as.partition(' ')[0]} {uuid4().hex}"


def is_taken(connection: Connection, scope: Scope) -> bool:
    """Whether conversations that were first known at a scope's address are elsewhere by now."""
    other = lanes.c.ledger.startswith(f"{scope.server} ", autoescape=True)
    query = select(lanes.c.id).where(
        lanes.c.bank == scope.bank_id, or_(lanes.c.ledger == scope.server, other)
    )
    return connection.execute(query.limit(1)).first() is not None


def find_lane(connection: Connection, scope: Scope) -> KnownLane | None:
    """The lane of a scope; None if nothing was ever written down for it."""
    row = connection.execute(_FIND_LANE, {"at": scope.server, "to": scope.bank_id}).first()
    return None if row is None else KnownLane(*row)


@dataclass(frozen=True, slots=True)
class Mark:
    """How a message stands."""

    state: str
    document: str = ""
    """The one that it is in; blank for the one that its id or its words give it."""
    fingerprint: str = ""
    """Of the words that it was known with; blank for those that it has."""


@dataclass(frozen=True, slots=True)
class KnownThread:
    """What is known of one conversation, read within a transaction."""

    connection: Connection
    id: int
    lane: int
    version: int
    last_seq: int
    length: int
    kept: dict[str, str] = field(default_factory=dict)
    """Fingerprints of messages that were looked up and are kept, by their ids."""

    @classmethod
    def find(cls, connection: Connection, scope: Scope) -> KnownThread | None:
        """The conversation of a scope; None if it was never seen."""
        values = {"at": scope.server, "to": scope.bank_id, "scope": scope.key(None)}
        found = connection.execute(_FIND, values).first()
        if found is None:
            return None
        ledger, *row = found
        if ledger is not None:  # its bank has moved here, and is known under another name
            moved = connection.execute(FIND_THREAD, {"scope": scope.key(ledger)}).first()
            return None if moved is None else cls(connection, *moved)
        return None if row[0] is None else cls(connection, *row)

    def by_id(self, ids: Sequence[str]) -> dict[str, Known]:
        """Those of the ids that are known."""
        found = self.connection.execute(_BY_ID, {"thread": self.id, "ids": list(ids)}).all()
        self.kept.update(
            (row.message_id, row.fingerprint) for row in found if row.state != WITHHELD
        )
        return {row.message_id: Known(row.seq, row.fingerprint) for row in found}

    def tail(self, limit: int) -> list[Known]:
        """The last speech that is known, oldest first."""
        found = self.connection.execute(_TAIL, {"thread": self.id, "most": limit}).all()
        return [Known(*row) for row in reversed(found)]

    def after(self, seq: int, fingerprint: str) -> Known | None:
        """The message of that fingerprint that followed on another."""
        values = {"thread": self.id, "after": seq, "print": fingerprint}
        row = self.connection.execute(_AFTER, values).first()
        return None if row is None else Known(*row)

    def has(self, fingerprints: Sequence[str]) -> set[str]:
        """Those of the fingerprints that are known."""
        known: set[str] = set()
        for start in range(0, len(fingerprints), 500):
            chunk = fingerprints[start : start + 500]
            found = self.connection.execute(_HAS, {"thread": self.id, "prints": chunk})
            known.update(found.scalars())
        return known

    def documents(self, fingerprints: Collection[str]) -> dict[str, set[str]]:
        """The documents of the messages of some fingerprints, by those."""
        asked = list(fingerprints)
        found: dict[str, set[str]] = {}
        for start in range(0, len(asked), 500):
            values = {"thread": self.id, "prints": asked[start : start + 500]}
            for fingerprint, document in self.connection.execute(_DOCUMENTS, values):
                found.setdefault(fingerprint, set()).add(document)
        return found

    def withheld(self, seqs: Sequence[int]) -> set[int]:
        """Those of the messages that nothing may keep."""
        values = {"thread": self.id, "seqs": list(seqs)}
        return set(self.connection.execute(_WITHHELD_SEQS, values).scalars())

    def hidden(
        self, transcript: Transcript, changed: Sequence[int], fresh: Container[int]
    ) -> frozenset[int]:
        """The positions of withheld messages that would be the context of changed ones."""
        shown = {
            at
            for index in changed
            for at, _ in islice(transcript.speech(index), CONTEXT_MESSAGES)
            if at not in fresh
        }
        return self.withheld_at(transcript, sorted(shown))

    def answers_to_withheld(self, transcript: Transcript, fresh: Sequence[int]) -> frozenset[int]:
        """Those of fresh messages that follow on a withheld one of a person."""
        new = set(fresh)
        asked: dict[int, int] = {}
        for index in fresh:
            before = index - 1
            while before >= 0 and before not in new and not transcript.starts_turn(before):
                before -= 1
            turn = asked.get(before, before)
            if turn >= 0 and turn not in new and not transcript.starts_turn(index):
                asked[index] = turn
        withheld = self.withheld_at(transcript, sorted(set(asked.values())))
        return frozenset(index for index, turn in asked.items() if turn in withheld)

    def withheld_at(self, transcript: Transcript, indexes: Sequence[int]) -> frozenset[int]:
        """Those of the positions whose messages nothing may keep."""
        doubtful = []
        for index in indexes:
            line = transcript.line(index)
            if line and self.kept.get(line.message_id or "") != line.fingerprint:
                doubtful.append(index)
        return frozenset(self.marks_at(transcript, doubtful, (WITHHELD,)))

    def marks_at(
        self, transcript: Transcript, indexes: Sequence[int], states: Sequence[str]
    ) -> dict[int, Mark]:
        """How messages at some positions stand, where they stand as one of the states.

        A message is found by its id or else by its words; where several stand there, it is the one
        whose state comes first.
        """
        lines = [(index, line) for index in indexes if (line := transcript.line(index))]
        by_id = self._marks(_MARKS_BY_ID, [line.message_id for _, line in lines], states, 0)
        by_print = self._marks(_MARKS_BY_PRINT, [line.fingerprint for _, line in lines], states, 1)
        found = {}
        for index, line in lines:
            mark = by_id.get(line.message_id or "") or by_print.get(line.fingerprint)
            if mark is not None:
                found[index] = mark
        return found

    def _marks(
        self,
        which: Select[tuple[str, str, str, str]],
        names: Sequence[str | None],
        states: Sequence[str],
        key: int,
    ) -> dict[str, Mark]:
        found: dict[str, Mark] = {}
        given = [name for name in names if name]
        for start in range(0, len(given), 500):
            values = {"thread": self.id, "names": given[start : start + 500], "states": states}
            rows = self.connection.execute(which, values).all()
            for row in sorted(rows, key=lambda one: states.index(one.state), reverse=True):
                found[row[key]] = Mark(row.state, row.document, row.fingerprint)
        return found
