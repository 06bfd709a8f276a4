"""The classic memory, against a real Hindsight."""

from __future__ import annotations

import asyncio
import copy
import pickle

import pytest
from faulty_network import closed_port
from langchain_classic.chains import ConversationChain, LLMChain
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from remembering import NOTES, QUESTION, model_of, open_memory, remember, remember_both, stored

from langchain_hindsight import HindsightMemory
from langchain_hindsight.fence import FENCE_TAG

pytestmark = pytest.mark.filterwarnings(
    "ignore::langchain_core._api.LangChainDeprecationWarning"  # the classic chains are deprecated
)
both = pytest.mark.parametrize("use_async", [False, True], ids=["sync", "async"])


@pytest.fixture
def memory(hindsight_url, bank_id, life_bank_id):
    with open_memory(hindsight_url, bank_id, life_bank_id) as memory:
        yield memory


def _chain(memory, *answers, **settings):
    llm = FakeListChatModel(responses=list(answers) or ["Noted."])
    return ConversationChain(llm=llm, memory=HindsightMemory(memory=memory, **settings))


def _ask(chain, question, *, use_async):
    return asyncio.run(chain.ainvoke(question)) if use_async else chain.invoke(question)


@both
def test_a_later_chain_knows_what_an_earlier_one_was_told(memory, use_async):
    _ask(_chain(memory), NOTES[0], use_async=use_async)
    memory.flush()
    answer = _ask(_chain(memory), QUESTION, use_async=use_async)
    assert NOTES[0] in answer["history"]


@both
def test_what_was_recalled_is_not_retained_and_the_life_bank_stays_as_it_is(
    memory, hindsight_url, bank_id, life_bank_id, use_async
):
    remember_both(memory)
    before = stored(hindsight_url, life_bank_id)
    chain = _chain(memory, "They deploy then.")
    for _ in range(2):
        answer = _ask(chain, QUESTION, use_async=use_async)
    assert FENCE_TAG in answer["history"]
    memory.flush()
    texts = stored(hindsight_url, bank_id)
    assert FENCE_TAG not in " ".join(texts)
    assert {note: " ".join(texts).count(note) for note in NOTES} == dict.fromkeys(NOTES, 1)
    assert stored(hindsight_url, life_bank_id) == before


@both
def test_an_input_that_quotes_the_block_is_retained_without_it(
    memory, hindsight_url, bank_id, use_async
):
    remember(memory, NOTES[0])
    classic = HindsightMemory(memory=memory)
    block = classic.load_memory_variables({"input": QUESTION})["history"]
    merged = {"input": f"Use this:\n{block}\nWhen should I go home?"}
    if use_async:
        asyncio.run(classic.asave_context(merged, {"output": "At noon."}))
    else:
        classic.save_context(merged, {"output": "At noon."})
    memory.flush()
    texts = " ".join(stored(hindsight_url, bank_id))
    assert texts.count(NOTES[0]) == 1
    assert "When should I go home?" in texts
    assert FENCE_TAG not in texts


@both
def test_a_placeholder_for_messages_is_filled_with_one_that_is_no_system_message(memory, use_async):
    remember(memory, NOTES[0])
    prompt = ChatPromptTemplate.from_messages(
        [("system", "Be brief."), MessagesPlaceholder("history"), ("human", "{question}")]
    )
    model = model_of("On Fridays.")
    classic = HindsightMemory(memory=memory, return_messages=True)
    chain = LLMChain(llm=model, prompt=prompt, memory=classic)
    _ask(chain, {"question": QUESTION}, use_async=use_async)
    (sent,) = model.sent
    assert [one.type for one in sent] == ["system", "human", "human"]
    assert NOTES[0] in sent[1].content
    assert sent[-1].content == QUESTION


@both
def test_without_a_server_the_chain_answers_and_its_variable_is_empty(bank_id, use_async):
    url = f"http://127.0.0.1:{closed_port()}"
    with open_memory(url, bank_id, outbox={"shutdown_timeout": 0.1}) as memory:
        answer = _ask(_chain(memory, "Hello."), QUESTION, use_async=use_async)
        assert answer == {"input": QUESTION, "history": "", "response": "Hello."}
        assert memory.status().waiting == 2


@both
def test_each_callers_config_has_its_own_bank(hindsight_url, bank_id, use_async):
    with open_memory(hindsight_url, f"{bank_id}-{{user_id}}") as memory:
        for user in ("ada", "bob"):
            chain = _chain(memory, config={"configurable": {"user_id": user}})
            _ask(chain, f"I am {user}.", use_async=use_async)
        memory.flush()
    for user in ("ada", "bob"):
        assert f"I am {user}." in " ".join(stored(hindsight_url, f"{bank_id}-{user}"))


@both
def test_clearing_deletes_nothing(memory, hindsight_url, bank_id, use_async):
    remember(memory, NOTES[0])
    classic = HindsightMemory(memory=memory)
    if use_async:
        asyncio.run(classic.aclear())
    else:
        classic.clear()
    assert stored(hindsight_url, bank_id) == [NOTES[0]]


async def test_the_sync_side_works_inside_a_running_loop(memory):
    remember(memory, NOTES[0])
    assert (
        NOTES[0]
        in HindsightMemory(memory=memory).load_memory_variables({"input": QUESTION})["history"]
    )


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_a_copied_or_pickled_memory_remembers(memory, duplicate):
    remember(memory, NOTES[0])
    copied = duplicate(HindsightMemory(memory=memory))
    assert NOTES[0] in copied.load_memory_variables({"input": QUESTION})["history"]
    copied.memory.close()
