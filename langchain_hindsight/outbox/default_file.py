"""The file that the outbox is in, as far as that is known without a database library."""

from __future__ import annotations

from pathlib import Path

from platformdirs import user_state_path


def default_file() -> Path:
    """A file in the platform's state folder."""
    return user_state_path("langchain-hindsight") / "outbox.db"


def plain_file(url: str) -> Path | None:
    """The file of an ``outbox.url`` that says nothing else; None for every other."""
    path = url.removeprefix("sqlite:///")
    is_plain = path not in {url, "", ":memory:"} and "?" not in path and "%" not in path
    return Path(path) if is_plain else None
