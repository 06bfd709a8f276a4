import asyncio
import gc
import logging
from dataclasses import dataclass, field
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Command, interrupt
from pydantic import BaseModel
from recording_memory import BLOCK, RecordingMemory

from langchain_hindsight import nodes
from langchain_hindsight.errors import ConfigurationError
from langchain_hindsight.nodes import (
    MemoryState,
    TurnMemory,
    ainject_memory,
    create_recall_node,
    create_retain_node,
    inject_memory,
)
from langchain_hindsight.recall_result import RecallResult

both = pytest.mark.parametrize("use_async", [False, True], ids=["sync", "async"])
THREAD = {"configurable": {"thread_id": "t-1"}}


class PlainState(TypedDict):
    messages: list


class PydanticState(BaseModel):
    messages: Annotated[list, add_messages] = []


@dataclass
class DataclassState:
    messages: Annotated[list, add_messages] = field(default_factory=list)


@pytest.fixture(autouse=True)
def no_sources(monkeypatch):
    monkeypatch.setattr(nodes, "_sources", nodes._Sources())


class Seen:
    """What the model was sent, call by call; and a model node that notes it."""

    def __init__(self, before=None):
        self.sent = []
        self.before = before or (lambda: None)

    def node(self, state: MemoryState) -> dict:
        self.before()
        self.sent.append(inject_memory(state))
        return {"messages": [AIMessage("On Fridays.")]}

    async def anode(self, state: MemoryState) -> dict:
        self.before()
        self.sent.append(await ainject_memory(state))
        return {"messages": [AIMessage("On Fridays.")]}


def _graph(memory, seen, *, use_async=False, state=MessagesState, checkpointer=None, **schemas):
    graph = StateGraph(state, **schemas)
    graph.add_node("recall", create_recall_node(memory))
    graph.add_node("model", seen.anode if use_async else seen.node)
    graph.add_node("retain", create_retain_node(memory))
    graph.add_edge(START, "recall")
    graph.add_edge("recall", "model")
    graph.add_edge("model", "retain")
    graph.add_edge("retain", END)
    return graph.compile(checkpointer=checkpointer)


def _run(graph, given, config=None, *, use_async):
    if isinstance(given, str):
        given = {"messages": [HumanMessage(given)]}
    if use_async:
        return asyncio.run(graph.ainvoke(given, config))
    return graph.invoke(given, config)


@both
@pytest.mark.parametrize("state", [MessagesState, MemoryState, PydanticState, DataclassState])
def test_the_model_is_sent_the_memory_ahead_of_the_persons_words(use_async, state):
    seen = Seen()
    memory = RecordingMemory()
    _run(_graph(memory, seen, use_async=use_async, state=state), "When?", use_async=use_async)
    (sent,) = seen.sent
    assert [one.content for one in sent] == [f"{BLOCK}\n\nWhen?"]
    assert len(memory.named("recall_turn", "arecall_turn")) == 1


@both
def test_a_state_with_a_plain_list_of_messages_works_too(use_async):
    seen = Seen()

    def call_model(state: PlainState) -> dict:
        return seen.node(state)

    async def acall_model(state: PlainState) -> dict:
        return await seen.anode(state)

    graph = StateGraph(PlainState)
    graph.add_node("recall", create_recall_node(memory := RecordingMemory()))
    graph.add_node("model", acall_model if use_async else call_model)
    graph.add_edge(START, "recall")
    graph.add_edge("recall", "model")
    _run(graph.compile(), "When?", use_async=use_async)
    assert seen.sent[0][0].content == f"{BLOCK}\n\nWhen?"
    assert len({call.payload[0].id for call in memory.calls}) == 1


@both
def test_the_nodes_ask_the_memorys_own_side_with_the_runs_config(use_async):
    memory = RecordingMemory()
    config = {"configurable": {"user_id": "ada", "thread_id": "t-1"}}
    _run(_graph(memory, Seen(), use_async=use_async), "When?", config, use_async=use_async)
    recalled, retained = memory.calls
    expected = ["arecall_turn", "aretain"] if use_async else ["recall_turn", "retain"]
    assert [recalled.name, retained.name] == expected
    assert recalled.config["configurable"]["user_id"] == "ada"
    assert retained.config["configurable"]["user_id"] == "ada"


@both
def test_the_runtime_context_of_the_graph_reaches_the_memory(use_async):
    class Who(TypedDict):
        user_id: str

    memory = RecordingMemory()
    graph = _graph(memory, Seen(), use_async=use_async, context_schema=Who)
    given = {"messages": [HumanMessage("When?")]}
    if use_async:
        asyncio.run(graph.ainvoke(given, context={"user_id": "ada"}))
    else:
        graph.invoke(given, context={"user_id": "ada"})
    for call in memory.calls:
        runtime = call.config["configurable"]["__pregel_runtime"]
        assert runtime.context == {"user_id": "ada"}


@both
def test_what_is_retained_is_the_conversation_as_it_was_said(use_async):
    memory = RecordingMemory()
    _run(_graph(memory, Seen(), use_async=use_async), "When?", use_async=use_async)
    assert [one.content for one in memory.calls[-1].payload] == ["When?", "On Fridays."]


@both
@pytest.mark.parametrize("state", [MessagesState, MemoryState])
def test_recalled_memory_reaches_no_result_no_checkpoint_and_no_history(use_async, state):
    saver = InMemorySaver()
    graph = _graph(RecordingMemory(), Seen(), use_async=use_async, state=state, checkpointer=saver)
    for _ in range(3):
        result = _run(graph, "When?", THREAD, use_async=use_async)
        assert set(result) == {"messages"}
    assert BLOCK not in str([one.content for one in result["messages"]])
    assert len(result["messages"]) == 6
    stored = list(saver.list(None))
    assert stored
    for one in stored:
        assert nodes.STATE_KEY not in one.checkpoint["channel_values"]
    assert BLOCK.encode() not in b"".join(_bytes_of(saver))


def _bytes_of(saver):
    for kind in (saver.blobs, saver.writes, saver.storage):
        yield repr(dict(kind)).replace("\\n", "\n").encode()


@both
def test_each_turn_sees_its_own_memory_and_ends_with_the_persons_own_message(use_async):
    memory = RecordingMemory()
    seen = Seen()
    graph = _graph(memory, seen, use_async=use_async, checkpointer=InMemorySaver())
    for turn in range(3):
        memory.result = RecallResult(text=BLOCK.replace("Fridays", f"day {turn}"))
        _run(graph, f"Question {turn}", THREAD, use_async=use_async)
    for turn, sent in enumerate(seen.sent):
        assert sent[-1].type == "human"
        assert sent[-1].content.endswith(f"Question {turn}")
        assert f"day {turn}" in sent[-1].content
        assert sum("hindsight-memory" in str(one.content) for one in sent) == 1


@both
def test_system_messages_anywhere_become_one_at_the_head(use_async):
    seen = Seen()
    given = {
        "messages": [
            HumanMessage("Hello"),
            AIMessage("Hi"),
            SystemMessage("Be brief."),
            HumanMessage("When?"),
        ]
    }
    _run(_graph(RecordingMemory(), seen, use_async=use_async), given, use_async=use_async)
    assert [one.type for one in seen.sent[0]] == ["system", "human", "ai", "human"]


@both
def test_system_injection_follows_the_memorys_setting(use_async):
    seen = Seen()
    memory = RecordingMemory(injection="system")
    _run(_graph(memory, seen, use_async=use_async), "When?", use_async=use_async)
    assert [one.content for one in seen.sent[0]] == [BLOCK, "When?"]


@both
def test_a_turn_that_recalled_nothing_is_not_recalled_again_by_the_model_node(use_async):
    memory = RecordingMemory(result=RecallResult())
    seen = Seen()
    _run(_graph(memory, seen, use_async=use_async), "When?", use_async=use_async)
    assert [one.content for one in seen.sent[0]] == ["When?"]
    assert len(memory.named("recall_turn", "arecall_turn")) == 1


@both
def test_a_run_that_resumes_behind_the_recall_node_recalls_again(use_async):
    seen = Seen(before=lambda: interrupt("Go on?"))
    graph = _graph(RecordingMemory(), seen, use_async=use_async, checkpointer=InMemorySaver())
    _run(graph, "When?", THREAD, use_async=use_async)
    assert seen.sent == []
    _run(graph, Command(resume="yes"), THREAD, use_async=use_async)
    assert [one.content for one in seen.sent[0]] == [f"{BLOCK}\n\nWhen?"]


def _state(*messages):
    return {"messages": list(messages) or [HumanMessage("When?", id="h1")]}


def _inject(state, *, use_async, **arguments):
    if use_async:
        return asyncio.run(ainject_memory(state, **arguments))
    return inject_memory(state, **arguments)


@both
def test_a_process_that_never_ran_the_recall_node_uses_the_one_memory_it_has(use_async):
    memory = RecordingMemory()
    create_recall_node(memory)
    assert _inject(_state(), use_async=use_async)[0].content == f"{BLOCK}\n\nWhen?"


@both
def test_of_several_memories_the_one_that_recalled_this_turn_is_asked(use_async):
    mine, other = RecordingMemory(), RecordingMemory()
    node, _ = create_recall_node(mine), create_recall_node(other)
    node.invoke(_state(), THREAD)
    _inject(_state(), use_async=use_async, config=THREAD)
    assert len(mine.calls) == 2
    assert other.calls == []


@both
def test_of_several_memories_none_is_guessed_and_that_is_said_once(use_async, caplog):
    memories = [RecordingMemory(), RecordingMemory()]
    for memory in memories:
        create_recall_node(memory)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert _inject(_state(), use_async=use_async)[0].content == "When?"
    assert [memory.calls for memory in memories] == [[], []]
    (record,) = caplog.records
    assert "inject_memory(state, memory=memory)" in record.message


@both
def test_a_memory_that_is_passed_is_the_one_that_is_asked(use_async):
    passed = RecordingMemory()
    others = [RecordingMemory(), RecordingMemory()]
    for other in others:
        create_recall_node(other)
    assert BLOCK in _inject(_state(), use_async=use_async, memory=passed)[0].content
    assert [other.calls for other in others] == [[], []]


def test_a_memory_that_nobody_holds_any_more_is_no_candidate():
    create_recall_node(RecordingMemory())
    gc.collect()
    kept = RecordingMemory()
    create_recall_node(kept)
    inject_memory(_state())
    assert len(kept.calls) == 1


def test_without_any_memory_the_messages_are_sent_as_they_are():
    assert inject_memory(_state()) == _state()["messages"]


@both
def test_the_memory_of_another_turn_is_not_used(use_async):
    memory = RecordingMemory()
    state = {**_state(), nodes.STATE_KEY: TurnMemory(turn="h0", text="<old>")}
    sent = _inject(state, use_async=use_async, memory=memory)
    assert "<old>" not in sent[0].content
    assert BLOCK in sent[0].content


def test_a_conversation_without_a_message_of_the_person_is_sent_as_it_is():
    memory = RecordingMemory()
    assert create_recall_node(memory).invoke(_state(AIMessage("Hi"))) == {}
    assert inject_memory(_state(AIMessage("Hi")), memory=memory) == [AIMessage("Hi")]


@pytest.mark.parametrize(
    "state", [{}, {"messages": "When?"}, {"messages": [3]}, {"messages": [{"role": "user"}]}]
)
def test_a_state_without_messages_is_refused_by_name(state):
    memory = RecordingMemory()
    for use in (
        create_recall_node(memory).invoke,
        create_retain_node(memory).invoke,
        inject_memory,
    ):
        with pytest.raises(ConfigurationError, match="'messages'"):
            use(state)


@both
def test_two_recall_nodes_side_by_side_both_reach_the_model(use_async):
    other_block = BLOCK.replace("Fridays", "Mondays")
    team = RecordingMemory(result=RecallResult(text=other_block))
    seen = Seen()
    graph = StateGraph(MessagesState)
    graph.add_node("mine", create_recall_node(RecordingMemory()))
    graph.add_node("team", create_recall_node(team))
    graph.add_node("model", seen.anode if use_async else seen.node)
    graph.add_edge(START, "mine")
    graph.add_edge(START, "team")
    graph.add_edge(["mine", "team"], "model")
    graph.add_edge("model", END)
    _run(graph.compile(), "When?", use_async=use_async)
    assert seen.sent[0][0].content == f"{BLOCK}\n\n{other_block}\n\nWhen?"


async def _streamed(graph, mode, *, use_async):
    given = {"messages": [HumanMessage("When?")]}
    if use_async:
        return [one async for one in graph.astream(given, stream_mode=mode)]
    return list(graph.stream(given, stream_mode=mode))


@both
@pytest.mark.parametrize("state", [MessagesState, MemoryState])
@pytest.mark.parametrize("mode", ["messages", "updates", "values", "debug", "tasks"])
async def test_recalled_memory_is_not_streamed_to_the_user(use_async, state, mode):
    graph = _graph(RecordingMemory(), Seen(), use_async=use_async, state=state)
    parts = await _streamed(graph, mode, use_async=use_async)
    assert parts
    assert "Deploys happen" not in repr(parts)


async def test_a_models_tokens_are_streamed_and_the_memory_it_read_is_not():
    model = FakeListChatModel(responses=["On Fridays."])

    def call_model(state: MemoryState) -> dict:
        return {"messages": [model.invoke(inject_memory(state))]}

    graph = StateGraph(MessagesState)
    graph.add_node("recall", create_recall_node(RecordingMemory()))
    graph.add_node("model", call_model)
    graph.add_edge(START, "recall")
    graph.add_edge("recall", "model")
    parts = await _streamed(graph.compile(), "messages", use_async=False)
    assert "".join(chunk.content for chunk, _ in parts) == "On Fridays."


@both
def test_every_model_call_of_a_turn_is_sent_the_memory(use_async):
    seen = Seen()
    memory = RecordingMemory()
    model = seen.anode if use_async else seen.node
    graph = StateGraph(MemoryState)
    graph.add_node("recall", create_recall_node(memory))
    graph.add_node("think", lambda state: {})
    graph.add_node("model", model)
    graph.add_node("again", model)
    for start, end in [(START, "recall"), ("recall", "think"), ("think", "model")]:
        graph.add_edge(start, end)
    graph.add_edge("model", "again")
    _run(graph.compile(), "When?", use_async=use_async)
    assert [sent[0].content for sent in seen.sent] == [f"{BLOCK}\n\nWhen?"] * 2


def test_the_key_is_no_part_of_the_output_schema():
    plain = _graph(RecordingMemory(), Seen())
    narrowed = _graph(RecordingMemory(), Seen(), state=MemoryState, output_schema=MessagesState)
    for graph in (plain, narrowed):
        assert set(graph.get_output_jsonschema()["properties"]) == {"messages"}


def test_a_turns_memory_dumped_or_printed_names_the_turn_alone():
    held = TurnMemory(turn="h1", text=BLOCK)
    assert held.text == BLOCK
    assert "Deploys" not in repr(held)
    assert held.model_dump() == {"turn": "h1", "injection": "human"}


def test_the_nodes_are_named_after_what_they_do():
    graph = StateGraph(MessagesState)
    graph.add_node(create_recall_node(RecordingMemory()))
    graph.add_node(create_retain_node(RecordingMemory()))
    assert set(graph.nodes) == {"hindsight_recall", "hindsight_retain"}


@pytest.mark.parametrize("message", [("human", "When?"), {"role": "user", "content": "When?"}])
def test_messages_in_any_form_that_langchain_takes_are_understood(message):
    memory = RecordingMemory()
    state: dict[str, Any] = {"messages": [message]}
    state |= create_recall_node(memory).invoke(state)
    create_retain_node(memory).invoke(state)
    assert inject_memory(state)[0].content == f"{BLOCK}\n\nWhen?"
    assert memory.calls[-1].payload[0].content == "When?"


def test_messages_without_ids_are_told_apart_by_their_words():
    memory = RecordingMemory()
    state: dict[str, Any] = {"messages": [HumanMessage("When?")]}
    state |= create_recall_node(memory).invoke(state)
    assert inject_memory(state)[0].content == f"{BLOCK}\n\nWhen?"
    assert len(memory.calls) == 1
