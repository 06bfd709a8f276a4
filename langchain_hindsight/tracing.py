"""How a turn's memory can be watched: stream events, callbacks and OpenTelemetry.

A recall and a retain each show as

* custom stream events of the LangGraph run under way (``stream_mode="custom"``),
* a child run, ``hindsight.recall`` or ``hindsight.retain``, which LangSmith and every other
  callback handler of the run sees,
* OpenTelemetry spans and metrics, once the program has loaded ``opentelemetry-api``.

What they show is ids, counts, limits, milliseconds and errors. Remembered text is shown to
callbacks alone, while LangSmith traces and is not told to hide what goes in and out. Where nobody
watches, this costs microseconds; it decides nothing about a turn.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, TypeVar
from urllib.parse import urlsplit

from langchain_hindsight._version import __version__

if TYPE_CHECKING:
    from types import TracebackType

    from langchain_core.runnables import RunnableConfig
    from opentelemetry.metrics import Counter, Histogram
    from opentelemetry.trace import Span

    from langchain_hindsight.recall_result import BankRecall, RecallResult
    from langchain_hindsight.receipts import RetainReceipt

    Outcome = TypeVar("Outcome", RecallResult, RetainReceipt)

Operation = Literal["recall", "retain"]

EVENT_TYPE = "hindsight"
"""The ``type`` of every stream event."""

_LIBRARY = ("langchain_hindsight", __version__)
_HIDES = tuple(
    f"{prefix}_HIDE_{what}"
    for prefix in ("LANGSMITH", "LANGCHAIN")
    for what in ("INPUTS", "OUTPUTS")
)


@dataclass(frozen=True, slots=True)
class Subject:
    """What a recall or a retain is about, for those who watch it."""

    operation: Operation
    url: str
    """The server, without credentials."""
    thread_id: str | None
    banks: Mapping[str, str]
    """Bank ids by role."""
    query: str | None = None


class Watched:
    """One recall or retain while it is watched, as a context manager, sync and async.

    Give `ended` what came of it; an exception that passes through is told as what it is. What a
    callback handler raises on purpose (``raise_error``) is raised at the end, when what is to be
    retained is on disk.
    """

    def __init__(self, subject: Subject, config: RunnableConfig | None) -> None:
        """Find out who watches the run; tell nobody yet."""
        self._outcome: RecallResult | RetainReceipt | None = None
        self._subject = subject
        self._config = _with_callbacks(config)
        self._emit = _stream_writer()
        self._spans = ExitStack()
        self._run: Any = None
        self._span: Span | None = None
        self._objection: Exception | None = None
        self._began = time.time_ns()

    def __enter__(self) -> Self:
        """Tell that it begins."""
        if self._config is not None:
            from langchain_core.runnables.config import get_callback_manager_for_config

            manager = get_callback_manager_for_config(self._config)
            try:
                self._run = manager.on_chain_start({}, self._inputs(), name=self._name)
            except Exception as objection:  # noqa: BLE001 - whatever a handler raises
                self._objection = objection
        return self._begin()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Tell how it ended."""
        self._end(kind, error, trace)
        if self._run is not None and error is not None:
            self._run.on_chain_error(error)
        elif self._run is not None:
            self._run.on_chain_end(self._outputs())
        elif self._objection is not None:
            raise self._objection

    async def __aenter__(self) -> Self:
        """Tell that it begins."""
        if self._config is not None:
            from langchain_core.runnables.config import get_async_callback_manager_for_config

            manager = get_async_callback_manager_for_config(self._config)
            try:
                self._run = await manager.on_chain_start({}, self._inputs(), name=self._name)
            except Exception as objection:  # noqa: BLE001 - whatever a handler raises
                self._objection = objection
        return self._begin()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Tell how it ended."""
        self._end(kind, error, trace)
        if self._run is not None and error is not None:
            await self._run.on_chain_error(error)
        elif self._run is not None:
            await self._run.on_chain_end(self._outputs())
        elif self._objection is not None:
            raise self._objection

    def ended(self, outcome: Outcome) -> Outcome:
        """Keep what came of it, to tell it; give it back."""
        self._outcome = outcome
        return outcome

    @property
    def _name(self) -> str:
        return f"hindsight.{self._subject.operation}"

    def _begin(self) -> Self:
        self._span = self._spans.enter_context(_span(self._subject))
        if self._subject.operation == "recall":
            self._tell("recall_started", banks=dict(self._subject.banks))
        return self

    def _end(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for role, bank in _banks(self._outcome).items():
            self._tell("recall_finished", bank=role, **bank.receipt())
            if self._span is not None:
                _record_bank(self._subject, role, bank, self._began)
        if self._subject.operation == "retain" and self._outcome is not None:
            told = _receipt(self._outcome)
            self._tell("retained", **told)
            if self._span is not None:
                _record_retain(self._span, told)
        self._spans.__exit__(kind, error, trace)

    def _tell(self, event: str, **facts: object) -> None:
        if self._emit is not None:
            self._emit({"type": EVENT_TYPE, "event": event, **facts})

    def _inputs(self) -> dict[str, Any]:
        subject = self._subject
        inputs: dict[str, Any] = {"thread_id": subject.thread_id, "banks": dict(subject.banks)}
        return inputs | ({"query": subject.query} if subject.query and _shows_content() else {})

    def _outputs(self) -> dict[str, Any]:
        if self._outcome is None:
            return {}
        told = _receipt(self._outcome)
        text = getattr(self._outcome, "text", None)
        return told | ({"text": text} if text and _shows_content() else {})


def _with_callbacks(config: RunnableConfig | None) -> RunnableConfig | None:
    """The run's config where it has callbacks, its own or those of the run under way."""
    from langchain_core.runnables.config import ensure_config

    found = ensure_config(config)
    return found if found.get("callbacks") else None


def _stream_writer() -> Callable[[Any], None] | None:
    """Where custom events of the LangGraph run under way go; None outside of one."""
    if "langgraph.config" not in sys.modules and "langgraph.pregel" not in sys.modules:
        return None
    from langgraph.config import get_stream_writer

    try:
        return get_stream_writer()
    except (KeyError, RuntimeError):  # no run is under way, or one that is no graph's
        return None


def _shows_content() -> bool:
    """Whether LangSmith traces and is not told to hide what goes in and out."""
    from langsmith.utils import tracing_is_enabled

    hidden = any(os.environ.get(name, "").lower() in {"true", "1"} for name in _HIDES)
    return bool(tracing_is_enabled()) and not hidden


def _banks(outcome: RecallResult | RetainReceipt | None) -> Mapping[str, BankRecall]:
    return getattr(outcome, "banks", {})


def _receipt(outcome: RecallResult | RetainReceipt) -> dict[str, Any]:
    """The record of what happened, without remembered text."""
    return dict(outcome.receipt())


# OpenTelemetry: a program that has not loaded its API has set up nothing that could listen.


@contextmanager
def _span(subject: Subject) -> Iterator[Span | None]:
    if "opentelemetry.trace" not in sys.modules:
        yield None
        return
    from opentelemetry import trace

    tracer = trace.get_tracer(*_LIBRARY)
    attributes = _server(subject.url)
    if subject.thread_id is not None:
        attributes["gen_ai.conversation.id"] = subject.thread_id
    with tracer.start_as_current_span(
        f"hindsight.{subject.operation}", attributes=attributes
    ) as span:
        yield span


def _record_bank(subject: Subject, role: str, bank: BankRecall, began: int) -> None:
    """A bank's part as a client span of its own, named as the GenAI conventions name retrieval."""
    from opentelemetry import trace

    attributes = {**_server(subject.url), "gen_ai.operation.name": "retrieval"}
    if bank.error is not None:
        attributes["error.type"] = type(bank.error).__name__
    counts = {
        "hindsight.bank.role": role,
        "hindsight.memories": len(bank.memories),
        "hindsight.tokens": bank.tokens,
        "hindsight.tokens.limit": bank.limit,
    }
    span = trace.get_tracer(*_LIBRARY).start_span(
        f"retrieval {bank.bank_id or role}",
        kind=trace.SpanKind.CLIENT,
        start_time=began,
        attributes=attributes | counts | {"gen_ai.data_source.id": bank.bank_id or ""},
    )
    if bank.error is not None:
        span.set_status(trace.StatusCode.ERROR, str(bank.error))
    span.end(began + int(bank.elapsed_ms * 1e6))
    instruments = _instruments()
    instruments.duration.record(bank.elapsed_ms / 1000, attributes)
    instruments.tokens.record(bank.tokens, {**_server(subject.url), "hindsight.bank.role": role})


def _record_retain(span: Span, told: Mapping[str, Any]) -> None:
    from opentelemetry import trace

    span.set_attribute("hindsight.retain.status", told["status"])
    span.set_attribute("hindsight.retain.items", told["items"])
    if told["bank_id"]:
        span.set_attribute("gen_ai.data_source.id", told["bank_id"])
    if told["error"]:
        span.set_status(trace.StatusCode.ERROR, told["error"])
    _instruments().items.add(told["items"], {"hindsight.retain.status": told["status"]})


class _Instruments(NamedTuple):
    duration: Histogram
    tokens: Histogram
    items: Counter


@cache
def _instruments() -> _Instruments:
    """Made once: they go to whichever meter provider the program sets, also later."""
    from opentelemetry import metrics

    meter = metrics.get_meter(*_LIBRARY)
    return _Instruments(
        meter.create_histogram(
            "gen_ai.client.operation.duration", unit="s", description="Recall from one bank."
        ),
        meter.create_histogram(
            "hindsight.recall.tokens", unit="{token}", description="Tokens injected of one bank."
        ),
        meter.create_counter(
            "hindsight.retain.items", unit="{item}", description="Messages and notes retained."
        ),
    )


def _server(url: str) -> dict[str, Any]:
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return {
        "gen_ai.provider.name": "hindsight",
        "server.address": parts.hostname or "",
        "server.port": port,
    }
