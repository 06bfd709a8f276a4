"""Who delivers to which bank: a lane is one process's at a time, under a lease that runs out."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, and_, exists, func, not_, or_, select, update

from langchain_hindsight.outbox.schema import (
    ACCEPTED,
    BATCHED,
    RECORDED,
    WAITING,
    batches,
    entries,
    lanes,
)

LEASE = 10.0
"""How long a process holds a bank without a sign of life, in seconds."""
_LOOK_AGAIN = 1.0
"""How long to leave a bank to the process that holds it, in seconds."""


@dataclass(frozen=True, slots=True)
class Lane:
    """A bank that this process delivers to for now."""

    id: int
    bank_id: str
    due: float
    failures: int
    paused: bool
    home: str
    """The address under which it was first known."""


def claim(connection: Connection, server: str, owner: str, longest_wait: float) -> list[Lane]:
    """Take the banks of a server that have work, are due and are nobody's."""
    now = time.time()
    free = or_(
        lanes.c.owner.is_(None),
        lanes.c.owner == owner,
        lanes.c.lease_until < now,
        lanes.c.lease_until > now + 2 * LEASE,  # the clock went back
    )
    back = or_(lanes.c.due > now + longest_wait, lanes.c.failed_at > now)  # the clock again
    due = or_(lanes.c.due <= now, back)
    query = (
        select(
            lanes.c.id,
            lanes.c.bank,
            lanes.c.due,
            lanes.c.failures,
            lanes.c.paused,
            func.coalesce(lanes.c.ledger, lanes.c.server),
        )
        .where(lanes.c.server == server, free, due, _has_work(is_due(now, longest_wait)))
        .with_for_update(skip_locked=True)
    )
    found = [Lane(*row) for row in connection.execute(query)]
    keep(connection, [lane.id for lane in found], owner)
    return found


def keep(connection: Connection, lane_ids: Sequence[int], owner: str) -> None:
    """Hold banks for a while from now."""
    if lane_ids:
        connection.execute(
            update(lanes)
            .where(lanes.c.id.in_(lane_ids))
            .values(owner=owner, lease_until=time.time() + LEASE)
        )


def release(connection: Connection, lane_ids: Sequence[int], owner: str) -> None:
    """Leave banks to whoever wants them."""
    mine = and_(lanes.c.id.in_(lane_ids), lanes.c.owner == owner)
    connection.execute(update(lanes).where(mine).values(owner=None, lease_until=0.0))


def next_due(
    connection: Connection, server: str, owner: str, longest_wait: float, but: Collection[int]
) -> float | None:
    """Seconds until a bank with work is worth a look; None without one."""
    now = time.time()
    mine = and_(lanes.c.server == server, lanes.c.id.not_in(list(but)))
    ready = select(lanes.c.due, lanes.c.owner).where(mine, _has_work(is_due(now, longest_wait)))
    held = (
        select(batches.c.due, lanes.c.owner)
        .join_from(batches, lanes)
        .where(mine, batches.c.state == RECORDED)
    )
    waits = [
        max(min(due - now, longest_wait), 0.0 if held_by in {None, owner} else _LOOK_AGAIN)
        for due, held_by in [*connection.execute(ready), *connection.execute(held)]
    ]
    return max(0.0, min(waits)) if waits else None


def hurry(connection: Connection, server: str, bank_id: str | None) -> None:
    """Make banks due now, whatever they were waiting for."""
    which = and_(lanes.c.server == server, lanes.c.due > 0)
    if bank_id is not None:
        which = and_(which, lanes.c.bank == bank_id)
    connection.execute(update(lanes).where(which).values(due=0.0))
    if bank_id is None:
        mine = select(lanes.c.id).where(lanes.c.server == server)
        connection.execute(
            update(batches)
            .where(batches.c.lane.in_(mine), batches.c.state == RECORDED, batches.c.due > 0)
            .values(due=0.0)
        )


def is_due(now: float, longest: float) -> Any:  # noqa: ANN401 - SQLAlchemy's own expression
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
