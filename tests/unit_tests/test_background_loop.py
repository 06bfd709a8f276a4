"""One loop on a thread of our own, for every kind of caller."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from langchain_hindsight import HindsightError
from langchain_hindsight.background_loop import BackgroundLoop


async def where():
    return threading.current_thread().name


@pytest.fixture
def loop():
    loop = BackgroundLoop()
    yield loop
    loop.close()


def test_constructing_starts_no_thread():
    before = threading.active_count()
    BackgroundLoop()
    assert threading.active_count() == before


def test_a_plain_thread_is_served(loop):
    assert loop.run(where()) == "langchain-hindsight"


async def test_a_synchronous_call_inside_a_running_loop_is_served(loop):
    assert loop.run(where()) == "langchain-hindsight"


async def test_an_awaited_call_is_served(loop):
    assert await loop.arun(where()) == "langchain-hindsight"


def test_several_event_loops_one_after_the_other_are_served(loop):
    names = {asyncio.run(loop.arun(where())) for _ in range(3)}
    assert names == {"langchain-hindsight"}


def test_many_threads_share_one_loop(loop):
    async def running():
        return id(asyncio.get_running_loop())

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(lambda _: loop.run(running()), range(64)))) == 1


def test_waiting_for_itself_is_refused(loop):
    async def inner():
        loop.run(where())

    with pytest.raises(RuntimeError, match="await it"):
        loop.run(inner())


async def test_cancelling_the_caller_cancels_the_work(loop):
    started, cancelled = threading.Event(), threading.Event()

    async def work():
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    task = asyncio.ensure_future(loop.arun(work()))
    await asyncio.to_thread(started.wait, 5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(cancelled.wait, 5)


def test_an_error_reaches_the_caller_as_it_is(loop):
    async def fail():
        raise KeyError("x")

    with pytest.raises(KeyError, match="x"):
        loop.run(fail())


def test_closing_ends_the_thread_and_again_is_harmless(loop):
    loop.run(where())
    loop.close()
    loop.close()
    assert "langchain-hindsight" not in {one.name for one in threading.enumerate()}


def test_a_call_after_closing_opens_anew(loop):
    loop.run(where())
    loop.close()
    assert loop.run(where()) == "langchain-hindsight"


def test_closing_while_a_call_is_under_way_says_so_to_its_caller(loop):
    started = threading.Event()

    async def work():
        started.set()
        await asyncio.Event().wait()

    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(loop.run, work())
        assert started.wait(5)
        loop.close()
        with pytest.raises(HindsightError, match="closed"):
            call.result(5)


async def test_closing_while_an_awaited_call_is_under_way_says_so(loop):
    started = threading.Event()

    async def work():
        started.set()
        await asyncio.Event().wait()

    task = asyncio.ensure_future(loop.arun(work()))
    assert await asyncio.to_thread(started.wait, 5)
    await asyncio.to_thread(loop.close)
    with pytest.raises(HindsightError, match="closed"):
        await task
