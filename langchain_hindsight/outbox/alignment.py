"""Where a list of messages overlaps what is known of its conversation, told by its words alone.

Needed where ids say nothing: they are missing, or a client issued them anew. A run of known words
in the known order, with the list going on behind it, is the old window shown again; what is truly
said again comes after it. A single turn is only what it says it is: under ids of its own it is new.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

SURE = 3
"""How many lines in a row are taken for a conversation seen again, wherever they stand."""
_PAIR = 2


@dataclass(frozen=True, slots=True)
class Said:
    """A line of the list, as far as it matters here."""

    fingerprint: str
    starts_turn: bool
    has_id: bool


@dataclass(frozen=True, slots=True)
class Overlap:
    """A stretch of the list that is known, in the same order."""

    start: int
    """Where in the list it begins."""
    at: int
    """Where in what is known it begins."""
    length: int


def overlap(passed: Sequence[Said], known: Sequence[str], *, is_all: bool) -> Overlap | None:
    """The stretch of a list up to which it was seen before.

    Args:
        passed: The lines of the list, none of which is known by its id.
        known: The fingerprints of what is known, oldest first.
        is_all: Whether those are all that are known, rather than the last.

    Returns:
        The stretch, behind which everything is new; None where all of the list is.
    """
    if not passed or not known:
        return None
    ends = _ends_that_begin(passed, known)
    if ends and ends[-1] == len(passed) and not _is_shown_again(passed, known, ends, is_all=is_all):
        ends = ends[:-1]
        if not ends:
            return None
    if ends:
        return Overlap(0, len(known) - ends[-1], ends[-1])
    return None if _is_one_turn(passed) else _run(passed, known)


def _is_one_turn(passed: Sequence[Said]) -> bool:
    return passed[0].starts_turn and sum(one.starts_turn for one in passed) == 1


def _is_shown_again(
    passed: Sequence[Said], known: Sequence[str], ends: Sequence[int], *, is_all: bool
) -> bool:
    """Whether a list that is wholly the end of what is known brings nothing new.

    A window whose turns are all alike looks the same after one more of them: that one is kept.
    """
    has_ids = any(one.has_id for one in passed)
    if _is_one_turn(passed) or len(passed) < SURE:
        return not has_ids
    if not has_ids and is_all and len(known) == len(passed):
        return True
    return len(ends) == 1 or not _is_one_turn(passed[ends[-2] :])


def _ends_that_begin(passed: Sequence[Said], known: Sequence[str]) -> list[int]:
    """How many of the last known lines the list begins with: every number that fits, ascending.

    By the failure function of Knuth, Morris and Pratt, in linear time.
    """
    prints = [one.fingerprint for one in passed]
    back = _failures(prints)
    fits = 0
    for fingerprint in known[-len(prints) :]:
        while fits and (fits == len(prints) or prints[fits] != fingerprint):
            fits = back[fits - 1]
        if prints[fits] == fingerprint:
            fits += 1
    found = []
    while fits:
        found.append(fits)
        fits = back[fits - 1]
    return found[::-1]


def _failures(prints: Sequence[str]) -> list[int]:
    """For every prefix, the length of the longest shorter one that it ends with."""
    back = [0] * len(prints)
    fits = 0
    for at in range(1, len(prints)):
        while fits and prints[at] != prints[fits]:
            fits = back[fits - 1]
        if prints[at] == prints[fits]:
            fits += 1
        back[at] = fits
    return back


def _run(passed: Sequence[Said], known: Sequence[str]) -> Overlap | None:
    """The best run of the list that is known in the same order, if it convinces.

    One that reaches the end of what is known is better than a longer one, and a later is better
    than an earlier one.
    """
    where: dict[str, list[int]] = {}
    for position, fingerprint in enumerate(known):
        where.setdefault(fingerprint, []).append(position)
    best, runs = (False, 0, 0, 0), dict[int, int]()
    for ordinal, one in enumerate(passed):
        runs = {at: runs.get(at - 1, 0) + 1 for at in where.get(one.fingerprint, ())}
        for at, run in runs.items():
            reaches = at == len(known) - 1
            if _convinces(run, ordinal + 1 - run, len(passed), reaches=reaches):
                best = max(best, (reaches, run, at, -ordinal))
    _, run, at, last = best
    return Overlap(1 - last - run, at + 1 - run, run) if run else None


def _convinces(run: int, start: int, passed: int, *, reaches: bool) -> bool:
    """Whether a run is a conversation seen again, rather than the same words said anew."""
    return run >= SURE or (run == _PAIR < passed and (start == 0 or reaches))
