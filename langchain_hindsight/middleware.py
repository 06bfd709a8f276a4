"""`HindsightMiddleware`: memory for agents made with LangChain's `create_agent`.

What is recalled goes into the request to the model and nowhere else: no state, no checkpoint. It is
recalled when the model is first called and held for the turn, so an interrupt changes nothing. What
the turn added is retained when the agent has answered.
"""

from __future__ import annotations

import itertools
import threading
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from cachetools import LRUCache
from langchain_core.messages import AIMessage, SystemMessage, ToolMessage
from langchain_core.runnables.config import ensure_config
from pydantic import TypeAdapter

from langchain_hindsight.caller import identify, within_tool_call
from langchain_hindsight.injection import (
    inject_into_human,
    inject_into_messages,
    inject_into_system,
)
from langchain_hindsight.query import turn_message
from langchain_hindsight.transcript import OWN_TOOLS

try:
    from langchain.agents.middleware import AgentMiddleware
except ImportError as error:
    msg = "HindsightMiddleware needs LangChain's agents: pip install 'langchain-hindsight[agents]'."
    raise ImportError(msg) from error

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable, Iterator, Sequence

    from langchain.agents import AgentState
    from langchain.agents.middleware import ModelRequest, ModelResponse
    from langchain_core.messages import AnyMessage, BaseMessage
    from langgraph.prebuilt.tool_node import ToolCallRequest
    from langgraph.runtime import Runtime
    from langgraph.types import Command

    from langchain_hindsight.memory import DualBankMemory
    from langchain_hindsight.recall_result import RecallResult

_TURNS_HELD = 256
_TOOLS_NODE = "tools"
"""The node in which `create_agent` and LangGraph's prebuilt agents run tools."""
_in_tool: ContextVar[bool] = ContextVar("hindsight_in_tool", default=False)


class HindsightMiddleware(AgentMiddleware[Any, Any, Any]):
    """Recall ahead of the model, retain behind the agent.

    Example:
        ```python
        agent = create_agent(model, tools, middleware=[HindsightMiddleware(memory)])
        agent.invoke({"messages": [HumanMessage("How do we deploy?")]}, config)
        ```
    """

    def __init__(self, memory: DualBankMemory, *, retain_in_subagents: bool = False) -> None:
        """Plug a memory into an agent; nothing is asked of the server until the model is called.

        Args:
            memory: Where to recall from and retain to. A failure of the server leaves the turn
                without memory; it never raises.
            retain_in_subagents: Also retain when this agent is called by a tool of another agent
                that has memory. By default one place retains, and a sub-agent's talk, where an
                agent stands in for the person, is not taken for the person's.
        """
        from langchain_hindsight.memory import checked_memory

        super().__init__()
        self.memory = checked_memory(memory)
        self.retain_in_subagents = retain_in_subagents
        self._turns = _Turns()

    def wrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], ModelResponse[Any]],
    ) -> ModelResponse[Any]:
        """Call the model with the turn's memory in the request."""
        context = _context(request.runtime)
        turn = self._turns.of(request.messages)
        if turn.is_cut:
            self.memory.retain(turn.messages, context=context)
        result = self.memory.recall_turn(turn.messages, context=context)
        return self._turns.note(turn, handler(self._injected(request, result)))

    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> ModelResponse[Any]:
        """Call the model with the turn's memory in the request."""
        context = _context(request.runtime)
        turn = self._turns.of(request.messages)
        if turn.is_cut:
            await self.memory.aretain(turn.messages, context=context)
        result = await self.memory.arecall_turn(turn.messages, context=context)
        return self._turns.note(turn, await handler(self._injected(request, result)))

    def wrap_tool_call(
        self,
        request: ToolCallRequest,
        handler: Callable[[ToolCallRequest], ToolMessage | Command[Any]],
    ) -> ToolMessage | Command[Any]:
        """Run the tool; an agent that it calls is a sub-agent."""
        with _inside_a_tool(request):
            return handler(request)

    async def awrap_tool_call(
        self,
        request: ToolCallRequest,
        handler: Callable[[ToolCallRequest], Awaitable[ToolMessage | Command[Any]]],
    ) -> ToolMessage | Command[Any]:
        """Run the tool; an agent that it calls is a sub-agent."""
        with _inside_a_tool(request):
            return await handler(request)

    def after_agent(self, state: AgentState[Any], runtime: Runtime[Any]) -> None:
        """Retain what is new in the conversation."""
        if self._retains:
            self.memory.retain(_with_answer(state), context=_context(runtime))

    async def aafter_agent(self, state: AgentState[Any], runtime: Runtime[Any]) -> None:
        """Retain what is new in the conversation."""
        if self._retains:
            await self.memory.aretain(_with_answer(state), context=_context(runtime))

    @property
    def _retains(self) -> bool:
        return self.retain_in_subagents or not _is_within_a_tool()

    def _injected(self, request: ModelRequest[Any], result: RecallResult) -> ModelRequest[Any]:
        if not result.text:
            return request
        injection = self.memory.settings.recall.injection
        if injection == "human" and turn_message(request.messages) is not None:
            return _sending(request, inject_into_human(request.messages, result.text))
        if request.system_message is None and any(
            isinstance(one, SystemMessage) for one in request.messages
        ):
            # The prompt came with the conversation: a second system message would be one too many.
            sent = inject_into_messages(request.messages, result.text, injection="system")
            return _sending(request, sent)
        system = inject_into_system(request.system_message, result.text)
        return request.override(system_message=system)


@dataclass(frozen=True, slots=True)
class _Turn:
    """The messages of a model call, and whether the turn's own beginning had to be added."""

    messages: Sequence[BaseMessage]
    is_cut: bool = False


class _Turns:
    """The turns under way in this process, each known by its thread and its answers so far.

    A middleware that summarizes may remove the person's message while its turn goes on: what was
    removed is found here, so that the turn keeps its memory and is itself retained.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: LRUCache[Hashable, Sequence[BaseMessage]] = LRUCache(_TURNS_HELD)

    def __reduce__(self) -> tuple[type[_Turns], tuple[()]]:
        return _Turns, ()

    def of(self, messages: Sequence[BaseMessage]) -> _Turn:
        """The turn of a model call, with its beginning where that was removed."""
        if turn_message(messages) is not None:
            return _Turn(messages)
        with self._lock:
            found = (self._held.get(_name(one)) for one in messages if one.id is not None)
            held = next((turn for turn in found if turn), ())
        if not held:
            return _Turn(messages)
        here = {one.id for one in messages}
        removed = [one for one in held if one.id not in here]
        kept = [one for one in messages if not one.additional_kwargs.get("lc_source")]
        return _Turn([*removed, *kept], is_cut=True)

    def note(self, turn: _Turn, response: ModelResponse[Any]) -> ModelResponse[Any]:
        """Remember a turn that goes on with tools."""
        for one in response.result:
            if isinstance(one, AIMessage) and one.id and one.tool_calls:
                asked = turn_message(turn.messages)
                start = next((at for at, said in enumerate(turn.messages) if said is asked), 0)
                with self._lock:
                    self._held[_name(one)] = [*turn.messages[start:], one]
        return response


def _name(message: BaseMessage) -> Hashable:
    """What tells an answer from others: some servers count their ids anew in each conversation.

    In a conversation that has no name, what was called says more, which nobody edits there.
    """
    thread = identify().thread_id
    if thread is not None:
        return thread, message.id
    return message.id, str(getattr(message, "tool_calls", None))


def _sending(request: ModelRequest[Any], messages: list[BaseMessage]) -> ModelRequest[Any]:
    return request.override(messages=cast("list[AnyMessage]", messages))


@contextmanager
def _inside_a_tool(request: ToolCallRequest) -> Iterator[None]:
    token = _in_tool.set(True)
    try:
        with within_tool_call(request.tool_call["id"]):
            yield
    finally:
        _in_tool.reset(token)


def _is_within_a_tool() -> bool:
    """Whether a tool runs this agent: by the context, or where a thread lost it by the config."""
    if _in_tool.get():
        return True
    configurable = ensure_config().get("configurable") or {}
    steps = str(configurable.get("checkpoint_ns") or "").split("|")
    return any(step.partition(":")[0] == _TOOLS_NODE for step in steps[:-1])


def _with_answer(state: AgentState[Any]) -> Sequence[BaseMessage]:
    """The conversation, with what the person was shown as the assistant's own words.

    An agent that ends with a tool's message answered with it: it gave a structured response, or the
    tool returns directly.
    """
    messages: list[AnyMessage] = state["messages"]
    structured = state.get("structured_response")
    answers = list(itertools.takewhile(_is_answer, reversed(messages)))[::-1]
    if not answers:
        return messages
    if structured is not None:
        told = [AIMessage(_as_json(structured), id=answers[-1].id)]
    else:
        told = [AIMessage(one.content, id=one.id) for one in answers if not _is_own(one)]
    return [*messages[: len(messages) - len(answers)], *told]


def _is_answer(message: AnyMessage) -> bool:
    return isinstance(message, ToolMessage) and message.status != "error"


def _is_own(message: AnyMessage) -> bool:
    return (message.name or "").startswith(OWN_TOOLS)


def _as_json(response: object) -> str:
    return TypeAdapter(type(response)).dump_json(response).decode()


def _context(runtime: Runtime[Any] | None) -> object | None:
    """The run's context; a request made by hand in a test has no runtime."""
    return None if runtime is None else runtime.context
