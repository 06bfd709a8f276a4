"""The tools, against a real Hindsight."""

from __future__ import annotations

import asyncio

import pytest
from faulty_network import closed_port, hanging
from langchain.agents import create_agent
from langchain_core.messages import HumanMessage, ToolMessage
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from remembering import (
    LIFE_NOTE,
    NOTES,
    QUESTION,
    model_of,
    open_memory,
    remember_both,
    stored,
    tool_call,
)

from langchain_hindsight import create_hindsight_tools, fence

both = pytest.mark.parametrize("use_async", [False, True], ids=["sync", "async"])


@pytest.fixture
def memory(hindsight_url, bank_id, life_bank_id):
    with open_memory(hindsight_url, bank_id, life_bank_id) as memory:
        yield memory


def _call(memory, name, config=None, *, use_async, **args):
    """The message that the tool answers a model with."""
    tool = next(one for one in create_hindsight_tools(memory) if one.name == name)
    called = {"name": name, "args": args, "id": "c1", "type": "tool_call"}
    if use_async:
        return asyncio.run(tool.ainvoke(called, config))
    return tool.invoke(called, config)


@both
def test_recall_answers_with_the_memories_of_both_banks_as_fenced_data(memory, use_async):
    remember_both(memory)
    answer = _call(memory, "hindsight_recall", use_async=use_async, query=QUESTION)
    parsed = fence.parse(answer.content)
    assert set(parsed.project) == set(NOTES)
    assert parsed.life == (LIFE_NOTE,)


@both
def test_recall_from_a_bank_that_does_not_exist_yet_says_that_nothing_is_remembered(
    memory, use_async
):
    answer = _call(memory, "hindsight_recall", use_async=use_async, query=QUESTION)
    assert answer.content == "Nothing relevant is remembered."


@both
def test_recall_takes_a_query_of_any_length(memory, use_async):
    remember_both(memory)
    query = "word " * 5_000 + QUESTION
    answer = _call(memory, "hindsight_recall", use_async=use_async, query=query)
    assert answer.status == "success"


@both
@pytest.mark.parametrize("query", ["", "?!", "🙂"])
def test_recall_without_a_word_in_the_query_says_so(memory, use_async, query):
    answer = _call(memory, "hindsight_recall", use_async=use_async, query=query)
    assert answer.content.startswith("Nothing was recalled: ")


@both
def test_what_is_retained_is_stored_in_the_project_bank_when_the_tool_says_so(
    memory, hindsight_url, bank_id, life_bank_id, use_async
):
    answer = _call(memory, "hindsight_retain", use_async=use_async, content=NOTES[0])
    assert answer.content == "Stored."
    assert stored(hindsight_url, bank_id) == [NOTES[0]]
    assert stored(hindsight_url, life_bank_id) == []


@both
def test_the_life_tool_writes_to_the_life_bank_alone(
    memory, hindsight_url, bank_id, life_bank_id, use_async
):
    answer = _call(memory, "hindsight_retain_life", use_async=use_async, content=LIFE_NOTE)
    assert answer.content == "Stored."
    assert stored(hindsight_url, life_bank_id) == [LIFE_NOTE]
    assert stored(hindsight_url, bank_id) == []


@both
def test_what_is_stored_can_be_recalled_at_once(memory, use_async):
    _call(memory, "hindsight_recall", use_async=use_async, query=QUESTION)
    _call(memory, "hindsight_retain", use_async=use_async, content=NOTES[0])
    answer = _call(memory, "hindsight_recall", use_async=use_async, query=QUESTION)
    assert NOTES[0] in answer.content


@both
def test_without_a_server_retain_says_queued_and_not_stored(bank_id, life_bank_id, use_async):
    url = f"http://127.0.0.1:{closed_port()}"
    with open_memory(url, bank_id, life_bank_id, outbox={"shutdown_timeout": 0.1}) as memory:
        for name in ("hindsight_retain", "hindsight_retain_life"):
            answer = _call(memory, name, use_async=use_async, content=NOTES[0])
            assert answer.content.startswith("Queued")
            assert "Stored" not in answer.content


@both
@pytest.mark.parametrize("name", ["hindsight_recall", "hindsight_reflect"])
def test_without_a_server_the_run_goes_on_with_a_message_of_status_error(bank_id, name, use_async):
    url = f"http://127.0.0.1:{closed_port()}"
    with open_memory(url, bank_id) as memory:
        graph = StateGraph(MessagesState)
        graph.add_node("tools", ToolNode(create_hindsight_tools(memory)))
        graph.add_edge(START, "tools")
        given = {"messages": [HumanMessage("Hi"), tool_call(name, query=QUESTION)]}
        compiled = graph.compile()
        result = asyncio.run(compiled.ainvoke(given)) if use_async else compiled.invoke(given)
    answer = result["messages"][-1]
    assert isinstance(answer, ToolMessage)
    assert answer.status == "error"
    assert url in answer.content


@both
def test_reflect_answers_on_a_server_with_an_llm(hindsight_mock_url, bank_id, use_async):
    with open_memory(hindsight_mock_url, bank_id) as memory:
        memory.retain(NOTES[0])
        answer = _call(memory, "hindsight_reflect", use_async=use_async, query=QUESTION)
    assert answer.status == "success"
    assert answer.content


@both
def test_reflect_says_plainly_that_a_server_without_an_llm_cannot(memory, use_async):
    memory.retain(NOTES[0])
    answer = _call(memory, "hindsight_reflect", use_async=use_async, query=QUESTION)
    assert answer.status == "error"
    assert answer.content.startswith("That failed: ")


@both
@pytest.mark.parametrize(
    "name", ["hindsight_recall", "hindsight_retain", "hindsight_reflect", "hindsight_retain_life"]
)
def test_a_caller_who_is_not_named_has_no_bank_and_is_told(
    hindsight_url, bank_id, life_bank_id, name, use_async
):
    banks = (f"{bank_id}-{{user_id}}", f"{life_bank_id}-{{user_id}}")
    args = {"query": QUESTION} if name in {"hindsight_recall", "hindsight_reflect"} else {}
    args = args or {"content": NOTES[0]}
    with open_memory(hindsight_url, *banks) as memory:
        answer = _call(memory, name, use_async=use_async, **args)
        assert answer.status == "error"
        assert "user_id" in answer.content
        named = {"configurable": {"user_id": "ada"}}
        answer = _call(memory, "hindsight_retain", named, use_async=use_async, content=NOTES[0])
    assert answer.content == "Stored."
    assert stored(hindsight_url, f"{bank_id}-ada") == [NOTES[0]]


async def test_a_cancelled_recall_is_cancelled(bank_id):
    with hanging() as url, open_memory(url, bank_id) as memory:
        tool = create_hindsight_tools(memory)[0]
        task = asyncio.create_task(tool.ainvoke({"query": QUESTION}))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


@both
def test_an_agent_that_calls_a_tool_answers_from_memory(memory, use_async):
    remember_both(memory)
    model = model_of(tool_call("hindsight_recall", query=QUESTION), "On Fridays.")
    agent = create_agent(model, create_hindsight_tools(memory))
    given = {"messages": [HumanMessage(QUESTION)]}
    result = asyncio.run(agent.ainvoke(given)) if use_async else agent.invoke(given)
    assert NOTES[0] in model.sent[1][-1].content
    assert result["messages"][-1].content == "On Fridays."


def test_a_tool_node_runs_several_memory_tools_side_by_side(memory, hindsight_url, bank_id):
    node = ToolNode(create_hindsight_tools(memory))
    calls = tool_call("hindsight_retain", content=NOTES[0])
    calls.tool_calls += [
        {**calls.tool_calls[0], "id": f"c{n}", "args": {"content": note}}
        for n, note in enumerate(NOTES[1:])
    ]
    graph = StateGraph(MessagesState)
    graph.add_node("tools", node)
    graph.add_edge(START, "tools")
    result = graph.compile().invoke({"messages": [calls]})
    assert [one.content for one in result["messages"][1:]] == ["Stored."] * 3
    assert sorted(stored(hindsight_url, bank_id)) == sorted(NOTES)
