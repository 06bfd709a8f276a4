"""What is compared: this package, ``hindsight-langgraph``'s nodes, and the bare client.

Each takes the same conversations into banks of the same server, in its own way and with its own
defaults, and answers a question with the text that a model would be given.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from conversations import Conversation
from hindsight_client import Hindsight
from hindsight_langgraph import create_recall_node, create_retain_node
from langchain_core.messages import HumanMessage

from langchain_hindsight import DualBankMemory, HindsightSettings

OURS = "langchain-hindsight"
LANGGRAPH = "hindsight-langgraph"
CLIENT = "hindsight-client"
BANK = "hindsight-client on our banks"

Answer = Callable[[Conversation, str, int], Awaitable[str]]
"""Takes a conversation, a question about it and a limit in tokens; gives the text injected."""

_PATIENCE = 300.0
_PROJECT = "quality"


@dataclass(frozen=True, slots=True)
class Setup:
    """Where everything is kept."""

    url: str
    folder: Path
    """For outboxes."""
    run: str
    """Sets the banks of this run apart."""

    def bank(self, conversation: Conversation) -> str:
        """The Project Bank that a conversation is retained to, one for each kind."""
        return f"{self.run}-{conversation.kind}"

    def langgraph_bank(self, conversation: Conversation) -> str:
        """The same for ``hindsight-langgraph``."""
        return f"{self.bank(conversation)}-langgraph"

    def client_bank(self, conversation: Conversation) -> str:
        """The same for the bare client."""
        return f"{self.bank(conversation)}-client"


@contextlib.asynccontextmanager
async def filled(
    setup: Setup, conversations: Sequence[Conversation]
) -> AsyncIterator[Mapping[str, Answer]]:
    """Retain every conversation into every system.

    Yields:
        The systems by name. The bare client retains each message as it is; what it recalls from
        our banks is shown too, which tells retain's part from recall's.
    """
    client = Hindsight(setup.url, timeout=_PATIENCE)
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(client.aclose)
        await _fill_ours(setup, conversations)
        await _fill_langgraph(setup, client, conversations)
        await _fill_client(setup, client, conversations)
        memories = _Memories(setup, stack)

        async def langgraph(conversation: Conversation, question: str, _: int) -> str:
            node = create_recall_node(
                client=client, bank_id=setup.langgraph_bank(conversation), output_key="memory"
            )
            update = await node({"messages": [HumanMessage(question)]})
            return update["memory"] or ""

        async def raw(conversation: Conversation, question: str, limit: int) -> str:
            return await recalled(setup.client_bank(conversation), question, limit)

        async def raw_on_ours(conversation: Conversation, question: str, limit: int) -> str:
            return await recalled(setup.bank(conversation), question, limit)

        async def recalled(bank: str, question: str, limit: int) -> str:
            response = await client.arecall(bank, question, max_tokens=limit, budget="mid")
            return "\n".join(result.text for result in response.results)

        yield {OURS: memories.answer, BANK: raw_on_ours, CLIENT: raw, LANGGRAPH: langgraph}


class _Memories:
    """This package: a `DualBankMemory` for each bank and limit, all else at its defaults."""

    def __init__(self, setup: Setup, stack: contextlib.AsyncExitStack) -> None:
        self._setup = setup
        self._stack = stack
        self._open: dict[tuple[str, int], DualBankMemory] = {}

    async def answer(self, conversation: Conversation, question: str, limit: int) -> str:
        bank = self._setup.bank(conversation)
        memory = self._open.get((bank, limit))
        if memory is None:
            memory = _memory(self._setup, bank, limit)
            self._open[bank, limit] = await self._stack.enter_async_context(memory)
        result = await memory.arecall(question)
        return result.raise_for_error().text


def _memory(setup: Setup, bank: str, limit: int = 800) -> DualBankMemory:
    settings = HindsightSettings(
        recall={"max_tokens": limit, "timeout": _PATIENCE},
        outbox={"url": f"sqlite:///{(setup.folder / 'outbox.db').as_posix()}"},
    )
    return DualBankMemory(setup.url, project_bank=bank, project_id=_PROJECT, settings=settings)


async def _fill_ours(setup: Setup, conversations: Sequence[Conversation]) -> None:
    for bank in sorted({setup.bank(one) for one in conversations}):
        async with _memory(setup, bank) as memory:
            for one in conversations:
                if setup.bank(one) == bank:
                    receipt = await memory.aretain(list(one.messages), thread_id=one.name)
                    receipt.raise_for_error()
            report = await memory.aflush(timeout=_PATIENCE)
            if report.waiting or report.dead or report.timed_out:
                msg = f"Not everything was retained to {bank}: {report}"
                raise RuntimeError(msg)


async def _fill_langgraph(
    setup: Setup, client: Hindsight, conversations: Sequence[Conversation]
) -> None:
    """Run its retain node behind each turn, as a graph does."""
    for one in conversations:
        node = create_retain_node(client=client, bank_id=setup.langgraph_bank(one))
        for at, message in enumerate(one.messages, start=1):
            if message.type == "ai":
                await node({"messages": list(one.messages[:at])})


async def _fill_client(
    setup: Setup, client: Hindsight, conversations: Sequence[Conversation]
) -> None:
    for one in conversations:
        items = [
            {"content": str(message.content), "document_id": message.id} for message in one.messages
        ]
        await client.aretain_batch(setup.client_bank(one), items)
