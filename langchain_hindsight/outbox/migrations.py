"""The schema's versions: created, brought forward without loss, or refused untouched."""

from __future__ import annotations

from sqlalchemy import Connection, Engine, insert, inspect, select, update
from sqlalchemy.exc import IntegrityError, ProgrammingError

from langchain_hindsight.errors import ConfigurationError
from langchain_hindsight.outbox.schema import batches, metadata, usage, version

SCHEMA_VERSION = 2
_WITHOUT_PATIENCE = 1
"""The version in which a request had no back-off of its own."""


class NewerOutboxError(ConfigurationError):
    """The outbox was written by a newer version of this package."""


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
    if found == _WITHOUT_PATIENCE:
        for column in (batches.c.failures, batches.c.due):
            kind = column.type.compile(connection.dialect)
            connection.exec_driver_sql(
                f"ALTER TABLE {batches.name} ADD COLUMN {column.name} {kind} NOT NULL DEFAULT 0"
            )
        connection.execute(update(version).values(version=SCHEMA_VERSION))
        return
    if found > SCHEMA_VERSION:
        msg = (
            f"The outbox has schema {found}, written by a newer langchain-hindsight; this one "
            f"knows up to {SCHEMA_VERSION}. Upgrade the package, or set outbox.url to another "
            "place. Nothing was changed."
        )
        raise NewerOutboxError(msg)
