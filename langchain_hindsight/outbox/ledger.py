"""What is new in a conversation: walk back from its end to the last message that is known.

The walk costs what is new, whatever the length of the thread. Ids that are given decide: a message
whose id is unknown is new, unless the list visibly is the whole conversation with ids issued anew.
Where there are no ids, the place where the conversation stood last is compared, and after that the
conversation is laid along what is known. What nothing shows to have been seen is new: a doubt is
settled for keeping.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Protocol

from langchain_hindsight.transcript import Transcript

FIRST_CHUNK = 8
CHUNK = 32
TAIL = 8
"""How many lines must agree for a place to be taken as the one where a conversation stood."""
WINDOW = 512
"""How far back a conversation without known ids is laid along what is known, in lines."""
_SURE = 3


@dataclass(frozen=True, slots=True)
class Known:
    """A message that was retained before."""

    seq: int
    fingerprint: str


class Thread(Protocol):
    """What is known of one conversation."""

    @property
    def last_seq(self) -> int:
        """The number of the last message retained."""
        ...

    @property
    def length(self) -> int:
        """How many messages the list held, up to the last one retained."""
        ...

    def by_id(self, ids: Sequence[str]) -> Mapping[str, Known]:
        """Those of the ids that are known."""
        ...

    def head(self, limit: int) -> Sequence[Known]:
        """The first speech that is known, oldest first."""
        ...

    def tail(self, limit: int) -> Sequence[Known]:
        """The last speech that is known, oldest first."""
        ...

    def after(self, seq: int, fingerprint: str) -> Known | None:
        """The message of that fingerprint that followed on another."""
        ...

    def has(self, fingerprints: Sequence[str]) -> set[str]:
        """Those of the fingerprints that are known."""
        ...


@dataclass(frozen=True, slots=True)
class News:
    """What to retain of a list of messages, by position."""

    fresh: tuple[int, ...] = ()
    edited: tuple[tuple[int, Known], ...] = ()
    parent: int | None = None
    """The known message that the first fresh one follows on."""
    length: int = 0


@dataclass(frozen=True, slots=True)
class _Place:
    start: int
    seq: int
    missed: tuple[int, ...] = ()
    ids_unread: bool = False
    """Whether ids behind it may be known all the same, in another order."""


def whats_new(transcript: Transcript, thread: Thread | None, *, keep: bool = True) -> News:
    """What of a conversation was not retained yet, or was retained with other words.

    Args:
        transcript: The conversation, or its new part.
        thread: What is known of it; None for a conversation that was never seen.
        keep: Whether it is to be kept. What is not includes what would wait for an answer.
    """
    choose = transcript.settled if keep else transcript.every
    if thread is None or thread.last_seq == 0:
        return _news(choose, None, (), thread)
    edited: list[tuple[int, Known]] = []
    place = _walk(transcript, thread, edited)
    if place is not None:
        place = _follow(transcript, thread, place)
    news = _news(choose, place, tuple(edited), thread)
    return _without_known(transcript, thread, news) if place and place.ids_unread else news


def _news(
    choose: Callable[[int], list[int]],
    place: _Place | None,
    edited: tuple[tuple[int, Known], ...],
    thread: Thread | None,
) -> News:
    start = 0 if place is None else place.start
    fresh = choose(start)
    if place is not None and place.missed:
        fresh = sorted({*place.missed, *fresh})
    length = fresh[-1] + 1 if fresh else (0 if thread is None else thread.length)
    return News(tuple(fresh), edited, None if place is None else place.seq, length)


def _without_known(transcript: Transcript, thread: Thread, news: News) -> News:
    """What is fresh by its place and not known by its id."""
    ids = {index: name for index in news.fresh if (name := transcript.message_id(index))}
    names = list(ids.values())
    known: dict[str, Known] = {}
    for start in range(0, len(names), CHUNK):
        known.update(thread.by_id(names[start : start + CHUNK]))
    fresh = tuple(index for index in news.fresh if ids.get(index) not in known)
    return replace(news, fresh=fresh)


def _walk(transcript: Transcript, thread: Thread, edited: list[tuple[int, Known]]) -> _Place | None:
    """The last known message, by id if one is known, else by what was said."""
    end, size = len(transcript), FIRST_CHUNK
    by_words = True
    while end > 0:
        start = max(0, end - size)
        place = _by_id(transcript, thread, range(start, end), edited)
        if place is not None:
            return place
        if end == len(transcript):
            by_words = _words_decide(transcript, thread, range(start, end))
            place = _where_it_stood(transcript, thread) if by_words else None
            if place is not None:
                return place
        end, size = start, CHUNK
    return _laid_along(transcript, thread) if by_words else None


def _words_decide(transcript: Transcript, thread: Thread, end: range) -> bool:
    """Whether words may show what ids do not: there are none, or all were issued anew.

    The latter shows in a list of more than one exchange that begins as the conversation began and
    is as long as it was. Anything shorter may be the same words said again.
    """
    if not any(transcript.message_id(index) for index in end):
        return True
    if len(transcript) < thread.length:
        return False
    wanted = [known.fingerprint for known in thread.head(TAIL)]
    exchanges = 0
    for index in range(len(transcript)):
        line = transcript.line(index)
        if line is None or not line.is_speech:
            continue
        exchanges += line.starts_turn
        if wanted and line.fingerprint != wanted.pop(0):
            return False
        if exchanges > 1 and not wanted:
            return True
    return False


def _by_id(
    transcript: Transcript, thread: Thread, span: range, edited: list[tuple[int, Known]]
) -> _Place | None:
    ids = {index: name for index in span if (name := transcript.message_id(index))}
    if not ids:
        return None
    known = thread.by_id(list(ids.values()))
    if not known:
        return None
    found = {index: known[name] for index, name in ids.items() if name in known}
    for index, before in found.items():
        line = transcript.line(index)
        if line is not None and line.fingerprint != before.fingerprint:
            edited.append((index, before))
    last = max(found)
    return _Place(last + 1, found[last].seq)


def _follow(transcript: Transcript, thread: Thread, place: _Place) -> _Place:
    """Go on over messages that are known under other ids: the same turn, run again."""
    start, seq = place.start, place.seq
    if seq == thread.last_seq:
        return place
    for index in range(place.start, len(transcript)):
        line = transcript.line(index)
        if line is None:
            continue
        known = thread.after(seq, line.fingerprint)
        if known is not None:
            start, seq = index + 1, known.seq
        elif line.is_speech:
            break
    return replace(place, start=start, seq=seq)


def _where_it_stood(transcript: Transcript, thread: Thread) -> _Place | None:
    """The position of the last time, if the same was said up to there."""
    if not 0 < thread.length <= len(transcript):
        return None
    tail = thread.tail(TAIL)
    wanted = [known.fingerprint for known in reversed(tail)]
    for _, line in transcript.speech(thread.length):
        if not wanted:
            break
        if line.fingerprint != wanted.pop(0):
            return None
    if wanted or not tail:
        return None
    return _Place(thread.length, tail[-1].seq, ids_unread=True)


def _laid_along(transcript: Transcript, thread: Thread) -> _Place | None:
    """The longest run of what was said that is known in the same order."""
    tail = thread.tail(WINDOW)
    recent = islice(transcript.speech(len(transcript)), 4 * WINDOW)
    spoken = [(index, line.fingerprint) for index, line in recent][::-1]
    where: dict[str, list[int]] = {}
    for position, known in enumerate(tail):
        where.setdefault(known.fingerprint, []).append(position)
    best, runs = (0, 0, 0), dict[int, int]()
    for ordinal, (_, fingerprint) in enumerate(spoken):
        runs = {at: runs.get(at - 1, 0) + 1 for at in where.get(fingerprint, ())}
        for at, run in runs.items():
            best = max(best, (run, at, -ordinal))
    run, at, ordinal = best[0], best[1], -best[2]
    if not run or not _convinces(transcript, spoken, run, ordinal, len(tail)):
        return None
    before = spoken[: ordinal + 1 - run]
    known_before = thread.has([fingerprint for _, fingerprint in before]) if before else set()
    missed = tuple(index for index, fingerprint in before if fingerprint not in known_before)
    return _Place(spoken[ordinal][0] + 1, tail[at].seq, missed)


def _convinces(
    transcript: Transcript, spoken: Sequence[tuple[int, str]], run: int, ordinal: int, known: int
) -> bool:
    """Whether a run is a conversation seen again, rather than the same words said anew."""
    if run >= _SURE or run == known:
        return True
    if any(transcript.message_id(index) for index, _ in spoken):
        return False  # the words of a few lines do not outweigh ids
    return run == ordinal + 1 or run >= _SURE - 1
