"""Cases of event loops, threads, lifetime and deadlines, asked of every way into the memory."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
import subprocess
import sys
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor

import aiohttp
import pytest
from blockbuster import BlockingError, blockbuster_ctx
from faulty_network import answering, hanging
from langchain_core.messages import AIMessage, HumanMessage
from relay import Relay
from remembering import NOTES, QUESTION, open_memory, remember, stored
from surfaces import SURFACES, both, called, every_surface

from langchain_hindsight import HindsightError, create_retain_node, gateway

TALK = {"messages": [HumanMessage("We chose Kafka.", id="h1"), AIMessage("Good.", id="a1")]}


@pytest.fixture(scope="module")
def filled(hindsight_url, tmp_path_factory):
    """A bank that remembers something, for tests that mind no more than that."""
    bank_id = f"project-{uuid.uuid4().hex}"
    outbox = {"url": f"sqlite:///{(tmp_path_factory.mktemp('filled') / 'outbox.db').as_posix()}"}
    with open_memory(hindsight_url, bank_id, outbox=outbox) as memory:
        remember(memory, NOTES[0])
    return bank_id


@pytest.fixture
def unused(hindsight_url, filled):
    """A memory of that bank whose client is not built yet."""
    # Nothing is answered from what is held: each question has to reach the server. Nothing is
    # kept either: the questions of other tests would crowd out the one note of the bank.
    settings = {"recall": {"cache_ttl": 0}, "retain": {"enabled": False}}
    with open_memory(hindsight_url, filled, **settings) as unused:
        yield unused


@pytest.fixture
def built(monkeypatch):
    """One entry for each client that is built."""
    made = []
    build = gateway._new_connection

    def noted(*args):
        made.append(args)
        return build(*args)

    monkeypatch.setattr(gateway, "_new_connection", noted)
    return made


class Stalling(Relay):
    """A relay that holds back what it is given until it is told to go on."""

    def __init__(self, upstream):
        super().__init__(upstream)
        self.reached = threading.Event()
        self.go_on = threading.Event()

    def _pass_on(self, client):
        self.reached.set()
        self.go_on.wait(60)
        with contextlib.suppress(OSError):  # who was held back has given up
            super()._pass_on(client)


@pytest.fixture
def stalling(hindsight_url):
    relay = Stalling(hindsight_url)
    thread = threading.Thread(target=relay.serve, daemon=True)
    thread.start()
    yield relay
    relay.go_on.set()
    relay.close()
    thread.join()


# Loops and threads


@every_surface
async def test_every_sync_surface_works_inside_a_running_loop(unused, surface):
    assert NOTES[0] in surface.ask(unused, QUESTION)


@every_surface
def test_every_surface_serves_several_event_loops_one_after_the_other(unused, surface):
    for _ in range(3):
        assert NOTES[0] in asyncio.run(surface.aask(unused, QUESTION))


@every_surface
@both
def test_every_surface_serves_many_threads_that_come_first_at_once(
    unused, built, surface, use_async
):
    questions = [f"{QUESTION} {number}" for number in range(6)]
    with ThreadPoolExecutor(len(questions)) as pool:
        answers = pool.map(lambda one: surface.run(unused, one, use_async=use_async), questions)
        lacking = [answer for answer in answers if NOTES[0] not in answer]
    assert lacking == []
    assert len(built) == 1


async def test_coroutines_that_come_first_at_once_share_one_client(unused, built):
    answers = await asyncio.gather(  # questions that differ, for equal ones share a request
        *(one.aask(unused, f"{QUESTION} {name}") for name, one in SURFACES.items())
    )
    assert all(NOTES[0] in answer for answer in answers)
    assert len(built) == 1


def test_a_memory_is_closed_once_by_whichever_loop_comes_last(unused):
    before = set(threading.enumerate())

    async def use():
        async with unused:
            await unused.arecall(QUESTION)
        await unused.aclose()

    for _ in range(2):
        asyncio.run(use())
        asyncio.run(unused.aclose())
    unused.close()
    gc.collect()  # an unclosed session would warn here, and warnings are errors
    assert set(threading.enumerate()) <= before


@both
def test_an_adapter_that_is_dropped_leaves_the_callers_memory_open(unused, built, use_async):
    for surface in SURFACES.values():
        surface.run(unused, QUESTION, use_async=use_async)
        gc.collect()
    assert NOTES[0] in unused.recall(QUESTION).text
    assert len(built) == 1


# Work in flight when something ends


CHILD = """
import asyncio, signal, sys
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import START, MessagesState, StateGraph
from langchain_hindsight import DualBankMemory, create_retain_node
from langchain_hindsight.outbox import leases

leases.LEASE = 0.5  # so that the next process need not wait for it
url, bank, how = sys.argv[1:]
memory = DualBankMemory(url, project_bank=bank, project_id="billing")
talk = [HumanMessage("We chose Kafka.", id="h1"), AIMessage("Good.", id="a1")]
graph = StateGraph(MessagesState)
graph.add_node("retain", create_retain_node(memory))
graph.add_edge(START, "retain")
graph = graph.compile()

def waited_for(line):
    print(line, flush=True)
    sys.stdin.readline()

async def served():
    await graph.ainvoke({"messages": talk})
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    print("ready", flush=True)
    await stopping.wait()

if how == "async server":
    asyncio.run(served())
elif how == "async":
    asyncio.run(graph.ainvoke({"messages": talk}))
    waited_for("ready")
else:
    graph.invoke({"messages": talk})
    waited_for("ready")
"""
needs_signals = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGTERM")


@pytest.mark.parametrize(
    ("how", "sent", "code"),
    [
        ("sync", None, 0),
        ("async", None, 0),
        pytest.param("async server", signal.SIGTERM, 0, marks=needs_signals),
        pytest.param("sync", signal.SIGTERM, -signal.SIGTERM, marks=needs_signals),
    ],
)
def test_a_process_that_ends_with_a_retain_under_way_ends_in_time_and_loses_nothing(
    hindsight_url, bank_id, stalling, monkeypatch, how, sent, code
):
    monkeypatch.setenv("HINDSIGHT_OUTBOX__SHUTDOWN_TIMEOUT", "0.3")
    child = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", CHILD, stalling.url, bank_id, how],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert child.stdout.readline() == "ready\n", child.stderr.read()
        assert stalling.reached.wait(20)
        if sent is not None:
            child.send_signal(sent)
        _, said = child.communicate("\n", timeout=20)
    finally:
        child.kill()
        child.wait()
    assert (child.returncode, said) == (code, "")
    stalling.go_on.set()
    with open_memory(stalling.url, bank_id) as memory:
        assert memory.status().waiting + memory.status().in_flight == 2
        assert not memory.flush(60).timed_out
    assert sorted(stored(hindsight_url, bank_id)) == ["assistant: Good.", "user: We chose Kafka."]


def _retain_by_node(memory, *, use_async):
    node = create_retain_node(memory)
    return asyncio.run(node.ainvoke(TALK)) if use_async else node.invoke(TALK)


@both
def test_a_retain_under_way_is_not_collected(hindsight_url, bank_id, stalling, caplog, use_async):
    with open_memory(stalling.url, bank_id) as memory:
        _retain_by_node(memory, use_async=use_async)
        assert stalling.reached.wait(20)
        gc.collect()
        stalling.go_on.set()
        assert not memory.flush(60).timed_out
    assert len(stored(hindsight_url, bank_id)) == 2
    assert "never retrieved" not in caplog.text


@both
def test_a_memory_that_is_dropped_with_a_retain_under_way_leaves_it_to_the_next(
    hindsight_url, bank_id, stalling, caplog, use_async
):
    memory = open_memory(stalling.url, bank_id)
    _retain_by_node(memory, use_async=use_async)
    assert stalling.reached.wait(20)
    del memory
    gc.collect()
    stalling.go_on.set()
    with open_memory(stalling.url, bank_id) as memory:
        assert not memory.flush(60).timed_out
    assert len(stored(hindsight_url, bank_id)) == 2
    assert "never retrieved" not in caplog.text


# Deadlines


@contextlib.contextmanager
def _hangs():
    with hanging() as url:
        yield url


@contextlib.contextmanager
def _asks_for_two_minutes():
    with answering(503, headers={"Retry-After": "120"}) as server:
        yield server.url


@every_surface
@both
@pytest.mark.parametrize("sick", [_hangs, _asks_for_two_minutes])
def test_a_server_that_keeps_one_waiting_costs_the_deadline_and_one_warning(
    bank_id, life_bank_id, caplog, surface, use_async, sick
):
    settings = {"recall": {"timeout": 0.5}, "outbox": {"shutdown_timeout": 0.1}}
    with sick() as url, open_memory(url, bank_id, life_bank_id, **settings) as memory:
        memory.recall("Load the client, so that the deadline is the server's alone.")
        caplog.clear()
        started = time.monotonic()
        answer = surface.run(memory, QUESTION, use_async=use_async)
        assert time.monotonic() - started < 5
        warned = [one for one in caplog.records if "without the memory of" in one.getMessage()]
    assert len(warned) == 1
    assert "project and life: " in warned[0].getMessage()  # said once for both
    if surface is SURFACES["tool"]:
        assert url in answer
    else:
        assert answer in {"", "[]", QUESTION}


# Blocking calls in async code


async def test_the_detector_sees_a_blocking_call():
    with blockbuster_ctx(), pytest.raises(BlockingError):
        time.sleep(0.01)  # noqa: ASYNC251 - what is to be seen


@every_surface
def test_no_async_surface_blocks_its_loop_or_ours(hindsight_url, bank_id, caplog, surface):
    # Built where programs build it, at import: reading the configuration files is no async work.
    memory = open_memory(hindsight_url, bank_id)

    async def work():
        async with memory:
            await surface.aask(memory, QUESTION)
            await memory.aretain(NOTES[0])
            await memory.aretain(TALK["messages"], thread_id="t")
            assert not (await memory.aflush(60)).timed_out
            assert NOTES[0] in await surface.aask(memory, f"{QUESTION} Tell me.")
            assert (await memory.astatus()).durable

    with blockbuster_ctx():
        asyncio.run(work())
    assert caplog.text == ""  # a blocking call on our own loop would be said here


def test_no_tool_blocks_its_loop_or_ours(hindsight_mock_url, bank_id, life_bank_id, caplog):
    memory = open_memory(hindsight_mock_url, bank_id, life_bank_id)

    async def work():
        async with memory:
            for name, args in [
                ("hindsight_retain", {"content": NOTES[0]}),
                ("hindsight_retain_life", {"content": NOTES[0]}),
                ("hindsight_recall", {"query": QUESTION}),
                ("hindsight_reflect", {"query": QUESTION}),
            ]:
                tool, call = called(memory, name, **args)
                assert (await tool.ainvoke(call)).status == "success"

    with blockbuster_ctx():
        asyncio.run(work())
    assert caplog.text == ""


# The key


@every_surface
@both
def test_a_key_from_the_environment_goes_out_with_every_request(
    hindsight_url, bank_id, life_bank_id, monkeypatch, surface, use_async
):
    monkeypatch.setenv("HINDSIGHT_API_KEY", "made-up-key")
    sent = []
    request = aiohttp.ClientSession._request

    async def watched(self, method, url, **options):
        headers = {**self.headers, **(options.get("headers") or {})}
        sent.append((str(url), headers.get("Authorization")))
        return await request(self, method, url, **options)

    monkeypatch.setattr(aiohttp.ClientSession, "_request", watched)
    with open_memory(hindsight_url, bank_id, life_bank_id) as memory:
        surface.run(memory, QUESTION, use_async=use_async)
        memory.retain_life("Likes short answers.")
        memory.retain(TALK["messages"], thread_id="t")
        assert not memory.flush(60).timed_out
        with pytest.raises(HindsightError):  # this server has no LLM
            memory.reflect(QUESTION)
    assert {key for _, key in sent} == {"Bearer made-up-key"}
    addresses = " ".join(url for url, _ in sent)
    assert all(part in addresses for part in ("/recall", "/reflect", "/operations", life_bank_id))


@both
def test_reflect_has_a_deadline_that_is_not_recalls(bank_id, use_async):
    with hanging() as url, open_memory(url, bank_id, timeout=0.3) as memory:
        assert memory.settings.recall.timeout > memory.settings.timeout
        tool, call = called(memory, "hindsight_reflect", query=QUESTION)
        answer = asyncio.run(tool.ainvoke(call)) if use_async else tool.invoke(call)
        with pytest.raises(HindsightError, match=r"within 0\.3 s"):
            memory.reflect(QUESTION)
    assert answer.status == "error"
    assert "within 0.3 s" in answer.content
