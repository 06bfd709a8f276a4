"""Cases of the server's contract, asked of every surface that can meet them, sync and async.

What goes out is read on its way to the real server.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
import uuid
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest
from http_relay import HttpRelay, relaying_requests
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableLambda
from langgraph.checkpoint.memory import InMemorySaver
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
)
from surfaces import agent, both, every_surface, workflow

from langchain_hindsight import HindsightMemory, HindsightRetriever
from langchain_hindsight.budget import count_tokens
from langchain_hindsight.outbox import delivery

SERVERS_CAP = 500
"""Most tokens of a query that every release takes."""
TURNS = 3
PATIENT = {"timeout": 60}


@pytest.fixture(scope="module")
def filled(hindsight_url, tmp_path_factory):
    """Two banks that remember something, to which a turn of some surfaces adds its own."""
    mark = uuid.uuid4().hex
    banks = f"project-{mark}", f"life-{mark}"
    outbox = {"url": f"sqlite:///{(tmp_path_factory.mktemp('filled') / 'outbox.db').as_posix()}"}
    with open_memory(hindsight_url, *banks, outbox=outbox) as memory:
        remember_both(memory)
    return banks


@dataclass
class Wire:
    """What went to the server through a relay, and an answer that gets lost where that is asked."""

    relay: HttpRelay
    lines: list[str] = field(default_factory=list)
    retains: list[tuple[str, dict]] = field(default_factory=list)
    loses_an_answer: bool = False

    def __call__(self, moment, request):
        if moment == "arrived":
            self.lines.append(request.line)
            if request.retains:
                body = json.loads(request.raw.partition(b"\r\n\r\n")[2])
                self.retains.append((request.line.split()[1], body))
        elif moment == "taken" and request.retains and self.loses_an_answer:
            self.loses_an_answer = False
            raise ConnectionResetError

    @property
    def items(self):
        return [item for _, body in self.retains for item in body["items"]]


@pytest.fixture
def wire(hindsight_url, monkeypatch):
    monkeypatch.setattr(delivery, "FIRST_PAUSE", 0.05)
    with relaying_requests(hindsight_url) as relay:
        relay.watch = Wire(relay)
        yield relay.watch


# What is asked


def _log(line):
    return "\n".join(f"2026-03-01 12:00:{at % 60:02} {line} {at}" for at in range(300))


PASTES = (
    _log("ERROR worker cannot reach cache node"),
    "★☆" * 3000,
    "部署服务在星期五中午从发布分支进行。" * 300,
)
ASIDE = ", ".join(f"given that worker {at} restarted" for at in range(400))
OVER_THE_CAP = (
    *(f"{paste}\n\n{QUESTION}" for paste in PASTES),
    *(f"{QUESTION}\n\n{paste}" for paste in PASTES),
)
ENDLESS = f"{QUESTION[:-1]}, {ASIDE}?"
"""A sentence that has nothing to leave out; what it finds is another matter."""


@every_surface
@both
def test_a_query_over_the_servers_cap_is_shortened_around_its_question(
    hindsight_url, filled, monkeypatch, caplog, surface, use_async
):
    queries = []
    wide = {"max_query_chars": 20_000, **PATIENT}  # so that the tokens alone bound it
    with open_memory(hindsight_url, *filled, recall=wide) as memory:
        recall = memory._gateway.recall

        async def watched(bank_id, query, **settings):
            queries.append(query)
            return await recall(bank_id, query, **settings)

        monkeypatch.setattr(memory._gateway, "recall", watched)
        for said in OVER_THE_CAP:
            assert count_tokens(said) > 2 * SERVERS_CAP
            assert NOTES[0] in surface.run(memory, said, use_async=use_async)
        assert count_tokens(ENDLESS) > 2 * SERVERS_CAP
        surface.run(memory, ENDLESS, use_async=use_async)
    assert queries
    assert max(map(count_tokens, queries)) < SERVERS_CAP
    assert "goes on without the memory" not in caplog.text


@every_surface
@both
def test_a_budget_of_zero_is_none_and_not_the_default(
    hindsight_url, filled, monkeypatch, surface, use_async
):
    project, life = filled
    for role, shown in (("max_tokens", LIFE_NOTE), ("life_max_tokens", NOTES[0])):
        # Half of nothing would be nothing for the person too.
        limits = {"life_max_tokens": 400, **PATIENT, role: 0}
        with open_memory(hindsight_url, project, life, recall=limits) as memory:
            asked = count_recalls(memory, monkeypatch)
            text = surface.run(memory, QUESTION, use_async=use_async)
        assert [note in text for note in (NOTES[0], LIFE_NOTE)] == [
            note == shown for note in (NOTES[0], LIFE_NOTE)
        ]
        assert set(asked) == {life if role == "max_tokens" else project}


@both
def test_how_many_documents_are_wanted_changes_nothing_of_what_is_asked(
    hindsight_url, filled, monkeypatch, use_async
):
    limits = []
    with open_memory(hindsight_url, *filled, recall={"cache_ttl": 0, **PATIENT}) as memory:
        recall = memory._gateway.recall

        async def watched(bank_id, query, *, max_tokens, **settings):
            limits.append((bank_id, max_tokens))
            return await recall(bank_id, query, max_tokens=max_tokens, **settings)

        monkeypatch.setattr(memory._gateway, "recall", watched)
        for k in (1, 5, 100):
            retriever = HindsightRetriever(memory=memory, k=k)
            if use_async:
                documents = asyncio.run(retriever.ainvoke(QUESTION))
            else:
                documents = retriever.invoke(QUESTION)
            assert min(k, len(NOTES) + 1) <= len(documents) <= k
    assert len(limits) == 6
    assert len(set(limits)) == 2
    assert min(limit for _, limit in limits) >= 400


@every_surface
@both
def test_no_surface_probes_for_a_bank_by_an_address_that_was_retired(
    wire, bank_id, life_bank_id, surface, use_async
):
    with open_memory(wire.relay.url, bank_id, life_bank_id, recall=PATIENT) as memory:
        surface.run(memory, QUESTION, use_async=use_async)
        remember(memory, NOTES[0])
        assert NOTES[0] in surface.run(memory, f"{QUESTION} Tell me.", use_async=use_async)
    assert wire.lines
    assert [line for line in wire.lines if "/profile" in line] == []


@both
def test_a_bank_is_known_by_its_whole_name(hindsight_url, bank_id, use_async):
    def look(memory):
        if use_async:
            return asyncio.run(memory.amanage("project", lambda bank: bank.look()))
        return memory.manage("project", lambda bank: bank.look())

    names = (f"{bank_id}-two", f"{bank_id}_", f"x{bank_id}", bank_id.upper())
    for name in names:
        with open_memory(hindsight_url, name) as memory:
            remember(memory, NOTES[0])
            assert look(memory).exists
    with open_memory(hindsight_url, bank_id) as memory:
        assert not look(memory).exists
        remember(memory, NOTES[0])
        seen = look(memory)
    assert seen.exists
    assert seen.missions["retain_mission"]


@pytest.fixture(scope="module")
def of_odd_people(hindsight_url, tmp_path_factory):
    """A memory of people whose names are no bank ids, each of whom it knows by a number."""
    mark = uuid.uuid4().hex
    people = [42, f"{mark}/b", f"{mark}%2Fb", f"{mark} мой", "..", ".", f"{mark}?b#c", "%2e%2e"]
    known = {person: f"number{at} of {mark}" for at, person in enumerate(people)}
    outbox = {"url": f"sqlite:///{(tmp_path_factory.mktemp('odd') / 'outbox.db').as_posix()}"}
    with open_memory(hindsight_url, "{user_id}", outbox=outbox, recall=PATIENT) as memory:
        for person, words in known.items():
            config = {"configurable": {"user_id": person}}
            assert memory.retain([("human", f"The {words} deploys.")], config=config).bank_id
        assert not memory.flush(120).timed_out
        yield memory, mark, known


@every_surface
@both
def test_people_with_odd_names_are_each_shown_their_own(of_odd_people, surface, use_async):
    memory, mark, known = of_odd_people

    async def aask(_):
        return await surface.aask(memory, f"Which {mark} deploys?")

    for person, words in known.items():
        config = {"configurable": {"user_id": person}}
        if use_async:
            text = asyncio.run(RunnableLambda(aask).ainvoke(None, config))
        else:
            run = RunnableLambda(lambda _: surface.ask(memory, f"Which {mark} deploys?"))
            text = run.invoke(None, config)
        assert set(re.findall(f"number\\d of {mark}", text)) == {words}


@every_surface
@both
def test_a_day_that_is_shown_names_its_zone(hindsight_url, filled, surface, use_async):
    with open_memory(hindsight_url, *filled, recall=PATIENT) as memory:
        text = surface.run(memory, QUESTION, use_async=use_async)
    days = re.findall(r"\d{4}-\d\d-\d\d[^|\]\n,]{0,24}", text)
    assert days
    assert [day for day in days if "UTC" not in day and "+00:00" not in day] == []


# What is retained


def _talk(turns):
    return [f"Sentence {at} of the person." for at in range(turns)], [
        f"Sentence {at} of the model." for at in range(turns)
    ]


def _by_graph(build):
    async def hold(memory, said, answers, *, use_async):
        model = model_of(*answers)
        graph = build(memory, model, use_async=use_async, checkpointer=InMemorySaver())
        config = {"configurable": {"thread_id": "t-1"}}
        for text in said:
            given = {"messages": [HumanMessage(text)]}
            if use_async:
                await graph.ainvoke(given, config)
            else:
                await asyncio.to_thread(graph.invoke, given, config)

    return hold


async def _by_chain(memory, said, answers, *, use_async):
    classic = HindsightMemory(memory=memory, config={"configurable": {"thread_id": "t-1"}})
    for text, answer in zip(said, answers, strict=True):
        turn = {"input": text}, {"output": answer}
        if use_async:
            await classic.asave_context(*turn)
        else:
            await asyncio.to_thread(classic.save_context, *turn)


async def _by_hand(memory, said, answers, *, use_async):
    thread = []
    for text, answer in zip(said, answers, strict=True):
        thread += [HumanMessage(text), AIMessage(answer)]
        if use_async:
            await memory.aretain(thread, "t-1")
        else:
            await asyncio.to_thread(memory.retain, thread, "t-1")


KEEPERS = {
    "memory": _by_hand,
    "classic": _by_chain,
    "nodes": _by_graph(workflow),
    "middleware": _by_graph(agent),
}
every_keeper = pytest.mark.parametrize("keep", KEEPERS.values(), ids=KEEPERS.keys())
every_unit = pytest.mark.parametrize("unit", ["message", "turn"])


@every_keeper
@every_unit
@both
def test_turns_that_waited_for_the_server_go_out_once_in_order_and_under_their_own_time(
    wire, bank_id, monkeypatch, keep, unit, use_async
):
    if hasattr(time, "tzset"):
        monkeypatch.setenv("TZ", "America/Bogota")
        time.tzset()
    said, answers = _talk(TURNS)
    wire.relay.fault = "refuse"
    with open_memory(wire.relay.url, bank_id, retain={"unit": unit}) as memory:
        before = datetime.now(UTC)
        asyncio.run(keep(memory, said, answers, use_async=use_async))
        after = datetime.now(UTC)
        wire.loses_an_answer = True
        wire.relay.fault = None
        report = memory.flush(120)
    assert (report.timed_out, report.dead, report.waiting) == (False, 0, 0)
    assert not wire.loses_an_answer
    _assert_within_the_contract(wire)
    times = [datetime.fromisoformat(item["timestamp"]) for item in wire.items]
    assert [one for one in times if one.tzinfo is None] == []
    assert before.replace(microsecond=0) <= min(times)
    assert max(times) <= after
    sent = _without_repeats(wire)
    words = re.findall(r"Sentence \d of the \w+\.", "\n".join(sent))
    expected = [one for turn in zip(said, answers, strict=True) for one in turn]
    assert words == expected
    held = "\n".join(stored(wire.relay.url, bank_id))
    assert Counter(re.findall(r"Sentence \d of the \w+\.", held)) == Counter(expected)


def _assert_within_the_contract(wire):
    """What no request may be, whatever became of those before it."""
    banks = {}
    contents = {}
    for line, body in wire.retains:
        documents = [item["document_id"] for item in body["items"]]
        assert len(documents) == len(set(documents)), "a batch that names a document twice"
        assert body["async"] is True, "an operation id that counts for nothing"
        assert {item.get("update_mode") for item in body["items"]} <= {None, "replace"}
        operation = str(uuid.UUID(body["operation_id"]))
        assert banks.setdefault(operation, line) == line
        assert contents.setdefault(operation, body["items"]) == body["items"]


def _without_repeats(wire):
    """The contents of the operations, in the order in which they were first sent."""
    operations = {body["operation_id"]: body["items"] for _, body in reversed(wire.retains)}
    return [item["content"] for items in reversed(operations.values()) for item in items]


@every_unit
@both
def test_a_turn_that_was_edited_is_another_operation(wire, bank_id, unit, use_async):
    thread = [HumanMessage("We deploy on Fridays.", id="m0"), AIMessage("Noted.", id="m1")]
    edited = [HumanMessage("We deploy on Mondays.", id="m0"), AIMessage("Noted.", id="m1")]
    with open_memory(wire.relay.url, bank_id, retain={"unit": unit}) as memory:
        for one in (thread, edited):
            if use_async:
                asyncio.run(memory.aretain(one, "t-1"))
            else:
                memory.retain(one, "t-1")
            assert not memory.flush(120).timed_out
    _assert_within_the_contract(wire)
    assert len({body["operation_id"] for _, body in wire.retains}) == 2
    assert "Mondays" in str(stored(wire.relay.url, bank_id))


@every_keeper
@both
def test_whatever_size_the_talk_has_the_outbox_stays_within_bounds(
    hindsight_url, bank_id, tmp_path, caplog, keep, use_async
):
    with open_memory(hindsight_url, bank_id, retain={"max_chars": 2000}) as memory:
        huge = "The wall is white. " * 50_000
        asyncio.run(keep(memory, [f"What is it? {huge}"], [f"A wall. {huge}"], use_async=use_async))
        assert not memory.flush(120).timed_out
        size = sum(path.stat().st_size for path in Path(tmp_path).glob("outbox.db*"))
    assert size < 1_000_000
    texts = stored(hindsight_url, bank_id)
    assert "What is it?" in str(texts)
    assert sum(map(len, texts)) < 6000
    assert caplog.text.count("was cut by") == 2


@both
def test_a_note_of_whatever_size_is_kept_within_bounds(
    hindsight_url, bank_id, life_bank_id, tmp_path, use_async
):
    note = "Likes tea. " * 100_000
    with open_memory(hindsight_url, bank_id, life_bank_id, retain={"max_chars": 2000}) as memory:
        if use_async:
            asyncio.run(memory.aretain(note))
            asyncio.run(memory.aretain_life(note))
        else:
            memory.retain(note)
            memory.retain_life(note)
        assert not memory.flush(120).timed_out
        size = sum(path.stat().st_size for path in Path(tmp_path).glob("outbox.db*"))
    assert size < 1_000_000
    for bank in (bank_id, life_bank_id):
        texts = stored(hindsight_url, bank)
        assert "Likes tea." in str(texts)
        assert sum(map(len, texts)) < 3000
