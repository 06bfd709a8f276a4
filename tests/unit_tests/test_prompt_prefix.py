"""How much of what is sent stays as it was, for a provider's prompt cache to use again."""

from __future__ import annotations

import itertools
import json

import pytest
from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage, HumanMessage, message_to_dict
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from pydantic import Field
from recording_memory import RecordingMemory

from langchain_hindsight import fence
from langchain_hindsight.middleware import HindsightMiddleware
from langchain_hindsight.recall_result import RecalledMemory, RecallResult

_TURNS = 20
_PROMPT = "You look after the deployments of a shop. " * 20
_THREAD = {"configurable": {"thread_id": "t-1"}}


@tool
def search(what: str) -> str:
    """Look something up in the handbook."""
    return f"{what}: see the page on releases, and ask whoever is on call. " * 5


class Noting(FakeMessagesListChatModel):
    """Looks something up, then answers, turn upon turn; notes what it was sent."""

    sent: list = Field(default_factory=list)

    def bind_tools(self, tools, **kwargs):
        return self

    def _generate(self, messages, *args, **kwargs):
        self.sent.append(list(messages))
        return super()._generate(messages, *args, **kwargs)


class Changing(RecordingMemory):
    """Recalls something else for every question, and the same for the same."""

    def recall_turn(self, messages, config=None, *, context=None):
        (*_, asked) = (one for one in messages if isinstance(one, HumanMessage))
        memories = [
            RecalledMemory(f"{asked.id}-{number}", f"Of {asked.text}, remember part {number}.")
            for number in range(12)
        ]
        return RecallResult(text=fence.render(memories, ()))


def answers():
    for turn in range(_TURNS):
        call = {"name": "search", "args": {"what": f"rule {turn}"}, "id": f"call-{turn}"}
        yield AIMessage("", tool_calls=[call], id=f"calls-{turn}")
        yield AIMessage(f"By rule {turn}, yes.", id=f"answer-{turn}")


def conversation(injection):
    """What the model is sent, call by call, over the whole conversation; and what it holds."""
    model = Noting(responses=list(answers()))
    middleware = [] if injection is None else [HindsightMiddleware(Changing(injection=injection))]
    saver = InMemorySaver()
    agent = create_agent(
        model, [search], system_prompt=_PROMPT, middleware=middleware, checkpointer=saver
    )
    for turn in range(_TURNS):
        question = HumanMessage(f"May we deploy, case {turn}?", id=f"question-{turn}")
        agent.invoke({"messages": [question]}, _THREAD)
    return [[shown(one) for one in messages] for messages in model.sent]


def shown(message):
    """What a provider is sent of a message; a tool's answer has an id of its own in each run."""
    data = message_to_dict(message)["data"]
    return json.dumps([data["type"], data["content"], data.get("tool_calls")])


def reused(sent):
    """The share of all that is sent that stands at the same place as in the call before."""
    whole = ["\n".join(one) for one in sent]
    same = 0
    for one, after in itertools.pairwise(whole):
        pairs = zip(one, after, strict=False)
        same += sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
    return same / sum(map(len, whole))


@pytest.fixture(scope="module")
def plain():
    return conversation(None)


def test_with_human_injection_all_before_the_turns_message_is_what_the_application_sent(plain):
    sent = conversation("human")
    assert len(sent) == len(plain) == 2 * _TURNS
    for number, (ours, theirs) in enumerate(zip(sent, plain, strict=True)):
        asked = 1 + 4 * (number // 2)  # the prompt, and four messages for each turn before
        assert ours[:asked] == theirs[:asked]
        assert fence.FENCE_TAG in ours[asked]
        assert ours[asked + 1 :] == theirs[asked + 1 :]


@pytest.mark.parametrize("injection", ["human", "system"])
def test_within_a_turn_every_model_call_begins_as_the_one_before(injection):
    sent = conversation(injection)
    for first, second in zip(sent[::2], sent[1::2], strict=True):
        assert second[: len(first)] == first


def test_human_injection_keeps_nearly_all_that_can_be_kept_and_system_injection_half(plain):
    shares = {name: reused(conversation(name)) for name in ("human", "system")}
    assert reused(plain) > 0.9
    assert shares["human"] > 0.85
    assert shares["system"] < 0.6
