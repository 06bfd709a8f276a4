"""What outlives the end of a process, of the server and of a lease, whenever it comes."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest
from http_relay import relaying_requests
from killing import kill_workers
from langchain_core.messages import AIMessage, HumanMessage
from remembering import open_memory, stored

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
