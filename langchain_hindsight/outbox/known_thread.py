"""What the database knows of one conversation, as the ledger asks for it."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
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

_WITHHELD_SEQS = select(entries.c.seq).where(
    entries.c.thread == bindparam("thread"),
    entries.c.state == WITHHELD,
    entries.c.seq.in_(bindparam("seqs", expanding=True)),
)

_WITHHELD_IDS = select(entries.c.message_id).where(
    entries.c.thread == bindparam("thread"),
    entries.c.message_id.in_(bindparam("ids", expanding=True)),
    entries.c.state == WITHHELD,
)

_WITHHELD_PRINTS = select(entries.c.fingerprint).where(
    entries.c.thread == bindparam("thread"),
    entries.c.fingerprint.in_(bindparam("prints", expanding=True)),
    entries.c.state == WITHHELD,
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
class KnownThread:
    """What is known of one conversation, read within a transaction."""

    connection: Connection
    id: int
    lane: int
    version: int
    last_seq: int
    length: int
    kept: dict[str, str] = field(default_factory=dict)
    """Fingerprints of messages that were looked up and are not withheld, by their ids."""

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
        lines = ((index, transcript.line(index)) for index in indexes)
        return self._withheld_of(
            {
                index: (line.message_id, line.fingerprint)
                for index, line in lines
                if line and self.kept.get(line.message_id or "") != line.fingerprint
            }
        )

    def _withheld_of(self, said: Mapping[int, tuple[str | None, str]]) -> frozenset[int]:
        if not said:
            return frozenset()
        names = self._withheld(_WITHHELD_IDS, "ids", [name for name, _ in said.values() if name])
        prints = self._withheld(_WITHHELD_PRINTS, "prints", [words for _, words in said.values()])
        return frozenset(
            index
            for index, (name, fingerprint) in said.items()
            if name in names or fingerprint in prints
        )

    def _withheld(self, which: Select[tuple[str]], name: str, values: list[str]) -> set[str]:
        if not values:
            return set()
        return set(self.connection.execute(which, {"thread": self.id, name: values}).scalars())
