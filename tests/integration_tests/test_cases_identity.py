"""Cases of who is asking and what may be seen, asked of every surface, sync and async."""

from __future__ import annotations

import asyncio
import logging
import uuid
from dataclasses import dataclass
from typing import TypedDict

import pytest
from http_relay import relaying_requests
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableLambda
from langgraph.graph import END, START, MessagesState, StateGraph
from pydantic import BaseModel
from remembering import (
    NOTES,
    QUESTION,
    count_recalls,
    model_of,
    open_memory,
    stored,
    tool_call,
)
from surfaces import SURFACES, agent, both, every_graph, every_surface, workflow

from langchain_hindsight import (
    BankResolutionError,
    ConfigurationError,
    DualBankMemory,
    HindsightError,
    HindsightMiddleware,
    HindsightSettings,
    create_hindsight_tools,
)

LIKES = {
    "anna": "Anna likes tea when the service deploys.",
    "ben": "Ben likes coffee when the service deploys.",
}


@dataclass
class DataContext:
    tenant: str | None = None
    user_id: str | None = None


class ModelContext(BaseModel):
    tenant: str | None = None
    user_id: str | None = None


class DictContext(TypedDict, total=False):
    tenant: str | None
    user_id: str | None


CONTEXTS = [DataContext, ModelContext, DictContext, dict]
every_context = pytest.mark.parametrize("context", CONTEXTS, ids=lambda kind: kind.__name__)


@pytest.fixture(scope="module")
def tenants(hindsight_url, tmp_path_factory):
    """A memory of two people, each of whom it knows something about."""
    outbox = tmp_path_factory.mktemp("tenants") / "outbox.db"
    prefix = uuid.uuid4().hex
    memory = DualBankMemory(
        hindsight_url,
        project_bank=f"project-{prefix}-{{tenant}}",
        project_id="billing",
        life_bank=f"life-{prefix}-{{user_id}}",
        settings=HindsightSettings(
            recall={"timeout": 60}, outbox={"url": f"sqlite:///{outbox.as_posix()}"}
        ),
    )
    with memory:
        for name, likes in LIKES.items():
            memory.retain(f"The service of {name} deploys on Fridays.", config=named(name))
            memory.retain_life(likes, named(name))
        assert not memory.flush(120).timed_out
        yield memory


def named(name, **more):
    return {"configurable": {"tenant": name, "user_id": name, **more}}


def within_run(surface, memory, question, config, *, use_async):
    """Ask in a run of somebody's, which is where the surface learns who is asking."""

    async def aask(_):
        return await surface.aask(memory, question)

    if use_async:
        return asyncio.run(RunnableLambda(aask).ainvoke(None, config))
    return RunnableLambda(lambda _: surface.ask(memory, question)).invoke(None, config)


def whose(text):
    """Whose memories a text shows."""
    of_project = {name for name in LIKES if f"service of {name}" in text}
    of_life = {name for name, likes in LIKES.items() if likes in text}
    return of_project, of_life


@every_surface
@both
def test_one_object_shows_each_caller_their_own_memories(tenants, surface, use_async):
    for name in (*LIKES, *LIKES):
        text = within_run(surface, tenants, QUESTION, named(name), use_async=use_async)
        assert whose(text) == ({name}, {name})


@every_surface
@both
@pytest.mark.parametrize("value", [None, "", " ", ["anna"], {"of": "anna"}, True])
def test_half_a_caller_has_half_the_memory_and_never_the_last_ones(
    tenants, surface, use_async, value
):
    within_run(surface, tenants, QUESTION, named("anna"), use_async=use_async)
    for missing, expected in (("tenant", (set(), {"anna"})), ("user_id", ({"anna"}, set()))):
        config = named("anna", **{missing: value})
        text = within_run(surface, tenants, QUESTION, config, use_async=use_async)
        assert whose(text) == expected


@pytest.mark.parametrize(
    "surface", [one for name, one in SURFACES.items() if name != "tool"], ids=lambda _: ""
)
@both
def test_who_is_not_named_asks_no_bank_and_is_warned_of_once_a_bank(
    tenants, monkeypatch, caplog, surface, use_async
):
    assert not tenants.flush(120).timed_out
    asked = count_recalls(tenants, monkeypatch)
    caplog.set_level(logging.WARNING)
    config = {"configurable": {"thread_id": uuid.uuid4().hex}}
    for turn in ("one", "two"):
        text = within_run(surface, tenants, f"{QUESTION} {turn}", config, use_async=use_async)
        assert whose(text) == (set(), set())
    assert not asked
    warned = [one.getMessage() for one in caplog.records]
    assert len(warned) == 2
    assert "banks.project.bank_id needs {tenant}" in warned[0] + warned[1]
    assert "banks.life.bank_id needs {user_id}" in warned[0] + warned[1]
    assert tenants.status().waiting == 0


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("hindsight_recall", {"query": QUESTION}),
        ("hindsight_retain", {"content": NOTES[0]}),
        ("hindsight_reflect", {"query": QUESTION}),
        ("hindsight_retain_life", {"content": NOTES[0]}),
    ],
)
@both
def test_a_tool_tells_who_is_not_named_that_it_failed(tenants, name, arguments, use_async):
    tool = next(one for one in create_hindsight_tools(tenants) if one.name == name)
    call = {"name": name, "args": arguments, "id": "c1", "type": "tool_call"}
    answer = asyncio.run(tool.ainvoke(call)) if use_async else tool.invoke(call)
    assert answer.status == "error"
    assert "so there is no bank" in answer.content


@both
def test_what_is_asked_for_expressly_raises_where_nobody_is_named(tenants, use_async):
    def run(name, text):
        if use_async:
            return asyncio.run(getattr(tenants, f"a{name}")(text))
        return getattr(tenants, name)(text)

    for name, text in (("retain_life", "Likes tea."), ("reflect", QUESTION)):
        with pytest.raises(BankResolutionError):
            run(name, text)
    receipt = run("retain", "We deploy on Fridays.")
    assert (receipt.status, receipt.bank_id) == ("skipped", None)
    with pytest.raises(HindsightError):
        receipt.raise_for_error()


@every_context
@every_graph
@both
def test_the_runtime_context_says_who_is_asking(tenants, context, build, use_async):
    for name in LIKES:
        model = model_of(tool_call("hindsight_recall", query=QUESTION), "Fine.")
        tools = create_hindsight_tools(tenants)
        graph = with_context(build, tenants, model, context, tools=tools, use_async=use_async)
        given = {"messages": [HumanMessage(QUESTION)]}
        who = context(tenant=name, user_id=name)
        if use_async:
            state = asyncio.run(graph.ainvoke(given, context=who))
        else:
            state = graph.invoke(given, context=who)
        injected = model.sent[0][-1].content
        answered = next(one for one in state["messages"] if one.type == "tool").content
        assert whose(injected) == whose(answered) == ({name}, {name})


def with_context(build, memory, model, context, *, tools, use_async):
    """A graph that is given a runtime context of some kind."""
    if build is agent:
        return create_agent(
            model, tools, middleware=[HindsightMiddleware(memory)], context_schema=context
        )
    inner = workflow(memory, model, tools=tools, use_async=use_async)
    outer = StateGraph(MessagesState, context_schema=context)
    outer.add_node("inner", inner)
    outer.add_edge(START, "inner")
    outer.add_edge("inner", END)
    return outer.compile()


@every_graph
@both
def test_a_subgraph_two_levels_down_knows_who_is_asking(tenants, build, use_async):
    for name in LIKES:
        model = model_of("Fine.")
        graph = build(tenants, model, use_async=use_async)
        for _ in range(2):
            outer = StateGraph(MessagesState)
            outer.add_node("inner", graph)
            outer.add_edge(START, "inner")
            outer.add_edge("inner", END)
            graph = outer.compile()
        given = {"messages": [HumanMessage(QUESTION)]}
        config = named(name)
        asyncio.run(graph.ainvoke(given, config)) if use_async else graph.invoke(given, config)
        assert whose(model.sent[-1][-1].content) == ({name}, {name})


@every_graph
@both
def test_tools_side_by_side_in_threads_know_who_is_asking(tenants, build, use_async):
    calls = [
        {"name": "hindsight_recall", "args": {"query": f"{QUESTION} {n}"}, "id": f"c{n}"}
        for n in range(4)
    ]
    for name in LIKES:
        model = model_of(AIMessage("", tool_calls=calls), "Fine.")
        tools = create_hindsight_tools(tenants)
        graph = build(tenants, model, tools=tools, use_async=use_async)
        given = {"messages": [HumanMessage(QUESTION)]}
        config = named(name)
        if use_async:
            state = asyncio.run(graph.ainvoke(given, config))
        else:
            state = graph.invoke(given, config)
        answers = [one.content for one in state["messages"] if one.type == "tool"]
        assert [whose(one) for one in answers] == [({name}, {name})] * 4


@both
def test_who_is_signed_in_to_the_server_is_the_user(tenants, use_async):
    config = {"configurable": {"langgraph_auth_user_id": "anna"}}
    if use_async:
        result = asyncio.run(tenants.arecall(QUESTION, config))
    else:
        result = tenants.recall(QUESTION, config)
    assert whose(result.text) == (set(), {"anna"})


@both
def test_a_function_may_choose_the_bank(hindsight_url, bank_id, use_async):
    memory = DualBankMemory(
        hindsight_url,
        project_bank=lambda values: f"{bank_id}-{values['tenant'].lower()}",
        project_id=lambda values: values["repository"],
    )
    with memory:
        who = {"configurable": {"tenant": "ACME", "repository": "billing"}}
        memory.retain(NOTES[0], config=who)
        assert not memory.flush(120).timed_out
        asked = [who, {"configurable": {**who["configurable"], "repository": "shop"}}, None]
        if use_async:
            results = [asyncio.run(memory.arecall(QUESTION, config)) for config in asked]
        else:
            results = [memory.recall(QUESTION, config) for config in asked]
    assert [NOTES[0] in one.text for one in results] == [True, False, False]
    assert results[0].project.bank_id == f"{bank_id}-acme"
    assert isinstance(results[2].project.error, BankResolutionError)


@both
def test_the_model_cannot_choose_a_bank(hindsight_url, bank_id, use_async):
    with open_memory(hindsight_url, bank_id) as memory:
        for tool in create_hindsight_tools(memory):
            assert set(tool.args) <= {"query", "content"}


# What a tag filter means


@both
def test_shared_memories_and_older_tags_join_only_where_that_is_asked_for(
    hindsight_url, bank_id, use_async
):
    def ask(**scope):
        memory = DualBankMemory(
            hindsight_url,
            project_bank=bank_id,
            project_id="billing",
            settings=HindsightSettings(scope=scope),
        )
        with memory:
            if use_async:
                return asyncio.run(memory.arecall(QUESTION)).text
            return memory.recall(QUESTION).text

    own, shared, older, foreign = (f"The {n} service deploys." for n in ("own", "shared", "o", "f"))
    client_retain(
        hindsight_url,
        bank_id,
        {own: ["project:billing"], shared: [], older: ["old"], foreign: ["project:shop"]},
    )

    def shown(text):
        return [one in text for one in (own, shared, older, foreign)]

    assert shown(ask()) == [True, False, False, False]
    assert shown(ask(include_shared=True)) == [True, True, False, False]
    assert shown(ask(legacy_tags=["old"])) == [True, False, True, False]
    assert shown(ask(legacy_tags=["old"], include_shared=True)) == [True, True, True, False]


@both
def test_an_isolated_bank_is_the_projects_own_and_named_after_it(hindsight_url, use_async):
    project = uuid.uuid4().hex
    settings = HindsightSettings(scope={"mode": "isolated-bank"})
    bank_id = f"project-{project}"
    with (
        DualBankMemory(hindsight_url, project_id=project, settings=settings) as memory,
        DualBankMemory(hindsight_url, project_id=f"{project}2", settings=settings) as other,
    ):
        if use_async:
            receipt = asyncio.run(memory.aretain(NOTES[0]))
            asyncio.run(other.aretain(NOTES[1]))
        else:
            receipt = memory.retain(NOTES[0])
            other.retain(NOTES[1])
        assert not memory.flush(120).timed_out
        result = asyncio.run(memory.arecall(QUESTION)) if use_async else memory.recall(QUESTION)
    assert (receipt.bank_id, result.project.bank_id) == (bank_id, bank_id)
    assert stored(hindsight_url, bank_id) == [NOTES[0]]
    assert [one.text for one in result.project.memories] == [NOTES[0]]


def test_a_shared_bank_that_is_not_named_is_refused_before_anything_is_asked(hindsight_url):
    with relaying_requests(hindsight_url) as relay:
        asked = []
        relay.watch = lambda _moment, request: asked.append(request.line)
        with pytest.raises(ConfigurationError, match="HINDSIGHT_BANKS__PROJECT__BANK_ID"):
            DualBankMemory(relay.url, settings=HindsightSettings(scope={"mode": "domain-tagged"}))
        assert asked == []


def client_retain(url, bank_id, notes):
    """What somebody else put into the bank, under tags of theirs."""
    from hindsight_client import Hindsight

    async def retain():
        client = Hindsight(url)
        try:
            items = [{"content": text, "tags": tags} for text, tags in notes.items()]
            await client.aretain_batch(bank_id, items)
        finally:
            await client.aclose()

    asyncio.run(retain())  # the client's own way leaves an event loop open
