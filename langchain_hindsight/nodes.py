"""LangGraph nodes that recall and retain, and the state key between them.

The recalled memory lives in a channel that is never checkpointed, is gone before the run's output
is read, and shows nothing of itself in a stream; `inject_memory` puts it into the messages for one
model call. A graph over plain `MessagesState` keeps it private to the nodes that type their state
as `MemoryState`.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import threading
import weakref
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, NotRequired

from langchain_core.messages import BaseMessage, convert_to_messages
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langgraph.channels import UntrackedValue
from langgraph.graph import MessagesState
from pydantic import BaseModel, ConfigDict, Field

from langchain_hindsight.caller import identify
from langchain_hindsight.errors import ConfigurationError
from langchain_hindsight.injection import Injection, inject_into_messages
from langchain_hindsight.query import message_text, turn_message

if TYPE_CHECKING:
    from langchain_hindsight.memory import DualBankMemory
    from langchain_hindsight.recall_result import RecallResult

STATE_KEY = "hindsight_memory"

_TURNS_KEPT = 1024  # turns whose memory is known by name; older ones are found by other means

_logger = logging.getLogger(__name__)


class TurnMemory(BaseModel):
    """What was recalled for one turn. Printed, dumped or streamed, it names the turn alone."""

    model_config = ConfigDict(frozen=True)

    turn: str
    """The id of the human message it was recalled for."""
    injection: Injection = "human"
    text: str = Field(default="", exclude=True, repr=False)
    """The fenced block, ``""`` when nothing was recalled."""


class TurnChannel(UntrackedValue[TurnMemory]):
    """Holds one turn's memory for the step that follows: never checkpointed, never in the output.

    A longer life would show in what the graph returns, for LangGraph returns the values of the last
    step that wrote some. Later model calls of the turn get the same memory from `inject_memory`.
    """

    # Two recall nodes in one step are no mistake, so writes are not guarded; the signature is
    # LangGraph's.
    def __init__(self, typ: Any, guard: bool = False) -> None:  # noqa: ANN401, FBT001, FBT002
        super().__init__(typ, guard)

    def update(self, values: Sequence[TurnMemory]) -> bool:
        """Take a step's writes, and let go of what an earlier step wrote.

        Recall nodes that ran side by side each keep their block.
        """
        return super().update([_joined(values)]) if values else self.finish()

    def finish(self) -> bool:
        """Let go of the memory, before the run's output is read."""
        held = self.is_available()
        # An empty channel's value is LangGraph's private sentinel.
        self.value = self.from_checkpoint(self.value).value
        return held


class MemoryState(MessagesState):
    """`MessagesState` and the recalled memory of the turn, which is never checkpointed.

    Type the state of the node that calls the model with it. As the state of a whole graph it works
    too; give the graph ``output_schema=MessagesState`` then, so that the key is no part of what the
    graph says it returns.
    """

    hindsight_memory: NotRequired[Annotated[TurnMemory, TurnChannel]]


def create_recall_node(memory: DualBankMemory) -> RunnableLambda[Any, dict[str, Any]]:
    """A node that recalls for the turn's human message, once a turn.

    It goes ahead of the node that calls the model, which sends what `inject_memory` gives.

    Args:
        memory: Where to recall from. A failure leaves the turn without memory; it never raises.

    Returns:
        A node for ``StateGraph.add_node``; its name is ``hindsight_recall``.

    Example:
        ```python
        def call_model(state: MemoryState) -> dict:
            return {"messages": [model.invoke(inject_memory(state))]}

        graph = StateGraph(MessagesState)
        graph.add_node("recall", create_recall_node(memory))
        graph.add_node("model", call_model)
        graph.add_node("retain", create_retain_node(memory))
        ```
    """
    _sources.add(_checked(memory))
    node = _RecallNode(memory)
    return RunnableLambda(node.run, node.arun, name="hindsight_recall")


def create_retain_node(memory: DualBankMemory) -> RunnableLambda[Any, dict[str, Any]]:
    """A node that retains what is new in the conversation, for the Project Bank alone.

    It goes behind the node that gives the final answer. What was retained already is known, so it
    may run again.

    Args:
        memory: Where to retain. A failure never raises; the memory logs it and catches up later.

    Returns:
        A node for ``StateGraph.add_node``; its name is ``hindsight_retain``.
    """
    node = _RetainNode(_checked(memory))
    return RunnableLambda(node.run, node.arun, name="hindsight_retain")


def _checked(memory: DualBankMemory) -> DualBankMemory:
    from langchain_hindsight.memory import checked_memory

    return checked_memory(memory)


def inject_memory(
    state: Any,  # noqa: ANN401 - any state with messages: a mapping, a dataclass or a pydantic model
    *,
    memory: DualBankMemory | None = None,
    config: RunnableConfig | None = None,
) -> list[BaseMessage]:
    """The messages to send to the model, with the turn's memory in place.

    The state itself is left as it is. Where it no longer holds the turn's memory, the memory object
    is asked, which holds a turn's recall; when a run resumed in another process, that recalls
    again. `ainject_memory` does it without blocking the loop.

    Args:
        state: The graph's state.
        memory: Where to recall from when the state holds nothing for this turn; None is the memory
            of the graph's recall node.
        config: The run's config; None is that of the run that is under way.

    Returns:
        At most one system message, first, and the conversation behind it; it ends with the
        person's own message when the state does.

    Raises:
        ConfigurationError: If the state has no ``messages``.
    """
    turn = _turn(state, memory, config)
    return turn.inject(turn.source.recall_turn(turn.messages, config) if turn.source else None)


async def ainject_memory(
    state: Any,  # noqa: ANN401 - any state with messages
    *,
    memory: DualBankMemory | None = None,
    config: RunnableConfig | None = None,
) -> list[BaseMessage]:
    """The messages to send to the model; `inject_memory` for async nodes."""
    turn = _turn(state, memory, config)
    return turn.inject(
        await turn.source.arecall_turn(turn.messages, config) if turn.source else None
    )


@dataclass(frozen=True, slots=True)
class _RecallNode:
    """What the node does. Methods, so that a node can be copied and pickled with its memory."""

    memory: DualBankMemory

    def run(self, state: Any, config: RunnableConfig) -> dict[str, Any]:  # noqa: ANN401 - any state
        messages = _messages(state)
        result = self.memory.recall_turn(messages, config)
        return _recalled(self.memory, messages, config, result)

    async def arun(self, state: Any, config: RunnableConfig) -> dict[str, Any]:  # noqa: ANN401
        messages = _messages(state)
        result = await self.memory.arecall_turn(messages, config)
        return _recalled(self.memory, messages, config, result)


@dataclass(frozen=True, slots=True)
class _RetainNode:
    """As `_RecallNode`, for what is retained."""

    memory: DualBankMemory

    def run(self, state: Any, config: RunnableConfig) -> dict[str, Any]:  # noqa: ANN401 - any state
        self.memory.retain(_messages(state), config=config)
        return {}

    async def arun(self, state: Any, config: RunnableConfig) -> dict[str, Any]:  # noqa: ANN401
        await self.memory.aretain(_messages(state), config=config)
        return {}


@dataclass(frozen=True, slots=True)
class _Turn:
    """One model call's messages, and either what was recalled for it or where to recall from."""

    messages: Sequence[BaseMessage]
    held: TurnMemory | None = None
    source: DualBankMemory | None = None

    def inject(self, result: RecallResult | None) -> list[BaseMessage]:
        if self.held is not None:
            text, injection = self.held.text, self.held.injection
        elif self.source is not None and result is not None:
            text, injection = result.text, self.source.settings.recall.injection
        else:
            text, injection = "", "human"
        return inject_into_messages(self.messages, text, injection=injection)


def _turn(state: object, memory: DualBankMemory | None, config: RunnableConfig | None) -> _Turn:
    messages = _messages(state)
    key = _turn_key(messages)
    held = _entry(state, STATE_KEY)
    if isinstance(held, TurnMemory) and held.turn == key:
        return _Turn(messages, held=held)
    if key is None:
        return _Turn(messages)
    return _Turn(messages, source=memory or _sources.find(identify(config).thread_id, key))


def _recalled(
    memory: DualBankMemory,
    messages: Sequence[BaseMessage],
    config: RunnableConfig,
    result: RecallResult,
) -> dict[str, Any]:
    key = _turn_key(messages)
    if key is None:
        return {}
    _sources.remember(identify(config).thread_id, key, memory)
    injection = memory.settings.recall.injection
    return {STATE_KEY: TurnMemory(turn=key, injection=injection, text=result.text)}


def _turn_key(messages: Sequence[BaseMessage]) -> str | None:
    """The id of the turn's human message; without one, a digest of its words."""
    human = turn_message(messages)
    if human is None:
        return None
    return human.id or hashlib.sha256(message_text(human).encode("utf-8", "replace")).hexdigest()


def _joined(values: Sequence[TurnMemory]) -> TurnMemory:
    last = values[-1]
    blocks = dict.fromkeys(one.text for one in values if one.turn == last.turn and one.text)
    return last.model_copy(update={"text": "\n\n".join(blocks)})


def _messages(state: object) -> Sequence[BaseMessage]:
    found = _entry(state, "messages")
    if isinstance(found, list | tuple):
        with contextlib.suppress(NotImplementedError, ValueError):  # what no message is made of
            return convert_to_messages(found)
    msg = (
        "The graph's state has no list of LangChain messages under 'messages'. Build the graph "
        "over MessagesState, MemoryState or a state with such a key."
    )
    raise ConfigurationError(msg)


def _entry(state: object, key: str) -> object:
    return state.get(key) if isinstance(state, Mapping) else getattr(state, key, None)


class _Sources:
    """Which memory the recall nodes of this process recall from, for a run that resumed without it.

    Weak, so that a memory that nobody uses any more is no candidate.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._memories: weakref.WeakSet[DualBankMemory] = weakref.WeakSet()
        self._turns: OrderedDict[tuple[str | None, str], weakref.WeakSet[DualBankMemory]] = (
            OrderedDict()
        )
        self._undecided = False

    def add(self, memory: DualBankMemory) -> None:
        with self._lock:
            self._memories.add(memory)

    def remember(self, thread_id: str | None, turn: str, memory: DualBankMemory) -> None:
        with self._lock:
            self._turns.setdefault((thread_id, turn), weakref.WeakSet()).add(memory)
            self._turns.move_to_end((thread_id, turn))
            while len(self._turns) > _TURNS_KEPT:
                self._turns.popitem(last=False)

    def find(self, thread_id: str | None, turn: str) -> DualBankMemory | None:
        with self._lock:
            candidates = list(self._turns.get((thread_id, turn), ())) or list(self._memories)
            if len(candidates) == 1:
                return candidates[0]
            undecided = len(candidates) > 1 and not self._undecided
            self._undecided = self._undecided or undecided
        if undecided:
            _logger.warning(
                "A run resumed behind its recall node, and %d memories could be meant: nothing was "
                "injected. Pass the memory: inject_memory(state, memory=memory).",
                len(candidates),
            )
        return None


_sources = _Sources()
