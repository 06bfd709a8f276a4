"""When an accepted request is asked about: often at first, then less and less."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

FIRST, LONGEST = 0.05, 3.0
"""The pause before the first look and the longest between two, in seconds."""
_GROWTH = 1.5


class Polls:
    """The next look at each request of one bank.

    Each has a pause of its own, so that a bank that takes a new request every second is not asked
    about all the older ones as often.

    Args:
        clock: Tells the time, in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Know of no request yet."""
        self._clock = clock
        self._pauses: dict[str, float] = {}
        self._at: dict[str, float] = {}

    def due(self, operations: Sequence[str]) -> list[str]:
        """Those of the open requests to be asked about now; what has ended is forgotten."""
        now = self._clock()
        self._pauses = {one: self._pauses.get(one, FIRST) for one in operations}
        self._at = {one: self._at.get(one, now + FIRST) for one in operations}
        return [one for one in operations if self._at[one] <= now]

    def put_off(self, operation: str) -> None:
        """It has not ended; look again after a longer pause."""
        pause = self._pauses.get(operation, FIRST)
        self._pauses[operation] = min(pause * _GROWTH, LONGEST)
        self._at[operation] = self._clock() + pause

    def wait(self) -> float:
        """Seconds until one is due; not negative."""
        if not self._at:
            return LONGEST
        return max(0.0, min(self._at.values()) - self._clock())

    def hurry(self) -> None:
        """Somebody waits: look at all of them at once, and often again."""
        self._pauses = dict.fromkeys(self._pauses, FIRST)
        self._at = dict.fromkeys(self._at, self._clock())
