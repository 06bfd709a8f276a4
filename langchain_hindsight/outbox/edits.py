"""A known message whose words changed: which rows go out again, in which documents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid5

from sqlalchemy import Connection, CursorResult, and_, select, update

from langchain_hindsight.outbox.batching import NAMESPACE
from langchain_hindsight.outbox.known_thread import KnownThread
from langchain_hindsight.outbox.ledger import Known
from langchain_hindsight.outbox.room import Room
from langchain_hindsight.outbox.schema import BATCHED, WAITING, entries
from langchain_hindsight.outbox.scope import Draft
from langchain_hindsight.transcript import Transcript

_NEARBY = 64


@dataclass(frozen=True, slots=True)
class Edit:
    """A known message whose content goes out again."""

    id: int
    state: str
    size: int
    document: str
    has_payload: bool
    left: str | None = None
    """The document that it was in, where it leaves one whose other messages are not at hand."""

    def apply(self, connection: Connection, text: Draft, room: Room) -> bool:
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
        if self.left is not None:
            # They go out again without it once they are passed: what they are known by differs.
            rest = and_(entries.c.document == self.left, entries.c.message_id.is_not(None))
            connection.execute(update(entries).where(rest).values(fingerprint=""))
        return bool(changed.rowcount == 1)


def edits_of(
    connection: Connection,
    thread: KnownThread,
    transcript: Transcript,
    edited: Sequence[tuple[int, Known]],
) -> list[tuple[Edit, int]]:
    """The rows to write for edited messages; a turn that went out as one goes out again whole."""
    at = {known.seq: index for index, known in edited}
    done: dict[int, tuple[Edit, int]] = {}
    for index, known in edited:
        row = connection.execute(_rows_of(thread.id, entries.c.seq == known.seq)).one()
        edit = Edit(row.id, row.state, row.size, row.document, row.payload is not None)
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
                    whole = Edit(
                        other.id, other.state, other.size, other.document, other.payload is not None
                    )
                    done.setdefault(other.id, (whole, place))
        else:
            own = str(uuid5(NAMESPACE, f"{row.document}/{row.seq}"))
            alone = Edit(row.id, row.state, row.size, own, edit.has_payload, row.document)
            done[row.id] = (alone, index)
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
