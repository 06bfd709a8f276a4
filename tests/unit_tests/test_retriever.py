import pytest
from langchain_core.runnables import RunnableLambda
from pydantic import ValidationError
from recording_memory import RecordingMemory, bank

from langchain_hindsight.recall_result import RecallResult
from langchain_hindsight.retriever import HindsightRetriever, choose

ADA = {"configurable": {"user_id": "ada"}}


def _both(project, life):
    return RecallResult(
        project=bank(*(f"p{n}" for n in range(project))),
        life=bank(*(f"l{n}" for n in range(life))),
    )


def _retriever(project=6, life=6, **settings):
    return HindsightRetriever(memory=RecordingMemory(result=_both(project, life)), **settings)


def _texts(documents):
    return [one.page_content for one in documents]


@pytest.mark.parametrize(
    ("k", "project", "life", "expected"),
    [
        (6, 6, 6, ["p0", "p1", "p2", "p3", "l0", "l1"]),
        (6, 6, 0, ["p0", "p1", "p2", "p3", "p4", "p5"]),
        (6, 1, 6, ["p0", "l0", "l1", "l2", "l3", "l4"]),
        (6, 6, 1, ["p0", "p1", "p2", "p3", "p4", "l0"]),
        (6, 0, 0, []),
        (6, 2, 2, ["p0", "p1", "l0", "l1"]),
        (1, 2, 2, ["p0"]),
        (1, 0, 2, ["l0"]),
        (2, 2, 2, ["p0", "l0"]),
    ],
)
def test_a_third_is_the_life_banks_and_what_is_left_free_goes_to_the_other(
    k, project, life, expected
):
    assert _texts(choose(_both(project, life).documents(), k)) == expected


@pytest.mark.parametrize("k", [0, -1])
def test_asking_for_no_documents_is_refused_by_name(k):
    with pytest.raises(ValueError, match="k must be 1 or more"):
        choose([], k)
    with pytest.raises(ValidationError, match="k"):
        _retriever(k=k)


def test_k_is_set_by_the_constructor_and_by_each_call():
    retriever = _retriever(k=3)
    assert len(retriever.invoke("q")) == 3
    assert len(retriever.invoke("q", None, k=5)) == 5
    assert len(retriever.invoke("q")) == 3


async def test_k_is_set_by_each_async_call():
    retriever = _retriever(k=3)
    assert len(await retriever.ainvoke("q")) == 3
    assert len(await retriever.ainvoke("q", None, k=5)) == 5


def test_documents_carry_their_bank():
    assert {one.metadata["bank"] for one in _retriever().invoke("q")} == {"project", "life"}


def test_the_config_of_a_call_reaches_the_memory():
    retriever = _retriever()
    retriever.invoke("q", config=ADA)
    assert retriever.memory.calls[0].config == ADA


async def test_the_config_of_an_async_call_reaches_the_memory():
    retriever = _retriever()
    await retriever.ainvoke("q", config=ADA)
    assert retriever.memory.calls[0].config == ADA


def test_each_call_of_a_batch_keeps_its_own_config():
    retriever = _retriever()
    bob = {"configurable": {"user_id": "bob"}}
    retriever.batch(["qa", "qb"], config=[ADA, bob])
    asked = {call.payload: call.config["configurable"] for call in retriever.memory.calls}
    assert asked == {"qa": ADA["configurable"], "qb": bob["configurable"]}


async def test_each_call_of_an_async_batch_keeps_its_own_config():
    retriever = _retriever()
    bob = {"configurable": {"user_id": "bob"}}
    await retriever.abatch(["qa", "qb"], config=[ADA, bob])
    asked = {call.payload: call.config["configurable"] for call in retriever.memory.calls}
    assert asked == {"qa": ADA["configurable"], "qb": bob["configurable"]}


def test_a_config_that_is_bound_beforehand_reaches_the_memory():
    retriever = _retriever()
    retriever.with_config(ADA).invoke("q")
    assert retriever.memory.calls[0].config["configurable"] == ADA["configurable"]


def test_the_config_of_a_surrounding_chain_reaches_the_memory():
    retriever = _retriever()
    (RunnableLambda(lambda question: question.strip()) | retriever).invoke(" q ", config=ADA)
    assert retriever.memory.calls[0].config["configurable"] == ADA["configurable"]


async def test_the_async_twin_asks_the_memorys_async_side():
    retriever = _retriever()
    await retriever.ainvoke("q")
    assert [call.name for call in retriever.memory.calls] == ["arecall"]


def test_a_retriever_shows_and_dumps_nothing_of_its_memory():
    retriever = _retriever()
    assert "memory" not in retriever.model_dump()
    assert "RecordingMemory" not in repr(retriever)


def test_a_memory_of_another_kind_is_refused():
    with pytest.raises(ValidationError, match="DualBankMemory"):
        HindsightRetriever(memory="http://localhost:8888")
