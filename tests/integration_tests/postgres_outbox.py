"""A PostgreSQL for outboxes, apart from Hindsight's own."""

from __future__ import annotations

import contextlib
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

from sqlalchemy import create_engine, text

from langchain_hindsight.embedded.postgres import Postgres


@contextlib.contextmanager
def running_postgres() -> Iterator[str]:
    """A PostgreSQL that is stopped and deleted afterwards, as a URL of SQLAlchemy's."""
    # Not pytest's folder, which is closed to the account that PostgreSQL runs as under root.
    with tempfile.TemporaryDirectory(prefix="langchain-hindsight-") as folder:
        Path(folder).chmod(0o711)
        postgres = Postgres(Path(folder))
        try:
            yield postgres.start().url.replace("postgresql://", "postgresql+psycopg://", 1)
        finally:
            postgres.stop()


def new_database(postgres_url: str) -> str:
    """The URL of an empty database."""
    name = f"outbox_{uuid.uuid4().hex}"
    engine = create_engine(postgres_url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(f'CREATE DATABASE "{name}"'))
    engine.dispose()
    return f"{postgres_url.rpartition('/')[0]}/{name}"
