"""The outbox's caps: what waits is counted, and what would be too much is refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, bindparam, func, select, update

from langchain_hindsight.errors import HindsightError
from langchain_hindsight.outbox.prepared import Prepared
from langchain_hindsight.outbox.schema import entries, usage
from langchain_hindsight.settings import OutboxSettings

_TAKE_ROOM = Prepared(
    update(usage)
    .where(
        usage.c.entries + bindparam("more") <= bindparam("cap"),
        usage.c.bytes + bindparam("more_bytes") <= bindparam("cap_bytes"),
    )
    .values(
        entries=usage.c.entries + bindparam("more"), bytes=usage.c.bytes + bindparam("more_bytes")
    )
)


class OutboxFullError(HindsightError):
    """The outbox holds as much as its caps allow."""


@dataclass(slots=True)
class Room:
    """What a transaction adds to the outbox."""

    entries: int = 0
    bytes: int = 0


def take_room(connection: Connection, room: Room, caps: OutboxSettings) -> None:
    """Count what is added.

    Raises:
        OutboxFullError: If the caps leave no room.
    """
    if room.entries <= 0 and room.bytes <= 0:
        give_room(connection, -room.entries, -room.bytes)
        return
    taken = _TAKE_ROOM.run(
        connection,
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


def give_room(connection: Connection, count: int, size: int) -> None:
    """Count what has left."""
    connection.execute(
        update(usage).values(entries=usage.c.entries - count, bytes=usage.c.bytes - size)
    )


def measure(connection: Connection, which: Any) -> tuple[int, int]:  # noqa: ANN401 - an expression
    """How many entries there are, and of what size together."""
    count, size = connection.execute(
        select(func.count(), func.coalesce(func.sum(entries.c.size), 0)).where(which)
    ).one()
    return int(count), int(size)
