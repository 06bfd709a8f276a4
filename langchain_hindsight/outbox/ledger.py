"""What is new in a conversation: read back from its end until enough of it is known.

The reading costs what is new, whatever the length of the thread. A message whose id is known is
known, wherever it stands. One with another id, or with none, is known where its words stand in the
place that they had: between two messages that are known, right behind one, or in a window of the
conversation shown again (`alignment`). What nothing shows to have been seen is new: a doubt is
settled for keeping.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from langchain_hindsight.outbox.alignment import Said, overlap
from langchain_hindsight.transcript import Transcript

FIRST_CHUNK = 8
CHUNK = 32
LARGEST_CHUNK = 512
STRETCH = 4
"""How many known lines in a row end the reading: what stands before them is known too."""
TAIL = 8
"""How many lines must agree for a place to be taken as the one where a conversation stood."""
WINDOW = 512
"""How far back words are compared, in lines."""


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
    follows: Mapping[int, int] = field(default_factory=dict)
    """The known message that a fresh one follows on, where that is no fresh one."""
    length: int = 0
    unnamed: frozenset[int] = frozenset()
    """Fresh ones whose id is another message's already, so that it does not name them."""


@dataclass(slots=True)
class _Read:
    """The end of a list, as far as it was read: what is known of it by id."""

    transcript: Transcript
    start: int = 0
    found: dict[int, Known] = field(default_factory=dict)
    """What has each id that is known."""
    known: dict[int, Known] = field(default_factory=dict)
    """The same, where the message is that one too, as it was or edited."""

    @property
    def last(self) -> int:
        """The position of the last message known by its id; -1 where there is none."""
        return max(self.known, default=-1)

    def is_known(self, index: int) -> bool:
        """Whether a message is known: it stands for itself, or is one with its id and words."""
        found = self.found.get(index)
        return index in self.known or bool(found and found.fingerprint == self.fingerprint(index))

    def speech(self, start: int, end: int) -> list[int]:
        """The positions of what was said, in a part of what was read."""
        lines = ((index, self.transcript.line(index)) for index in range(start, end))
        return [at for at, line in lines if line is not None and self.transcript.is_kept(line)]

    def fingerprint(self, index: int) -> str:
        line = self.transcript.line(index)
        return "" if line is None else line.fingerprint


@dataclass(frozen=True, slots=True)
class _Place:
    """Where what is new begins, and the known message before it."""

    start: int = 0
    seq: int | None = None
    missed: Mapping[int, int | None] = field(default_factory=dict)
    """Positions before it that are new all the same, with the known message before each."""


def whats_new(transcript: Transcript, thread: Thread | None, *, keep: bool = True) -> News:
    """What of a conversation was not retained yet, or was retained with other words.

    Args:
        transcript: The conversation, or its new part.
        thread: What is known of it; None for a conversation that was never seen.
        keep: Whether it is to be kept. What is not includes what would wait for an answer.
    """
    choose = transcript.settled if keep else transcript.every
    if thread is None or thread.last_seq == 0:
        fresh = choose(0)
        return News(tuple(fresh), length=fresh[-1] + 1 if fresh else 0)
    read = _read_back(transcript, thread)
    place = _place(read, thread)
    fresh = _unknown_ids(transcript, thread, read, [*place.missed, *choose(place.start)])
    edited = tuple(
        (index, known)
        for index, known in sorted(read.known.items())
        if transcript.may_keep(index) and read.fingerprint(index) != known.fingerprint
    )
    follows = {index: seq for index, seq in place.missed.items() if seq is not None}
    first = next((index for index in fresh if index >= place.start), None)
    if first is not None and place.seq is not None:
        follows[first] = place.seq
    length = fresh[-1] + 1 if fresh else thread.length
    return News(tuple(fresh), edited, follows, length, frozenset(read.found.keys() & fresh))


def _read_back(transcript: Transcript, thread: Thread) -> _Read:
    """Look ids up from the end on, until a stretch is known or everything was looked at."""
    read = _Read(transcript, len(transcript))
    size, in_a_row, lines = FIRST_CHUNK, 0, 0
    while read.start > 0 and in_a_row < STRETCH and lines < WINDOW:
        end, read.start = read.start, max(0, read.start - size)
        ids = {at: name for at in range(read.start, end) if (name := transcript.message_id(at))}
        found = thread.by_id(list(ids.values())) if ids else {}
        read.found.update({at: found[name] for at, name in ids.items() if name in found})
        read.known = _by_position(read, thread)
        for index in reversed(read.speech(read.start, end)):
            in_a_row = in_a_row + 1 if index in read.known else 0
            lines += bool(read.known)
            if in_a_row == STRETCH:
                break
        if not ids and not read.known and _where_it_stood(transcript, thread) is not None:
            break
        size = min(max(CHUNK, 2 * size), LARGEST_CHUNK)
    return read


def _by_position(read: _Read, thread: Thread) -> dict[int, Known]:
    """What is known by id; an id that stands on several messages is that of the one it was.

    Some servers give all their answers one id. What has the id of another message, and neither its
    words nor its place, is no edit of it.
    """
    owners: dict[int, int] = {}
    for index, known in sorted(read.found.items()):
        at = owners.get(known.seq)
        if at is None or read.fingerprint(at) != known.fingerprint:
            owners[known.seq] = index
    mine: dict[int, Known] = {}
    for index in sorted(owners.values()):
        known = read.found[index]
        if read.fingerprint(index) == known.fingerprint or _is_in_its_place(
            read, thread, mine, index
        ):
            mine[index] = known
    return mine


def _is_in_its_place(read: _Read, thread: Thread, mine: Mapping[int, Known], index: int) -> bool:
    """Whether what was said right before a message of other words does not belie its id.

    Args:
        read: The end of the list.
        thread: What is known of the conversation.
        mine: What stands before it and is the message of its id.
        index: Its position.
    """
    before, _ = next(read.transcript.speech(index), (-1, None))
    if before < read.start:
        return True
    seq = read.found[index].seq
    if before in mine:
        return mine[before].seq < seq
    earlier = [one for one in thread.tail(WINDOW) if one.seq < seq]
    return not earlier or earlier[-1].fingerprint == read.fingerprint(before)


def _place(read: _Read, thread: Thread) -> _Place:
    if not read.known:
        stood = _where_it_stood(read.transcript, thread)
        return stood or _by_words(read, thread, None)
    seq = read.known[read.last].seq
    after = _Place(read.last + 1, seq) if seq == thread.last_seq else _by_words(read, thread, seq)
    missed = {**_missed(read, thread), **after.missed}
    return _Place(after.start, after.seq, dict(sorted(missed.items())))


def _missed(read: _Read, thread: Thread) -> dict[int, int | None]:
    """What was said before the last known message, and is known by neither id nor place."""
    unknown = [at for at in read.speech(read.start, read.last) if not read.is_known(at)]
    if not unknown:
        return {}
    tail = thread.tail(WINDOW)
    reach = tail[0].seq if tail else 0
    older = thread.has([read.fingerprint(index) for index in unknown])
    anchors = sorted(read.known)
    taken: set[int] = set()
    missed: dict[int, int | None] = {}
    for index in unknown:
        before = max((at for at in anchors if at < index), default=None)
        low = 0 if before is None else read.known[before].seq
        high = read.known[min(at for at in anchors if at > index)].seq
        said = read.fingerprint(index)
        there = next(
            (
                one.seq
                for one in tail
                if low < one.seq < high and one.fingerprint == said and one.seq not in taken
            ),
            None,
        )
        if there is not None:
            taken.add(there)
        elif low + 1 >= reach or said not in older:
            missed[index] = low or None
    return missed


def _by_words(read: _Read, thread: Thread, seq: int | None) -> _Place:
    """Where what is new begins behind the last message known by id, told by what was said."""
    place = _follow(read, thread, _Place(read.last + 1, seq)) if seq is not None else _Place()
    tail = thread.tail(WINDOW)
    known = [one for one in tail if one.seq > (place.seq or 0)]
    is_all = len(tail) < WINDOW or len(known) < len(tail)
    spoken = read.speech(place.start, len(read.transcript))
    for cut in dict.fromkeys((max(0, len(spoken) - WINDOW), 0)):
        passed = [_said(read, index) for index in spoken[cut:]]
        shown = overlap(passed, [one.fingerprint for one in known], is_all=is_all)
        if shown is not None:
            last = known[shown.at + shown.length - 1].seq
            end = spoken[cut + shown.start + shown.length - 1] + 1
            before = spoken[cut : cut + shown.start]
            heard = thread.has([read.fingerprint(index) for index in before]) if before else set()
            missed = {at: place.seq for at in before if read.fingerprint(at) not in heard}
            return _follow(read, thread, _Place(end, last, missed))
    return place


def _said(read: _Read, index: int) -> Said:
    line = read.transcript.line(index)
    has_id = read.transcript.message_id(index) is not None and index not in read.found
    return Said(read.fingerprint(index), line is not None and line.starts_turn, has_id)


def _follow(read: _Read, thread: Thread, place: _Place) -> _Place:
    """Go on over messages that are known under other ids: the same turn, run again."""
    start, seq = place.start, place.seq
    if seq is None or seq == thread.last_seq:
        return place
    for index in range(place.start, len(read.transcript)):
        line = read.transcript.line(index)
        if line is None:
            continue
        known = thread.after(seq, line.fingerprint)
        if known is not None:
            start, seq = index + 1, known.seq
        elif line.is_speech:
            break
    return _Place(start, seq, place.missed)


def _where_it_stood(transcript: Transcript, thread: Thread) -> _Place | None:
    """The position of the last time, if the same was said up to there and there is more by now."""
    if not 0 < thread.length < len(transcript):
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
    return _Place(thread.length, tail[-1].seq)


def _unknown_ids(
    transcript: Transcript, thread: Thread, read: _Read, fresh: Sequence[int]
) -> list[int]:
    """What is fresh by its place and not known by its id."""
    unread = {
        index: name
        for index in fresh
        if index < read.start and (name := transcript.message_id(index))
    }
    names = list(unread.values())
    known: set[str] = set()
    for start in range(0, len(names), LARGEST_CHUNK):
        known.update(thread.by_id(names[start : start + LARGEST_CHUNK]))
    return [at for at in fresh if not read.is_known(at) and unread.get(at) not in known]
