"""Where the outbox is: a file in the platform's state folder, or what ``outbox.url`` names."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError

from langchain_hindsight.errors import ConfigurationError
from langchain_hindsight.outbox.default_file import default_file
from langchain_hindsight.settings import OutboxSettings

_PACKAGES = {"psycopg": "psycopg[binary]", "psycopg2": "psycopg2-binary"}


def outbox_url(settings: OutboxSettings) -> URL:
    """Where the outbox is; a file's path is whole, since a program may change its folder.

    Raises:
        ConfigurationError: If ``outbox.url`` is no SQLAlchemy URL of SQLite or PostgreSQL, or its
            driver is not installed.
    """
    if settings.url is None:
        return URL.create("sqlite", database=str(default_file()))
    try:
        url = make_url(settings.url)
        url.get_dialect()
    except (ArgumentError, NoSuchModuleError, ImportError, ValueError) as error:
        msg = (
            "outbox.url must be a SQLAlchemy URL such as sqlite:////var/lib/app/outbox.db or "
            f"postgresql+psycopg://host/database ({type(error).__name__})."
        )
        raise ConfigurationError(msg) from None
    if url.get_backend_name() not in {"sqlite", "postgresql"}:
        msg = (
            f"outbox.url names {url.get_backend_name()}; only sqlite and postgresql are supported."
        )
        raise ConfigurationError(msg)
    _check_driver(url)
    if is_file(url) and not str(url.database).startswith("file:"):
        url = url.set(database=str(Path(str(url.database)).absolute()))
    return url


def _check_driver(url: URL) -> None:
    dialect = url.get_dialect()
    driver = str(dialect.driver)
    if dialect.is_async:
        msg = f"outbox.url names {driver}, which is asynchronous; use postgresql+psycopg or sqlite."
        raise ConfigurationError(msg)
    try:
        dialect.import_dbapi()
    except ImportError as error:
        package = _PACKAGES.get(driver, driver)
        msg = (
            f"outbox.url needs the database driver {driver}, which cannot be imported "
            f"({type(error).__name__}); install it with: pip install '{package}'"
        )
        raise ConfigurationError(msg) from None


def is_file(url: URL) -> bool:
    """Whether the outbox is a SQLite file."""
    return url.get_backend_name() == "sqlite" and url.database not in {None, "", ":memory:"}
