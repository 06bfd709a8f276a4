"""When a failing server is asked, and when it is left alone."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_hindsight.breaker import Breaker


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def breaker(clock):
    return Breaker(failures=2, first_pause=2, longest_pause=10, clock=clock)


def tripped(breaker):
    for _ in range(2):
        breaker.failed(breaker.verdict())
    return breaker


def test_one_failure_skips_nothing(breaker):
    breaker.failed(breaker.verdict())
    assert breaker.verdict() == "ask"


def test_failures_in_a_row_skip_until_the_pause_is_over(breaker, clock):
    tripped(breaker)
    assert breaker.verdict() == "skip"
    assert breaker.seconds_left == 2
    clock.now += 1.9
    assert breaker.verdict() == "skip"
    clock.now += 0.2
    assert breaker.verdict() == "probe"


def test_an_answer_in_between_begins_the_count_anew(breaker):
    for _ in range(5):
        breaker.failed(breaker.verdict())
        breaker.succeeded()
    assert breaker.verdict() == "ask"


def test_only_one_probes_at_a_time(breaker, clock):
    tripped(breaker)
    clock.now += 3
    with ThreadPoolExecutor(8) as pool:
        verdicts = list(pool.map(lambda _: breaker.verdict(), range(40)))
    assert sorted(verdicts) == ["probe"] + ["skip"] * 39


def test_a_probe_that_is_answered_ends_it(breaker, clock):
    tripped(breaker)
    clock.now += 3
    breaker.verdict()
    breaker.succeeded()
    assert breaker.verdict() == "ask"
    breaker.failed("ask")
    assert breaker.verdict() == "ask"


def test_each_probe_that_fails_doubles_the_pause_up_to_its_bound(breaker, clock):
    tripped(breaker)
    pauses = []
    for _ in range(5):
        pauses.append(breaker.seconds_left)
        clock.now += pauses[-1]
        assert breaker.verdict() == "probe"
        breaker.failed("probe")
    assert pauses == [2, 4, 8, 10, 10]


def test_what_fails_late_makes_no_pause_longer(breaker):
    tripped(breaker)
    for _ in range(50):
        breaker.failed("ask")
    assert breaker.seconds_left == 2


def test_a_probe_that_is_given_up_lets_the_next_try_at_once(breaker, clock):
    tripped(breaker)
    clock.now += 3
    assert breaker.verdict() == "probe"
    breaker.undecided("probe")
    assert breaker.verdict() == "probe"


def test_a_probe_that_is_never_heard_of_does_not_close_the_door_for_good(breaker, clock):
    tripped(breaker)
    clock.now += 3
    assert breaker.verdict() == "probe"
    clock.now += 1000
    assert breaker.verdict() == "probe"


@given(st.lists(st.tuples(st.sampled_from("fsu"), st.floats(0, 30))))
def test_nothing_that_happens_skips_for_longer_than_the_bound(events):
    clock = Clock()
    breaker = Breaker(failures=2, first_pause=2, longest_pause=10, clock=clock)
    for happens, later in events:
        clock.now += later
        verdict = breaker.verdict()
        if verdict == "skip":
            assert breaker.seconds_left <= 10
        elif happens == "f":
            breaker.failed(verdict)
        elif happens == "s":
            breaker.succeeded()
        else:
            breaker.undecided(verdict)
    clock.now += 10
    assert breaker.verdict() != "skip"
