"""What the providers' own clients send once memory is in place, and what is kept of what comes."""

from __future__ import annotations

import asyncio
import uuid
import warnings

import pytest
from langchain.agents import create_agent
from langchain_classic.chains import ConversationChain
from langchain_core._api import LangChainDeprecationWarning
from langchain_core.messages import HumanMessage
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from provider_endpoint import ProviderEndpoint, anthropic, gemini, openai, spoken
from remembering import NOTES, QUESTION, open_memory, remember, stored
from surfaces import both

from langchain_hindsight import HindsightMemory, HindsightMiddleware
from langchain_hindsight.fence import FENCE_TAG

# Gemini's client makes a session in a way that aiohttp discourages.
pytestmark = pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession")

every_provider = pytest.mark.parametrize("provider", [openai, anthropic, gemini])
IMAGE = "data:image/png;base64,iVBORw0KGgo="
PICTURE = {"type": "image_url", "image_url": {"url": IMAGE}}


@tool
def clock() -> str:
    """Tell the time."""
    return "Noon"


@pytest.fixture(scope="module")
def filled_bank(hindsight_url, tmp_path_factory):
    bank = f"project-{uuid.uuid4().hex}"
    outbox = {"url": f"sqlite:///{(tmp_path_factory.mktemp('p') / 'outbox.db').as_posix()}"}
    with open_memory(hindsight_url, bank, outbox=outbox) as memory:
        remember(memory, *NOTES)
    return bank


def ask(agent, *contents, use_async):
    config = {"configurable": {"thread_id": "t-1"}}
    turns = [{"messages": [HumanMessage(content)]} for content in contents]
    if not use_async:
        for one in turns:
            agent.invoke(one, config)
        return

    async def run():
        for one in turns:
            await agent.ainvoke(one, config)

    asyncio.run(run())


@every_provider
@both
@pytest.mark.parametrize("injection", ["human", "system"])
def test_a_provider_gets_one_system_text_first_and_the_question_last(
    hindsight_url, filled_bank, provider, use_async, injection
):
    settings = {"recall": {"injection": injection}, "retain": {"enabled": False}}
    answers = ("At noon.", "call:clock", "It is noon.")
    with (
        ProviderEndpoint(*answers) as endpoint,
        open_memory(hindsight_url, filled_bank, **settings) as memory,
    ):
        agent = create_agent(
            provider(endpoint.url),
            tools=[clock],
            system_prompt="Be brief.",
            middleware=[HindsightMiddleware(memory)],
            checkpointer=InMemorySaver(),
        )
        ask(agent, QUESTION, f"{QUESTION} Tell me the time too.", use_async=use_async)
    assert len(endpoint.requests) == len(answers)
    for at, body in enumerate(endpoint.requests):
        system, messages = spoken(body)
        question = [text for role, text in messages if role == "user" and QUESTION in text][-1]
        holder = {"human": question, "system": system}[injection]
        assert system.startswith("Be brief.")
        assert not {"system", "developer"} & {role for role, _ in messages}
        assert NOTES[0] in holder
        assert f"{system}{messages}".count(f"<{FENCE_TAG}>") == 1
        assert question.endswith((QUESTION, "Tell me the time too."))
        assert at == len(answers) - 1 or question == messages[-1][1]


@every_provider
@both
def test_a_picture_beside_the_question_reaches_the_provider_behind_the_memory(
    hindsight_url, filled_bank, provider, use_async
):
    with (
        ProviderEndpoint("A picture.") as endpoint,
        open_memory(hindsight_url, filled_bank, retain={"enabled": False}) as memory,
    ):
        agent = create_agent(provider(endpoint.url), middleware=[HindsightMiddleware(memory)])
        ask(agent, [{"type": "text", "text": QUESTION}, PICTURE], use_async=use_async)
    [body] = endpoint.requests
    [(role, text)] = spoken(body)[1]
    assert role == "user"
    assert text.index(NOTES[0]) < text.index(QUESTION)
    assert "iVBORw0KGgo=" in str(body)


@both
def test_a_model_that_streams_into_a_classic_chain_is_kept_whole_and_once(
    hindsight_url, bank_id, use_async
):
    said, answer = "We round to whole cents.", "Noted: the invoices are rounded to whole cents."
    prompt = ChatPromptTemplate.from_messages(
        [MessagesPlaceholder("history"), ("human", "{input}")]
    )
    with (
        ProviderEndpoint(answer) as endpoint,
        open_memory(hindsight_url, bank_id) as memory,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore", LangChainDeprecationWarning)
        chain = ConversationChain(
            llm=openai(endpoint.url, streaming=True),
            memory=HindsightMemory(memory=memory, return_messages=True, thread_id="t-1"),
            prompt=prompt,
        )
        given = {"input": said}
        done = asyncio.run(chain.ainvoke(given)) if use_async else chain.invoke(given)
        assert memory.flush().delivered
    assert endpoint.requests[0]["stream"] is True
    assert done["response"] == answer
    kept = "\n".join(stored(hindsight_url, bank_id))
    assert kept.count(said) == 1
    assert kept.count(answer) == 1
