"""What the benchmarks make of the times they measure."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest


@pytest.fixture
def figures(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "benchmarks"))
    return importlib.import_module("figures")


def test_a_ratio_is_taken_run_by_run(figures):
    times = figures.Timings({"ours": [[2.0, 2.0], [9.0, 9.0]], "raw": [[1.0, 1.0], [3.0, 3.0]]})
    figure = times.ratio("r", "ours", "raw", figures.Bar(2.4))
    assert figure.values == (2.0, 3.0)
    assert figure.value == 2.5
    assert figure.passed is False


def test_a_difference_is_in_milliseconds(figures):
    times = figures.Timings({"ours": [[0.005]], "raw": [[0.003]]})
    assert times.difference("d", "ours", "raw", None).value == pytest.approx(2.0)


def test_a_bar_is_met_when_it_is_just_reached(figures):
    assert figures.Bar(1.05).is_met(1.05)
    assert not figures.Bar(1.05).is_met(1.06)
    assert figures.Bar(30, at_least=True).is_met(30)
    assert not figures.Bar(30, at_least=True).is_met(29)
    assert figures.Bar(1, exactly=True).is_met(1)
    assert not figures.Bar(1, exactly=True).is_met(0)


def test_without_a_bar_nothing_is_passed_or_missed(figures):
    assert figures.Figure("f", (1.0,)).passed is None


def test_p95_lets_no_single_slow_call_decide(figures):
    assert figures.p95([1.0] * 99 + [100.0]) == pytest.approx(1.0)
    assert figures.p95([1.0] * 90 + [100.0] * 10) == pytest.approx(100.0)
    assert figures.p95([3.0]) == 3.0
