"""Every way in which a program meets the memory, each as a question that gives back some text.

A case that struck one adapter is asked of all of them, sync and async.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pytest
from langchain.agents import create_agent
from langchain_core.messages import HumanMessage
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from remembering import model_of

from langchain_hindsight import (
    HindsightMemory,
    HindsightMiddleware,
    HindsightRetriever,
    MemoryState,
    ainject_memory,
    create_hindsight_tools,
    create_recall_node,
    create_retain_node,
    inject_memory,
)

both = pytest.mark.parametrize("use_async", [False, True], ids=["sync", "async"])


def workflow(memory, model, *, use_async, tools=(), checkpointer=None, recalls=None):
    """A graph of recall, model, tools and retain; ``recalls`` stand side by side."""

    def call_model(state: MemoryState) -> dict:
        return {"messages": [model.invoke(inject_memory(state))]}

    async def acall_model(state: MemoryState) -> dict:
        return {"messages": [await model.ainvoke(await ainject_memory(state))]}

    graph = StateGraph(MessagesState)
    graph.add_node("model", acall_model if use_async else call_model)
    graph.add_node("tools", ToolNode(list(tools)))
    graph.add_node("retain", create_retain_node(memory))
    for number, one in enumerate(recalls or [memory]):
        graph.add_node(f"recall-{number}", create_recall_node(one))
        graph.add_edge(START, f"recall-{number}")
        graph.add_edge(f"recall-{number}", "model")
    graph.add_conditional_edges("model", tools_condition, {"tools": "tools", END: "retain"})
    graph.add_edge("tools", "model")
    return graph.compile(checkpointer=checkpointer)


def agent(memory, model, *, use_async, tools=(), checkpointer=None, **settings):
    """An agent with the middleware; it serves both kinds of callers."""
    del use_async
    middleware = [HindsightMiddleware(memory)]
    return create_agent(
        model, list(tools), middleware=middleware, checkpointer=checkpointer, **settings
    )


@dataclass(frozen=True, slots=True)
class Surface:
    """One way in, in its two forms: a memory and a question in, what became of it out."""

    ask: Callable[..., str]
    aask: Callable[..., Awaitable[str]]

    def run(self, memory, question, *, use_async):
        """Ask in one of the two forms, from where no loop is running."""
        if use_async:
            return asyncio.run(self.aask(memory, question))
        return self.ask(memory, question)


def _of_graph(build):
    """What the model was sent last, after a turn that also retains."""

    def prepared(memory, question, *, use_async):
        model = model_of("Fine.")
        given = {"messages": [HumanMessage(question)]}
        return model, build(memory, model, use_async=use_async), given

    def ask(memory, question):
        model, graph, given = prepared(memory, question, use_async=False)
        graph.invoke(given)
        return model.sent[-1][-1].content

    async def aask(memory, question):
        model, graph, given = prepared(memory, question, use_async=True)
        await graph.ainvoke(given)
        return model.sent[-1][-1].content

    return Surface(ask, aask)


async def _arecall(memory, question):
    return (await memory.arecall(question)).text


async def _aretrieve(memory, question):
    return str(await HindsightRetriever(memory=memory).ainvoke(question))


async def _aload(memory, question):
    classic = HindsightMemory(memory=memory)
    loaded = await classic.aload_memory_variables({"input": question})
    await classic.asave_context({"input": question}, {"output": "Fine."})
    return loaded["history"]


def _load(memory, question):
    classic = HindsightMemory(memory=memory)
    loaded = classic.load_memory_variables({"input": question})
    classic.save_context({"input": question}, {"output": "Fine."})
    return loaded["history"]


def called(memory, name, **args):
    """A tool and a model's call of it."""
    tool = next(one for one in create_hindsight_tools(memory) if one.name == name)
    return tool, {"name": name, "args": args, "id": "c1", "type": "tool_call"}


def _use_tool(memory, question):
    tool, call = called(memory, "hindsight_recall", query=question)
    return tool.invoke(call).content


async def _ause_tool(memory, question):
    tool, call = called(memory, "hindsight_recall", query=question)
    return (await tool.ainvoke(call)).content


async def _ainject(memory, question):
    sent = await ainject_memory({"messages": [HumanMessage(question)]}, memory=memory)
    return sent[-1].content


SURFACES = {
    "memory": Surface(lambda memory, question: memory.recall(question).text, _arecall),
    "retriever": Surface(
        lambda memory, question: str(HindsightRetriever(memory=memory).invoke(question)),
        _aretrieve,
    ),
    "classic": Surface(_load, _aload),
    "tool": Surface(_use_tool, _ause_tool),
    "inject": Surface(
        lambda memory, question: (
            inject_memory({"messages": [HumanMessage(question)]}, memory=memory)[-1].content
        ),
        _ainject,
    ),
    "nodes": _of_graph(workflow),
    "middleware": _of_graph(agent),
}

every_surface = pytest.mark.parametrize("surface", SURFACES.values(), ids=SURFACES.keys())
every_graph = pytest.mark.parametrize("build", [workflow, agent], ids=["nodes", "middleware"])
