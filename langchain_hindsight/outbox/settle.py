"""What became of a request, written down: accepted, stored, lost, failed or refused."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from sqlalchemy import Connection, CursorResult, and_, delete, func, select, update

from langchain_hindsight.outbox.leases import Lane
from langchain_hindsight.outbox.requests import halve, load
from langchain_hindsight.outbox.room import give_room, measure
from langchain_hindsight.outbox.schema import (
    ACCEPTED,
    BATCHED,
    DEAD,
    DELIVERED,
    DONE,
    FAILED,
    RECORDED,
    WAITING,
    batches,
    entries,
    lanes,
)
from langchain_hindsight.transcript import clean

_DOUBTS = 3
"""After how many failures of the server the request itself is suspected."""


def mark_accepted(connection: Connection, lane: Lane, operation: str) -> None:
    """Hindsight has taken a request; its bank is well again."""
    _batch_state(connection, operation, ACCEPTED)
    connection.execute(
        update(lanes)
        .where(lanes.c.id == lane.id)
        .values(due=0.0, failures=0, paused=False, error=None, failed_at=None)
    )


def mark_lost(connection: Connection, operation: str) -> None:
    """Hindsight does not know a request: it is sent again as it was."""
    _batch_state(connection, operation, RECORDED)


def mark_done(connection: Connection, lane: Lane, operation: str) -> int:
    """Hindsight has stored a request: its content leaves the outbox; how many entries it was."""
    again = _take_back_edited(connection, operation)
    left = and_(entries.c.batch == operation, entries.c.state == BATCHED)
    count, size = measure(connection, left)
    connection.execute(
        update(entries).where(left).values(state=DELIVERED, payload=None, error=None)
    )
    connection.execute(
        update(lanes).where(lanes.c.id == lane.id).values(delivered=lanes.c.delivered + count)
    )
    give_room(connection, count, size)
    _batch_state(connection, operation, DONE)
    return count + again


def mark_failed(
    connection: Connection,
    lane: Lane,
    operation: str,
    *,
    delay: Callable[[int], float],
    error: str,
    longest_wait: float,
) -> bool:
    """The server failed over a request: it waits, and is cut in two once it is suspected.

    Returns:
        Whether the request is suspected, rather than the server.
    """
    mine = batches.c.operation_id == operation
    failures = connection.execute(select(batches.c.failures).where(mine)).scalar_one()
    suspected = failures + 1 >= _DOUBTS
    batch = load(connection, lane.bank_id, operation)
    if suspected and len(batch.items) > 1:
        halve(connection, lane, batch, failures=_DOUBTS - 1)
        return True
    wait = min(delay(failures), longest_wait)
    connection.execute(
        update(batches)
        .where(mine)
        .values(failures=failures + 1, due=time.time() + wait, error=clean(error))
    )
    return bool(suspected)


def mark_refused(connection: Connection, lane: Lane, operation: str, reason: str) -> int:
    """Hindsight will not take a request: cut it in two to find why, or lay it by.

    Returns:
        How many entries became dead letters.
    """
    batch = load(connection, lane.bank_id, operation)
    if len(batch.items) > 1:
        halve(connection, lane, batch)
        return 0
    return lay_by(connection, operation, reason)


def postpone(
    connection: Connection,
    lane: Lane,
    *,
    delay: Callable[[int], float],
    error: str,
    paused: bool,
    counts: bool,
    longest_wait: float,
) -> bool:
    """A bank cannot be delivered to for now.

    Returns:
        Whether it was paused before.
    """
    mine = lanes.c.id == lane.id
    failures, was_paused = connection.execute(
        select(lanes.c.failures, lanes.c.paused).where(mine)
    ).one()
    now = time.time()
    values = {
        "due": now + min(delay(failures), longest_wait),
        "failures": failures + int(counts),
        "paused": paused,
        "error": clean(error),
        "failed_at": now,
    }
    connection.execute(update(lanes).where(mine).values(**values))
    return bool(was_paused)


def prune(connection: Connection, before: float) -> None:
    """Forget records of requests, and notes, that were settled before a time."""
    connection.execute(
        delete(entries).where(
            entries.c.thread.is_(None),
            entries.c.state == DELIVERED,
            entries.c.created < before,
        )
    )
    old = and_(batches.c.state.in_((DONE, FAILED)), batches.c.finished < before)
    connection.execute(delete(batches).where(old))


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
    give_room(connection, 0, -int(grown or 0))
    return wait_again(connection, members)


def wait_again(connection: Connection, which: Any) -> int:  # noqa: ANN401 - an expression
    """Let entries wait again, in the documents that they were in; how many there were."""
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


def lay_by(connection: Connection, operation: str, reason: str) -> int:
    """Make dead letters of a request's entries; how many there were."""
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
