"""A classic `ConversationChain` whose memory outlives it.

LangChain has deprecated this chain in favor of ``create_agent`` (see ``agent.py``); where programs
still hold one, `HindsightMemory` takes the place of ``ConversationBufferMemory``.

Run it with ``python examples/classic_chain.py``, or with ``--url`` for a Hindsight server of yours.
"""

from __future__ import annotations

import asyncio
import warnings

from demo_model import DemoModel
from hindsight_server import hindsight_server
from langchain_classic.chains import ConversationChain
from langchain_core._api import LangChainDeprecationWarning
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder

from langchain_hindsight import DualBankMemory, HindsightMemory

PROMPT = ChatPromptTemplate.from_messages(
    [
        ("system", "You help a team with its billing service."),
        MessagesPlaceholder("history"),
        ("human", "{input}"),
    ]
)


def conversation(memory: DualBankMemory, thread_id: str) -> ConversationChain:
    """A chain for one conversation; it starts with nothing but the memory."""
    remembered = HindsightMemory(
        memory=memory,
        return_messages=True,
        thread_id=thread_id,
        config={"configurable": {"user_id": "ada"}},  # a chain hands its memory no config
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LangChainDeprecationWarning)
        return ConversationChain(llm=DemoModel(), memory=remembered, prompt=PROMPT)


def main() -> None:
    with (
        hindsight_server() as url,
        DualBankMemory(
            url=url,
            project_bank="example-classic-chain",
            project_id="billing",
            life_bank="example-classic-chain-life-{user_id}",
        ) as memory,
    ):
        monday = conversation(memory, "monday")
        said = "Invoices of the billing service are rounded to whole cents."
        print(f"monday   > {said}\n           {monday.invoke({'input': said})['response']}")

        # A chain never writes to the Life Bank: this is somebody's explicit wish.
        memory.retain_life("Ada reads her invoices as PDF.", {"configurable": {"user_id": "ada"}})
        memory.flush()  # the outbox delivers in its own time: here the next chain waits for it

        tuesday = conversation(memory, "tuesday")
        asked = "How are the invoices rounded?"
        print(f"tuesday  > {asked}\n           {tuesday.invoke({'input': asked})['response']}")

        async def ask(asked: str) -> None:
            answer = await tuesday.ainvoke({"input": asked})
            print(f"tuesday  > {asked}\n           {answer['response']}")

        asyncio.run(ask("How do I read my invoices, as PDF?"))


if __name__ == "__main__":
    main()
