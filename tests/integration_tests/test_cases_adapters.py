"""Cases of tools, middleware, nodes, classic memory and retriever, asked of all that meet them."""

from __future__ import annotations

import asyncio
import copy
import logging
import pickle

import pytest
from faulty_network import closed_port, hanging
from langchain_classic.chains import LLMChain
from langchain_classic.chains.base import Chain
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.prompts import PromptTemplate
from langchain_core.runnables import RunnableLambda
from langgraph.checkpoint.memory import InMemorySaver
from relay import relaying
from remembering import NOTES, QUESTION, model_of, open_memory, remember, stored, tool_call
from surfaces import both, called, every_graph, every_surface

from langchain_hindsight import (
    HindsightMemory,
    HindsightMiddleware,
    HindsightRetriever,
    create_hindsight_tools,
    create_recall_node,
    create_retain_node,
)

THREAD = {"configurable": {"thread_id": "t-1"}}
KEY = "made-up-key-of-a-test"
TOOLS = {
    "hindsight_recall": {"query": QUESTION},
    "hindsight_reflect": {"query": QUESTION},
    "hindsight_retain": {"content": NOTES[0]},
    "hindsight_retain_life": {"content": NOTES[0]},
}
UNNAMED = {"retriever", "classic", "middleware"}
every_tool = pytest.mark.parametrize("name", TOOLS)
deprecated = pytest.mark.filterwarnings(
    "ignore::langchain_core._api.LangChainDeprecationWarning"  # the classic chains are deprecated
)


@pytest.fixture
def memory(hindsight_url, bank_id, life_bank_id):
    with open_memory(hindsight_url, bank_id, life_bank_id) as memory:
        yield memory


def _run(graph, said, *, use_async, config=THREAD):
    given = {"messages": [HumanMessage(said)]}
    return asyncio.run(graph.ainvoke(given, config)) if use_async else graph.invoke(given, config)


async def _until(condition):
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - what the other thread holds has no event
            await asyncio.sleep(0.01)


# Tools that fail, wait and promise


@every_graph
@every_tool
@both
def test_a_tool_without_a_server_is_answered_and_the_run_and_its_history_go_on(
    bank_id, life_bank_id, build, name, use_async
):
    url = f"http://127.0.0.1:{closed_port()}"
    with open_memory(url, bank_id, life_bank_id, outbox={"shutdown_timeout": 0.0}) as memory:
        model = model_of(tool_call(name, **TOOLS[name]), "I could not look.")
        tools = create_hindsight_tools(memory)
        saver = InMemorySaver()
        graph = build(memory, model, use_async=use_async, tools=tools, checkpointer=saver)
        messages = _run(graph, QUESTION, use_async=use_async)["messages"]
    assert [one.type for one in messages] == ["human", "ai", "tool", "ai"]
    answer = messages[2]
    assert answer.tool_call_id == messages[1].tool_calls[0]["id"]
    assert url in answer.content
    if "retain" in name:
        assert (answer.status, answer.content[:6]) == ("success", "Queued")
    else:
        assert answer.status == "error"


@every_tool
async def test_a_tool_that_is_cancelled_while_it_waits_is_cancelled_and_what_it_wrote_down_stays(
    bank_id, life_bank_id, monkeypatch, name
):
    # Its thread waits on for what is left of this; that is not to be waited for here.
    monkeypatch.setattr("langchain_hindsight.memory._NOTE_WAIT", 4.0)
    settings = {"retain": {"unit": "message"}, "outbox": {"shutdown_timeout": 0.0}}
    with hanging() as url, open_memory(url, bank_id, life_bank_id, **settings) as memory:
        under_way = _watch_requests(memory, monkeypatch)
        tool, call = called(memory, name, **TOOLS[name])
        task = asyncio.create_task(tool.ainvoke(call))
        await _until(lambda: under_way)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        if "retain" in name:  # the note is on disk, and its delivery is nobody's to cancel
            assert memory.status().waiting + memory.status().in_flight == 1
        else:
            await _until(lambda: all(one.done() for one in under_way))
        assert (await memory.astatus()).dead == 0


@every_graph
async def test_a_run_that_is_cancelled_while_a_tool_waits_can_be_taken_up_again(
    memory, bank_id, build, monkeypatch
):
    saver = InMemorySaver()
    with hanging() as url, open_memory(url, bank_id, recall={"timeout": 0.3}) as away:
        model = model_of(tool_call("hindsight_reflect", query=QUESTION), "Done.")
        tools = create_hindsight_tools(away)
        graph = build(away, model, use_async=True, tools=tools, checkpointer=saver)
        reflect = _watch_requests(away, monkeypatch)
        task = asyncio.create_task(graph.ainvoke({"messages": [HumanMessage(QUESTION)]}, THREAD))
        await _until(lambda: reflect)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await _until(lambda: all(one.done() for one in reflect))
    tools = create_hindsight_tools(memory)
    graph = build(memory, model, use_async=True, tools=tools, checkpointer=saver)
    messages = (await graph.ainvoke(None, THREAD))["messages"]
    assert [one.type for one in messages] == ["human", "ai", "tool", "ai"]


def _watch_requests(memory, monkeypatch, *ways):
    """The tasks of the requests that go out from here on."""
    under_way = []

    def watch(way):
        send = getattr(memory._gateway, way)

        async def watched(*args, **kwargs):
            under_way.append(asyncio.current_task())
            return await send(*args, **kwargs)

        monkeypatch.setattr(memory._gateway, way, watched)

    for way in ways or ("recall", "extracts_facts", "reflect", "retain"):
        watch(way)
    return under_way


@pytest.mark.parametrize("name", ["hindsight_retain", "hindsight_retain_life"])
@both
def test_a_tool_says_queued_until_it_is_stored_and_its_state_can_be_asked_for(
    hindsight_url, bank_id, life_bank_id, name, use_async
):
    bank = life_bank_id if name.endswith("life") else bank_id
    with (
        relaying(hindsight_url) as relay,
        open_memory(relay.url, bank_id, life_bank_id) as memory,
    ):
        relay.fault = "reset"
        tool, call = called(memory, name, **TOOLS[name])
        answer = asyncio.run(tool.ainvoke(call)) if use_async else tool.invoke(call)
        assert answer.content.startswith("Queued, and stored as soon as")
        status = asyncio.run(memory.astatus()) if use_async else memory.status()
        assert status.waiting + status.in_flight == 1
        assert status.last_error
        assert NOTES[0] not in memory.recall(QUESTION).text
        relay.fault = None
        assert not memory.flush(60).timed_out
        assert NOTES[0] in memory.recall(QUESTION).text
    assert stored(hindsight_url, bank) == [NOTES[0]]


# Both ways of calling


@every_surface
def test_one_object_answers_both_ways_one_after_the_other(memory, surface):
    remember(memory, NOTES[0])
    for use_async in (False, True, False):
        assert NOTES[0] in surface.run(memory, QUESTION, use_async=use_async)


@both
def test_batches_are_answered_one_for_one(memory, use_async):
    remember(memory, NOTES[0])
    questions = [QUESTION, f"{QUESTION} Tell me.", "?!"]
    recall, _ = called(memory, "hindsight_recall")
    for runnable, given in [
        (HindsightRetriever(memory=memory), questions),
        (recall, [{"query": one} for one in questions]),
        (create_recall_node(memory), [{"messages": [HumanMessage(one)]} for one in questions]),
    ]:
        answers = asyncio.run(runnable.abatch(given)) if use_async else runnable.batch(given)
        assert len(answers) == 3
    assert [len(one) for one in HindsightRetriever(memory=memory).batch(questions)] == [1, 1, 0]


# Classic chains


class WithSources(Chain):
    """A chain with two outputs, as those that cite their sources have."""

    answer: object = "They deploy then."

    @property
    def input_keys(self):
        return ["question", "tone"]

    @property
    def output_keys(self):
        return ["answer", "sources"]

    def _call(self, inputs, run_manager=None):
        return {"answer": self.answer, "sources": [inputs["history"]]}

    async def _acall(self, inputs, run_manager=None):
        return self._call(inputs)


def _ask(chain, given, *, use_async):
    return asyncio.run(chain.ainvoke(given)) if use_async else chain.invoke(given)


@deprecated
@both
@pytest.mark.parametrize(
    ("answer", "kept"),
    [
        ("They deploy then.", "They deploy then."),
        ({"day": "Friday"}, "Friday"),
        (["Friday", "noon"], "noon"),
        (AIMessage("They deploy then."), "They deploy then."),
    ],
)
def test_a_chain_of_two_inputs_and_two_outputs_keeps_those_that_are_named(
    memory, hindsight_url, bank_id, use_async, answer, kept
):
    remember(memory, NOTES[0])
    classic = HindsightMemory(memory=memory, input_key="question", output_key="answer")
    chain = WithSources(memory=classic, answer=answer)
    given = {"question": QUESTION, "tone": "ceremonious"}
    assert NOTES[0] in _ask(chain, given, use_async=use_async)["history"]
    assert not memory.flush(60).timed_out
    texts = " ".join(stored(hindsight_url, bank_id))
    assert f"user: {QUESTION}" in texts
    assert kept in texts
    assert "ceremonious" not in texts
    assert texts.count(NOTES[0]) == 1


@deprecated
@both
@pytest.mark.parametrize(
    ("named", "asked"),
    [({}, "input_key"), ({"input_key": "question"}, "output_key")],
)
def test_a_chain_whose_keys_are_ambiguous_says_which_to_set(memory, use_async, named, asked):
    chain = WithSources(memory=HindsightMemory(memory=memory, **named))
    with pytest.raises(ValueError, match=f"set {asked}"):
        _ask(chain, {"question": QUESTION, "tone": "plain"}, use_async=use_async)


@deprecated
@both
@pytest.mark.parametrize(("return_messages", "empty"), [(False, ""), (True, [])])
def test_without_a_server_a_chain_is_given_exactly_the_variables_that_were_promised(
    bank_id, use_async, return_messages, empty
):
    url = f"http://127.0.0.1:{closed_port()}"
    with open_memory(url, bank_id, outbox={"shutdown_timeout": 0.0}) as memory:
        classic = HindsightMemory(memory=memory, return_messages=return_messages)
        prompt = PromptTemplate.from_template("{history} {question}")
        chain = LLMChain(llm=model_of("Fine."), prompt=prompt, memory=classic)
        assert _ask(chain, {"question": QUESTION}, use_async=use_async)["text"] == "Fine."
        inputs = {"question": QUESTION}
        loaded = (
            asyncio.run(classic.aload_memory_variables(inputs))
            if use_async
            else classic.load_memory_variables(inputs)
        )
    assert loaded == dict.fromkeys(classic.memory_variables, empty)


# Copies, pickles and secrets


def _adapters(memory):
    return {
        "retriever": HindsightRetriever(memory=memory),
        "classic": HindsightMemory(memory=memory),
        "middleware": HindsightMiddleware(memory),
        "recall node": create_recall_node(memory),
        "retain node": create_retain_node(memory),
        **{tool.name: tool for tool in create_hindsight_tools(memory, manage=True)},
    }


def _asked(adapter):
    if isinstance(adapter, HindsightMiddleware):
        return adapter.memory.recall(QUESTION).text
    if isinstance(adapter, HindsightMemory):
        return adapter.load_memory_variables({"input": QUESTION})["history"]
    if isinstance(adapter, HindsightRetriever):
        return str(adapter.invoke(QUESTION))
    if isinstance(adapter, RunnableLambda):
        recalled = adapter.invoke({"messages": [HumanMessage(QUESTION)]})
        return "".join(one.text for one in recalled.values())
    return adapter.invoke(TOOLS[adapter.name])


@pytest.mark.parametrize(
    "duplicate", [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))]
)
def test_every_adapter_that_has_been_used_can_be_copied_and_pickled(memory, duplicate):
    remember(memory, NOTES[0])
    for name, adapter in _adapters(memory).items():
        if name not in {*TOOLS, "recall node", *UNNAMED} - {"hindsight_reflect"}:
            assert duplicate(adapter).name in {name, f"hindsight_{name[:6]}"}
            continue
        assert NOTES[0] in _asked(adapter) or "retain" in name
        copied = duplicate(adapter)
        assert NOTES[0] in _asked(copied) or "retain" in name
        inner = getattr(copied, "memory", None) or copied.func.__self__.memory
        if inner is not memory:
            inner.close()


def test_no_pickle_repr_or_dump_of_an_adapter_holds_the_key(hindsight_url, bank_id, monkeypatch):
    monkeypatch.setenv("HINDSIGHT_API_KEY", KEY)
    with open_memory(hindsight_url, bank_id, bank_id + "-life") as memory:
        assert memory.settings.api_key.get_secret_value() == KEY
        memory.recall(QUESTION)
        for adapter in _adapters(memory).values():
            shown = f"{adapter!r} {getattr(adapter, 'model_dump', dict)()}"
            assert KEY not in shown
            assert KEY.encode() not in pickle.dumps(adapter)


class Trace(BaseCallbackHandler):
    """Everything that a tracer is told."""

    def __init__(self):
        self.told = []

    def __getattribute__(self, name):
        if name.startswith("on_"):
            return lambda *args, **kwargs: self.told.append(repr((name, args, kwargs)))
        return super().__getattribute__(name)


@every_graph
@both
def test_neither_key_nor_client_reaches_checkpoints_traces_or_logs(
    hindsight_url, bank_id, life_bank_id, monkeypatch, caplog, build, use_async
):
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("HINDSIGHT_API_KEY", KEY)
    saver, trace = InMemorySaver(), Trace()
    with open_memory(hindsight_url, bank_id, life_bank_id) as memory:
        remember(memory, NOTES[0])
        model = model_of(tool_call("hindsight_recall", query=QUESTION), "Fine.")
        tools = create_hindsight_tools(memory)
        graph = build(memory, model, use_async=use_async, tools=tools, checkpointer=saver)
        config = {
            "configurable": {"thread_id": "t-1", "memory": memory},
            "callbacks": [trace],
        }
        _run(graph, QUESTION, use_async=use_async, config=config)
        memory.flush(60)
    checkpoints = list(saver.list(None))
    assert len(checkpoints) > 1
    assert "hindsight_recall" in repr(saver.blobs)
    held = repr([dict(saver.storage), dict(saver.writes), saver.blobs, checkpoints])
    assert KEY not in held
    assert "DualBankMemory" not in held
    assert trace.told
    assert KEY not in " ".join(trace.told)
    assert KEY not in caplog.text
