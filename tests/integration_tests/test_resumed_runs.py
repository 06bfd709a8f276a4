"""Runs that are taken up again, run twice or side by side: what they said is stored once."""

from __future__ import annotations

import asyncio
import json
import urllib.parse
import urllib.request

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import SummarizationMiddleware
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import RetryPolicy
from remembering import model_of, open_memory, stored
from surfaces import both, every_graph

from langchain_hindsight import HindsightMiddleware, create_retain_node

THREAD = {"configurable": {"thread_id": "t-1"}}


@pytest.fixture
def memory(hindsight_url, bank_id):
    with open_memory(hindsight_url, bank_id) as memory:
        yield memory


def _run(graph, given, config=THREAD, *, use_async):
    if isinstance(given, str):
        given = {"messages": [HumanMessage(given)]}
    return asyncio.run(graph.ainvoke(given, config)) if use_async else graph.invoke(given, config)


def _stored(memory, url, bank_id):
    assert not memory.flush(120).timed_out  # a busy server takes its time
    return sorted(stored(url, bank_id))


@both
def test_a_retain_node_that_is_retried_after_it_wrote_stores_the_turn_once(
    memory, hindsight_url, bank_id, use_async
):
    retain = create_retain_node(memory)
    tries = []

    def written_then_lost(state: MessagesState, config) -> dict:
        tries.append(retain.invoke(state, config))
        if len(tries) == 1:
            msg = "The acknowledgement was lost."
            raise ConnectionError(msg)
        return tries[-1]

    async def awritten_then_lost(state: MessagesState, config) -> dict:
        tries.append(await retain.ainvoke(state, config))
        if len(tries) == 1:
            msg = "The acknowledgement was lost."
            raise ConnectionError(msg)
        return tries[-1]

    graph = StateGraph(MessagesState)
    graph.add_node("answer", lambda _: {"messages": [AIMessage("Good.")]})
    graph.add_node(
        "retain",
        awritten_then_lost if use_async else written_then_lost,
        retry_policy=RetryPolicy(initial_interval=0.01, jitter=False),
    )
    graph.add_edge(START, "answer")
    graph.add_edge("answer", "retain")
    _run(graph.compile(checkpointer=InMemorySaver()), "We chose Kafka.", use_async=use_async)
    assert len(tries) == 2
    assert _stored(memory, hindsight_url, bank_id) == ["assistant: Good.", "user: We chose Kafka."]


@every_graph
@both
def test_a_run_from_an_earlier_checkpoint_stores_no_question_twice_and_the_new_answer_too(
    memory, hindsight_url, bank_id, build, use_async
):
    model = model_of("Good.", "Fine.", "Better.")
    graph = build(memory, model, use_async=use_async, checkpointer=InMemorySaver())
    _run(graph, "We chose Kafka.", use_async=use_async)
    _run(graph, "And Redis.", use_async=use_async)
    before_answer = next(
        one.config
        for one in graph.get_state_history(THREAD)
        if "model" in one.next and len(one.values["messages"]) == 3
    )
    _run(graph, None, before_answer, use_async=use_async)
    assert _stored(memory, hindsight_url, bank_id) == [
        "assistant: Better.",
        "assistant: Fine.",
        "assistant: Good.",
        "user: And Redis.",
        "user: We chose Kafka.",
    ]


@both
def test_branches_side_by_side_that_retain_to_one_thread_store_everything_once(
    memory, hindsight_url, bank_id, use_async
):
    graph = StateGraph(MessagesState)
    for branch in ("left", "right"):
        said = {"messages": [AIMessage(f"Found by the {branch}.", name=branch)]}
        graph.add_node(branch, lambda _, said=said: said)
        graph.add_node(f"retain-{branch}", create_retain_node(memory))
        graph.add_edge(START, branch)
        graph.add_edge(branch, f"retain-{branch}")
    _run(graph.compile(checkpointer=InMemorySaver()), "Who finds it?", use_async=use_async)
    assert _stored(memory, hindsight_url, bank_id) == [
        "left (assistant): Found by the left.",
        "right (assistant): Found by the right.",
        "user: Who finds it?",
    ]


@both
def test_a_thread_that_is_summarized_on_the_way_is_stored_whole_and_once_without_the_summary(
    memory, hindsight_url, bank_id, use_async
):
    model = model_of(*(f"Answer {number}." for number in range(5)))
    summarizing = SummarizationMiddleware(
        model_of("A summary of it."), trigger=("messages", 4), keep=("messages", 2)
    )
    agent = create_agent(
        model,
        middleware=[HindsightMiddleware(memory), summarizing],
        checkpointer=InMemorySaver(),
    )
    for number in range(5):
        result = _run(agent, f"Question {number}?", use_async=use_async)
    assert len(result["messages"]) < 10
    assert _stored(memory, hindsight_url, bank_id) == sorted(
        said
        for number in range(5)
        for said in (f"assistant: Answer {number}.", f"user: Question {number}?")
    )


@both
def test_what_is_stored_carries_when_and_where_it_was_said_and_by_whom(
    memory, hindsight_url, bank_id, use_async
):
    asked = AIMessage("Shall I deploy?", id="m-0")
    answered = HumanMessage(
        "Yes, do that.",
        id="m-1",
        name="Ada",
        additional_kwargs={"timestamp": "2026-03-01T10:00:00+05:00"},
    )
    given = [asked, answered]
    if use_async:
        asyncio.run(memory.aretain(given, config=THREAD))
    else:
        memory.retain(given, config=THREAD)
    assert not memory.flush(120).timed_out  # a busy server takes its time

    def get(path):
        with urllib.request.urlopen(f"{hindsight_url}/v1/default/banks/{bank_id}/{path}") as answer:
            return json.load(answer)

    items = get("memories/list?limit=10")["items"]
    (item,) = [one for one in items if "Yes" in one["text"]]
    assert item["text"] == "Ada (user): Yes, do that."
    assert item["context"] == "Before this, assistant: Shall I deploy?"
    assert item["tags"] == ["project:billing"]
    whole = get(f"memories/{urllib.parse.quote(item['id'], safe='')}")
    assert "2026-03-01T05:00:00+00:00" in json.dumps(whole)
    document = get(f"documents/{urllib.parse.quote(whole['document_id'], safe='')}")
    assert document["document_metadata"] == {
        "thread": "t-1",
        "role": "human",
        "speaker": "Ada (user)",
        "message_ids": "m-1",
    }
