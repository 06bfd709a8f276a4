"""When to leave a failing server alone, so that it costs a turn nothing.

After failures in a row the server is left alone for a pause. Then one call may try it, and nobody
else until that one is through: an answer ends it all, another failure makes the next pause twice as
long, up to a bound. Pure but for the clock, which is passed in; safe to use from any thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Literal

Verdict = Literal["ask", "probe", "skip"]

_TRYING_LONGEST = 300.0
"""A probe that is not heard of for so long, in seconds, is given up, and another may try."""


class Breaker:
    """Counts failures in a row and says whether to ask."""

    def __init__(
        self,
        *,
        failures: int = 2,
        first_pause: float = 2.0,
        longest_pause: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin with a server that is well.

        Args:
            failures: So many in a row begin the first pause.
            first_pause: How long it is, in seconds.
            longest_pause: How long a pause can become, in seconds.
            clock: Gives seconds that never go back.
        """
        self._enough = failures
        self._first_pause = first_pause
        self._longest_pause = longest_pause
        self._clock = clock
        self._lock = threading.Lock()
        self._failures = 0
        self._pause = 0.0
        self._ask_again = 0.0

    @property
    def seconds_left(self) -> float:
        """How long until the server may be tried again."""
        with self._lock:
            return max(0.0, self._ask_again - self._clock())

    def verdict(self) -> Verdict:
        """Whether to ask the server now.

        Returns:
            ``ask`` for a server that is well; ``probe`` for the one call that may try one that is
            not, whose outcome must be told; ``skip`` for every other.
        """
        with self._lock:
            if not self._pause:
                return "ask"
            now = self._clock()
            if now < self._ask_again:
                return "skip"
            self._ask_again = now + _TRYING_LONGEST
            return "probe"

    def succeeded(self) -> None:
        """The server has answered."""
        with self._lock:
            self._failures, self._pause = 0, 0.0

    def failed(self, verdict: Verdict) -> None:
        """A call with that verdict failed for a reason that is the server's."""
        with self._lock:
            if verdict == "probe":
                self._begin_pause(min(2 * self._pause, self._longest_pause))
                return
            self._failures += 1
            if not self._pause and self._failures >= self._enough:
                self._begin_pause(self._first_pause)

    def undecided(self, verdict: Verdict) -> None:
        """A call with that verdict ended without telling anything of the server."""
        with self._lock:
            if verdict == "probe" and self._pause:
                self._ask_again = self._clock()

    def _begin_pause(self, seconds: float) -> None:
        self._pause = seconds
        self._ask_again = self._clock() + seconds
