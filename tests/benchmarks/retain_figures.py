"""The hand-off of a turn: what the agent waits for, beside awaiting the client's own retain."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from both_sides import PROJECT, BothSides, Places, both_sides
from figures import Bar, Figure, Timings
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from material import turns
from side_by_side import side_by_side

from langchain_hindsight import RetainReceipt

Turn = tuple[HumanMessage, AIMessage]

_SHORT, _LONG = 10, 10_000
_TURNS_A_THREAD = 5
_FLUSH = 300.0


class _Thread:
    """A conversation that grows by turns and is retained after each, as an agent's is."""

    def __init__(self, both: BothSides, name: str, length: int = 0) -> None:
        self._both = both
        self._name = name
        self._messages: list[BaseMessage] = []
        for turn in itertools.islice(_turns(name), length // 2):
            self._messages += turn

    def begin(self) -> None:
        """Retain what there is of it."""
        self._both.memory.retain(self._messages, self._name)

    async def hand_off(self, turn: Turn) -> RetainReceipt:
        """Retain one more turn, as synchronous code does."""
        self._messages += turn
        return _queued(self._both.memory.retain(self._messages, self._name))

    async def ahand_off(self, turn: Turn) -> RetainReceipt:
        """Retain one more turn, as asynchronous code does."""
        self._messages += turn
        return _queued(await self._both.memory.aretain(self._messages, self._name))


async def hand_off(places: Places) -> list[Figure]:
    """A turn of two messages to the outbox, beside awaiting the server for the same text."""
    async with both_sides(places.server_url, places.folder) as both:

        async def raw(turn: Turn) -> object:
            content = f"Human: {turn[0].content}\nAI: {turn[1].content}"
            return await both.client.aretain("bench-raw", content, tags=[PROJECT.tag])

        async def delivered() -> object:
            return await both.memory.aflush(_FLUSH)

        sides = {
            "retain": _Thread(both, "sync").hand_off,
            "aretain": _Thread(both, "async").ahand_off,
            "raw aretain": raw,
        }
        said = _turns("new")
        runs = [list(itertools.islice(said, places.calls // 3)) for _ in range(places.runs + 1)]
        await side_by_side(sides, runs[:1], after_each=delivered)
        times = await side_by_side(sides, runs[1:], after_each=delivered)
        sides |= {
            "retain": _Thread(both, "sync-row").hand_off,
            "aretain": _Thread(both, "async-row").ahand_off,
        }
        in_a_row: dict[str, list[Sequence[float]]] = {side: [] for side in sides}
        for run in runs[1:]:
            for side, call in sides.items():
                in_a_row[side] += (await side_by_side({side: call}, [run])).runs[side]
        await delivered()
    name = "hand-off of a two-message turn, SQLite, median"
    ratio = "awaiting raw aretain of the same text ÷ hand-off by aretain, median"
    figures = []
    for when, measured in (("turn upon turn", Timings(in_a_row)), ("each after a delivery", times)):
        figures += [
            measured.milliseconds(f"{name}: retain, {when}", "retain", Bar(1)),
            measured.milliseconds(f"{name}: aretain, {when}", "aretain", Bar(1)),
            measured.ratio(f"{ratio}, {when}", "raw aretain", "aretain", Bar(30, at_least=True)),
        ]
    return figures


async def a_long_thread(places: Places) -> list[Figure]:
    """A turn at the end of a very long thread, beside one of a short thread.

    A short thread is left after a few turns, so that it stays one.
    """
    async with both_sides(places.quick_stub_url, places.folder) as both:

        async def delivered() -> object:
            return await both.memory.aflush(_FLUSH)

        long = _Thread(both, "long", _LONG)
        long.begin()
        runs = places.calls // _TURNS_A_THREAD
        short = [_Thread(both, f"short-{number}", _SHORT) for number in range(runs)]
        for thread in short:
            thread.begin()
        await delivered()
        said, ratios, sides_ms = _turns("new"), [], []
        for thread in short:
            sides = {"long": long.hand_off, "short": thread.hand_off}
            run = list(itertools.islice(said, _TURNS_A_THREAD))
            times = await side_by_side(sides, [run], after_each=delivered)
            ratio = times.ratio("", "long", "short", None)
            ratios.append(ratio.value)
            sides_ms.append(ratio.sides or {})
    name = f"hand-off at {_LONG:,} messages ÷ at {_SHORT}, median"
    middle = sides_ms[sorted(range(runs), key=lambda run: ratios[run])[runs // 2]]
    return [Figure(name, tuple(ratios), "x", Bar(1.2), middle)]


def _turns(name: str) -> Iterator[Turn]:
    """Turns as an agent's state holds them."""
    for number, (asked, answered) in enumerate(turns()):
        yield (
            HumanMessage(asked, id=f"{name}-{number}-human"),
            AIMessage(answered, id=f"{name}-{number}-ai"),
        )


def _queued(receipt: RetainReceipt) -> RetainReceipt:
    """A receipt of both messages written to disk.

    Raises:
        RuntimeError: If they were not, which would measure nothing.
    """
    if receipt.status != "queued" or receipt.items != 2 or receipt.reason:
        msg = f"A turn was not handed off: {receipt}"
        raise RuntimeError(msg)
    return receipt
