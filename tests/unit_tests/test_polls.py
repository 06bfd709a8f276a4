from __future__ import annotations

from itertools import pairwise

import pytest

from langchain_hindsight.outbox.polls import FIRST, LONGEST, Polls


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def polls(clock):
    return Polls(clock)


def looks(polls, clock, operations, seconds):
    """When each was looked at, where none ever ends."""
    end = clock.now + seconds
    seen = {one: [] for one in operations}
    while clock.now < end:
        for one in polls.due(operations):
            seen[one].append(clock.now)
            polls.put_off(one)
        clock.now += polls.wait() or 1e-6
    return seen


def test_a_request_is_looked_at_ever_more_rarely(polls, clock):
    started = clock.now
    at = looks(polls, clock, ["one"], 60)["one"]
    assert at[0] - started == pytest.approx(FIRST, abs=1e-3)
    pauses = [after - before for before, after in pairwise(at)]
    assert pauses == sorted(pauses)
    assert pauses[-1] == pytest.approx(LONGEST, abs=1e-3)


def test_a_younger_request_does_not_have_the_older_ones_looked_at_as_often(polls, clock):
    looks(polls, clock, ["old"], 30)
    seen = looks(polls, clock, ["old", "young"], 2)
    assert len(seen["young"]) > 4
    assert len(seen["old"]) <= 1


def test_whoever_is_in_a_hurry_has_all_looked_at_at_once(polls, clock):
    looks(polls, clock, ["one", "other"], 30)
    polls.hurry()
    assert polls.due(["one", "other"]) == ["one", "other"]
    polls.put_off("one")
    clock.now += FIRST
    assert "one" in polls.due(["one", "other"])


def test_what_has_ended_is_forgotten(polls, clock):
    looks(polls, clock, ["one"], 30)
    assert polls.due([]) == []
    assert polls.wait() == LONGEST
    assert polls.due(["one"]) == []
    clock.now += FIRST
    assert polls.due(["one"]) == ["one"]


def test_a_wait_is_never_negative(polls, clock):
    polls.due(["one"])
    clock.now += 100
    assert polls.wait() == 0
