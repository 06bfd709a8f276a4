import asyncio
import importlib
import pickle
import sys

import pytest
from langchain_classic.base_memory import BaseMemory
from langchain_classic.chains import ConversationChain
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.prompt_values import ChatPromptValue
from langchain_core.runnables import RunnableLambda
from pydantic import BaseModel
from recording_memory import BLOCK, RecordingMemory

from langchain_hindsight import fence
from langchain_hindsight.classic import HindsightMemory
from langchain_hindsight.recall_result import RecallResult

CONVERSATION = [HumanMessage("Hello"), AIMessage("Hi"), HumanMessage("When do we deploy?")]


class Answer(BaseModel):
    day: str


def _memory(result=None, **settings):
    recording = RecordingMemory(result=result or RecallResult(text=BLOCK))
    return HindsightMemory(memory=recording, **settings)


def _load(memory, inputs, *, use_async):
    if use_async:
        return asyncio.run(memory.aload_memory_variables(inputs))
    return memory.load_memory_variables(inputs)


def _save(memory, inputs, outputs, *, use_async=False):
    """What a save hands to be retained, as (role, text) pairs."""
    if use_async:
        asyncio.run(memory.asave_context(inputs, outputs))
    else:
        memory.save_context(inputs, outputs)
    return [(one.type, one.content) for one in memory.memory.calls[-1].payload]


both = pytest.mark.parametrize("use_async", [False, True], ids=["sync", "async"])


def test_it_is_a_classic_memory():
    assert issubclass(HindsightMemory, BaseMemory)


@both
def test_loading_fills_the_one_variable_that_is_promised(use_async):
    memory = _memory(memory_key="remembered")
    assert memory.memory_variables == ["remembered"]
    assert _load(memory, {"input": "When?"}, use_async=use_async) == {"remembered": BLOCK}


@both
def test_loading_messages_gives_one_marked_message_that_is_no_system_message(use_async):
    (message,) = _load(_memory(return_messages=True), {"input": "When?"}, use_async=use_async)[
        "history"
    ]
    assert message.type == "human"
    assert message.content == BLOCK
    assert message.additional_kwargs == {fence.INJECTED_KEY: True}


@both
@pytest.mark.parametrize(("return_messages", "empty"), [(False, ""), (True, [])])
def test_loading_nothing_still_fills_the_variable(use_async, return_messages, empty):
    memory = _memory(RecallResult(), return_messages=return_messages)
    assert _load(memory, {"input": "When?"}, use_async=use_async) == {"history": empty}


@both
@pytest.mark.parametrize(
    ("value", "asked"),
    [
        ("When?", "When?"),
        (CONVERSATION, CONVERSATION),
        (CONVERSATION[-1], [CONVERSATION[-1]]),
        (ChatPromptValue(messages=CONVERSATION), CONVERSATION),
        (42, "42"),
    ],
)
def test_the_question_is_the_chains_input_whatever_its_form(use_async, value, asked):
    memory = _memory()
    _load(memory, {"input": value}, use_async=use_async)
    assert memory.memory.calls[0].payload == asked
    assert memory.memory.calls[0].name == ("arecall" if use_async else "recall")


@both
def test_saving_keeps_a_human_and_an_ai_message_with_ids_of_their_own(use_async):
    memory = _memory()
    turn = _save(memory, {"input": "When?"}, {"output": "On Fridays."}, use_async=use_async)
    assert turn == [("human", "When?"), ("ai", "On Fridays.")]
    _save(memory, {"input": "When?"}, {"output": "On Fridays."}, use_async=use_async)
    ids = [one.id for call in memory.memory.calls for one in call.payload]
    assert len(set(ids)) == 4
    assert memory.memory.calls[0].name == ("aretain" if use_async else "retain")


@both
def test_the_memorys_own_variable_and_stop_words_are_no_input(use_async):
    inputs = {"input": "When?", "history": BLOCK, "stop": ["\n"]}
    turn = _save(_memory(), inputs, {"output": "On Fridays."}, use_async=use_async)
    assert turn == [("human", "When?"), ("ai", "On Fridays.")]


@both
def test_several_inputs_without_an_input_key_are_refused_by_name(use_async):
    inputs = {"question": "When?", "language": "English"}
    with pytest.raises(ValueError, match=r"'question', 'language': set input_key"):
        _load(_memory(), inputs, use_async=use_async)
    with pytest.raises(ValueError, match=r"'question', 'language': set input_key"):
        _save(_memory(), inputs, {"output": "x"}, use_async=use_async)


@both
def test_several_outputs_without_an_output_key_are_refused_by_name(use_async):
    outputs = {"answer": "On Fridays.", "sources": []}
    with pytest.raises(ValueError, match=r"'answer', 'sources': set output_key"):
        _save(_memory(), {"input": "When?"}, outputs, use_async=use_async)


def test_no_input_and_a_key_that_is_not_there_are_refused_by_name():
    with pytest.raises(ValueError, match="the chain has none"):
        _memory().load_memory_variables({})
    with pytest.raises(ValueError, match="input_key='question' is not among them"):
        _memory(input_key="question").load_memory_variables({"input": "When?"})


@both
def test_input_key_and_output_key_choose_among_several(use_async):
    memory = _memory(input_key="question", output_key="answer")
    inputs = {"question": "When?", "language": "English"}
    outputs = {"answer": "On Fridays.", "sources": ["a"]}
    turn = _save(memory, inputs, outputs, use_async=use_async)
    assert turn == [("human", "When?"), ("ai", "On Fridays.")]


@pytest.mark.parametrize(
    ("output", "kept"),
    [
        (AIMessage([{"type": "text", "text": "On Fridays."}]), "On Fridays."),
        ([HumanMessage("When?"), AIMessage("On Fridays.")], "On Fridays."),
        ({"day": "Friday", "größe": 1}, '{"day": "Friday", "größe": 1}'),
        (["Friday", "Monday"], '["Friday", "Monday"]'),
        (Answer(day="Friday"), '{"day":"Friday"}'),
        (None, ""),
        (3, "3"),
    ],
)
def test_an_answer_that_is_no_string_is_kept_as_text(output, kept):
    assert _save(_memory(), {"input": "When?"}, {"output": output})[1] == ("ai", kept)


def test_an_input_of_messages_is_kept_as_the_persons_last_words_alone():
    asked = [*CONVERSATION, AIMessage("Let me see.")]
    turn = _save(_memory(), {"input": asked}, {"output": "On Fridays."})
    assert turn[0] == ("human", "When do we deploy?")


@both
def test_the_thread_is_the_given_one_else_the_configs_else_the_objects_own(use_async):
    config = {"configurable": {"thread_id": "from-config"}}

    def thread(**settings):
        memory = _memory(**settings)
        _save(memory, {"input": "a"}, {"output": "b"}, use_async=use_async)
        return memory.memory.calls[0].thread_id

    assert thread(thread_id="given", config=config) == "given"
    assert thread(config=config) == "from-config"
    assert thread() != thread()


def test_an_object_keeps_its_own_thread_for_all_its_turns():
    memory = _memory()
    for _ in range(2):
        memory.save_context({"input": "a"}, {"output": "b"})
    assert len({call.thread_id for call in memory.memory.calls}) == 1


@both
def test_the_objects_config_reaches_recall_and_retain(use_async):
    config = {"configurable": {"user_id": "ada"}}
    memory = _memory(config=config)
    _load(memory, {"input": "a"}, use_async=use_async)
    _save(memory, {"input": "a"}, {"output": "b"}, use_async=use_async)
    assert [call.config for call in memory.memory.calls] == [config, config]


def test_the_thread_of_a_run_that_is_under_way_is_found():
    memory = _memory()
    chain = RunnableLambda(lambda text: memory.save_context({"input": text}, {"output": "b"}))
    chain.invoke("a", {"configurable": {"thread_id": "t-1"}})
    assert memory.memory.calls[0].thread_id == "t-1"


@both
def test_clearing_deletes_nothing(use_async):
    memory = _memory()
    if use_async:
        asyncio.run(memory.aclear())
    else:
        memory.clear()
    assert memory.memory.calls == []


@pytest.mark.filterwarnings("ignore::langchain_core._api.LangChainDeprecationWarning")
@both
def test_a_conversation_chain_recalls_ahead_and_retains_behind(use_async):
    memory = _memory()
    chain = ConversationChain(llm=FakeListChatModel(responses=["On Fridays."]), memory=memory)
    answer = asyncio.run(chain.ainvoke("When?")) if use_async else chain.invoke("When?")
    assert answer["history"] == BLOCK
    recalled, retained = memory.memory.calls
    assert recalled.payload == "When?"
    assert [one.content for one in retained.payload] == ["When?", "On Fridays."]
    assert recalled.name == ("arecall" if use_async else "recall")


def test_it_shows_and_dumps_nothing_of_its_memory_or_config():
    memory = _memory(config={"configurable": {"api_key": "sk-secret"}})
    assert "memory" not in memory.model_dump()
    assert "sk-secret" not in repr(memory)
    assert "RecordingMemory" not in repr(memory)


def test_it_can_be_pickled():
    memory = _memory(memory_key="remembered")
    copy = pickle.loads(pickle.dumps(memory))
    assert copy.load_memory_variables({"input": "When?"}) == {"remembered": BLOCK}


def test_without_the_classic_chains_the_import_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "langchain_classic.base_memory", None)
    monkeypatch.delitem(sys.modules, "langchain_hindsight.classic")
    with pytest.raises(ImportError, match=r"langchain-hindsight\[classic\]"):
        importlib.import_module("langchain_hindsight.classic")
