"""Where the outbox is unless ``outbox.url`` says otherwise; known without a database library."""

from __future__ import annotations

from pathlib import Path

from platformdirs import user_state_path


def default_file() -> Path:
    """A file in the platform's state folder."""
    return user_state_path("langchain-hindsight") / "outbox.db"
