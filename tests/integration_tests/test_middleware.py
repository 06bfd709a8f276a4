"""The middleware, against a real Hindsight."""

from __future__ import annotations

import asyncio
import copy
import pickle
from dataclasses import dataclass

import pytest
from faulty_network import closed_port, hanging
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from remembering import (
    LIFE_NOTE,
    NOTES,
    QUESTION,
    Model,
    count_recalls,
    model_of,
    open_memory,
    remember,
    remember_both,
    stored,
    tool_call,
)

from langchain_hindsight import HindsightMiddleware, create_hindsight_tools
from langchain_hindsight.fence import FENCE_TAG

both = pytest.mark.parametrize("use_async", [False, True], ids=["sync", "async"])


@pytest.fixture
def memory(hindsight_url, bank_id, life_bank_id):
    with open_memory(hindsight_url, bank_id, life_bank_id) as memory:
        yield memory


def _agent(memory, model, tools=(), middleware=(), **settings):
    return create_agent(
        model, list(tools), middleware=[HindsightMiddleware(memory), *middleware], **settings
    )


def _run(agent, given, config=None, *, use_async, **arguments):
    if isinstance(given, str):
        given = {"messages": [HumanMessage(given)]}
    if use_async:
        return asyncio.run(agent.ainvoke(given, config, **arguments))
    return agent.invoke(given, config, **arguments)


def _thread(name, **configurable):
    return {"configurable": {"thread_id": name, **configurable}}


@both
def test_a_later_thread_knows_what_an_earlier_one_was_told(memory, use_async):
    _run(_agent(memory, model_of("Noted.")), NOTES[0], _thread("t-1"), use_async=use_async)
    memory.flush()
    model = model_of("On Fridays.")
    _run(_agent(memory, model), QUESTION, _thread("t-2"), use_async=use_async)
    assert NOTES[0] in model.sent[0][-1].content
    assert model.sent[0][-1].content.endswith(QUESTION)


@both
@pytest.mark.parametrize("injection", ["human", "system"])
def test_both_banks_reach_the_model_where_the_setting_says(
    hindsight_url, bank_id, life_bank_id, injection, use_async
):
    settings = {"recall": {"injection": injection}}
    with open_memory(hindsight_url, bank_id, life_bank_id, **settings) as memory:
        remember_both(memory)
        model = model_of("On Fridays.")
        agent = _agent(memory, model, system_prompt="Be brief.")
        _run(agent, QUESTION, use_async=use_async)
    system, human = model.sent[0]
    holds, other = (human, system) if injection == "human" else (system, human)
    assert NOTES[0] in holds.text
    assert LIFE_NOTE in holds.text
    assert FENCE_TAG not in other.text


@both
def test_a_turn_of_several_model_calls_recalls_each_bank_once_also_when_it_retains_in_between(
    memory, bank_id, life_bank_id, monkeypatch, use_async
):
    remember_both(memory)
    asked = count_recalls(memory, monkeypatch)
    model = model_of(
        tool_call("hindsight_retain", content="The billing service has a new deploy."),
        tool_call("hindsight_retain_life", content="Likes deploys."),
        "Done.",
    )
    agent = _agent(memory, model, create_hindsight_tools(memory), checkpointer=InMemorySaver())
    _run(agent, QUESTION, _thread("t-1"), use_async=use_async)
    assert asked == {bank_id: 1, life_bank_id: 1}
    assert len({sent[0].content for sent in model.sent}) == 1
    _run(agent, f"{QUESTION} Tell me.", _thread("t-1"), use_async=use_async)
    assert asked == {bank_id: 2, life_bank_id: 2}


@both
def test_recalled_memory_is_neither_kept_in_the_thread_nor_retained(
    memory, hindsight_url, bank_id, life_bank_id, use_async
):
    remember_both(memory)
    saver = InMemorySaver()
    model = model_of(tool_call("hindsight_recall", query=QUESTION), "They deploy then.")
    agent = _agent(memory, model, create_hindsight_tools(memory), checkpointer=saver)
    for turn in range(1, 4):
        result = _run(agent, QUESTION, _thread("t-1"), use_async=use_async)
        assert len(result["messages"]) == 4 * turn
    humans = [one for one in result["messages"] if one.type == "human"]
    assert [one.content for one in humans] == [QUESTION] * 3
    memory.flush()
    texts = " ".join(stored(hindsight_url, bank_id))
    assert FENCE_TAG not in texts
    assert texts.count(NOTES[0]) == 1
    assert LIFE_NOTE not in texts
    assert stored(hindsight_url, life_bank_id) == [LIFE_NOTE]


@both
def test_an_interrupted_turn_resumes_in_another_process_with_memory_and_is_stored_once(
    hindsight_url, bank_id, use_async
):
    saver = InMemorySaver()
    model = model_of(tool_call("hindsight_recall", query=QUESTION), "On Fridays.")

    def start():
        memory = open_memory(hindsight_url, bank_id)
        asking = HumanInTheLoopMiddleware(interrupt_on={"hindsight_recall": True})
        tools = create_hindsight_tools(memory)
        return memory, _agent(memory, model, tools, [asking], checkpointer=saver)

    memory, agent = start()
    with memory:
        remember(memory, NOTES[0])
        _run(agent, QUESTION, _thread("t-1"), use_async=use_async)
    memory, agent = start()
    with memory:
        approval = Command(resume={"decisions": [{"type": "approve"}]})
        _run(agent, approval, _thread("t-1"), use_async=use_async)
        memory.flush()
    assert all(NOTES[0] in sent[0].content for sent in model.sent)
    assert " ".join(stored(hindsight_url, bank_id)).count(QUESTION) == 1


class _FailsOnce(Model):
    failed: bool = False

    def _generate(self, messages, *args, **kwargs):
        if not self.failed:
            self.failed = True
            msg = "The model is down."
            raise RuntimeError(msg)
        return super()._generate(messages, *args, **kwargs)


@both
def test_a_turn_whose_model_raised_is_stored_with_the_next_one(
    memory, hindsight_url, bank_id, use_async
):
    model = _FailsOnce(responses=model_of("Fine.").responses)
    agent = _agent(memory, model, checkpointer=InMemorySaver())
    with pytest.raises(RuntimeError):
        _run(agent, "We chose Kafka for events.", _thread("t-1"), use_async=use_async)
    _run(agent, "And PostgreSQL for data.", _thread("t-1"), use_async=use_async)
    memory.flush()
    texts = " ".join(stored(hindsight_url, bank_id))
    assert texts.count("We chose Kafka for events.") == 1
    assert texts.count("And PostgreSQL for data.") == 1


async def test_callers_at_the_same_time_see_their_own_banks(hindsight_url, bank_id):
    @dataclass
    class Who:
        user_id: str

    with open_memory(hindsight_url, f"{bank_id}-{{user_id}}") as memory:
        users = ["ada", "bob"]
        for user in users:
            note = f"The billing service of {user} deploys."
            remember(memory, note, config={"configurable": {"user_id": user}})
        models = [model_of(f"Fine, {user}.") for user in users]
        await asyncio.gather(
            *(
                _agent(memory, model, context_schema=Who).ainvoke(
                    {"messages": [HumanMessage(QUESTION)]}, context=Who(user)
                )
                for user, model in zip(users, models, strict=True)
            )
        )
        memory.flush()
    for user, model in zip(users, models, strict=True):
        assert f"of {user} deploys" in model.sent[0][-1].content
        assert f"Fine, {user}." in " ".join(stored(hindsight_url, f"{bank_id}-{user}"))


@both
def test_a_sub_agents_talk_is_not_stored_beside_the_persons(
    memory, hindsight_url, bank_id, use_async
):
    inner = _agent(memory, model_of("The inner answer."))

    @tool
    def ask() -> str:
        """Ask the other agent."""
        return inner.invoke({"messages": [HumanMessage("The inner question?")]})["messages"][
            -1
        ].text

    @tool("ask")
    async def aask() -> str:
        """Ask the other agent."""
        asked = await inner.ainvoke({"messages": [HumanMessage("The inner question?")]})
        return asked["messages"][-1].text

    outer = _agent(
        memory, model_of(tool_call("ask"), "The outer answer."), [aask if use_async else ask]
    )
    _run(outer, QUESTION, _thread("t-1"), use_async=use_async)
    memory.flush()
    texts = " ".join(stored(hindsight_url, bank_id))
    assert "The outer answer." in texts
    assert "The inner" not in texts


@both
def test_memory_mode_read_only_recalls_and_retains_nothing_and_ignored_does_neither(
    memory, hindsight_url, bank_id, use_async
):
    remember(memory, NOTES[0])
    model = model_of("Fine.")
    for mode in ("read-only", "ignored"):
        config = _thread(mode, memory_mode=mode)
        _run(_agent(memory, model), QUESTION, config, use_async=use_async)
    memory.flush()
    assert NOTES[0] in model.sent[0][-1].content
    assert model.sent[1][-1].content == QUESTION
    assert stored(hindsight_url, bank_id) == [NOTES[0]]


@both
def test_a_server_that_is_not_there_leaves_the_answer_intact_and_queues_the_turn(
    bank_id, use_async
):
    url = f"http://127.0.0.1:{closed_port()}"
    with open_memory(url, bank_id, outbox={"shutdown_timeout": 0.1}) as memory:
        result = _run(_agent(memory, model_of("Fine.")), QUESTION, use_async=use_async)
        assert result["messages"][-1].content == "Fine."
        assert memory.status().waiting == 2


@both
def test_a_server_that_hangs_is_waited_for_once_a_turn(bank_id, monkeypatch, use_async):
    @tool
    def clock() -> str:
        """Tell the time."""
        return "Noon"

    settings = {"recall": {"timeout": 0.3}, "outbox": {"shutdown_timeout": 0.1}}
    with hanging() as url, open_memory(url, bank_id, **settings) as memory:
        asked = count_recalls(memory, monkeypatch)
        model = model_of(tool_call("clock"), tool_call("clock"), "Noon.")
        _run(_agent(memory, model, [clock]), QUESTION, use_async=use_async)
    assert len(model.sent) == 3
    assert asked == {bank_id: 1}


@both
def test_a_streamed_answer_is_stored_whole_and_once(memory, hindsight_url, bank_id, use_async):
    remember(memory, NOTES[0])
    agent = _agent(memory, model_of("They deploy at the usual time."))
    given = {"messages": [HumanMessage(QUESTION)]}

    async def astream():
        return [one async for one in agent.astream(given, stream_mode="messages")]

    parts = (
        asyncio.run(astream()) if use_async else list(agent.stream(given, stream_mode="messages"))
    )
    assert NOTES[0] not in repr(parts)
    memory.flush()
    assert " ".join(stored(hindsight_url, bank_id)).count("They deploy at the usual time.") == 1


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_a_copied_or_pickled_middleware_remembers(memory, duplicate):
    remember(memory, NOTES[0])
    copied = duplicate(HindsightMiddleware(memory))
    model = model_of("On Fridays.")
    create_agent(model, middleware=[copied]).invoke({"messages": [HumanMessage(QUESTION)]})
    assert NOTES[0] in model.sent[0][-1].content
    copied.memory.close()
