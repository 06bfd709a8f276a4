"""Recall, as a straight line: query → banks → one concurrent call a bank → filter → fit → result.

A bank that is down, slow or wrong loses its own memories and nothing else. A result is held for a
while, so that the same question again costs no request; one with a failure in it never is. A server
that keeps failing is left alone for a growing time, in which a recall costs nothing.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Hashable
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Literal

from cachetools import TTLCache

from langchain_hindsight import budget, fence
from langchain_hindsight.banks import LifeBank, ProjectBank, life_tag_groups, project_tag_groups
from langchain_hindsight.breaker import Verdict
from langchain_hindsight.errors import BankResolutionError, HindsightError
from langchain_hindsight.fork import abandon, on_fork_in_child
from langchain_hindsight.gateway import Gateway, GatewayError
from langchain_hindsight.mental_models import MentalModels
from langchain_hindsight.recall_result import BankRecall, RecalledMemory, RecallResult
from langchain_hindsight.recalled_texts import RecalledTexts
from langchain_hindsight.settings import HindsightSettings

_HELD = 512
"""Most results held at once."""
_PROBE_WAIT = 0.25
"""How long a turn waits for a server that kept failing, in seconds; the request itself goes on."""

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RecallPlan:
    """Which banks a recall asks: a bank, the reason why there is none, or None for no part."""

    query: str
    project: ProjectBank | BankResolutionError | None = None
    life: LifeBank | BankResolutionError | None = None

    @property
    def key(self) -> Hashable:
        """What makes two recalls the same."""
        return (self.query, *(str(b) if isinstance(b, HindsightError) else b for b in self.banks))

    @property
    def bank_ids(self) -> dict[str, str]:
        """The ids of the banks that are asked, by role."""
        parts = {"project": self.project, "life": self.life}
        return {
            role: bank.bank_id
            for role, bank in parts.items()
            if isinstance(bank, ProjectBank | LifeBank)
        }

    @property
    def banks(self) -> tuple[ProjectBank | LifeBank | BankResolutionError | None, ...]:
        """Both parts, the project's first."""
        return (self.project, self.life)


class Recall:
    """Carries out recall plans against one server."""

    def __init__(self, gateway: Gateway, settings: HindsightSettings) -> None:
        """Start nothing."""
        self._gateway = gateway
        self._settings = settings
        self._counts_tokens = False
        self._models = MentalModels(gateway, settings)
        self.texts = RecalledTexts()
        self._renew()
        on_fork_in_child(self, "_renew")

    def _renew(self) -> None:
        """Hold nothing; what a forked child inherits is under way in its parent."""
        abandon(*getattr(self, "_in_flight", {}).values())
        self._lock = threading.Lock()
        settings = self._settings
        ttl = settings.recall.cache_ttl
        self._results: TTLCache[Hashable, RecallResult] = TTLCache(_HELD, max(ttl, 1e-9))
        self._in_flight: dict[Hashable, _Shared] = {}

    def held(self, plan: RecallPlan) -> RecallResult | None:
        """The same question's result, where it is still good."""
        with self._lock:
            result = self._results.get(plan.key)
        if result is not None:
            self._note(plan, result)
        return result

    def _note(self, plan: RecallPlan, result: RecallResult) -> None:
        """Know what is given out, should it come back through a tool."""
        for bank, part in zip(plan.banks, (result.project, result.life), strict=True):
            if isinstance(bank, ProjectBank | LifeBank) and part is not None:
                shown = ((memory.text, memory.after) for memory in part.memories)
                self.texts.note(bank, filter(None, chain.from_iterable(shown)))

    def forget(self, bank_id: str) -> None:
        """Drop what is held of a bank: it has taken something new."""
        with self._lock:
            stale = [key for key in self._results if _names_bank(key, bank_id)]
            for key in stale:
                self._results.pop(key, None)
            for key, shared in self._in_flight.items():
                shared.stale = shared.stale or _names_bank(key, bank_id)

    async def run(self, plan: RecallPlan, *, expressly: bool = False) -> RecallResult:
        """Carry out a plan on the gateway's loop; the same plan at the same time is one request.

        When every caller that waits for a request is cancelled, so is the request.

        Args:
            plan: Which banks to ask what.
            expressly: Whether somebody asked for just this; then also a server that keeps failing
                is asked, and waited for.

        Raises:
            GatewayError: If the server is left alone because it kept failing.
        """
        held = self.held(plan)
        if held is not None:
            return held
        shared = self._in_flight.get(plan.key) or self._begin(plan, expressly=expressly)
        shared.waiting += 1
        patience = _PROBE_WAIT if shared.is_probe and not expressly else None
        try:
            async with asyncio.timeout(patience):
                result = await asyncio.shield(shared.task)
        except TimeoutError:
            raise self._skipped() from None
        finally:
            shared.waiting -= 1
            if not shared.waiting and not shared.task.done():
                self._end(plan, shared)
                shared.task.cancel()
        self._note(plan, result)
        whole = all(one.error is None for one in result.banks.values())
        if whole and not shared.stale and not self._models.under_way(_resolved(plan)):
            with self._lock:
                self._results[plan.key] = result
        return result

    def _begin(self, plan: RecallPlan, *, expressly: bool) -> _Shared:
        verdict = "ask" if expressly else self._gateway.breaker.verdict()
        if verdict == "skip":
            raise self._skipped()
        shared = _Shared(asyncio.ensure_future(self._judged(plan, verdict)), verdict == "probe")
        self._in_flight[plan.key] = shared
        shared.task.add_done_callback(lambda _: self._end(plan, shared))
        return shared

    def _end(self, plan: RecallPlan, shared: _Shared) -> None:
        if self._in_flight.get(plan.key) is shared:
            del self._in_flight[plan.key]

    def _skipped(self) -> GatewayError:
        breaker = self._gateway.breaker
        msg = (
            f"skipped: Hindsight at {self._gateway.url} has kept failing, so no turn waits for it; "
            f"it is asked again in {breaker.seconds_left:.0f} s at the latest."
        )
        return GatewayError(msg, kind="skipped")

    async def _judged(self, plan: RecallPlan, verdict: Verdict) -> RecallResult:
        """Ask, and tell the breaker when it is the server that failed and no bank answered."""
        breaker = self._gateway.breaker
        try:
            result = await self._ask(plan)
        except BaseException:
            breaker.undecided(verdict)
            raise
        errors = [bank.error for bank in result.banks.values()]
        faults = [one for one in errors if isinstance(one, GatewayError) and one.is_servers_fault]
        if faults and None not in errors:
            breaker.failed(verdict)
        else:
            breaker.undecided(verdict)  # an answer has told it already
        return result

    async def _ask(self, plan: RecallPlan) -> RecallResult:
        settings = self._settings.recall
        limits = (settings.max_tokens, settings.life_limit)
        banks = [
            bank
            for bank, limit in zip(plan.banks, limits, strict=True)
            if limit and isinstance(bank, ProjectBank | LifeBank)
        ]
        with self._models.asked(banks):
            project, life = await self._asked(plan)
            found_models = await self._models.of(banks)
        models = budget.fit(found_models, limit=self._models.limit, role="models").memories
        text = fence.render(
            project.memories if project else (), life.memories if life else (), models
        )
        result = RecallResult(text=text, project=project, life=life, mental_models=models)
        _warn(result)
        return result

    async def _asked(self, plan: RecallPlan) -> tuple[BankRecall | None, BankRecall | None]:
        """What is chosen of either bank, both asked at once."""
        settings = self._settings.recall
        vocabulary = asyncio.ensure_future(self._load_vocabulary())

        async def of_project() -> BankRecall | None:  # while the other bank is still waited for
            found, part = await self._candidates(plan, "project", settings.max_tokens)
            await vocabulary
            return self._chosen(part, found, "project", set())

        project, (life_found, life), _ = await asyncio.gather(
            of_project(), self._candidates(plan, "life", settings.life_limit), vocabulary
        )
        shown: set[str] = set()
        if project:  # a memory of the project that found no room makes no other a duplicate
            budget.filter_memories(project.memories, min_scores={}, seen=shown)
        return project, self._chosen(life, life_found, "life", shown)

    async def _load_vocabulary(self) -> None:
        """Load what tokens are counted with while the server thinks: once a process, it is slow."""
        if not self._counts_tokens:
            await asyncio.to_thread(budget.count_tokens, "a")
            self._counts_tokens = True

    async def _candidates(
        self, plan: RecallPlan, role: Literal["project", "life"], limit: int
    ) -> tuple[list[RecalledMemory], BankRecall | None]:
        """What a bank has to offer, best first, and its part of the result so far."""
        bank = plan.project if role == "project" else plan.life
        if bank is None:
            return [], None
        if isinstance(bank, HindsightError):
            return [], BankRecall(None, limit=limit, error=bank)
        if limit == 0:
            return [], BankRecall(bank.bank_id)
        settings = self._settings.recall
        groups: list[dict[str, Any]] | None
        if isinstance(bank, ProjectBank):
            preamble, groups = settings.query_preamble, project_tag_groups(bank, self._settings)
        else:
            preamble, groups = settings.life_query_preamble, life_tag_groups(bank)
        started = time.perf_counter()
        found: list[RecalledMemory] = []
        error: HindsightError | None = None
        try:
            found = await self._gateway.recall(
                bank.bank_id,
                f"{preamble} {plan.query}".strip(),
                max_tokens=max(limit, settings.candidate_tokens),
                budget=settings.budget,
                types=settings.types,
                tag_groups=groups,
                prefer_observations=settings.prefer_observations,
                timeout=settings.timeout,
            )
        except HindsightError as failure:
            error = failure
        elapsed = (time.perf_counter() - started) * 1000
        ranked = budget.rank(plan.query, found)
        return ranked, BankRecall(bank.bank_id, limit=limit, elapsed_ms=elapsed, error=error)

    def _chosen(
        self,
        part: BankRecall | None,
        found: list[RecalledMemory],
        role: Literal["project", "life"],
        seen: set[str],
    ) -> BankRecall | None:
        """A bank's part with the memories that are worth their tokens."""
        if part is None or not found:
            return part
        floors = self._settings.recall.min_scores
        kept, dropped = budget.filter_memories(
            found,
            min_scores={str(name): floor for name, floor in floors.items()},
            seen=seen,
        )
        fitted = budget.fit(kept, limit=part.limit, role=role)
        counts: dict[str, int] = dict(dropped)
        if fitted.dropped:
            counts["over_limit"] = fitted.dropped
        return replace(part, memories=fitted.memories, tokens=fitted.tokens, dropped=counts)


class _Shared:
    """A request under way, and how many callers wait for it."""

    __slots__ = ("is_probe", "stale", "task", "waiting")

    def __init__(self, task: asyncio.Task[RecallResult], is_probe: bool) -> None:  # noqa: FBT001
        self.task = task
        self.is_probe = is_probe
        self.waiting = int(is_probe)  # a probe goes on when nobody waits for it any more
        self.stale = False


def _resolved(plan: RecallPlan) -> list[ProjectBank | LifeBank]:
    return [bank for bank in plan.banks if isinstance(bank, ProjectBank | LifeBank)]


def _names_bank(key: Any, bank_id: str) -> bool:  # noqa: ANN401 - a plan's key
    return any(isinstance(part, ProjectBank | LifeBank) and part.bank_id == bank_id for part in key)


def _warn(result: RecallResult) -> None:
    """One line a recall, whatever failed in it; who was not named is the memory's to say."""
    failed: dict[str, list[str]] = {}
    for role, bank in result.banks.items():
        if bank.error is not None and not isinstance(bank.error, BankResolutionError):
            failed.setdefault(str(bank.error), []).append(role)
    if failed:
        what = "; ".join(f"{' and '.join(roles)}: {error}" for error, roles in failed.items())
        _logger.warning("The turn goes on without the memory of a bank. %s", what)
