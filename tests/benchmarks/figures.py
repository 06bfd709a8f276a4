"""What a benchmark says: a figure of several runs, with its spread and the bar it is held to.

Pure: no clock, no network.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Summary = Callable[[Sequence[float]], float]


def median(times: Sequence[float]) -> float:
    """The middle one."""
    return statistics.median(times)


def p95(times: Sequence[float]) -> float:
    """The time that 95 of 100 stay under; the longest where there are too few to say."""
    if len(times) < 2:
        return max(times)
    return statistics.quantiles(times, n=20, method="inclusive")[-1]


@dataclass(frozen=True, slots=True)
class Bar:
    """What a figure has to reach."""

    limit: float
    at_least: bool = False
    exactly: bool = False

    def is_met(self, value: float) -> bool:
        """Whether a value reaches it."""
        if self.exactly:
            return value == self.limit
        return value >= self.limit if self.at_least else value <= self.limit

    def __str__(self) -> str:
        """As a table shows it."""
        if self.exactly:
            return f"= {self.limit:g}"
        return f"{'≥' if self.at_least else '≤'} {self.limit:g}"


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the report."""

    name: str
    values: tuple[float, ...]
    """One of each run; the figure is their median."""
    unit: str = "x"
    bar: Bar | None = None
    sides: Mapping[str, float] | None = None
    """The medians behind it, in milliseconds."""

    @property
    def value(self) -> float:
        """The median of the runs."""
        return median(self.values)

    @property
    def passed(self) -> bool | None:
        """Whether the bar is met; None where there is none."""
        return None if self.bar is None else self.bar.is_met(self.value)

    def as_json(self) -> dict[str, Any]:
        """All of it, for a file."""
        return {
            "name": self.name,
            "value": self.value,
            "unit": self.unit,
            "bar": None if self.bar is None else str(self.bar),
            "passed": self.passed,
            "runs": list(self.values),
            "median_ms": dict(self.sides or {}),
        }


@dataclass(frozen=True, slots=True)
class Timings:
    """What was measured side by side: for each side, the seconds of each call of each run."""

    runs: Mapping[str, Sequence[Sequence[float]]]

    def each_run(self, side: str, of: Summary = median) -> list[float]:
        """One value a run, in seconds."""
        return [of(run) for run in self.runs[side]]

    def ratio(self, name: str, side: str, to: str, bar: Bar | None, of: Summary = median) -> Figure:
        """One side divided by another, run by run."""
        values = zip(self.each_run(side, of), self.each_run(to, of), strict=True)
        return Figure(name, tuple(a / b for a, b in values), "x", bar, self._medians(side, to))

    def difference(self, name: str, side: str, to: str, bar: Bar | None) -> Figure:
        """What one side takes longer than another, in milliseconds, run by run."""
        values = zip(self.each_run(side), self.each_run(to), strict=True)
        more = tuple((a - b) * 1000 for a, b in values)
        return Figure(name, more, "ms", bar, self._medians(side, to))

    def milliseconds(self, name: str, side: str, bar: Bar | None) -> Figure:
        """One side's own time."""
        return Figure(name, tuple(one * 1000 for one in self.each_run(side)), "ms", bar)

    def _medians(self, *sides: str) -> dict[str, float]:
        return {side: median(self.each_run(side)) * 1000 for side in sides}
