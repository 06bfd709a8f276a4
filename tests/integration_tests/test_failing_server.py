"""A server that keeps failing costs turns nothing; no other is left alone."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time

import pytest
from faulty_network import answering, hanging
from relay import relaying

from langchain_hindsight import (
    DualBankMemory,
    HindsightError,
    HindsightSettings,
    create_hindsight_tools,
)
from langchain_hindsight.breaker import Breaker

_JSON = {"kind": "application/json"}


@contextlib.contextmanager
def opened(url, *, timeout=0.3, bank_id="b"):
    settings = HindsightSettings(
        recall={"timeout": timeout, "cache_ttl": 0},
        timeout=timeout,
        outbox={"shutdown_timeout": 0.1},
    )
    with DualBankMemory(
        url, project_bank=bank_id, project_id="p", life_bank=f"{bank_id}-life", settings=settings
    ) as memory:
        yield memory


def recall(memory, question, *, use_async):
    return asyncio.run(memory.arecall(question)) if use_async else memory.recall(question)


def give_up_on(memory):
    for number in range(3):
        memory.recall(f"When do we deploy, {number}?")


both = pytest.mark.parametrize("use_async", [False, True], ids=["sync", "async"])


@both
def test_a_hung_server_costs_turns_nothing_after_its_first_failures(use_async):
    with hanging() as url, opened(url) as memory:
        memory._gateway.breaker = Breaker(first_pause=60)
        give_up_on(memory)
        started = time.monotonic()
        for number in range(20):
            result = recall(memory, f"Who is on call, {number}?", use_async=use_async)
            assert result.receipt()["project"]["error"].startswith("skipped: ")
            assert result.receipt()["life"]["error"].startswith("skipped: ")
            assert result.receipt()["reason"].startswith("skipped: ")
            assert url in result.reason
        assert time.monotonic() - started < 3  # 20 deadlines would be 6


def test_the_turn_that_probes_a_hung_server_does_not_wait_for_it():
    with hanging() as url, opened(url, timeout=60) as memory:
        memory._gateway.breaker = Breaker(failures=1, first_pause=1e-9)
        memory._gateway.breaker.failed("ask")
        started = time.monotonic()
        assert memory.recall("When do we deploy?").reason.startswith("skipped: ")
        assert time.monotonic() - started < 30  # half its deadline
        assert memory._recall._in_flight  # the probe goes on without its turn


def test_one_recall_at_a_time_probes():
    with hanging() as url, opened(url, timeout=60) as memory:
        memory._gateway.breaker = Breaker(failures=1, first_pause=1e-9)
        memory._gateway.breaker.failed("ask")
        for number in range(4):
            memory.recall(f"When do we deploy, {number}?")
        assert len(memory._recall._in_flight) == 1


def test_what_is_asked_for_expressly_always_tries():
    with answering(500) as server, opened(server.url, timeout=60) as memory:
        memory._gateway.breaker = Breaker(first_pause=60)
        give_up_on(memory)
        asked = server.asked
        memory.recall("When do we deploy?")
        assert server.asked == asked
        memory.recall("When do we deploy?", expressly=True)
        assert server.asked == asked + 2
        tools = {tool.name: tool for tool in create_hindsight_tools(memory)}
        tools["hindsight_recall"].invoke({"query": "When do we deploy?"})
        assert server.asked == asked + 4
        with pytest.raises(HindsightError, match="500"):
            memory.reflect("When do we deploy?")


def test_a_server_that_is_well_again_is_recalled_from_again(hindsight_url, bank_id):
    with relaying(hindsight_url) as relay, opened(relay.url, timeout=10, bank_id=bank_id) as memory:
        memory._gateway.breaker = Breaker(first_pause=0.2)
        relay.fault = "reset"
        give_up_on(memory)
        assert memory.recall("When do we deploy?").reason.startswith("skipped: ")
        relay.fault = None
        deadline = time.monotonic() + 30
        while memory.recall("When do we deploy?").project.error is not None:
            assert time.monotonic() < deadline
            time.sleep(0.05)  # the breaker's clock is the machine's


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422, 429])
def test_a_refusal_is_no_failure_of_the_server(status):
    with (
        answering(status, b'{"detail": "no"}', headers={"Retry-After": "120"}, **_JSON) as server,
        opened(server.url, timeout=60) as memory,
    ):
        for number in range(5):
            memory.recall(f"When do we deploy, {number}?")
        assert server.asked >= 10


def test_one_bank_that_fails_leaves_the_server_asked():
    with answering(body=b'{"results": []}', **_JSON) as well, opened(well.url) as memory:
        send = memory._gateway.recall

        async def half(bank_id, query, **request):
            if bank_id == "b":
                request["timeout"] = 1e-9
            return await send(bank_id, query, **request)

        memory._gateway.recall = half
        for number in range(6):
            result = memory.recall(f"When do we deploy, {number}?")
            assert result.project.error.kind == "timeout"
            assert result.life.error is None


def test_cancelling_the_run_closes_every_connection():
    requests, closed = 2, threading.Barrier(3)  # of the recall and for the mental models
    reached = threading.Semaphore(0)

    def serve(listener):
        peer, _ = listener.accept()
        with peer:
            peer.recv(65536)
            reached.release()
            while peer.recv(65536):
                pass
        closed.wait(20)

    def have_all_come():
        return all(reached.acquire(timeout=20) for _ in range(requests))

    async def run(url):
        async with DualBankMemory(url, project_bank="b", project_id="p") as memory:
            task = asyncio.ensure_future(memory.arecall("When?"))
            assert await asyncio.to_thread(have_all_come)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await asyncio.to_thread(closed.wait, 5)  # sooner than the deadline

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threads = [
            threading.Thread(target=serve, args=(listener,), daemon=True) for _ in range(requests)
        ]
        for thread in threads:
            thread.start()
        asyncio.run(run(f"http://127.0.0.1:{listener.getsockname()[1]}"))
        for thread in threads:
            thread.join(10)


async def test_the_same_question_at_the_same_time_is_one_request_that_outlives_one_of_its_askers():
    go_on = threading.Event()
    settings = HindsightSettings(mental_models={"inject": False})
    with (
        answering(body=b'{"results": []}', after=go_on, **_JSON) as server,
        DualBankMemory(server.url, project_bank="b", project_id="p", settings=settings) as memory,
    ):
        asked = [asyncio.ensure_future(memory.arecall("When do we deploy?")) for _ in range(5)]
        async with asyncio.timeout(20):
            while not server.seen:  # noqa: ASYNC110 - the other thread has no event
                await asyncio.sleep(0.01)
        asked[0].cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked[0]
        go_on.set()
        for result in await asyncio.gather(*asked[1:]):
            result.raise_for_error()
        assert server.asked == 1


async def test_mental_models_that_another_turn_waits_for_are_not_cancelled_with_the_first(
    monkeypatch,
):
    go_on = threading.Event()
    with (
        answering(body=b'{"results": [], "items": []}', after=go_on, **_JSON) as server,
        DualBankMemory(server.url, project_bank="b", project_id="p") as memory,
    ):
        models = memory._recall._models
        asked = [
            asyncio.ensure_future(memory.arecall(f"When do we deploy {what}?"))
            for what in ("billing", "the web")
        ]
        async with asyncio.timeout(20):
            while models._waiting["b"] < len(asked) or not models._asking:  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.01)
        asked[0].cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked[0]
        async with asyncio.timeout(20):
            while models._waiting["b"] > 1:  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.01)
        go_on.set()
        (await asked[1]).raise_for_error()
        assert "b" in models._held
