"""Requests: formed once, recorded with their members before they are sent, read as they were."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Sequence
from typing import Any
from uuid import uuid5

from sqlalchemy import Connection, Select, and_, bindparam, delete, insert, select, update

from langchain_hindsight.outbox.batching import (
    NAMESPACE,
    Batch,
    Entry,
    Item,
    Unit,
    check,
    operation_id,
    plan,
)
from langchain_hindsight.outbox.leases import Lane, is_due
from langchain_hindsight.outbox.schema import (
    ACCEPTED,
    BATCHED,
    DEAD,
    RECORDED,
    WAITING,
    batches,
    entries,
)

_logger = logging.getLogger(__name__)


def next_batch(
    connection: Connection, lane: Lane, *, unit: Unit, limit: int, longest_wait: float
) -> Batch | None:
    """The next request to a bank: one recorded before, else one formed and recorded.

    One that failed waits for its own time, and keeps only its own documents waiting.
    """
    recorded = connection.execute(
        select(batches.c.operation_id)
        .where(
            batches.c.lane == lane.id,
            batches.c.state == RECORDED,
            is_due(time.time(), longest_wait),
        )
        .order_by(batches.c.failures, batches.c.created, batches.c.operation_id)
        .limit(1)
    ).scalar()
    if recorded is not None:
        return load(connection, lane.bank_id, recorded)
    waiting = _readable(connection, _next_rows(connection, lane.id, limit + 1))
    busy = connection.execute(
        select(entries.c.document)
        .where(entries.c.lane == lane.id, entries.c.state == BATCHED)
        .distinct()
    ).scalars()
    items = plan(waiting, unit=unit, limit=limit, busy=set(busy))
    return record(connection, lane, items) if items else None


def role(connection: Connection, lane: Lane) -> str | None:
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
    payload = connection.execute(query).scalar()
    if payload is None:
        return None
    try:
        return str(json.loads(payload)["role"])
    except (ValueError, TypeError, KeyError):  # damaged, and soon laid by
        return None


def accepted(connection: Connection, lane: Lane) -> list[str]:
    """Operations of a bank that were accepted and have not ended, oldest first."""
    query = (
        select(batches.c.operation_id)
        .where(batches.c.lane == lane.id, batches.c.state == ACCEPTED)
        .order_by(batches.c.created, batches.c.operation_id)
    )
    return list(connection.execute(query).scalars())


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
            check(payload)
        except (ValueError, TypeError, KeyError, AttributeError):
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


def load(connection: Connection, bank_id: str, operation: str) -> Batch:
    """A request as it was recorded."""
    rows = _entry_rows(connection, and_(entries.c.batch == operation, entries.c.state == BATCHED))
    groups: dict[str, list[Entry]] = {}
    for entry in _readable(connection, rows):
        groups.setdefault(entry.document, []).append(entry)
    failed = select(batches.c.failures).where(batches.c.operation_id == operation)
    failures = int(connection.execute(failed).scalar_one())
    items = tuple(Item(document, tuple(group)) for document, group in groups.items())
    return Batch(operation, bank_id, items, failures)


def record(connection: Connection, lane: Lane, items: Sequence[Item], failures: int = 0) -> Batch:
    """Record a request and its members, before it is sent."""
    operation = operation_id(lane.home, lane.bank_id, items)
    while connection.execute(_find_batch(operation)).first() is not None:
        # The same members once more: written anew at another address, and moved here again.
        operation = str(uuid5(NAMESPACE, f"{operation} again"))
    count = sum(len(item.entries) for item in items)
    connection.execute(
        insert(batches).values(
            operation_id=operation,
            lane=lane.id,
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
    return Batch(operation, lane.bank_id, tuple(items))


def _find_batch(operation: str) -> Select[tuple[str]]:
    return select(batches.c.operation_id).where(batches.c.operation_id == operation)


def halve(connection: Connection, lane: Lane, batch: Batch, failures: int = 0) -> None:
    """Record a request anew as two."""
    connection.execute(delete(batches).where(batches.c.operation_id == batch.operation_id))
    half = len(batch.items) // 2
    for items in (batch.items[:half], batch.items[half:]):
        record(connection, lane, items, failures)
