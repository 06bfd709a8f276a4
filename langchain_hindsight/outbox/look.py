"""Looking at the outbox without changing it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, and_, exists, func, select

from langchain_hindsight.outbox.schema import (
    BATCHED,
    DEAD,
    RECORDED,
    WAITING,
    batches,
    entries,
    lanes,
)

_SHOWN_AS = {BATCHED: "in-flight"}

_LISTED = select(
    entries.c.id,
    lanes.c.server.label("address"),
    lanes.c.bank.label("bank_id"),
    entries.c.state,
    entries.c.created,
    entries.c.size,
    entries.c.document,
    entries.c.batch.label("operation_id"),
    func.coalesce(entries.c.error, batches.c.error, lanes.c.error).label("error"),
).select_from(entries.join(lanes).outerjoin(batches, batches.c.operation_id == entries.c.batch))

_BY_STATE = (
    select(lanes.c.server, entries.c.state, func.count())
    .join_from(entries, lanes)
    .where(entries.c.state.in_((WAITING, BATCHED, DEAD)))
    .group_by(lanes.c.server, entries.c.state)
)


@dataclass(frozen=True, slots=True)
class Counts:
    """How many entries of one server stand where."""

    waiting: int = 0
    in_flight: int = 0
    dead: int = 0
    delivered: int = 0
    oldest: float | None = None
    last_error: str | None = None
    paused: tuple[str, ...] = ()
    other_servers: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NoteState:
    """How an explicit note stands."""

    state: str
    operation_id: str | None
    error: str | None
    lane_error: str | None
    lane_failed_at: float | None


@dataclass(frozen=True, slots=True)
class Listed:
    """An entry as it is shown to a person, without its content."""

    id: int
    address: str
    bank_id: str
    state: str
    """``waiting``, ``in-flight``, ``delivered``, ``dead`` or ``withheld``."""
    created: float
    """When it was written, in seconds of the epoch."""
    size: int
    """Of its content, in characters."""
    document: str
    operation_id: str | None
    error: str | None


def list_entries(connection: Connection, states: Sequence[str], limit: int) -> list[Listed]:
    """Entries that stand somewhere, of every address, oldest first."""
    query = _LISTED.where(entries.c.state.in_(states)).order_by(entries.c.id).limit(limit)
    return [_listed(row) for row in connection.execute(query)]


def entry(connection: Connection, entry_id: int) -> Listed | None:
    """One entry; None if there is none."""
    row = connection.execute(_LISTED.where(entries.c.id == entry_id)).first()
    return None if row is None else _listed(row)


def addresses(connection: Connection) -> list[str]:
    """Whom there are entries for."""
    used = exists().where(entries.c.lane == lanes.c.id)
    return list(connection.execute(select(lanes.c.server).where(used).distinct()).scalars())


def _listed(row: Any) -> Listed:  # noqa: ANN401 - a row
    values = row._asdict()
    return Listed(**values | {"state": _SHOWN_AS.get(row.state, row.state)})


def note_state(connection: Connection, document: str) -> NoteState | None:
    """How a note stands; None if there is none."""
    query = (
        select(
            entries.c.state,
            entries.c.batch,
            entries.c.error,
            lanes.c.error.label("lane_error"),
            lanes.c.failed_at,
        )
        .join_from(entries, lanes)
        .where(entries.c.document == document)
    )
    row = connection.execute(query).first()
    return None if row is None else NoteState(*row)


def left(connection: Connection, server: str, since: float) -> int:
    """How many entries a flush waits for: not those of banks that are paused since it began."""
    held = and_(lanes.c.paused, lanes.c.failed_at >= since)
    query = (
        select(func.count())
        .select_from(entries.join(lanes))
        .where(
            lanes.c.server == server,
            entries.c.state.in_((WAITING, BATCHED)),
            func.coalesce(held, False).is_(False),
        )
    )
    return int(connection.execute(query).scalar_one())


def counts(connection: Connection, server: str) -> Counts:
    """How the outbox stands, for one server."""
    mine: dict[str, int] = {}
    others: dict[str, int] = {}
    for url, state, number in connection.execute(_BY_STATE):
        if url == server:
            mine[state] = number
        elif state != DEAD:
            others[url] = others.get(url, 0) + number
    banks = connection.execute(
        select(lanes.c.bank, lanes.c.paused, lanes.c.error, lanes.c.delivered)
        .where(lanes.c.server == server)
        .order_by(lanes.c.failed_at.desc())
    ).all()
    held = connection.execute(
        select(batches.c.error)
        .join_from(batches, lanes)
        .where(
            lanes.c.server == server,
            batches.c.state == RECORDED,
            batches.c.error.is_not(None),
        )
        .limit(1)
    ).scalar()
    oldest = connection.execute(
        select(func.min(entries.c.created))
        .join_from(entries, lanes)
        .where(lanes.c.server == server, entries.c.state.in_((WAITING, BATCHED)))
    ).scalar()
    return Counts(
        waiting=mine.get(WAITING, 0),
        in_flight=mine.get(BATCHED, 0),
        dead=mine.get(DEAD, 0),
        delivered=sum(bank.delivered for bank in banks),
        oldest=oldest,
        last_error=next((bank.error for bank in banks if bank.error), held),
        paused=tuple(bank.bank for bank in banks if bank.paused),
        other_servers=others,
    )
