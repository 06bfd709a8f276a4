"""Cases of the server's contract, of what is retained and of who is asking, on the real server."""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from remembering import (
    NOTES,
    QUESTION,
    count_recalls,
    model_of,
    open_memory,
    remember,
    stored,
    tool_call,
)
from surfaces import SURFACES, both, every_graph, every_surface

from langchain_hindsight import (
    DualBankMemory,
    HindsightSettings,
    create_hindsight_tools,
    create_retain_node,
)
from langchain_hindsight.fence import FENCE_TAG

THREAD = {"configurable": {"thread_id": "t-1"}}
every_unit = pytest.mark.parametrize("unit", ["message", "turn"])


@pytest.fixture
def memory(hindsight_url, bank_id, life_bank_id):
    with open_memory(hindsight_url, bank_id, life_bank_id) as memory:
        yield memory


@pytest.fixture(scope="module")
def filled(hindsight_url, tmp_path_factory):
    """A bank that remembers something, for tests that only read it."""
    bank_id = f"project-{uuid.uuid4().hex}"
    outbox = {"url": f"sqlite:///{(tmp_path_factory.mktemp('filled') / 'outbox.db').as_posix()}"}
    with open_memory(hindsight_url, bank_id, outbox=outbox) as memory:
        remember(memory, NOTES[0])
    return bank_id


def _run(graph, said, *, use_async, config=THREAD):
    given = {"messages": [said if isinstance(said, HumanMessage) else HumanMessage(said)]}
    return asyncio.run(graph.ainvoke(given, config)) if use_async else graph.invoke(given, config)


def _stored_once(url, bank_id, *texts):
    """Whether each text is in the bank once."""
    everything = "\n".join(stored(url, bank_id))
    return [everything.count(text) for text in texts] == [1] * len(texts)


# What the server is asked


@every_surface
@both
def test_a_person_who_is_new_is_nothing_to_warn_of_and_is_known_at_the_second_turn(
    hindsight_url, bank_id, life_bank_id, caplog, surface, use_async
):
    patient = {"timeout": 60}  # a server that was just started is slow, and that would be warned of
    with open_memory(hindsight_url, bank_id, life_bank_id, recall=patient) as memory:
        assert FENCE_TAG not in surface.run(memory, QUESTION, use_async=use_async)
        assert caplog.text == ""
        remember(memory, NOTES[0])
        assert NOTES[0] in surface.run(memory, f"{QUESTION} Tell me.", use_async=use_async)


@every_surface
@both
def test_a_message_without_words_asks_nothing_and_spoils_nothing(
    memory, monkeypatch, surface, use_async
):
    asked = count_recalls(memory, monkeypatch)
    for said in ("👍", "?!", " "):
        assert FENCE_TAG not in surface.run(memory, said, use_async=use_async)
    assert not asked
    report = memory.flush(60)
    assert (report.waiting, report.dead) == (0, 0)


@every_graph
@both
def test_an_image_alone_asks_nothing_and_an_empty_answer_stores_nothing(
    memory, hindsight_url, bank_id, monkeypatch, build, use_async
):
    asked = count_recalls(memory, monkeypatch)
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    graph = build(memory, model_of(""), use_async=use_async)
    _run(graph, HumanMessage([picture]), use_async=use_async)
    assert not asked
    report = memory.flush(60)
    assert (report.waiting, report.dead) == (0, 0)
    assert stored(hindsight_url, bank_id) in ([], ["user: [image]"])


@every_graph
@both
def test_a_huge_message_is_stored_within_bounds_and_without_its_image(
    hindsight_url, bank_id, caplog, tmp_path, build, use_async
):
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 4_000_000}}
    said = HumanMessage([{"type": "text", "text": "What do you see?"}, image])
    with open_memory(hindsight_url, bank_id, retain={"max_chars": 2000}) as memory:
        graph = build(memory, model_of("It is a wall. " * 70_000), use_async=use_async)
        _run(graph, said, use_async=use_async)
        assert not memory.flush(60).timed_out
        assert sum(path.stat().st_size for path in Path(tmp_path).glob("outbox.db*")) < 1_000_000
    texts = stored(hindsight_url, bank_id)
    assert "AAAA" not in str(texts)
    assert 0 < sum(map(len, texts)) < 5000
    assert "What do you see?" in str(texts)
    assert "was cut by" in caplog.text


@both
def test_people_with_odd_names_have_a_bank_each_and_the_nameless_none(hindsight_url, use_async):
    mark = uuid.uuid4().hex  # the banks of such names outlive a test on a server that does
    people = [42, "a/b", "a%2Fb", "мой проект", "..", "a?b#c"]
    asking = [{"configurable": {"user_id": person}} for person in people]

    def ask(memory, config):
        if use_async:
            return asyncio.run(memory.arecall(f"Which {mark} deploys?", config))
        return memory.recall(f"Which {mark} deploys?", config)

    with open_memory(hindsight_url, "{user_id}") as memory:
        for number, config in enumerate(asking):
            remember(memory, f"The service {mark} number{number}. deploys.", config=config)
        for number, config in enumerate(asking):
            found = [one for one in ask(memory, config).project.memories if mark in one.text]
            assert [one.text for one in found] == [f"The service {mark} number{number}. deploys."]
        for nobody in ("", " ", None, True):
            result = ask(memory, {"configurable": {"user_id": nobody}})
            assert "user_id" in str(result.project.error)


# What is kept of a thread


@every_graph
@every_unit
@both
def test_a_threads_turns_and_what_its_tool_wrote_down_overwrite_nothing(
    hindsight_url, bank_id, build, unit, use_async
):
    with open_memory(hindsight_url, bank_id, retain={"unit": unit}) as memory:
        model = model_of("Good.", tool_call("hindsight_retain", content=NOTES[0]), "Noted.")
        tools = create_hindsight_tools(memory)
        saver = InMemorySaver()
        graph = build(memory, model, use_async=use_async, tools=tools, checkpointer=saver)
        for said in ("We chose Kafka.", "Write down when we deploy."):
            _run(graph, said, use_async=use_async)
            assert not memory.flush(60).timed_out
    said = ("We chose Kafka.", "Good.", "Write down when we deploy.", "Noted.", NOTES[0])
    assert _stored_once(hindsight_url, bank_id, *said)


@every_graph
@every_unit
@both
def test_a_thread_that_goes_on_where_the_outbox_was_lost_is_stored_once(
    hindsight_url, bank_id, tmp_path, build, unit, use_async
):
    saver = InMemorySaver()
    for number, said in enumerate(("We chose Kafka.", "And Redis too.", "And no Celery.")):
        outbox = {"url": f"sqlite:///{(tmp_path / f'{number}.db').as_posix()}"}
        with open_memory(hindsight_url, bank_id, outbox=outbox, retain={"unit": unit}) as memory:
            model = model_of(f"Answer {number}.")
            graph = build(memory, model, use_async=use_async, checkpointer=saver)
            _run(graph, said, use_async=use_async)
            assert not memory.flush(60).timed_out
    said = ("We chose Kafka.", "Answer 0.", "And Redis too.", "Answer 1.", "And no Celery.")
    assert _stored_once(hindsight_url, bank_id, *said)


@every_graph
@both
def test_going_back_in_a_thread_adds_the_new_branch_and_repeats_nothing(
    memory, hindsight_url, bank_id, build, use_async
):
    model = model_of("Good.", "Fine.", "Sure.")
    graph = build(memory, model, use_async=use_async, checkpointer=InMemorySaver())
    _run(graph, "We chose Kafka.", use_async=use_async)
    after_first = graph.get_state(THREAD).config
    _run(graph, HumanMessage("And Redis.", id="h2"), use_async=use_async)
    _run(graph, HumanMessage("And Celery.", id="h3"), use_async=use_async, config=after_first)
    assert not memory.flush(60).timed_out
    said = ("We chose Kafka.", "Good.", "And Redis.", "Fine.", "And Celery.", "Sure.")
    assert _stored_once(hindsight_url, bank_id, *said)


@every_graph
@both
def test_a_thread_whose_beginning_is_removed_loses_and_repeats_nothing(
    memory, hindsight_url, bank_id, build, use_async
):
    model = model_of("Good.", "Fine.", "Sure.")
    graph = build(memory, model, use_async=use_async, checkpointer=InMemorySaver())
    _run(graph, "We chose Kafka.", use_async=use_async)
    messages = _run(graph, "And Redis.", use_async=use_async)["messages"]
    given = {"messages": [*(RemoveMessage(one.id) for one in messages[:3]), HumanMessage("Now?")]}
    left = asyncio.run(graph.ainvoke(given, THREAD)) if use_async else graph.invoke(given, THREAD)
    assert len(left["messages"]) == 3
    assert not memory.flush(60).timed_out
    said = ("We chose Kafka.", "Good.", "And Redis.", "Fine.", "Now?", "Sure.")
    assert _stored_once(hindsight_url, bank_id, *said)


@every_graph
@every_unit
@both
def test_runs_of_one_thread_at_once_are_all_stored(hindsight_url, bank_id, build, unit, use_async):
    questions = [f"What of service{number}?" for number in range(4)]
    with open_memory(hindsight_url, bank_id, retain={"unit": unit}) as memory:

        def asked(question):
            return build(memory, model_of(f"Re: {question}"), use_async=use_async)

        async def all_at_once():
            await asyncio.gather(
                *(
                    asked(one).ainvoke({"messages": [HumanMessage(one)]}, THREAD)
                    for one in questions
                )
            )

        if use_async:
            asyncio.run(all_at_once())
        else:
            with ThreadPoolExecutor(len(questions)) as pool:
                list(pool.map(lambda one: _run(asked(one), one, use_async=False), questions))
        assert not memory.flush(60).timed_out
    texts = "\n".join(stored(hindsight_url, bank_id))
    assert [texts.count(f"user: {one}") for one in questions] == [1] * 4
    assert [texts.count(f"assistant: Re: {one}") for one in questions] == [1] * 4


@every_graph
@both
def test_a_stream_that_is_left_half_way_keeps_the_question_and_no_half_of_an_answer(
    memory, hindsight_url, bank_id, build, use_async
):
    answers = [AIMessage("They deploy on Fridays at noon."), AIMessage("Certainly so.")]
    model = GenericFakeChatModel(messages=iter(answers))
    graph = build(memory, model, use_async=use_async, checkpointer=InMemorySaver())
    given = {"messages": [HumanMessage(QUESTION)]}

    async def leave():
        async with contextlib.aclosing(
            graph.astream(given, THREAD, stream_mode="messages")
        ) as parts:
            return await anext(parts)

    if use_async:
        part = asyncio.run(leave())
    else:
        with contextlib.closing(graph.stream(given, THREAD, stream_mode="messages")) as parts:
            part = next(parts)
    assert part[0].text == "They"
    _run(graph, "Are you sure?", use_async=use_async)
    assert not memory.flush(60).timed_out
    assert _stored_once(hindsight_url, bank_id, QUESTION, "Are you sure?", "Certainly so.")
    whole = "They deploy on Fridays at noon."
    assert all(whole in one for one in stored(hindsight_url, bank_id) if "They" in one)


@both
def test_a_graph_inside_a_graph_that_both_retain_store_a_turn_once(
    memory, hindsight_url, bank_id, use_async
):
    def graph_of(**nodes):
        graph = StateGraph(MessagesState)
        graph.add_sequence(list(nodes.items()))
        graph.add_edge(START, next(iter(nodes)))
        return graph.compile()

    def answer(state: MessagesState) -> dict:
        return {"messages": [AIMessage("Good.")]}

    inner = graph_of(answer=answer, retain=create_retain_node(memory))
    outer = graph_of(inner=inner, retain=create_retain_node(memory))
    _run(outer, "We chose Kafka.", use_async=use_async)
    assert not memory.flush(60).timed_out
    assert sorted(stored(hindsight_url, bank_id)) == ["assistant: Good.", "user: We chose Kafka."]


# Opting out


@every_surface
@both
def test_who_opted_out_of_retain_is_recalled_for_and_writes_expressly_alone(
    hindsight_url, filled, monkeypatch, surface, use_async
):
    settings = {"profile": "recall-only", "outbox": {"shutdown_timeout": 0.0}}
    with open_memory(hindsight_url, filled, **settings) as memory:
        assert NOTES[0] in surface.run(memory, QUESTION, use_async=use_async)
        status = memory.status()
        assert status.waiting + status.in_flight + status.delivered + status.dead == 0
        monkeypatch.setattr("langchain_hindsight.memory._NOTE_WAIT", 0.0)
        assert memory.retain(NOTES[0]).status == "queued"


@every_graph
@pytest.mark.parametrize("mode", ["read-only", "ignored"])
@both
def test_a_thread_that_goes_on_after_a_run_off_the_record_keeps_nothing_of_that_run(
    hindsight_url, bank_id, build, mode, use_async
):
    answers = iter([AIMessage("Good."), AIMessage("Quixotic, I see."), AIMessage("Fine.")])
    with open_memory(hindsight_url, bank_id) as memory:
        graph = build(
            memory,
            GenericFakeChatModel(messages=answers),
            use_async=use_async,
            checkpointer=InMemorySaver(),
        )
        for said, chosen in [
            ("We chose Kafka.", "normal"),
            ("The merger is with Quixotic.", mode),
            ("We deploy on Fridays.", "normal"),
        ]:
            config = {"configurable": {"thread_id": "t", "memory_mode": chosen}}
            state = {"messages": [HumanMessage(said)]}
            if use_async:
                asyncio.run(graph.ainvoke(state, config))
            else:
                graph.invoke(state, config)
        assert not memory.flush(60).timed_out
    assert sorted(stored(hindsight_url, bank_id)) == [
        "assistant: Fine.",
        "assistant: Good.",
        "user: We chose Kafka.",
        "user: We deploy on Fridays.",
    ]


# Who is asking


@every_surface
@both
def test_where_nobody_is_named_nothing_is_asked_and_nothing_kept(
    hindsight_url, bank_id, monkeypatch, caplog, surface, use_async
):
    template = f"{bank_id}-{{user_id}}"
    with open_memory(hindsight_url, template, template.replace("project", "life")) as memory:
        asked = count_recalls(memory, monkeypatch)
        answer = surface.run(memory, QUESTION, use_async=use_async)
        status = memory.status()
    assert not asked
    assert status.waiting + status.in_flight + status.delivered + status.dead == 0
    if surface is SURFACES["tool"]:
        assert "user_id" in answer
    else:
        assert answer in {"", "[]", QUESTION}
    assert "user_id" in caplog.text


@pytest.mark.filterwarnings("ignore:The 'config' parameter should be typed:UserWarning")
@both
def test_a_node_that_langgraph_hands_no_config_still_knows_who_is_asking(
    hindsight_url, bank_id, use_async
):
    with open_memory(hindsight_url, f"{bank_id}-{{user_id}}", retain={"unit": "message"}) as memory:

        def node(state: MessagesState, config: RunnableConfig | None = None) -> dict:
            assert config is None  # what this annotation comes to, once it is postponed
            found = memory.recall(state["messages"], config).text
            memory.retain(state["messages"], config=config)
            return {"messages": [AIMessage(found or "Nothing.")]}

        async def anode(state: MessagesState, config: RunnableConfig | None = None) -> dict:
            assert config is None
            found = (await memory.arecall(state["messages"], config)).text
            await memory.aretain(state["messages"], config=config)
            return {"messages": [AIMessage(found or "Nothing.")]}

        graph = StateGraph(MessagesState)
        graph.add_node("node", anode if use_async else node)
        graph.add_edge(START, "node")
        graph = graph.compile()
        for user in ("ada", "bob"):
            config = {"configurable": {"user_id": user, "thread_id": user}}
            remember(memory, f"The billing service of {user} deploys.", config=config)
            found = _run(graph, QUESTION, use_async=use_async, config=config)["messages"][-1].text
            assert f"of {user} deploys" in found
            assert found.count("deploys") == 1
        assert not memory.flush(60).timed_out
    for user in ("ada", "bob"):
        assert f"user: {QUESTION}" in stored(hindsight_url, f"{bank_id}-{user}")


@both
def test_what_hindsight_observes_of_a_project_is_found_under_its_tag_and_no_other(
    hindsight_mock_url, bank_id, use_async
):
    observed = {"recall": {"types": ("observation",), "cache_ttl": 0}}

    def ask(memory):
        result = asyncio.run(memory.arecall(QUESTION)) if use_async else memory.recall(QUESTION)
        return result.raise_for_error().project.memories

    settings = HindsightSettings(**observed)
    with (
        open_memory(hindsight_mock_url, bank_id, **observed) as memory,
        DualBankMemory(
            hindsight_mock_url, project_bank=bank_id, project_id="other", settings=settings
        ) as other,
    ):
        remember(memory, NOTES[0])
        deadline = time.monotonic() + 30
        while not (found := ask(memory)) and time.monotonic() < deadline:
            time.sleep(0.05)  # the server observes when it has time, and tells nobody
        assert {one.type for one in found} == {"observation"}
        assert {one.tags for one in found} == {("project:billing",)}
        assert ask(other) == ()
