"""Mental models: what Hindsight has concluded of a bank, injected beside its memories.

They have a section and a cap of their own. They are asked for beside the recall and held for
minutes, so that they cost a turn nothing; where they are late or fail, the turn goes on without.
One is shown only where its own tags say that it may be: the server's filter lets others through.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from cachetools import TTLCache

from langchain_hindsight.banks import LifeBank, ProjectBank
from langchain_hindsight.errors import HindsightError
from langchain_hindsight.fork import abandon, on_fork_in_child
from langchain_hindsight.gateway import Gateway, MentalModel
from langchain_hindsight.recall_result import RecalledMemory
from langchain_hindsight.settings import HindsightSettings

_HELD_BANKS = 512
_LATE = 0.05
"""Seconds that a recall waits for them when it has all else."""
_PAUSE_AFTER_FAILURE = 30.0
"""Seconds for which a bank whose models could not be had is not asked for them again."""

_logger = logging.getLogger(__name__)

Bank = ProjectBank | LifeBank


class MentalModels:
    """The mental models of banks, held for a while; to be used on the gateway's loop."""

    def __init__(self, gateway: Gateway, settings: HindsightSettings) -> None:
        """Start nothing."""
        self._gateway = gateway
        self._settings = settings
        self._renew()
        on_fork_in_child(self, "_renew")

    def _renew(self) -> None:
        """Hold nothing; what a forked child inherits is under way in its parent."""
        abandon(*getattr(self, "_asking", {}).values())
        ttl = max(self._settings.mental_models.cache_ttl, 1e-9)
        self._held: TTLCache[str, tuple[RecalledMemory, ...]] = TTLCache(_HELD_BANKS, ttl)
        self._paused: TTLCache[str, float] = TTLCache(
            _HELD_BANKS, _PAUSE_AFTER_FAILURE, timer=time.monotonic
        )
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._waiting: Counter[str] = Counter()

    @property
    def limit(self) -> int:
        """The section's cap in tokens; 0 where there is to be none."""
        settings = self._settings.mental_models
        return settings.max_tokens if settings.inject else 0

    @contextmanager
    def asked(self, banks: Sequence[Bank]) -> Iterator[None]:
        """Ask for what is not held, beside the recall in the ``with`` block.

        What is late goes on behind it, for the next recall. Where the block is cancelled, so is
        what nobody else waits for.
        """
        ids = [bank.bank_id for bank in banks] if self.limit else []
        for bank_id in ids:
            if not any(bank_id in known for known in (self._held, self._paused, self._asking)):
                self._asking[bank_id] = asyncio.ensure_future(self._fetch(bank_id))
        self._waiting.update(ids)
        try:
            yield
        except asyncio.CancelledError:
            for bank_id in ids:
                if self._waiting[bank_id] == 1 and bank_id in self._asking:
                    self._asking[bank_id].cancel()
            raise
        finally:
            self._waiting.subtract(ids)
            self._waiting += Counter()  # drops what nobody waits for

    def under_way(self, banks: Sequence[Bank]) -> list[asyncio.Task[None]]:
        """What is still asked for of some banks."""
        return [self._asking[one.bank_id] for one in banks if one.bank_id in self._asking]

    async def of(self, banks: Sequence[Bank]) -> list[RecalledMemory]:
        """What may be shown of some banks, in a stable order; what is late is given a moment."""
        if late := self.under_way(banks):
            await asyncio.wait(late, timeout=_LATE)
        return [
            model
            for bank in banks
            for model in self._held.get(bank.bank_id, ())
            if self._may_be_shown(model, bank)
        ]

    def _may_be_shown(self, model: RecalledMemory, bank: Bank) -> bool:
        scope = self._settings.scope
        if isinstance(bank, LifeBank):
            return not bank.tags or not set(bank.tags).isdisjoint(model.tags)
        if not model.tags:
            return scope.include_shared or scope.mode == "isolated-bank"
        return not {bank.tag, *scope.legacy_tags}.isdisjoint(model.tags)

    async def _fetch(self, bank_id: str) -> None:
        try:
            found = await self._gateway.mental_models(
                bank_id, timeout=self._settings.recall.timeout
            )
            self._held[bank_id] = tuple(_as_memory(model) for model in found if model.content)
        except HindsightError as error:
            self._paused[bank_id] = time.monotonic()
            _logger.info("The mental models of a bank could not be had: %s", error)
        finally:
            self._asking.pop(bank_id, None)


def _as_memory(model: MentalModel) -> RecalledMemory:
    """A mental model to be shown, its name ahead of what it says."""
    return RecalledMemory(
        id=model.id,
        text=f"{model.name}: {model.content}",
        type="mental_model",
        tags=model.tags,
        date=model.refreshed_at,
    )
