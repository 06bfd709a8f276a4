"""One event loop on one thread of our own, for every caller.

An HTTP session belongs to the loop that first used it. Callers come from plain threads, from
several event loops, from a running notebook and from forked workers; so the session lives on a loop
of its own, which starts with the first call and is shared by all of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from langchain_hindsight.errors import HindsightError
from langchain_hindsight.fork import abandon, on_fork_in_child

T = TypeVar("T")

_CLOSED = "The memory was closed while the call was under way."


class BackgroundLoop:
    """Runs coroutines on its own thread; starts lazily, closes idempotently, reopens when used."""

    def __init__(self) -> None:
        """Start nothing yet."""
        self._forget()
        on_fork_in_child(self, "_renew")

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def _renew(self) -> None:
        abandon(self._loop, self._thread)
        self._forget()

    @property
    def is_current(self) -> bool:
        """Whether the caller is on this loop's own thread."""
        return self._thread is threading.current_thread()

    @property
    def is_open(self) -> bool:
        """Whether the thread runs."""
        return self._loop is not None

    def spawn(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a coroutine on the loop and return at once."""
        with self._lock:  # so that closing comes before or after, never in between
            if self._loop is None:
                loop = asyncio.new_event_loop()
                thread = threading.Thread(
                    target=_run_until_stopped, args=(loop,), name="langchain-hindsight", daemon=True
                )
                thread.start()
                self._loop, self._thread = loop, thread
            return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end from a thread; also where another loop is running.

        Raises:
            RuntimeError: If called on the loop's own thread, which would wait for itself.
            HindsightError: If the loop was closed meanwhile.
        """
        if self.is_current:
            work.close()
            msg = "A synchronous call from Hindsight's own loop would wait for itself; await it."
            raise RuntimeError(msg)
        future = self.spawn(work)
        try:
            return future.result()
        except CancelledError:
            raise HindsightError(_CLOSED) from None
        except BaseException:
            future.cancel()  # Ctrl-C in the caller; nothing to cancel where the work itself failed
            raise

    async def arun(self, work: Coroutine[Any, Any, T]) -> T:
        """Await a coroutine that runs on the loop, from any loop; cancelling cancels it there."""
        if self.is_current:
            return await work
        future = self.spawn(work)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise HindsightError(_CLOSED) from None

    def close(self) -> None:
        """Cancel what is running, end the thread and close the loop; again is harmless."""
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is None or thread is None:
            return
        with contextlib.suppress(RuntimeError):  # the interpreter is ending and the loop is closed
            loop.call_soon_threadsafe(loop.stop)
        if thread is not threading.current_thread():
            thread.join()


class _Executor(ThreadPoolExecutor):
    """The loop's executor, which takes work also once the main thread has ended.

    A program goes on in its other threads then, and every executor of the standard library refuses.
    """

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:  # noqa: ANN401
        try:
            return super().submit(fn, *args, **kwargs)
        except RuntimeError:
            future: Future[T] = Future()
            work = partial(fn, *args, **kwargs)
            threading.Thread(target=_settle, args=(future, work), daemon=True).start()
            return future


def _settle(future: Future[T], work: Callable[[], T]) -> None:
    if future.set_running_or_notify_cancel():
        try:
            result = work()
        except BaseException as error:  # noqa: BLE001 - it is raised where the result is asked for
            future.set_exception(error)
        else:
            future.set_result(result)


def _run_until_stopped(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    loop.set_default_executor(_Executor(thread_name_prefix="langchain-hindsight"))
    try:
        loop.run_forever()
    finally:
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
        asyncio.set_event_loop(None)
        loop.close()
