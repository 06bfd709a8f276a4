"""Whole turns: how often one recalls, whatever it asks the model, and what many leave behind."""

from __future__ import annotations

import asyncio
import gc
import itertools
from collections.abc import Sequence
from typing import Any

import psutil
from both_sides import LIFE, PROJECT, Places, both_sides, found
from figures import Bar, Figure
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from material import questions, turns

_MODEL_CALLS = 10
_DISTINCT = 1_000
_AT_ONCE = 20
_FLUSH = 300.0
_MEGABYTE = 2**20


@tool
def clock() -> str:
    """Tell the time."""
    return "It is noon."


class _Busy(BaseChatModel):
    """Asks for the time until it has asked often enough, then answers."""

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        said = list(itertools.takewhile(lambda one: one.type != "human", reversed(messages)))
        number = sum(isinstance(one, AIMessage) for one in said)
        calls = [{"name": "clock", "args": {}, "id": f"call-{number}"}]
        done = number == _MODEL_CALLS - 1
        answer = AIMessage("Noon.") if done else AIMessage("", tool_calls=calls)
        return ChatResult(generations=[ChatGeneration(message=answer)])

    def bind_tools(self, tools: Sequence[Any], **_: Any) -> _Busy:  # type: ignore[override]
        return self

    @property
    def _llm_type(self) -> str:
        return "busy"


async def ten_model_calls(places: Places) -> list[Figure]:
    """Recalls of a bank in a turn of ten model calls, as the server counts them."""
    from langchain.agents import create_agent

    from langchain_hindsight import HindsightMiddleware

    counts: list[float] = []
    async with both_sides(places.quick_stub_url, places.folder) as both:
        agent = create_agent(_Busy(), [clock], middleware=[HindsightMiddleware(both.memory)])
        for number, question in enumerate(itertools.islice(questions(), places.runs)):
            before = await places.recalls()
            thread = {"configurable": {"thread_id": f"busy-{number}"}}
            state = await agent.ainvoke({"messages": [HumanMessage(question)]}, thread)
            assert sum(isinstance(one, AIMessage) for one in state["messages"]) == _MODEL_CALLS
            after = await places.recalls()
            banks = (PROJECT.bank_id, LIFE.bank_id)
            counts += [after.get(bank, 0) - before.get(bank, 0) for bank in banks]
        await both.memory.aflush(_FLUSH)
    name = f"recalls a bank in a turn of {_MODEL_CALLS} model calls"
    return [Figure(name, tuple(counts), "", Bar(1, exactly=True))]


async def memory_held(places: Places) -> list[Figure]:
    """What the process holds after many turns of few questions, beside half as many."""
    asked = list(itertools.islice(turns(), _DISTINCT))
    held: list[float] = []
    async with both_sides(places.quick_stub_url, places.folder, cache_ttl=60) as both:

        async def turn(number: int) -> None:
            question, answer = asked[number % _DISTINCT]
            thread = {"configurable": {"thread_id": f"held-{number}"}}
            person = HumanMessage(question, id=f"held-{number}")
            found(await both.memory.arecall_turn([person], thread))
            said = [person, AIMessage(answer, id=f"held-{number}-ai")]
            (await both.memory.aretain(said, config=thread)).raise_for_error()

        for half in (range(places.turns // 2), range(places.turns // 2, places.turns)):
            for start in half[::_AT_ONCE]:
                await asyncio.gather(*(turn(start + one) for one in range(_AT_ONCE)))
            await both.memory.aflush(_FLUSH)
            gc.collect()
            held.append(psutil.Process().memory_info().rss / _MEGABYTE)
    name = f"memory held after {places.turns:,} turns ÷ after {places.turns // 2:,}"
    sides = {"after half, MB": held[0], "after all, MB": held[1]}
    return [Figure(f"{name}, {_DISTINCT:,} questions", (held[1] / held[0],), "x", Bar(1.02), sides)]
