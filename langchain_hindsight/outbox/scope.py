"""What is handed to the outbox: where it belongs, and a message ready to be written down."""

from __future__ import annotations

import json
from dataclasses import dataclass
from uuid import uuid5

from langchain_hindsight.outbox.batching import NAMESPACE


@dataclass(frozen=True, slots=True)
class Scope:
    """A conversation, or a bank's notes: where entries belong."""

    server: str
    """An address: see `address`."""
    bank_id: str
    tag: str = ""
    thread: str = ""

    def key(self, ledger: str | None) -> str:
        """The scope as one short value; the thread's name itself is not written down.

        Args:
            ledger: The address under which its bank was first known; None for the present one.
        """
        known_as = ledger or self.server
        return str(uuid5(NAMESPACE, json.dumps([known_as, self.bank_id, self.tag, self.thread])))

    def document(self, message: str) -> str:
        """The document of one message."""
        return str(uuid5(NAMESPACE, json.dumps([self.bank_id, self.tag, self.thread, message])))


@dataclass(frozen=True, slots=True)
class Draft:
    """A message as it is to be written down, already masked."""

    index: int
    message_id: str | None
    fingerprint: str
    speech: bool
    starts_turn: bool
    payload: str | None
    """None where the message is only to be known, so that nothing keeps it later."""
