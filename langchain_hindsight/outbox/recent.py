"""The end of conversations as this process wrote it: one that simply goes on is not read first.

What is remembered of a conversation holds for one version of it, and the write checks the version:
where anybody else was there meanwhile, nothing is written and the database is asked.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Mapping
from dataclasses import dataclass

from cachetools import LRUCache

from langchain_hindsight.outbox.ledger import CHUNK, FIRST_CHUNK, STRETCH, News
from langchain_hindsight.outbox.scope import Scope
from langchain_hindsight.transcript import Transcript

_THREADS = 512
_MESSAGES = 32


@dataclass(frozen=True, slots=True)
class RecentThread:
    """One version of a conversation."""

    id: int
    lane: int
    version: int
    last_seq: int
    kept: dict[str, str]
    """The last messages that are kept, by their ids, with their fingerprints; the newest last."""

    def news(self, transcript: Transcript) -> News | None:
        """What is new, as the ledger says it; None where the conversation does not simply go on.

        It does where the last message kept is there, what stands before it is known, and what
        stands behind it is not known from here. An id that is known for longer is found by the
        database, which has no message twice.
        """
        end = len(transcript)
        final = next(reversed(self.kept))
        back = range(end - 1, max(-1, end - 1 - CHUNK), -1)
        last = next((at for at in back if transcript.message_id(at) == final), None)
        if last is None or not self._knows(transcript, last):
            return None
        if any(transcript.message_id(at) in self.kept for at in range(last + 1, end)):
            return None
        fresh = tuple(transcript.settled(last + 1))
        if not fresh:
            return None
        return News(fresh, follows={fresh[0]: self.last_seq}, length=fresh[-1] + 1)

    def _knows(self, transcript: Transcript, last: int) -> bool:
        """Whether it knows as much of what stands before as the ledger would read."""
        begin, said = len(transcript) - FIRST_CHUNK, 0
        for index in range(last, -1, -1):
            line = transcript.line(index)
            if line is None:
                continue
            if line.message_id is None or self.kept.get(line.message_id) != line.fingerprint:
                return False
            said += transcript.is_kept(line)
            if said >= STRETCH and index <= begin:
                break
        return True


def newest(kept: Mapping[str, str]) -> dict[str, str]:
    """As many of the last messages as are remembered."""
    return dict(itertools.islice(kept.items(), max(0, len(kept) - _MESSAGES), None))


class Recent:
    """The conversations that this process wrote to last."""

    def __init__(self) -> None:
        """Know of none."""
        self._lock = threading.Lock()
        self._threads: LRUCache[Scope, RecentThread] = LRUCache(_THREADS)

    def get(self, scope: Scope) -> RecentThread | None:
        """What is remembered of a conversation."""
        with self._lock:
            return self._threads.get(scope)

    def put(self, scope: Scope, thread: RecentThread | None) -> None:
        """Remember a conversation as it is now; None forgets it."""
        with self._lock:
            if thread is None:
                self._threads.pop(scope, None)
            else:
                self._threads[scope] = thread
