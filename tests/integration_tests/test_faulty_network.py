"""A faulty network before the real server: nothing lost, nothing twice, and no turn waits."""

from __future__ import annotations

import asyncio
import contextlib
import itertools

import pytest
from hindsight_client import Hindsight
from http_relay import FAULTS, relaying_requests, wait_until
from langchain_core.messages import AIMessage, HumanMessage
from remembering import open_memory, stored

from langchain_hindsight.outbox import delivery, leases

both = pytest.mark.parametrize("use_async", [False, True], ids=["sync", "async"])
FAULTS_SEEN = 3


@pytest.fixture(autouse=True)
def _no_long_waits(monkeypatch):
    monkeypatch.setattr(leases, "LEASE", 0.5)
    monkeypatch.setattr(delivery, "FIRST_PAUSE", 0.05)


@pytest.fixture
def relay(hindsight_url):
    with relaying_requests(hindsight_url) as one:
        yield one


def talk(turns):
    return [
        message
        for at in range(turns)
        for message in (
            HumanMessage(f"This is question {at}.", id=f"h{at}"),
            AIMessage(f"This is answer {at}.", id=f"a{at}"),
        )
    ]


def expected(turns, unit):
    pairs = [(f"user: This is question {n}.", f"assistant: This is answer {n}.") for n in turns]
    joined = ["\n\n".join(pair) for pair in pairs]
    return sorted(joined if unit == "turn" else itertools.chain(*pairs))


def retain(memory, messages, *, use_async):
    if use_async:
        return asyncio.run(memory.aretain(messages, thread_id="t"))
    return memory.retain(messages, thread_id="t")


def flush(memory, *, use_async):
    return asyncio.run(memory.aflush(60)) if use_async else memory.flush(60)


@both
@pytest.mark.parametrize("fault", ["refuse", *FAULTS])
def test_whatever_the_network_does_all_is_stored_once_and_no_turn_waits(
    hindsight_url, relay, bank_id, fault, use_async
):
    """Turns go out as one document where the caller is sync, messages where it is async."""
    unit = "message" if use_async else "turn"
    with open_memory(relay.url, bank_id, retain={"unit": unit}, timeout=1.0) as memory:
        retain(memory, talk(1), use_async=use_async)
        assert not flush(memory, use_async=use_async).timed_out
        relay.fault = fault
        relay.gate.clear()  # nothing goes out before the turns are over: who waited would hang
        for turns in range(2, 6):
            assert retain(memory, talk(turns), use_async=use_async).status == "queued"
        relay.gate.set()
        if fault == "refuse":
            wait_until(lambda: memory.status().last_error is not None)
        else:
            relay.wait_for_faults(FAULTS_SEEN)
        relay.fault = None
        assert not flush(memory, use_async=use_async).timed_out
        assert memory.status().dead == 0
    assert sorted(stored(hindsight_url, bank_id)) == expected(range(5), unit)
    assert not relay.gate_was_never_opened


@pytest.mark.parametrize("fault", ["refuse", "reset after", "nonsense after", "503"])
def test_a_bank_that_is_first_retained_to_at_a_fault_is_made_and_gets_all(
    hindsight_url, relay, bank_id, fault
):
    with open_memory(relay.url, bank_id, timeout=1.0) as memory:
        relay.fault = fault
        retain(memory, talk(2), use_async=False)
        wait_until(lambda: memory.status().last_error is not None)
        relay.fault = None
        assert not flush(memory, use_async=False).timed_out
        assert memory.status().dead == 0
    assert sorted(stored(hindsight_url, bank_id)) == expected(range(2), "message")


@both
def test_an_edit_whose_first_words_are_under_way_at_a_fault_is_what_is_stored(
    hindsight_url, relay, bank_id, use_async
):
    """The words that the server took, unknown to us, do not outlive those that replaced them."""
    with open_memory(relay.url, bank_id, timeout=1.0) as memory:
        retain(memory, talk(1), use_async=use_async)
        flush(memory, use_async=use_async)
        relay.fault = "reset after"
        retain(memory, talk(2), use_async=use_async)
        relay.wait_for_faults(1)
        edited = [*talk(1), HumanMessage("This is another question.", id="h1"), talk(2)[3]]
        retain(memory, edited, use_async=use_async)
        relay.fault = None
        assert not flush(memory, use_async=use_async).timed_out
    assert sorted(stored(hindsight_url, bank_id)) == sorted(
        [*expected([0], "message"), "user: This is another question.", expected([1], "message")[0]]
    )


@both
def test_a_proxy_that_asks_for_time_is_given_it(relay, bank_id, use_async):
    """After a 429 or a 503 with Retry-After, no request comes before that time."""
    times = []
    with open_memory(relay.url, bank_id) as memory:
        retain(memory, talk(1), use_async=use_async)
        flush(memory, use_async=use_async)
        loop = memory._gateway.loop
        relay.watch = lambda moment, request: times.append(
            loop._loop.time() if request.retains and moment == "arrived" else None
        )
        relay.fault = "503"
        retain(memory, talk(2), use_async=use_async)
        relay.wait_for_faults(2)
        relay.fault = None
        assert not flush(memory, use_async=use_async).timed_out
    first, second = [time for time in times if time is not None][:2]
    assert second - first >= 0.99


@both
def test_while_the_clients_retains_are_suspended_nothing_counts_as_delivered(
    hindsight_url, bank_id, monkeypatch, use_async
):
    send, suspended = Hindsight.aretain_batch, True

    async def sent(client, *args, **named):
        with client.suspend_retains() if suspended else contextlib.nullcontext():
            return await send(client, *args, **named)

    monkeypatch.setattr(Hindsight, "aretain_batch", sent)
    with open_memory(hindsight_url, bank_id) as memory:
        assert retain(memory, talk(2), use_async=use_async).status == "queued"
        wait_until(lambda: memory.status().last_error is not None)
        status = memory.status()
        assert "suspended" in status.last_error
        assert (status.waiting + status.in_flight, status.delivered) == (4, 0)
        assert stored(hindsight_url, bank_id) == []
        suspended = False
        assert not flush(memory, use_async=use_async).timed_out
        assert memory.status().dead == 0
    assert sorted(stored(hindsight_url, bank_id)) == expected(range(2), "message")
