"""The schema's versions: created, brought forward without loss, or refused untouched."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Column, Connection, Engine, insert, inspect, select, update
from sqlalchemy.exc import IntegrityError, ProgrammingError

from langchain_hindsight.errors import ConfigurationError
from langchain_hindsight.outbox.address import server_of
from langchain_hindsight.outbox.readdress import move
from langchain_hindsight.outbox.schema import batches, lanes, metadata, usage, version

SCHEMA_VERSION = 3


class NewerOutboxError(ConfigurationError):
    """The outbox was written by a newer version of this package."""


def is_up_to_date(connection: Connection) -> bool:
    """Whether the tables are there, and of this version."""
    if not inspect(connection).has_table(version.name):
        return False
    return connection.execute(select(version.c.version)).scalar() == SCHEMA_VERSION


def bring_up_to_date(engine: Engine) -> None:
    """Create what is missing, in one transaction; refuse what is newer."""
    try:
        with engine.begin() as connection:
            _check_version(connection)
    except (IntegrityError, ProgrammingError):
        # another process created the tables at the same moment
        with engine.begin() as connection:
            _check_version(connection)


def _check_version(connection: Connection) -> None:
    if not inspect(connection).has_table(version.name):
        metadata.create_all(connection)
        connection.execute(insert(version).values(version=SCHEMA_VERSION))
        connection.execute(insert(usage).values(id=1, entries=0, bytes=0))
        return
    found = connection.execute(select(version.c.version)).scalar_one()
    if found > SCHEMA_VERSION:
        msg = (
            f"The outbox has schema {found}, written by a newer langchain-hindsight; this one "
            f"knows up to {SCHEMA_VERSION}. Upgrade the package, or set outbox.url to another "
            "place. Nothing was changed."
        )
        raise NewerOutboxError(msg)
    for step in _STEPS[found - 1 :]:
        step(connection)
    if found < SCHEMA_VERSION:
        connection.execute(update(version).values(version=SCHEMA_VERSION))


def _give_requests_patience(connection: Connection) -> None:
    """From 1: a request has a back-off of its own."""
    _add(connection, batches.c.failures, "NOT NULL DEFAULT 0")
    _add(connection, batches.c.due, "NOT NULL DEFAULT 0")


def _give_banks_addresses(connection: Connection) -> None:
    """From 2: a server has one spelling, and a bank remembers the address it was known under."""
    _add(connection, lanes.c.ledger)
    for server in connection.execute(select(lanes.c.server).distinct()).scalars().all():
        if server_of(server) != server:
            move(connection, server, server_of(server))


_STEPS = (_give_requests_patience, _give_banks_addresses)
"""What brings each version forward to the next, the first version's step first."""


def _add(connection: Connection, column: Column[Any], rule: str = "") -> None:
    kind = column.type.compile(connection.dialect)
    connection.exec_driver_sql(
        f"ALTER TABLE {column.table.name} ADD COLUMN {column.name} {kind} {rule}"
    )
