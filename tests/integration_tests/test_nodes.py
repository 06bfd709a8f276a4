"""The nodes, against a real Hindsight."""

from __future__ import annotations

import asyncio

import pytest
from faulty_network import closed_port, hanging
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command, interrupt
from remembering import (
    LIFE_NOTE,
    NOTES,
    QUESTION,
    count_recalls,
    model_of,
    open_memory,
    remember,
    remember_both,
    stored,
    tool_call,
)

from langchain_hindsight import (
    MemoryState,
    ainject_memory,
    create_hindsight_tools,
    create_recall_node,
    create_retain_node,
    inject_memory,
)
from langchain_hindsight.fence import FENCE_TAG

both = pytest.mark.parametrize("use_async", [False, True], ids=["sync", "async"])


@pytest.fixture
def memory(hindsight_url, bank_id, life_bank_id):
    with open_memory(hindsight_url, bank_id, life_bank_id) as memory:
        yield memory


def _graph(memory, model, *, use_async, checkpointer=None, tools=(), ask_first=False):
    def call_model(state: MemoryState) -> dict:
        if ask_first:
            interrupt("Go on?")
        return {"messages": [model.invoke(inject_memory(state))]}

    async def acall_model(state: MemoryState) -> dict:
        if ask_first:
            interrupt("Go on?")
        return {"messages": [await model.ainvoke(await ainject_memory(state))]}

    graph = StateGraph(MemoryState)
    graph.add_node("recall", create_recall_node(memory))
    graph.add_node("model", acall_model if use_async else call_model)
    graph.add_node("tools", ToolNode(list(tools)))
    graph.add_node("retain", create_retain_node(memory))
    graph.add_edge(START, "recall")
    graph.add_edge("recall", "model")
    graph.add_conditional_edges("model", tools_condition, {"tools": "tools", END: "retain"})
    graph.add_edge("tools", "model")
    return graph.compile(checkpointer=checkpointer)


def _run(graph, given, config=None, *, use_async):
    if isinstance(given, str):
        given = {"messages": [HumanMessage(given)]}
    return asyncio.run(graph.ainvoke(given, config)) if use_async else graph.invoke(given, config)


def _thread(name, **configurable):
    return {"configurable": {"thread_id": name, **configurable}}


@both
def test_a_later_thread_knows_what_an_earlier_one_was_told(memory, use_async):
    _run(
        _graph(memory, model_of("Noted."), use_async=use_async),
        NOTES[0],
        _thread("t-1"),
        use_async=use_async,
    )
    memory.flush()
    model = model_of("On Fridays.")
    _run(_graph(memory, model, use_async=use_async), QUESTION, _thread("t-2"), use_async=use_async)
    assert NOTES[0] in model.sent[0][-1].content
    assert model.sent[0][-1].content.endswith(QUESTION)


@both
def test_a_turn_of_several_model_calls_recalls_each_bank_once_also_when_it_retains_in_between(
    memory, bank_id, life_bank_id, monkeypatch, use_async
):
    remember_both(memory)
    asked = count_recalls(memory, monkeypatch)
    model = model_of(tool_call("hindsight_retain", content="We have a new deploy."), "Done.")
    tools = create_hindsight_tools(memory)
    saver = InMemorySaver()
    graph = _graph(memory, model, use_async=use_async, tools=tools, checkpointer=saver)
    _run(graph, QUESTION, _thread("t-1"), use_async=use_async)
    assert asked == {bank_id: 1, life_bank_id: 1}
    assert model.sent[0][0].content == model.sent[1][0].content
    assert LIFE_NOTE in model.sent[0][0].content
    _run(graph, f"{QUESTION} Tell me.", _thread("t-1"), use_async=use_async)
    assert asked == {bank_id: 2, life_bank_id: 2}


@both
def test_recalled_memory_is_neither_kept_in_the_thread_nor_retained(
    memory, hindsight_url, bank_id, life_bank_id, use_async
):
    remember_both(memory)
    saver = InMemorySaver()
    model = model_of("They deploy then.")
    graph = _graph(memory, model, use_async=use_async, checkpointer=saver)
    for _ in range(3):
        result = _run(graph, QUESTION, _thread("t-1"), use_async=use_async)
    assert FENCE_TAG in model.sent[-1][-1].content
    assert set(result) == {"messages"}
    assert len(result["messages"]) == 6
    assert FENCE_TAG not in repr([one.checkpoint for one in saver.list(None)])
    memory.flush()
    texts = " ".join(stored(hindsight_url, bank_id))
    assert FENCE_TAG not in texts
    assert texts.count(NOTES[0]) == 1
    assert stored(hindsight_url, life_bank_id) == [LIFE_NOTE]


@both
def test_a_turn_that_is_run_again_is_stored_once(memory, hindsight_url, bank_id, use_async):
    given = {"messages": [HumanMessage("We chose Kafka.", id="h1"), AIMessage("Good.", id="a1")]}
    graph = StateGraph(MessagesState)
    graph.add_node("retain", create_retain_node(memory))
    graph.add_edge(START, "retain")
    for _ in range(3):
        _run(graph.compile(), given, _thread("t-1"), use_async=use_async)
    memory.flush()
    assert " ".join(stored(hindsight_url, bank_id)).count("We chose Kafka.") == 1


@both
def test_a_run_that_resumes_in_another_process_recalls_again_and_is_stored_once(
    hindsight_url, bank_id, use_async
):
    saver = InMemorySaver()
    with open_memory(hindsight_url, bank_id) as memory:
        remember(memory, NOTES[0])
        model = model_of("On Fridays.")
        graph = _graph(memory, model, use_async=use_async, checkpointer=saver, ask_first=True)
        _run(graph, QUESTION, _thread("t-1"), use_async=use_async)
        assert model.sent == []
    del memory, graph
    with open_memory(hindsight_url, bank_id) as memory:
        graph = _graph(memory, model, use_async=use_async, checkpointer=saver, ask_first=True)
        _run(graph, Command(resume="yes"), _thread("t-1"), use_async=use_async)
        assert NOTES[0] in model.sent[0][-1].content
        memory.flush()
    assert " ".join(stored(hindsight_url, bank_id)).count(QUESTION) == 1


def test_one_graph_serves_several_event_loops_one_after_the_other(memory):
    remember(memory, NOTES[0])
    model = model_of("On Fridays.")
    graph = _graph(memory, model, use_async=True)
    for turn in range(2):
        _run(graph, f"{QUESTION} {turn}", _thread(f"t-{turn}"), use_async=True)
    assert all(NOTES[0] in sent[-1].content for sent in model.sent)


async def test_a_graph_of_sync_nodes_runs_inside_a_running_loop(memory):
    remember(memory, NOTES[0])
    model = model_of("On Fridays.")
    _run(_graph(memory, model, use_async=False), QUESTION, _thread("t-1"), use_async=False)
    assert NOTES[0] in model.sent[0][-1].content


async def test_callers_at_the_same_time_see_their_own_banks(hindsight_url, bank_id):
    with open_memory(hindsight_url, f"{bank_id}-{{user_id}}") as memory:
        users = ["ada", "bob"]
        for user in users:
            remember(
                memory,
                f"The billing service of {user} deploys.",
                config={"configurable": {"user_id": user}},
            )
        models = [model_of("Fine.") for _ in users]
        await asyncio.gather(
            *(
                _graph(memory, model, use_async=True).ainvoke(
                    {"messages": [HumanMessage(QUESTION)]}, _thread("t-1", user_id=user)
                )
                for user, model in zip(users, models, strict=True)
            )
        )
    for user, model in zip(users, models, strict=True):
        assert f"of {user} deploys" in model.sent[0][-1].content


@both
def test_without_a_caller_there_is_no_bank_and_the_run_goes_on(hindsight_url, bank_id, use_async):
    with open_memory(hindsight_url, f"{bank_id}-{{user_id}}") as memory:
        model = model_of("Fine.")
        _run(_graph(memory, model, use_async=use_async), QUESTION, use_async=use_async)
    assert model.sent[0][-1].content == QUESTION


@both
def test_memory_mode_read_only_recalls_and_retains_nothing_and_ignored_does_neither(
    memory, hindsight_url, bank_id, use_async
):
    remember(memory, NOTES[0])
    model = model_of("Fine.")
    graph = _graph(memory, model, use_async=use_async)
    for mode in ("read-only", "ignored"):
        _run(graph, QUESTION, _thread(mode, memory_mode=mode), use_async=use_async)
    memory.flush()
    assert NOTES[0] in model.sent[0][-1].content
    assert model.sent[1][-1].content == QUESTION
    assert stored(hindsight_url, bank_id) == [NOTES[0]]


@both
def test_a_server_that_is_not_there_leaves_the_turn_without_memory_and_queues_it(
    bank_id, use_async
):
    url = f"http://127.0.0.1:{closed_port()}"
    with open_memory(url, bank_id, outbox={"shutdown_timeout": 0.1}) as memory:
        model = model_of("Fine.")
        _run(_graph(memory, model, use_async=use_async), QUESTION, use_async=use_async)
        assert model.sent[0][-1].content == QUESTION
        assert memory.status().waiting == 2


@both
def test_a_server_that_hangs_is_waited_for_once_a_turn(bank_id, monkeypatch, use_async):
    settings = {"recall": {"timeout": 0.3}, "outbox": {"shutdown_timeout": 0.1}}
    with hanging() as url, open_memory(url, bank_id, **settings) as memory:
        asked = count_recalls(memory, monkeypatch)
        model = model_of(tool_call("hindsight_retain_nothing"), "Fine.")
        _run(_graph(memory, model, use_async=use_async), QUESTION, use_async=use_async)
    assert asked == {bank_id: 1}
    assert model.sent[-1][0].content == QUESTION
