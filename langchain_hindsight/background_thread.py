"""Threads of our own, on which blocking work is done for coroutines.

The executors of the standard library refuse work once the main thread has ended, and those of a
program's event loops may be busy with its own slow calls.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")


class BackgroundThread:
    """Does calls for coroutines, each to its end, whatever becomes of who awaits it.

    Args:
        count: How many threads there are; with one, calls are done one after another.
    """

    def __init__(self, count: int = 1) -> None:
        """Start the threads."""
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=self._serve, name="hindsight-outbox", daemon=True)
            for _ in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def call(self, work: Callable[..., T], *args: Any, **named: Any) -> asyncio.Future[T]:  # noqa: ANN401
        """Have a call made in the caller's context; its result is a future of the running loop."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        within = contextvars.copy_context().run

        def settle(outcome: Callable[[], None]) -> None:
            if not future.done():
                outcome()

        def run() -> None:
            try:
                result = within(work, *args, **named)
            except BaseException as error:  # noqa: BLE001 - it is raised where the call is awaited
                outcome = _Outcome(future.set_exception, error)
            else:
                outcome = _Outcome(future.set_result, result)
            with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
                loop.call_soon_threadsafe(settle, outcome)

        self._work.put(run)
        return future

    def post(self, work: Callable[[], None]) -> None:
        """Have a call made, whatever becomes of it."""
        self._work.put(work)

    def stop(self) -> None:
        """End after the calls already made."""
        for _ in self._threads:
            self._work.put(None)

    def join(self, timeout: float) -> None:
        """Wait for the end of what was stopped, so many seconds at most."""
        end = time.monotonic() + timeout
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))

    def _serve(self) -> None:
        while (run := self._work.get()) is not None:
            run()


def in_a_thread(work: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # noqa: ANN401
    """Have a call made on a thread that ends with it."""
    thread = BackgroundThread()
    future = thread.call(work, *args)
    thread.stop()
    return future


@dataclass(frozen=True, slots=True)
class _Outcome:
    """A future's end, to be set on its loop."""

    end: Callable[[Any], None]
    value: Any

    def __call__(self) -> None:
        self.end(self.value)
