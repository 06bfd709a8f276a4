"""Giving entries another address: their server has moved, or its key was replaced.

What waits, what was refused and what is known of conversations go along. Entries written under one
key are never delivered under another but where it is shown, or said by a person, that both lead to
the same memory.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, and_, exists, func, or_, select, update

from langchain_hindsight.errors import HindsightError
from langchain_hindsight.outbox import leases
from langchain_hindsight.outbox.address import server_in
from langchain_hindsight.outbox.known_thread import another_ledger
from langchain_hindsight.outbox.room import measure
from langchain_hindsight.outbox.schema import (
    ACCEPTED,
    BATCHED,
    DEAD,
    DONE,
    WAITING,
    batches,
    entries,
    lanes,
    threads,
)

_MOST_STRANGERS = 16
"""How many other addresses are looked into at the most."""

_WELL = {"due": 0.0, "failures": 0, "paused": False, "error": None, "failed_at": None}
"""A lane of which nothing bad is known."""


@dataclass(frozen=True, slots=True)
class Stranger:
    """Another address of the same server, in which an earlier key may be ours."""

    address: str
    bank_id: str
    operation_id: str | None
    """The last request that the server took under it, as far as is on record."""
    worked: bool
    """Whether the server ever took something under it."""
    refused: bool
    """Whether the server refused its key."""


def strangers(connection: Connection, address: str) -> list[Stranger]:
    """The other addresses of a server that nobody delivers to, last used first."""
    server = server_in(address)
    now = time.time()
    served = lanes.alias()
    held = exists().where(
        served.c.server == lanes.c.server,
        served.c.lease_until >= now,
        served.c.lease_until <= now + 2 * leases.LEASE,
    )
    query = (
        select(lanes.c.server)
        .where(
            or_(lanes.c.server == server, lanes.c.server.startswith(f"{server}#", autoescape=True)),
            lanes.c.server != address,
            ~held,
        )
        .group_by(lanes.c.server)
        .order_by(func.max(lanes.c.id).desc())
        .limit(_MOST_STRANGERS)
    )
    return [_stranger(connection, row.server) for row in connection.execute(query)]


def _stranger(connection: Connection, address: str) -> Stranger:
    taken = connection.execute(
        select(lanes.c.bank, batches.c.operation_id)
        .join_from(batches, lanes)
        .where(lanes.c.server == address, batches.c.state.in_((ACCEPTED, DONE)))
        .order_by(batches.c.created.desc())
        .limit(1)
    ).first()
    banks = connection.execute(
        select(lanes.c.bank, lanes.c.paused, lanes.c.delivered).where(lanes.c.server == address)
    ).all()
    refused = any(bank.paused for bank in banks)
    if taken is not None:
        return Stranger(address, taken.bank, taken.operation_id, worked=True, refused=refused)
    delivered = any(bank.delivered for bank in banks)
    return Stranger(address, banks[0].bank, None, worked=delivered, refused=refused)


def has_worked(connection: Connection, address: str) -> bool:
    """Whether the server ever took something under an address."""
    known = select(lanes.c.id).where(lanes.c.server == address).limit(1)
    return connection.execute(known).first() is not None and _stranger(connection, address).worked


def readdress(connection: Connection, source: str, target: str, owner: str) -> int:
    """Give all entries of an address another one; how many of them wait or are dead letters.

    Args:
        connection: The transaction.
        source: The address that they have.
        target: The address that they get.
        owner: The process that asks, whose own leases do not hinder it.

    Raises:
        HindsightError: If another process is delivering them at this moment.
    """
    now = time.time()
    query = select(lanes.c.bank, lanes.c.owner, lanes.c.lease_until).where(lanes.c.server == source)
    for bank, held_by, until in connection.execute(query.with_for_update()):
        if held_by not in {None, owner} and now <= until <= now + 2 * leases.LEASE:
            msg = f"Another process is delivering to bank {bank} of {source}; stop it first."
            raise HindsightError(msg)
    return move(connection, source, target)


def move(connection: Connection, source: str, target: str) -> int:
    """`readdress`, whoever is delivering."""
    rows = connection.execute(select(lanes).where(lanes.c.server == source)).all()
    kept = and_(
        entries.c.lane.in_([row.id for row in rows]), entries.c.state.in_((WAITING, BATCHED, DEAD))
    )
    count, _ = measure(connection, kept)
    for row in rows:
        # Whoever read its conversations before reads them again before writing to them.
        connection.execute(
            update(threads).where(threads.c.lane == row.id).values(version=threads.c.version + 1)
        )
        there = connection.execute(
            select(lanes.c.id).where(lanes.c.server == target, lanes.c.bank == row.bank)
        ).scalar()
        if there is None:
            connection.execute(
                update(lanes)
                .where(lanes.c.id == row.id)
                .values(server=target, ledger=row.ledger or source, **_WELL)
            )
        else:
            _join(connection, row, int(there))
    return count


def _join(connection: Connection, source: Row[Any], target: int) -> None:
    """Put a lane's entries into another; its conversations are known there as they went on.

    The empty lane stays, under a name of its own: a program that goes on there begins anew.
    """
    for table in (entries, batches, threads):
        connection.execute(update(table).where(table.c.lane == source.id).values(lane=target))
    connection.execute(
        update(lanes)
        .where(lanes.c.id == target)
        .values(delivered=lanes.c.delivered + source.delivered, due=0.0)
    )
    connection.execute(
        update(lanes)
        .where(lanes.c.id == source.id)
        .values(ledger=another_ledger(source.ledger or source.server), delivered=0, **_WELL)
    )
