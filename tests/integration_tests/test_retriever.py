"""The retriever, against a real Hindsight."""

from __future__ import annotations

import asyncio
import copy
import logging
import pickle

import pytest
from faulty_network import closed_port, hanging
from remembering import LIFE_NOTE, NOTES, QUESTION, open_memory, remember, remember_both

from langchain_hindsight import HindsightRetriever

both = pytest.mark.parametrize("use_async", [False, True], ids=["sync", "async"])


@pytest.fixture
def memory(hindsight_url, bank_id, life_bank_id):
    with open_memory(hindsight_url, bank_id, life_bank_id) as memory:
        remember_both(memory)
        yield memory


@pytest.fixture
def shared(hindsight_url, bank_id):
    """A memory whose bank depends on who is asking; each of two tenants has a note of its own."""
    with open_memory(hindsight_url, f"{bank_id}-{{tenant}}") as memory:
        for name in ("acme", "globex"):
            remember(memory, f"The billing service of {name} deploys.", config=_tenant(name))
        yield memory


def _tenant(name):
    return {"configurable": {"tenant": name}}


def _texts(documents):
    return {one.page_content for one in documents}


def _retrieve(retriever, *args, use_async, **kwargs):
    if use_async:
        return asyncio.run(retriever.ainvoke(*args, **kwargs))
    return retriever.invoke(*args, **kwargs)


@both
def test_documents_of_both_banks_come_back(memory, use_async):
    documents = _retrieve(HindsightRetriever(memory=memory), QUESTION, use_async=use_async)
    assert _texts(documents) == {*NOTES, LIFE_NOTE}
    assert [one.metadata["bank"] for one in documents] == ["project"] * 3 + ["life"]


@both
def test_k_counts_documents_and_is_no_token_budget(memory, use_async):
    retriever = HindsightRetriever(memory=memory, k=2)
    documents = _retrieve(retriever, QUESTION, use_async=use_async)
    assert [one.metadata["bank"] for one in documents] == ["project", "life"]


@both
def test_each_tenant_is_given_its_own_memories(shared, use_async):
    retriever = HindsightRetriever(memory=shared)
    for name in ("acme", "globex"):
        documents = _retrieve(retriever, QUESTION, config=_tenant(name), use_async=use_async)
        assert _texts(documents) == {f"The billing service of {name} deploys."}


@both
def test_tenants_in_one_batch_do_not_meet(shared, use_async):
    retriever = HindsightRetriever(memory=shared)
    names = ["acme", "globex"] * 4
    configs = [_tenant(name) for name in names]
    questions = [QUESTION] * len(names)
    answers = (
        asyncio.run(retriever.abatch(questions, config=configs))
        if use_async
        else retriever.batch(questions, config=configs)
    )
    expected = [{f"The billing service of {name} deploys."} for name in names]
    assert [_texts(one) for one in answers] == expected


@both
def test_a_caller_that_names_no_tenant_is_given_nothing(shared, use_async):
    assert _retrieve(HindsightRetriever(memory=shared), QUESTION, use_async=use_async) == []


async def test_the_sync_side_works_inside_a_running_loop(memory):
    assert HindsightRetriever(memory=memory).invoke(QUESTION)


def test_one_retriever_serves_several_event_loops_one_after_the_other(memory):
    retriever = HindsightRetriever(memory=memory)
    for question in (QUESTION, f"{QUESTION} Tell me."):
        assert asyncio.run(retriever.ainvoke(question))


@both
def test_a_server_that_is_not_there_gives_no_documents_and_one_warning(bank_id, use_async, caplog):
    url = f"http://127.0.0.1:{closed_port()}"
    with open_memory(url, bank_id) as memory, caplog.at_level(logging.WARNING):
        assert _retrieve(HindsightRetriever(memory=memory), QUESTION, use_async=use_async) == []
    assert len(caplog.records) == 1


@both
def test_a_server_that_hangs_gives_no_documents_within_the_deadline(bank_id, use_async):
    with hanging() as url, open_memory(url, bank_id, recall={"timeout": 0.3}) as memory:
        assert _retrieve(HindsightRetriever(memory=memory), QUESTION, use_async=use_async) == []


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_a_copied_or_pickled_retriever_retrieves(memory, duplicate):
    copied = duplicate(HindsightRetriever(memory=memory, k=3))
    assert len(copied.invoke(QUESTION)) == 3
    copied.memory.close()
