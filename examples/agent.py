"""An agent that remembers from one thread to the next.

Run it with ``python examples/agent.py``, or with ``--url`` for a Hindsight server of yours.
"""

from __future__ import annotations

import asyncio

from demo_model import DemoModel
from hindsight_server import hindsight_server
from langchain.agents import create_agent
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver

from langchain_hindsight import DualBankMemory, HindsightMiddleware, create_hindsight_tools


def main() -> None:
    with (
        hindsight_server() as url,
        DualBankMemory(
            url=url,
            project_bank="example-agent",
            project_id="billing",
            life_bank="example-agent-life-{user_id}",
        ) as memory,
    ):
        agent = create_agent(
            DemoModel(),  # yours: any chat model, or its name, such as "openai:gpt-5"
            tools=create_hindsight_tools(memory),
            middleware=[HindsightMiddleware(memory)],
            checkpointer=InMemorySaver(),
        )

        monday: RunnableConfig = {"configurable": {"thread_id": "monday", "user_id": "ada"}}
        for said in (
            "The billing service is deployed on Fridays at noon.",
            "Please remember that I prefer answers with an example.",
        ):
            reply = agent.invoke({"messages": [("human", said)]}, monday)
            print(f"monday   > {said}\n           {reply['messages'][-1].text}")

        memory.flush()  # the outbox delivers in its own time: here the next thread waits for it

        tuesday: RunnableConfig = {"configurable": {"thread_id": "tuesday", "user_id": "ada"}}
        asked = "When is the billing service deployed?"
        reply = agent.invoke({"messages": [("human", asked)]}, tuesday)
        print(f"tuesday  > {asked}\n           {reply['messages'][-1].text}")

        async def ask(asked: str) -> None:
            reply = await agent.ainvoke({"messages": [("human", asked)]}, tuesday)
            print(f"tuesday  > {asked}\n           {reply['messages'][-1].text}")

        asyncio.run(ask("Which answers do I prefer?"))


if __name__ == "__main__":
    main()
