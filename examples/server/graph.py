"""One agent for many people, with banks of their own for each who has signed in.

The banks are named by ``langgraph_auth_user_id``, which the LangGraph server alone sets: what a
client writes into its config or context chooses no bank. The memory is made where the module is
imported, since making it reads configuration files.
"""

from __future__ import annotations

from demo_model import DemoModel
from langchain.agents import create_agent

from langchain_hindsight import DualBankMemory, HindsightMiddleware, create_hindsight_tools

memory = DualBankMemory(
    # A team that may read what each of them says to the agent shares one: leave the person out.
    project_bank="example-server-work-{langgraph_auth_user_id}",
    project_id="example-server",
    life_bank="example-server-life-{langgraph_auth_user_id}",
)

graph = create_agent(
    DemoModel(),  # yours: any chat model, or its name, such as "openai:gpt-5"
    tools=create_hindsight_tools(memory),
    middleware=[HindsightMiddleware(memory)],
)
