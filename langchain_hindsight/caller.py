"""Who is asking: the values, the thread and the memory mode of one call.

Read anew on every call from the LangGraph runtime context and from ``config["configurable"]``, in
this order; nothing is remembered between calls.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, fields, is_dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig

MemoryMode = Literal["normal", "read-only", "ignored"]

_AUTHENTICATED = "langgraph_auth_user_id"  # where the LangGraph server puts who was authenticated
_RUNTIME = "__pregel_runtime"  # where LangGraph keeps its runtime in a run's configurable

_tool_call: ContextVar[str | None] = ContextVar("hindsight_tool_call", default=None)

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Caller:
    """One call's caller."""

    values: Mapping[str, Any] = field(default_factory=dict)
    """What templates may name; the first source with a value that is not None decides."""
    thread_id: str | None = None
    mode: MemoryMode = "normal"
    tool_call_id: str | None = None
    """The tool call within which this happens, so that the same call run again is the same."""


def identify(config: RunnableConfig | None = None, context: object | None = None) -> Caller:
    """Read who is asking from a run's config and runtime context.

    Args:
        config: The run's config; what it leaves out comes from the run that is under way, if any.
        context: The runtime context (dataclass, pydantic model or mapping), where the caller holds
            it; else the one that the config carries.
    """
    from langchain_core.runnables.config import ensure_config

    configurable = ensure_config(config).get("configurable") or {}
    if context is None:
        context = getattr(configurable.get(_RUNTIME), "context", None)
    values: dict[str, Any] = {}
    for source in (_entries(context), configurable.items()):
        for name, value in source:
            if isinstance(name, str) and value is not None and not name.startswith("__"):
                values.setdefault(name, value)
    values.pop(_AUTHENTICATED, None)  # the server alone says who was authenticated
    if configurable.get(_AUTHENTICATED) is not None:
        values[_AUTHENTICATED] = configurable[_AUTHENTICATED]
        values.setdefault("user_id", configurable[_AUTHENTICATED])
    thread_id = values.get("thread_id")
    return Caller(
        values=values,
        thread_id=None if thread_id is None else str(thread_id),
        mode=_mode(configurable.get("memory_mode")),
        tool_call_id=_tool_call.get(),
    )


@contextmanager
def within_tool_call(tool_call_id: str | None) -> Iterator[None]:
    """Let what happens inside be known as that tool call's; None leaves what is known already."""
    if tool_call_id is None:
        yield
        return
    token = _tool_call.set(tool_call_id)
    try:
        yield
    finally:
        _tool_call.reset(token)


def _entries(context: object) -> Iterator[tuple[object, Any]]:
    if isinstance(context, Mapping):
        yield from context.items()
    elif is_dataclass(context):
        yield from ((one.name, getattr(context, one.name, None)) for one in fields(context))
    elif context is not None:
        yield from vars(context).items() if hasattr(context, "__dict__") else ()


def _mode(found: object) -> MemoryMode:
    """The memory mode; one that nobody knows keeps nothing and shows nothing."""
    if found is None:
        return "normal"
    known: tuple[MemoryMode, ...] = get_args(MemoryMode)
    for mode in known:
        if found == mode:
            return mode
    _logger.warning("Unknown memory_mode in configurable; expected one of %s", ", ".join(known))
    return "ignored"
