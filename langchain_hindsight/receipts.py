"""What became of a retain, a flush and the outbox: values, never the remembered text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from langchain_hindsight.errors import HindsightError


@dataclass(frozen=True, slots=True)
class RetainReceipt:
    """The record of one retain.

    Hindsight tells what tokens a retain cost only where it is awaited whole. Ours are operations
    that it carries out behind the answer, so there is no such figure here.
    """

    status: Literal["queued", "stored", "skipped", "failed"]
    """``queued`` is on disk, ``stored`` is in Hindsight, ``skipped`` was not to be kept."""
    reason: str | None = None
    """Why it was skipped, only queued, or failed."""
    bank_id: str | None = None
    items: int = 0
    """How many messages or notes were new."""
    operation_ids: tuple[str, ...] = ()
    """Hindsight's operations, once known."""
    error: HindsightError | None = None

    def receipt(self) -> dict[str, Any]:
        """The record as plain values: ``status``, ``reason``, ``bank_id``, ``items``, …."""
        return {
            "status": self.status,
            "reason": self.reason,
            "bank_id": self.bank_id,
            "items": self.items,
            "operation_ids": list(self.operation_ids),
            "error": None if self.error is None else str(self.error),
        }

    def raise_for_error(self) -> RetainReceipt:
        """Raise what made the retain fail, if it did.

        Raises:
            HindsightError: What made it fail.
        """
        if self.error is not None:
            raise self.error
        return self


@dataclass(frozen=True, slots=True)
class FlushReport:
    """The record of one flush: how many entries became what."""

    delivered: int = 0
    """Accepted, and their operation ended well, during this flush."""
    waiting: int = 0
    """Still due or in flight."""
    dead: int = 0
    """Became dead letters during this flush."""
    timed_out: bool = False
    elsewhere: int = 0
    """Wait for another server, or for another key of this one, and were not touched."""


@dataclass(frozen=True, slots=True)
class OutboxStatus:
    """What the outbox holds for this server."""

    waiting: int = 0
    in_flight: int = 0
    delivered: int = 0
    dead: int = 0
    oldest_age: float | None = None
    """Seconds since the oldest waiting entry was written."""
    last_error: str | None = None
    paused: tuple[str, ...] = ()
    """Banks whose server refused the key."""
    other_servers: Mapping[str, int] = field(default_factory=dict)
    """Entries that wait for another server, or for another key of this one, by address.

    An address is a server's URL and, where there is a key, its fingerprint behind a ``#``.
    """
    durable: bool = True
    """False while entries cannot be written to disk."""
    address: str = ""
    """Whom this memory's own entries are meant for."""
    place: str = ""
    """Where the outbox is, as an SQLAlchemy URL without its password."""
