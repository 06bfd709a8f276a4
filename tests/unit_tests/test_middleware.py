import asyncio
import contextlib
import importlib
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware, SummarizationMiddleware
from langchain.agents.structured_output import ToolStrategy
from langchain_core.language_models.fake_chat_models import (
    FakeMessagesListChatModel,
    GenericFakeChatModel,
)
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from pydantic import BaseModel, Field
from recording_memory import BLOCK, RecordingMemory

from langchain_hindsight.middleware import HindsightMiddleware
from langchain_hindsight.recall_result import RecallResult

both = pytest.mark.parametrize("use_async", [False, True], ids=["sync", "async"])
THREAD = {"configurable": {"thread_id": "t-1"}}


class Model(FakeMessagesListChatModel):
    """A chat model that answers from a list and notes what it was sent."""

    sent: list = Field(default_factory=list)

    def bind_tools(self, tools, **kwargs):
        return self

    def _generate(self, messages, *args, **kwargs):
        self.sent.append(list(messages))
        result = super()._generate(messages, *args, **kwargs)
        for one in result.generations:  # the same answer said again is another message
            one.message = one.message.model_copy(update={"id": None})
        return result


class Counting(Model):
    """A model whose answers have ids that are unique within a conversation alone."""

    def _generate(self, messages, *args, **kwargs):
        result = super()._generate(messages, *args, **kwargs)
        for one in result.generations:
            one.message.id = f"chatcmpl-{len(self.sent)}"
        return result


class Broken(Model):
    def _generate(self, messages, *args, **kwargs):
        msg = "The model is down."
        raise RuntimeError(msg)


@tool
def clock() -> str:
    """Tell the time."""
    return "Noon"


def _tool_call(name="clock", **args):
    return AIMessage("", tool_calls=[{"name": name, "args": args, "id": f"call-{name}"}])


def _model(*answers, kind=Model):
    answers = answers or ("On Fridays.",)
    return kind(responses=[a if isinstance(a, AIMessage) else AIMessage(a) for a in answers])


def _agent(memory, model, *, middleware=(), tools=(), **settings):
    return create_agent(
        model, list(tools), middleware=[HindsightMiddleware(memory), *middleware], **settings
    )


def _run(agent, given="When?", config=None, *, use_async, **arguments):
    if isinstance(given, str):
        given = {"messages": [HumanMessage(given)]}
    if use_async:
        return asyncio.run(agent.ainvoke(given, config, **arguments))
    return agent.invoke(given, config, **arguments)


@both
def test_the_model_is_sent_the_block_ahead_of_the_persons_words(use_async):
    model = _model()
    _run(_agent(RecordingMemory(), model), use_async=use_async)
    assert [one.content for one in model.sent[0]] == [f"{BLOCK}\n\nWhen?"]


@both
def test_in_human_mode_the_system_prompt_is_sent_as_it_is(use_async):
    model = _model()
    _run(_agent(RecordingMemory(), model, system_prompt="Be brief."), use_async=use_async)
    assert [one.content for one in model.sent[0]] == ["Be brief.", f"{BLOCK}\n\nWhen?"]


@both
def test_in_system_mode_the_block_follows_the_prompt_and_keeps_its_cache_control(use_async):
    cached = {"type": "text", "text": "Long prompt", "cache_control": {"type": "ephemeral"}}
    model = _model()
    agent = _agent(
        RecordingMemory(injection="system"), model, system_prompt=SystemMessage([cached])
    )
    _run(agent, use_async=use_async)
    system, human = model.sent[0]
    assert system.content == [cached, {"type": "text", "text": BLOCK}]
    assert human.content == "When?"


@both
def test_in_system_mode_a_prompt_that_came_with_the_conversation_stays_the_only_one(use_async):
    model = _model()
    given = {"messages": [SystemMessage("Be brief."), HumanMessage("When?")]}
    _run(_agent(RecordingMemory(injection="system"), model), given, use_async=use_async)
    assert [one.type for one in model.sent[0]] == ["system", "human"]
    assert BLOCK in str(model.sent[0][0].text)


@both
@pytest.mark.parametrize("injection", ["human", "system"])
def test_the_request_is_untouched_when_nothing_was_recalled(use_async, injection):
    model = _model()
    memory = RecordingMemory(result=RecallResult(), injection=injection)
    _run(_agent(memory, model, system_prompt="Be brief."), use_async=use_async)
    assert [one.content for one in model.sent[0]] == ["Be brief.", "When?"]


@both
def test_no_memory_enters_state_checkpoint_or_result(use_async):
    saver = InMemorySaver()
    agent = _agent(RecordingMemory(), _model(), checkpointer=saver)
    for turn in range(1, 4):
        result = _run(agent, "When?", THREAD, use_async=use_async)
        assert len(result["messages"]) == 2 * turn
    assert "Deploys happen" not in repr(result)
    assert "Deploys happen" not in repr([one.checkpoint for one in saver.list(None)])


@both
def test_every_model_call_of_a_turn_sees_the_memory_and_the_turn_ends_in_one_retain(use_async):
    memory = RecordingMemory()
    model = _model(_tool_call(), _tool_call(), "At noon.")
    _run(_agent(memory, model, tools=[clock]), use_async=use_async)
    assert len(model.sent) == 3
    for sent in model.sent:
        assert sent[0].content == f"{BLOCK}\n\nWhen?"
    assert len(memory.named("recall_turn", "arecall_turn")) == 3
    assert len(memory.named("retain", "aretain")) == 1


@both
def test_what_is_retained_is_the_conversation_as_it_was_said(use_async):
    memory = RecordingMemory()
    _run(_agent(memory, _model()), use_async=use_async)
    (retained,) = memory.named("aretain" if use_async else "retain")
    assert [one.content for one in retained.payload] == ["When?", "On Fridays."]


@both
def test_the_runtime_context_reaches_recall_and_retain(use_async):
    @dataclass
    class Who:
        user_id: str

    memory = RecordingMemory()
    agent = _agent(memory, _model(), context_schema=Who)
    _run(agent, use_async=use_async, context=Who("ada"))
    assert [call.context for call in memory.calls] == [Who("ada"), Who("ada")]


@both
def test_nothing_is_retained_when_the_model_raises_and_the_next_turn_hands_over_both(use_async):
    memory = RecordingMemory()
    saver = InMemorySaver()
    with pytest.raises(RuntimeError, match="The model is down"):
        _run(
            _agent(memory, _model(kind=Broken), checkpointer=saver),
            "First?",
            THREAD,
            use_async=use_async,
        )
    assert memory.named("retain", "aretain") == []
    _run(_agent(memory, _model(), checkpointer=saver), "Second?", THREAD, use_async=use_async)
    (retained,) = memory.named("retain", "aretain")
    assert [one.content for one in retained.payload] == ["First?", "Second?", "On Fridays."]


@both
def test_an_interrupted_turn_keeps_its_memory_and_is_retained_once_when_it_resumes(use_async):
    memory = RecordingMemory()
    model = _model(_tool_call(), "At noon.")
    agent = _agent(
        memory,
        model,
        tools=[clock],
        middleware=[HumanInTheLoopMiddleware(interrupt_on={"clock": True})],
        checkpointer=InMemorySaver(),
    )
    _run(agent, "When?", THREAD, use_async=use_async)
    assert memory.named("retain", "aretain") == []
    resume = Command(resume={"decisions": [{"type": "approve"}]})
    _run(agent, resume, THREAD, use_async=use_async)
    assert [sent[0].content for sent in model.sent] == [f"{BLOCK}\n\nWhen?"] * 2
    (retained,) = memory.named("retain", "aretain")
    assert retained.payload[-1].content == "At noon."


@both
def test_structured_output_is_left_alone(use_async):
    class Day(BaseModel):
        """A day."""

        day: str

    memory = RecordingMemory()
    model = _model(_tool_call("Day", day="Friday"))
    result = _run(_agent(memory, model, response_format=ToolStrategy(Day)), use_async=use_async)
    assert result["structured_response"] == Day(day="Friday")
    assert BLOCK in model.sent[0][0].content
    (retained,) = memory.named("retain", "aretain")
    assert [(one.type, one.text) for one in retained.payload] == [
        ("human", "When?"),
        ("ai", ""),
        ("ai", '{"day":"Friday"}'),
    ]


@both
def test_what_a_tool_returns_directly_is_retained_as_the_answer_that_it_was(use_async):
    @tool(return_direct=True)
    def tell() -> str:
        """Tell the person."""
        return "On Fridays."

    memory = RecordingMemory()
    _run(_agent(memory, _model(_tool_call("tell")), tools=[tell]), use_async=use_async)
    (retained,) = memory.named("retain", "aretain")
    assert [(one.type, one.text) for one in retained.payload][-1] == ("ai", "On Fridays.")


@both
def test_a_summary_is_not_taken_for_the_persons_words(use_async):
    memory = RecordingMemory()
    model = _model()
    summarize = SummarizationMiddleware(
        _model("They talked."), trigger=("messages", 4), keep=("messages", 1)
    )
    agent = _agent(memory, model, middleware=[summarize])
    history = [HumanMessage("Hello"), AIMessage("Hi"), HumanMessage("Well?"), AIMessage("Well.")]
    _run(agent, {"messages": [*history, HumanMessage("When?")]}, use_async=use_async)
    summary, human = model.sent[0]
    assert "They talked." in summary.content
    assert BLOCK not in summary.content
    assert human.content == f"{BLOCK}\n\nWhen?"


@both
def test_a_turn_whose_question_was_summarized_away_keeps_its_memory_and_its_question(use_async):
    memory = RecordingMemory()
    model = _model(_tool_call(), "At noon.")
    summarize = SummarizationMiddleware(
        _model("They talked."), trigger=("messages", 3), keep=("messages", 2)
    )
    _run(_agent(memory, model, tools=[clock], middleware=[summarize]), use_async=use_async)
    second = [one.text for one in model.sent[1]]
    assert "When?" not in second
    assert BLOCK in second
    asked = memory.named("recall_turn", "arecall_turn")
    assert ["When?" in [one.text for one in call.payload] for call in asked] == [True, True]
    cut, end = memory.named("retain", "aretain")
    assert cut.payload[0].text == "When?"
    assert "When?" not in [one.text for one in end.payload]


@both
@pytest.mark.parametrize("named", [True, False], ids=["threads", "no threads"])
def test_a_server_that_counts_its_answers_anew_mixes_no_conversations(named, use_async):
    """Another person's turn goes on meanwhile, under the same ids of answers."""
    memory = RecordingMemory()
    turns = HindsightMiddleware(memory)

    @tool
    def ask(who: str) -> str:
        """Let the other person's turn come in between."""
        if who == "Bob":
            with ThreadPoolExecutor(1) as pool:  # in no context of Bob's run
                pool.submit(run, "Alice").result()
        return "Asked."

    def answers(who):
        return _model(_tool_call("ask", who=who), "Done.", kind=Counting)

    def run(who):
        summarize = SummarizationMiddleware(
            _model("They talked."), trigger=("messages", 3), keep=("messages", 2)
        )
        agent = create_agent(answers(who), [ask], middleware=[turns, summarize])
        config = {"configurable": {"thread_id": who}} if named else None
        _run(agent, f"I am {who}.", config, use_async=use_async)

    run("Bob")
    said = [
        [one.text for one in call.payload if one.type == "human" and "I am" in one.text]
        for call in memory.named("recall_turn", "arecall_turn")
    ]
    assert said == [["I am Bob."], ["I am Alice."], ["I am Alice."], ["I am Bob."]]


def _with_subagent(memory, *, use_async, **settings):
    """An agent with memory whose tool calls another agent with memory."""
    inner = create_agent(
        _model("Inner answer."), middleware=[HindsightMiddleware(memory, **settings)]
    )

    @tool
    def ask() -> str:
        """Ask the other agent."""
        return inner.invoke({"messages": [HumanMessage("Inner?")]})["messages"][-1].content

    @tool("ask")
    async def aask() -> str:
        """Ask the other agent."""
        answer = await inner.ainvoke({"messages": [HumanMessage("Inner?")]})
        return answer["messages"][-1].content

    return _agent(
        memory, _model(_tool_call("ask"), "Outer answer."), tools=[aask if use_async else ask]
    )


@both
def test_a_sub_agent_called_by_a_tool_recalls_but_does_not_retain(use_async):
    memory = RecordingMemory()
    _run(_with_subagent(memory, use_async=use_async), use_async=use_async)
    (retained,) = memory.named("retain", "aretain")
    assert retained.payload[0].content == "When?"
    asked = [call.payload[0].content for call in memory.named("recall_turn", "arecall_turn")]
    assert "Inner?" in asked


def test_a_sub_agent_in_a_thread_of_its_tools_own_does_not_retain_either():
    memory = RecordingMemory()
    inner = create_agent(_model("Inner answer."), middleware=[HindsightMiddleware(memory)])

    @tool
    def ask(config: RunnableConfig) -> str:
        """Ask the other agent."""
        given = {"messages": [HumanMessage("Inner?")]}
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(inner.invoke, given, config).result()["messages"][-1].content

    _run(_agent(memory, _model(_tool_call("ask"), "Outer answer."), tools=[ask]), use_async=False)
    (retained,) = memory.named("retain")
    assert retained.payload[0].content == "When?"


@both
def test_a_sub_agent_retains_when_it_is_told_to(use_async):
    memory = RecordingMemory()
    agent = _with_subagent(memory, use_async=use_async, retain_in_subagents=True)
    _run(agent, use_async=use_async)
    firsts = [call.payload[0].content for call in memory.named("retain", "aretain")]
    assert firsts == ["Inner?", "When?"]


@both
def test_after_a_tool_the_next_agent_of_the_same_caller_retains_again(use_async):
    memory = RecordingMemory()
    _run(_agent(memory, _model(_tool_call(), "Noon."), tools=[clock]), use_async=use_async)
    _run(_agent(memory, _model()), use_async=use_async)
    assert len(memory.named("retain", "aretain")) == 2


@both
@pytest.mark.parametrize("failing", [False, True])
def test_when_a_tool_is_done_well_or_badly_its_caller_is_no_sub_agent(use_async, failing):
    memory = RecordingMemory()
    middleware = HindsightMiddleware(memory)

    def handler(request):
        if failing:
            msg = "The tool broke."
            raise RuntimeError(msg)

    async def ahandler(request):
        return handler(request)

    async def acall():
        with contextlib.suppress(RuntimeError):
            await middleware.awrap_tool_call(SimpleNamespace(tool_call={"id": "c1"}), ahandler)
        await middleware.aafter_agent({"messages": []}, None)

    if use_async:
        asyncio.run(acall())
    else:
        with contextlib.suppress(RuntimeError):
            middleware.wrap_tool_call(SimpleNamespace(tool_call={"id": "c1"}), handler)
        middleware.after_agent({"messages": []}, None)
    assert len(memory.named("retain", "aretain")) == 1


async def _streamed(agent, mode, *, use_async):
    given = {"messages": [HumanMessage("When?")]}
    if use_async:
        return [one async for one in agent.astream(given, stream_mode=mode)]
    return list(agent.stream(given, stream_mode=mode))


@both
@pytest.mark.parametrize("mode", ["messages", "updates", "values"])
async def test_streaming_shows_the_answer_and_no_memory_and_retains_the_whole_answer(
    use_async, mode
):
    memory = RecordingMemory()
    model = GenericFakeChatModel(messages=iter([AIMessage("On Fridays at noon.")]))
    parts = await _streamed(_agent(memory, model), mode, use_async=use_async)
    assert "Fridays" in repr(parts)
    assert "Deploys happen" not in repr(parts)
    (retained,) = memory.named("retain", "aretain")
    assert retained.payload[-1].content == "On Fridays at noon."


def test_without_langchain_the_import_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "langchain.agents.middleware", None)
    monkeypatch.delitem(sys.modules, "langchain_hindsight.middleware")
    with pytest.raises(ImportError, match=r"langchain-hindsight\[agents\]"):
        importlib.import_module("langchain_hindsight.middleware")
