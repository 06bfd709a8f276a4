"""Entries that cannot be delivered: kept, listed, tried again or dropped by a person."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, func, select, update

from langchain_hindsight.outbox.room import give_room, measure
from langchain_hindsight.outbox.schema import DEAD, DELIVERED, entries, lanes
from langchain_hindsight.outbox.settle import wait_again


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """An entry that cannot be delivered, without its content."""

    id: int
    server: str
    bank_id: str
    created: float
    size: int
    error: str


def dead_letters(connection: Connection, limit: int) -> list[DeadLetter]:
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
    return [DeadLetter(*row) for row in connection.execute(query)]


def dead_among(connection: Connection, ids: Sequence[int] | None) -> set[int]:
    """Those of some entries, or of all, that are dead letters."""
    query = select(entries.c.id).where(entries.c.state == DEAD)
    if ids is not None:
        query = query.where(entries.c.id.in_(ids))
    return set(connection.execute(query).scalars())


def content(connection: Connection, entry_id: int) -> str | None:
    """What an entry holds; None once it is delivered."""
    payload = connection.execute(select(entries.c.payload).where(entries.c.id == entry_id)).scalar()
    try:
        return None if payload is None else str(json.loads(payload)["content"])
    except (ValueError, TypeError, KeyError):
        return str(payload)  # damaged, and laid by for a person to see


def retry(connection: Connection, ids: Sequence[int] | None) -> int:
    """Let dead letters wait for delivery again; how many there were."""
    chosen = _dead(connection, ids)
    again = entries.c.id.in_(chosen)
    wait_again(connection, again)
    # Whoever asks for it again gives it as long as it had.
    connection.execute(update(entries).where(again).values(created=time.time()))
    return len(chosen)


def drop(connection: Connection, ids: Sequence[int] | None) -> int:
    """Give up dead letters; how many there were."""
    chosen = _dead(connection, ids)
    count, size = measure(connection, entries.c.id.in_(chosen))
    connection.execute(
        update(entries)
        .where(entries.c.id.in_(chosen))
        .values(state=DELIVERED, payload=None, batch=None)
    )
    give_room(connection, count, size)
    return len(chosen)


def _dead(connection: Connection, ids: Sequence[int] | None) -> list[int]:
    """Dead letters by id, with those of the same documents."""
    query = select(entries.c.id).where(entries.c.state == DEAD)
    if ids is not None:
        documents = select(entries.c.document).where(entries.c.id.in_(ids))
        query = query.where(entries.c.document.in_(documents))
    return list(connection.execute(query).scalars())
