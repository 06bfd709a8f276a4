"""What outlives the end of a process, of the server and of a lease, whenever it comes."""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
import sys
import threading
import time

import psutil
import pytest
from http_relay import relaying_requests, wait_until
from killing import kill_workers, memories
from langchain_core.messages import AIMessage, HumanMessage
from remembering import open_memory, stored

from langchain_hindsight.embedded import EmbeddedHindsight
from langchain_hindsight.embedded.lease import State
from langchain_hindsight.outbox import delivery, leases

needs_signals = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals")


@pytest.fixture
def _no_long_waits(monkeypatch):
    monkeypatch.setattr(leases, "LEASE", 0.5)
    monkeypatch.setattr(delivery, "FIRST_PAUSE", 0.05)


def talk(turns):
    return [
        message
        for at in range(turns)
        for message in (
            HumanMessage(f"This is question {at}.", id=f"h{at}"),
            AIMessage(f"This is answer {at}.", id=f"a{at}"),
        )
    ]


def expected(turns):
    return sorted(
        text
        for at in range(turns)
        for text in (f"user: This is question {at}.", f"assistant: This is answer {at}.")
    )


@pytest.mark.timeout(300)
@pytest.mark.parametrize("unit", ["message", "turn"])
def test_workers_killed_at_any_moment_lose_and_repeat_nothing_of_what_was_acknowledged(
    hindsight_url, tmp_path, unit
):
    outbox = f"sqlite:///{(tmp_path / 'outbox.db').as_posix()}"
    report = kill_workers(hindsight_url, tmp_path, kills=8, outbox=outbox, unit=unit)
    assert report.faults == []


FLUSHING = """
import asyncio, sys
from langchain_core.messages import AIMessage, HumanMessage
from langchain_hindsight import DualBankMemory
from langchain_hindsight.outbox import leases

leases.LEASE = 0.5  # so that the next process need not wait for it
url, bank, how = sys.argv[1:]
memory = DualBankMemory(url, project_bank=bank, project_id="billing")
talk = [HumanMessage("This is question 0.", id="h0"), AIMessage("This is answer 0.", id="a0")]
memory.retain(talk, thread_id="t")
print("flushing", flush=True)
asyncio.run(memory.aflush(60)) if how == "async" else memory.flush(60)
"""


@needs_signals
@pytest.mark.parametrize("how", ["sync", "async"])
@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("fault", ["stall before", "stall after"])
@pytest.mark.usefixtures("_no_long_waits")
def test_a_signal_during_a_flush_ends_the_process_and_loses_nothing(
    hindsight_url, bank_id, monkeypatch, fault, sent, how
):
    monkeypatch.setenv("HINDSIGHT_OUTBOX__SHUTDOWN_TIMEOUT", "0.3")
    with relaying_requests(hindsight_url) as relay:
        relay.fault = fault
        child = subprocess.Popen(
            [sys.executable, "-c", FLUSHING, relay.url, bank_id, how],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert child.stdout.readline() == "flushing\n", child.stderr.read()
            relay.wait_for_faults(1)
            child.send_signal(sent)
            _, said = child.communicate(timeout=60)
        finally:
            child.kill()
            child.wait()
        assert child.returncode == -sent, said
        relay.fault = None
        with open_memory(relay.url, bank_id) as memory:
            assert memory.status().waiting + memory.status().in_flight == 2
            memory.retain(talk(2), thread_id="t")
            assert not memory.flush(60).timed_out
    assert sorted(stored(hindsight_url, bank_id)) == expected(2)


@pytest.mark.parametrize("hours", [-24, 24])
@pytest.mark.parametrize("fault", ["reset before", "reset after", "503"])
@pytest.mark.usefixtures("_no_long_waits")
def test_a_clock_that_is_set_while_requests_fail_holds_nothing_up(
    hindsight_url, bank_id, monkeypatch, fault, hours
):
    """What was to be tried again in a minute is not left until the old time comes again."""
    with (
        relaying_requests(hindsight_url) as relay,
        open_memory(relay.url, bank_id) as memory,
    ):
        memory.retain(talk(1), thread_id="t")
        assert not memory.flush(60).timed_out
        relay.fault = fault
        memory.retain(talk(2), thread_id="t")
        relay.wait_for_faults(2)
        now = time.time
        monkeypatch.setattr(time, "time", lambda: now() + hours * 3600)
        relay.fault = None
        memory.retain(talk(3), thread_id="t")
        wait_until(lambda: memory.status().delivered == 6)  # by itself: a flush would hurry it
    assert sorted(stored(hindsight_url, bank_id)) == expected(3)


@pytest.fixture
def own_server(servers_folder, bank_id):
    """A server to be killed, which nobody shares."""
    folder = servers_folder / bank_id
    with EmbeddedHindsight(folder, env={"HINDSIGHT_API_LLM_PROVIDER": "none"}) as server:
        yield server, folder
    shutil.rmtree(folder, ignore_errors=True)


def kill_server(folder):
    """End the server and all that it started, as the system does when memory runs out."""
    supervisor = psutil.Process(State.read(folder).supervisor.pid)
    for process in [supervisor, *supervisor.children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


@pytest.mark.timeout(400)
@pytest.mark.usefixtures("_no_long_waits")
def test_a_server_that_is_killed_under_load_and_started_again_is_given_all_once(
    own_server, bank_id
):
    server, folder = own_server
    turns, stop = 0, threading.Event()
    url = server.url
    with open_memory(url, bank_id) as memory:

        def keep_talking():
            nonlocal turns
            while not stop.is_set():
                assert memory.retain(talk(turns + 1), thread_id="t").status == "queued"
                turns += 1
                stop.wait(0.3)

        talking = threading.Thread(target=keep_talking)
        talking.start()
        try:
            wait_until(lambda: memory.status().delivered >= 4)
            kill_server(folder)
            away = turns
            wait_until(lambda: memory.status().last_error is not None and turns > away + 3)
            assert server.start() == url
            wait_until(lambda: memory.status().delivered > 2 * away, timeout=120)
        finally:
            stop.set()
            talking.join()
        assert not memory.flush(120).timed_out
        assert memory.status().dead == 0
        found = [memory["text"] for memory in memories(url, bank_id)]
    assert sorted(found) == expected(turns)
