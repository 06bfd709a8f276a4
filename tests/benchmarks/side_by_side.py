"""Measures several ways of doing one thing, in turn, so that noise falls on all alike."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from time import perf_counter
from typing import TypeVar

from figures import Timings

T = TypeVar("T")
Side = Callable[[T], Awaitable[object]]


async def side_by_side(
    sides: Mapping[str, Side[T]],
    runs: Sequence[Sequence[T]],
    *,
    after_each: Callable[[], Awaitable[object]] | None = None,
) -> Timings:
    """Time every side on every input.

    Args:
        sides: What to compare, by name.
        runs: The inputs of each run; each side gets each input, and another side begins each time.
        after_each: Awaited after each call, outside the clock.
    """
    names = list(sides)
    times: dict[str, list[list[float]]] = {name: [] for name in names}
    first = 0
    for run in runs:
        for seconds in times.values():
            seconds.append([])
        for given in run:
            first = (first + 1) % len(names)
            for name in names[first:] + names[:first]:
                started = perf_counter()
                await sides[name](given)
                times[name][-1].append(perf_counter() - started)
                if after_each is not None:
                    await after_each()
    return Timings(times)
