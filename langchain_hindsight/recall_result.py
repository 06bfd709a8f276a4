"""What a recall gave: the memories of each bank, the block made of them, and the receipt.

Values only. What was injected can be read here; the receipt never holds remembered text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from langchain_hindsight.errors import HindsightError

if TYPE_CHECKING:
    from langchain_core.documents import Document
    from rich.console import Console, ConsoleOptions, RenderResult


BEFORE_THIS = "Before this, "
"""How the context begins that a message is retained with: the messages before it, a line each."""


@dataclass(frozen=True, slots=True)
class RecalledMemory:
    """One memory as Hindsight gave it."""

    id: str
    text: str
    type: str | None = None
    """``world``, ``experience`` or ``observation``."""
    tags: tuple[str, ...] = ()
    date: datetime | None = None
    """When it happened, else when it was said; always with a zone."""
    scores: Mapping[str, float] = field(default_factory=dict)
    """``final``, ``semantic``, ``keyword``, ``reranker``, those that the server gave."""
    document_id: str | None = None
    context: str | None = None
    """What it was retained with; it helps to find and rank the memory, and is not injected."""
    after: str | None = None
    """What was said right before it, on one line, where there was room to show that too."""


@dataclass(frozen=True, slots=True)
class BankRecall:
    """One bank's part of a recall."""

    bank_id: str | None
    """None where no bank followed from who was asking; ``error`` then says why."""
    memories: tuple[RecalledMemory, ...] = ()
    """What was injected, in that order."""
    tokens: int = 0
    """What the bank's section costs, headings and fence included."""
    limit: int = 0
    """The section's cap in tokens."""
    elapsed_ms: float = 0.0
    error: HindsightError | None = None
    dropped: Mapping[str, int] = field(default_factory=dict)
    """How many memories were left out, by reason."""

    def receipt(self) -> dict[str, Any]:
        """The record of this bank's recall, without any remembered text."""
        return {
            "bank_id": self.bank_id,
            "ids": [memory.id for memory in self.memories],
            "tokens": self.tokens,
            "limit": self.limit,
            "elapsed_ms": round(self.elapsed_ms, 1),
            "dropped": dict(self.dropped),
            "error": None if self.error is None else str(self.error),
        }


@dataclass(frozen=True, slots=True)
class RecallResult:
    """What was recalled for one question.

    A server, a network or a missing caller never makes a recall raise: the bank's ``error`` says
    what happened, and `raise_for_error` raises it.
    """

    text: str = ""
    """The fenced block for the model; ``""`` when there is nothing."""
    project: BankRecall | None = None
    """None when the Project Bank took no part."""
    life: BankRecall | None = None
    """None when the Life Bank took no part."""
    reason: str | None = None
    """Why nothing was asked of the server, where nothing was."""
    mental_models: tuple[RecalledMemory, ...] = ()
    """The mental models that were injected, in a section and a cap of their own."""

    @property
    def banks(self) -> dict[str, BankRecall]:
        """The banks that took part, by role: ``project``, ``life``."""
        roles = {"project": self.project, "life": self.life}
        return {role: bank for role, bank in roles.items() if bank is not None}

    def documents(self) -> list[Document]:
        """The memories as LangChain documents, the Project Bank's first.

        Returns:
            Documents whose ``metadata`` holds ``bank`` (``project`` or ``life``), ``bank_id``,
            ``type``, ``tags``, ``date`` (ISO 8601), ``scores`` and ``document_id``.
        """
        from langchain_core.documents import Document

        return [
            Document(
                id=memory.id,
                page_content=memory.text,
                metadata={
                    "bank": role,
                    "bank_id": bank.bank_id,
                    "type": memory.type,
                    "tags": list(memory.tags),
                    "date": memory.date.isoformat() if memory.date else None,
                    "scores": dict(memory.scores),
                    "document_id": memory.document_id,
                },
            )
            for role, bank in self.banks.items()
            for memory in bank.memories
        ]

    def receipt(self) -> dict[str, Any]:
        """The record of this recall: banks, ids, tokens, limits, milliseconds, what failed and why.

        Returns:
            ``{"reason": str | None, "project": {...} | None, "life": {...} | None,
            "mental_models": [id, ...]}``; never the remembered text.
        """
        return {
            "reason": self.reason,
            "project": None if self.project is None else self.project.receipt(),
            "life": None if self.life is None else self.life.receipt(),
            "mental_models": [model.id for model in self.mental_models],
        }

    def raise_for_error(self) -> RecallResult:
        """Raise the first bank's error, if there is one.

        Raises:
            HindsightError: What made a bank's recall fail.
        """
        for bank in self.banks.values():
            if bank.error is not None:
                raise bank.error
        return self

    def __repr__(self) -> str:
        """The receipt: a repr ends up in logs, where remembered text has no place."""
        return f"RecallResult({self.receipt()})"

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """A bar a bank, used of limit, with the memories under it; for terminals."""
        from langchain_hindsight.recall_view import as_rich

        yield from as_rich(self)

    def _repr_html_(self) -> str:
        """A bar a bank, used of limit, with the memories under it; for notebooks."""
        from langchain_hindsight.recall_view import as_html

        return as_html(self)
