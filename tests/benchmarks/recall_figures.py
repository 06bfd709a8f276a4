"""Recall beside the client's own: what both banks cost, what we add, what a crowd gets through."""

from __future__ import annotations

import asyncio
import importlib.util
import itertools
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from both_sides import LIFE, PROJECT, BothSides, Places, both_sides
from figures import Bar, Figure, p95
from material import memories, questions, runs_of
from side_by_side import side_by_side

_STORED = 300
_CROWD = 200
_HELD_QUESTIONS = 20


async def fill_banks(places: Places) -> None:
    """Give both banks of the real server something to find."""
    async with both_sides(places.server_url, places.folder) as both:
        for bank_id, tags in ((PROJECT.bank_id, [PROJECT.tag]), (LIFE.bank_id, [])):
            items = [
                {"content": text, "document_id": f"{bank_id}-{number}", "tags": tags}
                for number, text in enumerate(memories(_STORED, bank_id))
            ]
            for batch in (items[start : start + 100] for start in range(0, len(items), 100)):
                await both.client.aretain_batch(bank_id, batch)


async def against_the_server(places: Places) -> list[Figure]:
    """Dual-bank recall beside two of the client's own at once, on a real server."""
    async with both_sides(places.server_url, places.folder) as both:
        sides = {"ours": both.ours, "two raw at once": both.raw_both}
        asked = questions()
        await side_by_side(sides, runs_of(asked, 1, 10))
        times = await side_by_side(sides, runs_of(asked, places.runs, places.calls))
    name = "dual recall ÷ two raw at once, real server"
    return [
        times.ratio(f"{name}, median", *sides, Bar(1.05)),
        times.ratio(f"{name}, p95", *sides, Bar(1.10), p95),
    ]


async def against_the_stub(places: Places) -> list[Figure]:
    """Dual-bank recall beside one of the client's own, on a server that takes 50 ms."""
    async with both_sides(places.stub_url, places.folder) as both:
        sides = {"ours": both.ours, "one raw": both.raw_project, "two raw at once": both.raw_both}
        asked = questions()
        await side_by_side(sides, runs_of(asked, 1, 10))
        times = await side_by_side(sides, runs_of(asked, places.runs, places.calls))
    name = "stub 50 ms, median"
    return [
        times.ratio(f"dual recall ÷ one raw, {name}", "ours", "one raw", Bar(1.08)),
        times.ratio(f"  two raw at once ÷ one raw, {name}", "two raw at once", "one raw", None),
    ]


async def what_we_add(places: Places) -> list[Figure]:
    """What a dual-bank recall takes longer than the client's own, with 60 candidates a bank."""
    async with both_sides(places.quick_stub_url, places.folder) as both:
        sides = {"ours": both.ours, "two raw at once": both.raw_both}
        asked = questions()
        await side_by_side(sides, runs_of(asked, 1, 20))
        times = await side_by_side(sides, runs_of(asked, places.runs, 2 * places.calls))
    name = "added to a dual recall of 2 x 60 candidates, median"
    return [times.difference(name, *sides, Bar(2.5))]


async def the_same_again(places: Places) -> list[Figure]:
    """A question within the cache time, beside asking the server."""
    async with both_sides(places.server_url, places.folder, cache_ttl=3600) as both:
        asked = list(itertools.islice(questions(), _HELD_QUESTIONS))
        for question in asked:
            await both.ours(question)
            await both.raw_project(question)
        sides = {"ours": both.ours, "one raw": both.raw_project}
        times = await side_by_side(sides, [asked] * places.runs)
    name = "the same question again ÷ one raw, real server, median"
    return [times.ratio(name, *sides, Bar(0.02))]


async def in_a_graph(places: Places) -> list[Figure]:
    """One dual-bank node beside two hindsight-langgraph nodes in sequence."""
    if importlib.util.find_spec("hindsight_langgraph") is None:
        return []
    async with both_sides(places.stub_url, places.folder) as both:
        ours, theirs = _our_graph(both), _their_graph(both)
        sides = {"ours": _turn(ours), "two hindsight-langgraph nodes": _turn(theirs)}
        asked = questions()
        await side_by_side(sides, runs_of(asked, 1, 5))
        times = await side_by_side(sides, runs_of(asked, places.runs, places.calls))
    name = "dual recall in a graph ÷ two hindsight-langgraph nodes, stub 50 ms, median"
    return [times.ratio(name, *sides, Bar(0.55))]


async def a_crowd(places: Places) -> list[Figure]:
    """Turns at once on one memory, beside as many on one client."""
    figures = []
    for where, url in (("real server", places.server_url), ("stub 50 ms", places.stub_url)):
        async with both_sides(url, places.folder) as both:
            asked = questions()
            crowds = [runs_of(asked, 1, _CROWD) for _ in range(places.crowds)]
            sides = {"two raw at once": _at_once(both.raw_both), "ours": _at_once(both.ours)}
            await side_by_side(sides, [runs_of(asked, 1, 5)])
            times = await side_by_side(sides, crowds)
        name = f"{_CROWD} turns at once: throughput ÷ raw, {where}"
        figures.append(times.ratio(name, *sides, Bar(0.95, at_least=True)))
    return figures


def _at_once(
    side: Callable[[str], Awaitable[object]],
) -> Callable[[Sequence[str]], Awaitable[object]]:
    async def crowd(asked: Sequence[str]) -> object:
        return await asyncio.gather(*(side(question) for question in asked))

    return crowd


def _our_graph(both: BothSides) -> Any:
    from langgraph.graph import END, START, StateGraph

    from langchain_hindsight import MemoryState, create_recall_node

    graph = StateGraph(MemoryState)
    graph.add_node("recall", create_recall_node(both.memory))
    graph.add_edge(START, "recall")
    graph.add_edge("recall", END)
    return graph.compile()


def _their_graph(both: BothSides) -> Any:
    import hindsight_langgraph
    from langgraph.graph import END, START, MessagesState, StateGraph

    graph = StateGraph(MessagesState)
    for bank in (PROJECT, LIFE):
        node = hindsight_langgraph.create_recall_node(client=both.client, bank_id=bank.bank_id)
        graph.add_node(bank.bank_id, node)
    graph.add_edge(START, PROJECT.bank_id)
    graph.add_edge(PROJECT.bank_id, LIFE.bank_id)
    graph.add_edge(LIFE.bank_id, END)
    return graph.compile()


def _turn(graph: Any) -> Callable[[str], Awaitable[object]]:
    async def turn(question: str) -> object:
        return await graph.ainvoke({"messages": [("human", question)]})

    return turn
