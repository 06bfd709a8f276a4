"""The two things compared: a `DualBankMemory`, and the client's own calls with the same request."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from langchain_hindsight import DualBankMemory, HindsightSettings
from langchain_hindsight.banks import LifeBank, ProjectBank, life_tag_groups, project_tag_groups
from langchain_hindsight.recall_result import RecallResult

if TYPE_CHECKING:
    from hindsight_client import Hindsight

PROJECT = ProjectBank("bench-project", "bench")
LIFE = LifeBank("bench-life")
PATIENCE = 300.0
"""Deadline of both sides in seconds, so that a crowded run measures speed and not deadlines."""


@dataclass(frozen=True, slots=True)
class Places:
    """Where a benchmark runs, and how long."""

    server_url: str
    stub_url: str
    """With a 50 ms delay and 60 candidates a bank."""
    quick_stub_url: str
    """With no delay and 60 candidates a bank."""
    recalls: Callable[[], Awaitable[dict[str, int]]]
    """How often each bank of the stub was recalled from so far."""
    folder: Path
    """For outboxes."""
    runs: int
    calls: int
    """Calls a run."""
    turns: int
    """Turns after which what is held is weighed, and half of that before."""
    crowds: int
    """How often the whole crowd calls at once; even, so that each side goes first as often."""


@dataclass(frozen=True, slots=True)
class BothSides:
    """Our memory and the client, on one server."""

    memory: DualBankMemory
    client: Hindsight

    async def ours(self, question: str) -> RecallResult:
        """A dual-bank recall.

        Raises:
            RuntimeError: If it failed or found nothing, which would measure nothing.
        """
        return found(await self.memory.arecall(question))

    async def raw_project(self, question: str) -> object:
        """One recall by the client's own method, from the Project Bank."""
        groups = project_tag_groups(PROJECT, self.memory.settings)
        return await self._raw(PROJECT.bank_id, question, groups)

    async def raw_life(self, question: str) -> object:
        """One recall by the client's own method, from the Life Bank."""
        return await self._raw(LIFE.bank_id, question, life_tag_groups(LIFE))

    async def raw_both(self, question: str) -> object:
        """Both by the client's own method, concurrently."""
        return await asyncio.gather(self.raw_project(question), self.raw_life(question))

    async def _raw(
        self, bank_id: str, question: str, groups: list[dict[str, Any]] | None
    ) -> object:
        settings = self.memory.settings.recall
        return await self.client.arecall(
            bank_id,
            question,
            types=None if settings.types is None else list(settings.types),
            max_tokens=settings.candidate_tokens,
            budget=settings.budget,
            tag_groups=groups,
            prefer_observations=settings.prefer_observations,
        )


def found(result: RecallResult) -> RecallResult:
    """A result with something of both banks in it.

    Raises:
        RuntimeError: If there is not.
    """
    result.raise_for_error()
    if not (result.project and result.project.memories and result.life and result.life.memories):
        msg = "A recall found nothing, so its time says nothing."
        raise RuntimeError(msg)
    return result


@contextlib.asynccontextmanager
async def both_sides(url: str, folder: Path, *, cache_ttl: float = 0) -> AsyncIterator[BothSides]:
    """Open both on a server; each has made its first calls."""
    from hindsight_client import Hindsight

    outbox = f"sqlite:///{(folder / 'outbox.db').as_posix()}"
    settings = HindsightSettings(
        recall={"cache_ttl": cache_ttl, "timeout": PATIENCE}, outbox={"url": outbox}
    )
    memory = DualBankMemory(
        url,
        project_bank=PROJECT.bank_id,
        project_id=PROJECT.project_id,
        life_bank=LIFE.bank_id,
        settings=settings,
    )
    client = Hindsight(url, timeout=PATIENCE)
    try:
        yield BothSides(memory, client)
    finally:
        await client.aclose()
        await memory.aclose()
