"""`DualBankMemory`, the one door: every adapter needs this and nothing else."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
import os
import threading
import weakref
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar, overload

from cachetools import LRUCache, TLRUCache
from pydantic import SecretStr

from langchain_hindsight.background_thread import in_a_thread
from langchain_hindsight.banks import (
    BankPolicy,
    LifeBank,
    ProjectBank,
    life_tag_groups,
    project_tag_groups,
)
from langchain_hindsight.caller import Caller, identify
from langchain_hindsight.errors import BankResolutionError, ConfigurationError, HindsightError
from langchain_hindsight.fence import strip_recalled
from langchain_hindsight.fork import on_fork_in_child
from langchain_hindsight.gateway import Gateway, GatewayError, checked_key
from langchain_hindsight.managed_bank import ManagedBank
from langchain_hindsight.project_identity import identify_project
from langchain_hindsight.query import compose_query, turn_message
from langchain_hindsight.recall import Recall, RecallPlan
from langchain_hindsight.recall_result import BankRecall, RecallResult
from langchain_hindsight.receipts import FlushReport, OutboxStatus, RetainReceipt
from langchain_hindsight.retain import Retainer
from langchain_hindsight.settings import BankTemplate, EnvironmentKey, HindsightSettings
from langchain_hindsight.templates import Role
from langchain_hindsight.tracing import Operation, Subject, Watched

if TYPE_CHECKING:
    from types import TracebackType
    from uuid import UUID

    from langchain_core.messages import BaseMessage, MessageLikeRepresentation
    from langchain_core.runnables import RunnableConfig

    Conversation = Sequence[MessageLikeRepresentation]

T = TypeVar("T")

_NOTE_WAIT = 10.0
"""How long an explicit retain waits for the server, in seconds; then it is queued."""
_TURN_HELD = 3600.0
_FAILED_TURN_HELD = 60.0
"""How long a turn's recall is held, in seconds, for however many model calls the turn makes."""
_TURNS = 1024

_logger = logging.getLogger(__name__)


class DualBankMemory:
    """A Project Bank that is recalled and retained to, and an opt-in Life Bank of the person.

    Constructing it makes no network call and starts no thread. It serves sync and async callers,
    any number of threads, event loops, tenants and forked workers at once. Copies are the same
    memory; a pickle holds the configuration without the API key and passwords, which are read again
    where it is unpickled.

    Example:
        ```python
        from langchain_hindsight import DualBankMemory

        with DualBankMemory(project_bank="acme-coding", life_bank="life-{user_id}") as memory:
            caller = {"configurable": {"user_id": "u-1", "thread_id": "t-1"}}
            memory.retain([("human", "We deploy on Fridays."), ("ai", "Noted.")], config=caller)
            print(memory.recall("When do we deploy?", caller).text)
        ```

    Args:
        url: The Hindsight server; else ``HINDSIGHT_API_URL`` or ``HINDSIGHT_BASE_URL``.
        api_key: Its key, ``{"source": "env", "name": "VARIABLE"}`` for a variable that is read when
            the key is needed, or a function that gives it; else ``HINDSIGHT_API_KEY``.
        project_bank: The Project Bank: an id, a template over the caller's context such as
            ``"coding-{tenant}"``, or a function of the caller's values.
        project_id: Pins who this project is; else its git remote or folder says.
        life_bank: The Life Bank, in the same three forms; None leaves it out.
        settings: The whole configuration; the arguments above win over it.

    Raises:
        ConfigurationError: If the configuration can never work.
    """

    def __init__(
        self,
        url: str | None = None,
        api_key: str | SecretStr | Mapping[str, str] | Callable[[], str | None] | None = None,
        *,
        project_bank: BankTemplate | None = None,
        project_id: BankTemplate | None = None,
        life_bank: BankTemplate | None = None,
        settings: HindsightSettings | None = None,
    ) -> None:
        """Check the configuration and start nothing."""
        if settings is None:
            settings = HindsightSettings()
        elif not isinstance(settings, HindsightSettings):
            msg = f"settings must be a HindsightSettings, found {type(settings).__name__}."
            raise ConfigurationError(msg)
        self.settings = settings.overridden(
            url=url, project_bank=project_bank, project_id=project_id, life_bank=life_bank
        )
        self._banks = BankPolicy(
            self.settings,
            identify_project=lambda: _project_here(self.settings),
        )
        self._gateway = Gateway(
            self.settings.url, key_provider(api_key, self.settings), self.settings.timeout
        )
        self._loop = self._gateway.loop
        self._recall = Recall(self._gateway, self.settings)
        self._retainer = Retainer(self._gateway, self.settings, on_accepted=self._recall.forget)
        self._turns: TLRUCache[Hashable, RecallResult] = TLRUCache(_TURNS, _held_until)
        self._renew()
        on_fork_in_child(self, "_renew")
        patience = self.settings.outbox.shutdown_timeout
        leave = weakref.finalize(self, _release, self._retainer, self._gateway, patience)
        leave.atexit = False

    def _renew(self) -> None:
        self._turns_lock = threading.Lock()
        self._unresolved: LRUCache[Hashable, None] = LRUCache(_TURNS)
        self._starting: concurrent.futures.Future[None] | None = None

    @property
    def has_life(self) -> bool:
        """Whether a Life Bank is configured and switched on."""
        return self._banks.has_life

    def recall(
        self,
        query_or_messages: str | Conversation,
        config: RunnableConfig | None = None,
        *,
        context: object | None = None,
        expressly: bool = False,
    ) -> RecallResult:
        """Recall what is relevant from both banks at once.

        Args:
            query_or_messages: A question, or a conversation whose last human message is the
                question and whose turns before it give it meaning.
            config: The run's config, which says who is asking; else that of the run under way.
            context: The LangGraph runtime context, where the caller holds it.
            expressly: Whether a person or a model asks for just this. Then a server that has kept
                failing is asked all the same, where a turn's own recall is skipped for a while.

        Returns:
            The result. A bank that failed says so in its ``error``; nothing is raised for what a
            server, a network or a missing caller does.
        """
        caller = identify(config, context)
        plan = self._plan_recall(query_or_messages, caller)
        if isinstance(plan, RecallResult):
            return plan
        with self._watch("recall", caller, config, plan.bank_ids, plan.query) as watched:
            return watched.ended(self._carry_out(plan, expressly=expressly))

    async def arecall(
        self,
        query_or_messages: str | Conversation,
        config: RunnableConfig | None = None,
        *,
        context: object | None = None,
        expressly: bool = False,
    ) -> RecallResult:
        """`recall`, awaited."""
        await self._look_up_project()
        caller = identify(config, context)
        plan = self._plan_recall(query_or_messages, caller)
        if isinstance(plan, RecallResult):
            return plan
        async with self._watch("recall", caller, config, plan.bank_ids, plan.query) as watched:
            return watched.ended(await self._acarry_out(plan, expressly=expressly))

    def recall_turn(
        self,
        messages: Sequence[BaseMessage],
        config: RunnableConfig | None = None,
        *,
        context: object | None = None,
    ) -> RecallResult:
        """`recall`, once for a turn however often it asks.

        The result is held under thread, human message, banks and tag, so that it stays the same
        for all model calls of the turn, also when something is retained in mid-turn.
        """
        caller = identify(config, context)
        if caller.mode != "normal":  # known at once: also a run that fails is not kept later
            self.retain(messages, config=config, context=context)
        plan = self._plan_recall(messages, caller)
        if isinstance(plan, RecallResult):
            return plan
        key = _turn_key(messages, caller, plan)
        if held := self._held_turn(key):
            return held
        with self._watch("recall", caller, config, plan.bank_ids, plan.query) as watched:
            return self._hold_turn(key, watched.ended(self._carry_out(plan)))

    async def arecall_turn(
        self,
        messages: Sequence[BaseMessage],
        config: RunnableConfig | None = None,
        *,
        context: object | None = None,
    ) -> RecallResult:
        """`recall_turn`, awaited."""
        await self._look_up_project()
        caller = identify(config, context)
        if caller.mode != "normal":
            await self.aretain(messages, config=config, context=context)
        plan = self._plan_recall(messages, caller)
        if isinstance(plan, RecallResult):
            return plan
        key = _turn_key(messages, caller, plan)
        if held := self._held_turn(key):
            return held
        async with self._watch("recall", caller, config, plan.bank_ids, plan.query) as watched:
            return self._hold_turn(key, watched.ended(await self._acarry_out(plan)))

    def retain(
        self,
        messages: str | Conversation,
        thread_id: str | int | UUID | None = None,
        config: RunnableConfig | None = None,
        *,
        context: object | None = None,
    ) -> RetainReceipt:
        """Retain to the Project Bank what a conversation holds that is new.

        Args:
            messages: The whole thread or its new part: what is retained already is known. A plain
                string is a note that somebody makes expressly; it waits a few seconds for the
                server, so that the receipt can honestly say ``stored``.
            thread_id: The conversation, such as a string or a database's key; else the config's.
            config: The run's config, which says who is asking; else that of the run under way.
            context: The LangGraph runtime context, where the caller holds it.

        Returns:
            The receipt: what is ``queued`` is on disk and will be delivered. Nothing is raised for
            what a server, a network, a disk or a missing caller does.

        Raises:
            TypeError: If that is no conversation.
        """
        caller = identify(config, context)
        bank = self._bank_to_retain(caller, expressly=isinstance(messages, str))
        if isinstance(bank, RetainReceipt):
            return bank
        with self._watch("retain", caller, config, {"project": bank.bank_id}) as watched:
            if isinstance(messages, str):
                note = strip_recalled(messages)
                return watched.ended(
                    self._retainer.retain_note(bank, note, wait=_NOTE_WAIT, call=_call(caller))
                )
            return watched.ended(
                self._retainer.retain_transcript(
                    bank,
                    _as_messages(messages),
                    thread_id=_thread(thread_id, caller),
                    keep=caller.mode == "normal",
                    recalled=lambda: self._recalled_from(bank, caller),
                )
            )

    async def aretain(
        self,
        messages: str | Conversation,
        thread_id: str | int | UUID | None = None,
        config: RunnableConfig | None = None,
        *,
        context: object | None = None,
    ) -> RetainReceipt:
        """`retain`, awaited."""
        await self._look_up_project()
        caller = identify(config, context)
        bank = self._bank_to_retain(caller, expressly=isinstance(messages, str))
        if isinstance(bank, RetainReceipt):
            return bank
        async with self._watch("retain", caller, config, {"project": bank.bank_id}) as watched:
            if isinstance(messages, str):
                note = strip_recalled(messages)
                return watched.ended(
                    await self._retainer.aretain_note(
                        bank, note, wait=_NOTE_WAIT, call=_call(caller)
                    )
                )
            return watched.ended(
                await self._retainer.aretain_transcript(
                    bank,
                    _as_messages(messages),
                    thread_id=_thread(thread_id, caller),
                    keep=caller.mode == "normal",
                    recalled=lambda: self._recalled_from(bank, caller),
                )
            )

    def retain_life(
        self,
        text: str,
        config: RunnableConfig | None = None,
        *,
        context: object | None = None,
    ) -> RetainReceipt:
        """Write something that is true of the person to the Life Bank; nothing else ever does.

        Args:
            text: What to remember, across all projects.
            config: The run's config, which says who is asking; else that of the run under way.
            context: The LangGraph runtime context, where the caller holds it.

        Returns:
            A receipt that says ``stored``, or ``queued`` and why.

        Raises:
            LifeBankDisabledError: If there is no Life Bank.
            BankResolutionError: If the bank depends on who is asking, and nobody is named.
            HindsightError: If it could not be kept.
        """
        caller = identify(config, context)
        bank = self._life_to_retain(caller)
        note = strip_recalled(text)
        with self._watch("retain", caller, config, {"life": bank.bank_id}) as watched:
            return _kept(
                watched.ended(
                    self._retainer.retain_note(bank, note, wait=_NOTE_WAIT, call=_call(caller))
                )
            )

    async def aretain_life(
        self,
        text: str,
        config: RunnableConfig | None = None,
        *,
        context: object | None = None,
    ) -> RetainReceipt:
        """`retain_life`, awaited."""
        await self._look_up_project()
        caller = identify(config, context)
        bank = self._life_to_retain(caller)
        note = strip_recalled(text)
        async with self._watch("retain", caller, config, {"life": bank.bank_id}) as watched:
            return _kept(
                watched.ended(
                    await self._retainer.aretain_note(
                        bank, note, wait=_NOTE_WAIT, call=_call(caller)
                    )
                )
            )

    def reflect(
        self,
        query: str,
        config: RunnableConfig | None = None,
        *,
        context: object | None = None,
    ) -> str:
        """Hindsight's own answer, reasoned over this project's memories.

        Where the Project Bank takes no part, it reasons over the Life Bank.

        Raises:
            BankResolutionError: If the bank depends on who is asking, and nobody is named.
            HindsightError: If there is no answer; a server without an LLM cannot reflect.
        """
        return self._loop.run(self._reflection(query, identify(config, context)))

    async def areflect(
        self,
        query: str,
        config: RunnableConfig | None = None,
        *,
        context: object | None = None,
    ) -> str:
        """`reflect`, awaited."""
        await self._look_up_project()
        caller = identify(config, context)
        return await self._loop.arun(self._reflection(query, caller))

    def manage(
        self,
        role: Role,
        work: Callable[[ManagedBank], Awaitable[T]],
        config: RunnableConfig | None = None,
        *,
        context: object | None = None,
    ) -> T:
        """Look after a bank on purpose: its missions, its mental models, its template.

        Args:
            role: ``"project"`` or ``"life"``.
            work: What to do, such as ``lambda bank: bank.look()``.
            config: The run's config, which says who is asking; else that of the run under way.
            context: The LangGraph runtime context, where the caller holds it.

        Returns:
            What the work gives.

        Raises:
            LifeBankDisabledError: If there is no Life Bank.
            BankResolutionError: If the bank depends on who is asking, and nobody is named.
            HindsightError: If it failed.
        """
        return self._loop.run(self._managed(role, work, identify(config, context)))

    async def amanage(
        self,
        role: Role,
        work: Callable[[ManagedBank], Awaitable[T]],
        config: RunnableConfig | None = None,
        *,
        context: object | None = None,
    ) -> T:
        """`manage`, awaited; the work is awaited on the memory's own loop."""
        await self._look_up_project()
        caller = identify(config, context)
        return await self._loop.arun(self._managed(role, work, caller))

    def flush(self, timeout: float = 30.0) -> FlushReport:
        """Wait until everything due has been taken and stored, or the time, in seconds, is up."""
        self._opened()
        return self._retainer.flush(timeout)

    async def aflush(self, timeout: float = 30.0) -> FlushReport:  # noqa: ASYNC109 - as `flush`
        """`flush`, awaited."""
        self._opened()
        return await self._retainer.aflush(timeout)

    def status(self) -> OutboxStatus:
        """What waits to be delivered, what could not be, and why; makes no network call."""
        return self._retainer.status()

    async def astatus(self) -> OutboxStatus:
        """`status`, awaited."""
        return await self._retainer.astatus()

    def close(self) -> None:
        """Deliver for at most ``outbox.shutdown_timeout``, then close everything.

        What is left stays on disk for the next start. Closing again is harmless, and a call after
        it opens what it needs anew.
        """
        _open.discard(self)
        if self._starting is not None:
            concurrent.futures.wait([self._starting], timeout=1.0)
            self._starting = None
        _shut_down(self._retainer, self._gateway, self.settings.outbox.shutdown_timeout)

    async def aclose(self) -> None:
        """`close`, awaited."""
        await in_a_thread(self.close)

    def __enter__(self) -> Self:
        """The memory itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """`close`."""
        self.close()

    async def __aenter__(self) -> Self:
        """The memory itself."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """`aclose`."""
        await self.aclose()

    def __repr__(self) -> str:
        """The server and the banks, without the key."""
        banks = self.settings.banks
        return (
            f"DualBankMemory(url={self._gateway.url!r}, "
            f"project_bank={banks.project.bank_id!r}, life_bank={banks.life.bank_id!r})"
        )

    def __copy__(self) -> Self:
        """The same memory: it owns a server's connections and an outbox."""
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """The same memory."""
        return self

    def __reduce__(self) -> tuple[Callable[[HindsightSettings], DualBankMemory], tuple[Any, ...]]:
        """The configuration, which pickles without credentials."""
        return _rebuilt, (self.settings,)

    def _plan_recall(
        self, query_or_messages: str | Conversation, caller: Caller
    ) -> RecallPlan | RecallResult:
        """Which banks to ask what, or the empty result that says why none."""
        if caller.mode == "ignored":
            return RecallResult(reason="The memory mode of this run is 'ignored'.")
        if not self.settings.recall.enabled:
            return RecallResult(reason="Recall is switched off (recall.enabled).")
        if not self.settings.switches.project and not self.has_life:
            return RecallResult(reason="No bank takes part.")
        project = life = None
        if self.settings.switches.project:
            project = self._said(caller, _or_error(lambda: self._banks.project(caller.values)))
        if self.has_life:
            life = self._said(caller, _or_error(lambda: self._banks.life(caller.values)))
        if _same_bank(project, life):
            _logger.warning("The Life Bank is the Project Bank; it is recalled once")
            life = None
        asked = (
            query_or_messages
            if isinstance(query_or_messages, str)
            else _as_messages(query_or_messages)
        )
        query = compose_query(
            asked,
            context_turns=self.settings.recall.context_turns,
            max_query_chars=self.settings.recall.max_query_chars,
        )
        plan = RecallPlan(query.text, project, life)
        return plan if query.text else self._empty(plan, query.reason)

    def _empty(
        self, plan: RecallPlan, reason: str | None, error: HindsightError | None = None
    ) -> RecallResult:
        """A result without memories that names the banks of a plan."""
        limits = (self.settings.recall.max_tokens, self.settings.recall.life_limit)
        parts = [
            None
            if bank is None
            else BankRecall(None, limit=limit, error=bank)
            if isinstance(bank, HindsightError)
            else BankRecall(bank.bank_id, limit=limit, error=error)
            for bank, limit in zip(plan.banks, limits, strict=True)
        ]
        return RecallResult(project=parts[0], life=parts[1], reason=reason)

    def _carry_out(self, plan: RecallPlan, *, expressly: bool = False) -> RecallResult:
        held = self._recall.held(plan)
        if held is not None:
            return held
        is_first = self._noted_as_open()
        try:
            return self._loop.run(self._recall.run(plan, expressly=expressly))
        except HindsightError as error:
            return self._empty(plan, _why_skipped(error), error)
        finally:  # opening an outbox ahead of it would hold up the first turn
            if is_first:
                self._begin_delivery()

    async def _acarry_out(self, plan: RecallPlan, *, expressly: bool = False) -> RecallResult:
        held = self._recall.held(plan)
        if held is not None:
            return held
        is_first = self._noted_as_open()
        try:
            return await self._loop.arun(self._recall.run(plan, expressly=expressly))
        except HindsightError as error:
            return self._empty(plan, _why_skipped(error), error)
        finally:
            if is_first:
                self._begin_delivery()

    def _watch(
        self,
        operation: Operation,
        caller: Caller,
        config: RunnableConfig | None,
        banks: Mapping[str, str],
        query: str | None = None,
    ) -> Watched:
        """What tells those who watch the run of this recall or retain."""
        return Watched(
            Subject(operation, self._gateway.url, caller.thread_id, banks, query), config
        )

    def _held_turn(self, key: Hashable | None) -> RecallResult | None:
        with self._turns_lock:
            return None if key is None else self._turns.get(key)

    def _hold_turn(self, key: Hashable | None, result: RecallResult) -> RecallResult:
        if key is not None:
            with self._turns_lock:
                self._turns[key] = result
        return result

    def _bank_to_retain(self, caller: Caller, *, expressly: bool) -> ProjectBank | RetainReceipt:
        """The bank to retain to, or the receipt that says why there is none."""
        reason = self._no_retain(caller, expressly=expressly)
        if reason is not None:
            return RetainReceipt("skipped", reason)
        try:
            bank = self._banks.project(caller.values)
        except BankResolutionError as error:
            if expressly or caller.mode == "normal":
                self._said(caller, error)
            return RetainReceipt("skipped", str(error), error=error)
        if self.has_life and _same_bank(bank, _or_error(lambda: self._banks.life(caller.values))):
            msg = f"Bank {bank.bank_id!r} is this caller's Life Bank too, so nothing is retained."
            same = BankResolutionError(msg)
            self._said(caller, same)
            return RetainReceipt("skipped", msg, bank.bank_id, error=same)
        self._opened()
        return bank

    def _recalled_from(self, bank: ProjectBank, caller: Caller) -> list[str]:
        """What this caller's banks gave lately."""
        life = _or_error(lambda: self._banks.life(caller.values)) if self.has_life else None
        return self._recall.texts.of([bank, life] if isinstance(life, LifeBank) else [bank])

    def _said(self, caller: Caller, bank: T | BankResolutionError) -> T | BankResolutionError:
        """The same, after one warning a thread where there is no bank, and why."""
        if isinstance(bank, BankResolutionError):
            what = (caller.thread_id, str(bank))
            with self._turns_lock:
                known = what in self._unresolved
                self._unresolved[what] = None
            if not known:
                _logger.warning("Nothing is recalled from a bank, nor retained to it: %s", bank)
        return bank

    def _no_retain(self, caller: Caller, *, expressly: bool) -> str | None:
        """Why nothing of this caller's has anywhere to go, or None."""
        if expressly and caller.mode == "ignored":
            return "The memory mode of this run is 'ignored'."
        if not self.settings.switches.project:
            return "The Project Bank takes no part."
        if not self.settings.switches.automatic_retain and not expressly:
            return "Automatic retain is switched off."
        return None

    def _life_to_retain(self, caller: Caller) -> LifeBank:
        _refuse_if_ignored(caller)
        bank = self._banks.life(caller.values)
        if self.settings.switches.project and _same_bank(
            _or_error(lambda: self._banks.project(caller.values)), bank
        ):
            msg = (
                "The Life Bank and the Project Bank are the same bank; give the Life Bank its own."
            )
            raise ConfigurationError(msg)
        self._opened()
        return bank

    async def _reflection(self, query: str, caller: Caller) -> str:
        self._opened()
        _refuse_if_ignored(caller)
        if not any(char.isalnum() for char in query):
            msg = "There is no question to reflect on."
            raise HindsightError(msg)
        if self.settings.switches.project:
            project = self._banks.project(caller.values)
            bank_id, groups = project.bank_id, project_tag_groups(project, self.settings)
        else:
            life = self._banks.life(caller.values)
            bank_id, groups = life.bank_id, life_tag_groups(life) or []
        # Asked to reflect over a bank that is not there, a server makes an empty one.
        if await self._gateway.extracts_facts(bank_id) is None:
            msg = f"Bank {bank_id!r} does not exist yet: nothing has been retained to it."
            raise HindsightError(msg)
        return await self._gateway.reflect(bank_id, query, tag_groups=groups or None)

    async def _managed(
        self, role: Role, work: Callable[[ManagedBank], Awaitable[T]], caller: Caller
    ) -> T:
        self._noted_as_open()  # looking at a bank delivers nothing that waits for it
        _refuse_if_ignored(caller)
        if role == "project" and not self.settings.switches.project:
            msg = "The Project Bank takes no part: profile or banks.project.enabled leaves it out."
            raise ConfigurationError(msg)
        resolve = self._banks.project if role == "project" else self._banks.life
        return await work(ManagedBank(self._gateway, self.settings, resolve(caller.values)))

    async def _look_up_project(self) -> None:
        """Read the project's files off the caller's event loop, once."""
        if self._banks.needs_look_up:
            with contextlib.suppress(BankResolutionError):  # raised again where a bank is needed
                await in_a_thread(self._banks.look_up_project)

    def _opened(self) -> None:
        """Begin with what an earlier process left behind, and have the interpreter's end close."""
        if self._noted_as_open():
            self._begin_delivery()

    def _noted_as_open(self) -> bool:
        """Have the interpreter's end close this memory; whether delivery is still to begin."""
        if self not in _open:
            _open.add(self)
            _close_at_exit()
        return self._starting is None

    def _begin_delivery(self) -> None:
        # It may have been closed meanwhile, or several first turns come at once.
        if self in _open and self._starting is None:
            self._starting = self._loop.spawn(asyncio.to_thread(self._retainer.start))


def key_provider(
    given: str | SecretStr | Mapping[str, str] | Callable[[], str | None] | None,
    settings: HindsightSettings,
) -> Callable[[], str | None]:
    """Gives the key at the time of asking; one in a variable is read there each time."""
    key = given or settings.api_key
    if isinstance(key, Mapping):
        key = HindsightSettings(api_key=key).api_key
    if isinstance(key, EnvironmentKey):
        return key.read
    if isinstance(key, SecretStr):
        key = key.get_secret_value()
    if callable(key):
        return key
    if key is None or key == os.environ.get("HINDSIGHT_API_KEY"):
        return lambda: os.environ.get("HINDSIGHT_API_KEY")
    if not isinstance(key, str):
        kind = type(key).__name__
        msg = f"api_key must be a text, a SecretStr, a variable or a function, found {kind}."
        raise ConfigurationError(msg)
    checked_key(key)
    return lambda: key


def checked_memory(given: object) -> DualBankMemory:
    """What an adapter was given to work with.

    Raises:
        ConfigurationError: If it is no `DualBankMemory`.
    """
    if not isinstance(given, DualBankMemory):
        msg = f"memory must be a DualBankMemory, found {type(given).__name__}."
        raise ConfigurationError(msg)
    return given


def _project_here(settings: HindsightSettings) -> str:
    try:
        folder = Path.cwd()
    except OSError as error:
        msg = "The working directory is gone, so the project is not known; pin project_id."
        raise BankResolutionError(msg) from error
    return identify_project(folder, settings.scope.project_id_strategy)


def _rebuilt(settings: HindsightSettings) -> DualBankMemory:
    return DualBankMemory(settings=settings)


def _or_error(resolve: Callable[[], T]) -> T | BankResolutionError:
    try:
        return resolve()
    except BankResolutionError as error:
        return error


def _same_bank(project: object, life: object) -> bool:
    return (
        isinstance(project, ProjectBank)
        and isinstance(life, LifeBank)
        and project.bank_id == life.bank_id
    )


class _Messages(Sequence["BaseMessage"]):
    """A conversation as messages, each converted when it is looked at: a long thread costs nothing.

    A last message that is none raises at once, as the mistake of the program that it is.
    """

    __slots__ = ("_converted", "_given", "_kind")

    def __init__(self, given: Conversation) -> None:
        from langchain_core.messages import BaseMessage

        self._given = given
        self._kind = BaseMessage
        self._converted: dict[int, BaseMessage] = {}
        if given:
            self[len(given) - 1]

    def __len__(self) -> int:
        return len(self._given)

    @overload
    def __getitem__(self, index: int) -> BaseMessage: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[BaseMessage]: ...
    def __getitem__(self, index: int | slice) -> BaseMessage | Sequence[BaseMessage]:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        found = self._given[index]
        if isinstance(found, self._kind):
            return found
        if index not in self._converted:
            from langchain_core.messages import convert_to_messages

            self._converted[index] = convert_to_messages([found])[0]
        return self._converted[index]


def _as_messages(conversation: Conversation) -> Sequence[BaseMessage]:
    """Messages, a long thread uncopied; dicts and tuples are converted.

    Raises:
        TypeError: If they are none.
    """
    from langchain_core.messages import BaseMessage

    if isinstance(conversation, BaseMessage):
        return [conversation]
    one: Any = conversation
    is_dict = isinstance(one, Mapping) and "content" in one
    if is_dict or (isinstance(one, tuple) and [type(part) for part in one] == [str, str]):
        return _Messages([one])  # a message itself, as LangChain takes them
    if isinstance(conversation, Mapping) or not isinstance(conversation, Iterable):
        kind = type(conversation).__name__
        msg = f"messages must be a list of messages, or a text; found {kind}."
        raise TypeError(msg)
    return _Messages(conversation if isinstance(conversation, Sequence) else list(conversation))


def _thread(given: str | int | UUID | None, caller: Caller) -> str | None:
    """The conversation that is named, as text; else the one of the run."""
    return caller.thread_id if given is None or given == "" else str(given)


def _turn_key(messages: Sequence[BaseMessage], caller: Caller, plan: RecallPlan) -> Hashable | None:
    """What a turn is known by; None where nothing tells it from another."""
    asked = turn_message(messages)
    if asked is None or (asked.id is None and caller.thread_id is None):
        return None
    said = hash(str(asked.content))  # a message may be edited under its id
    return (caller.thread_id, asked.id or len(messages), said, *plan.banks)


def _held_until(_key: Hashable, result: RecallResult, now: float) -> float:
    failed = any(bank.error is not None for bank in result.banks.values())
    return now + (_FAILED_TURN_HELD if failed else _TURN_HELD)


def _kept(receipt: RetainReceipt) -> RetainReceipt:
    """The receipt of something that was kept.

    Raises:
        HindsightError: If it was not.
    """
    receipt.raise_for_error()
    if receipt.status in {"skipped", "failed"}:
        raise HindsightError(receipt.reason or "It could not be kept.")
    return receipt


def _why_skipped(error: HindsightError) -> str | None:
    return str(error) if isinstance(error, GatewayError) and error.kind == "skipped" else None


def _call(caller: Caller) -> tuple[str, str] | None:
    """The tool call that writes a note, which is the same call when it is run again."""
    if caller.tool_call_id is None:
        return None
    return caller.thread_id or "", caller.tool_call_id


def _refuse_if_ignored(caller: Caller) -> None:
    if caller.mode == "ignored":
        msg = "The memory mode of this run is 'ignored', so memory is neither read nor written."
        raise HindsightError(msg)


_open: weakref.WeakSet[DualBankMemory] = weakref.WeakSet()
_leaving: weakref.WeakSet[threading.Thread] = weakref.WeakSet()
"""What closes memories that were collected: a thread stays in it for as long as it runs."""
_exit_lock = threading.Lock()
_exit_is_watched = False


def _close_at_exit() -> None:
    """Have open memories closed before the interpreter stops its threads."""
    global _exit_is_watched  # noqa: PLW0603 - one registration a process
    with _exit_lock:
        if _exit_is_watched:
            return
        _exit_is_watched = True
    with contextlib.suppress(RuntimeError):  # the main thread has ended: what waits stays on disk
        import concurrent.futures.thread  # noqa: F401 - its own hook must run after ours

        register = getattr(threading, "_register_atexit", None)
        if register is None:
            import atexit

            register = atexit.register
        register(_close_all)


def _close_all() -> None:
    """Close side by side, so that many memories take no longer than one."""
    closing = [threading.Thread(target=memory.close, daemon=True) for memory in list(_open)]
    for thread in closing:
        thread.start()
    for thread in [*closing, *_leaving]:
        thread.join()


def _release(retainer: Retainer, gateway: Gateway, timeout: float) -> None:
    """Close what a collected memory leaves behind, off the collector's path, as `close` would."""
    if gateway.loop.is_open:
        thread = threading.Thread(target=_shut_down, args=(retainer, gateway, timeout), daemon=True)
        _leaving.add(thread)
        thread.start()


def _shut_down(retainer: Retainer, gateway: Gateway, timeout: float) -> None:
    retainer.stop(timeout)
    if gateway.loop.is_open:
        gateway.loop.run(gateway.aclose())
        gateway.loop.close()
