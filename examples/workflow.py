"""A LangGraph workflow that recalls ahead of its model and retains behind it.

Run it with ``python examples/workflow.py``, or with ``--url`` for a Hindsight server of yours.
"""

from __future__ import annotations

import asyncio

from demo_model import DemoModel
from hindsight_server import hindsight_server
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph

from langchain_hindsight import (
    DualBankMemory,
    MemoryState,
    create_recall_node,
    create_retain_node,
    inject_memory,
)

model = DemoModel()  # yours: any chat model


def call_model(state: MemoryState) -> MessagesState:
    """Send the conversation with what was recalled; only the answer goes into the state."""
    return {"messages": [model.invoke(inject_memory(state))]}


def main() -> None:
    with (
        hindsight_server() as url,
        DualBankMemory(
            url=url,
            project_bank="example-workflow",
            project_id="billing",
            life_bank="example-workflow-life-{user_id}",
        ) as memory,
    ):
        graph = StateGraph(MessagesState)
        graph.add_node("recall", create_recall_node(memory))
        graph.add_node("model", call_model)
        graph.add_node("retain", create_retain_node(memory))
        graph.add_edge(START, "recall")
        graph.add_edge("recall", "model")
        graph.add_edge("model", "retain")
        workflow = graph.compile(checkpointer=InMemorySaver())

        monday: RunnableConfig = {"configurable": {"thread_id": "monday", "user_id": "ada"}}
        said = "The billing service keeps its data in PostgreSQL 18."
        state = workflow.invoke({"messages": [("human", said)]}, monday)
        print(f"monday   > {said}\n           {state['messages'][-1].text}")

        # Nothing of the workflow writes to the Life Bank: this is somebody's explicit wish.
        memory.retain_life("Ada wants measurements in metric units.", monday)
        memory.flush()  # the outbox delivers in its own time: here the next thread waits for it

        tuesday: RunnableConfig = {"configurable": {"thread_id": "tuesday", "user_id": "ada"}}
        asked = "Where does the billing service keep its data?"
        state = workflow.invoke({"messages": [("human", asked)]}, tuesday)
        print(f"tuesday  > {asked}\n           {state['messages'][-1].text}")

        async def ask(asked: str) -> None:
            state = await workflow.ainvoke({"messages": [("human", asked)]}, tuesday)
            print(f"tuesday  > {asked}\n           {state['messages'][-1].text}")

        asyncio.run(ask("Which units do my measurements come in?"))


if __name__ == "__main__":
    main()
