import asyncio
import pickle

import pytest
from langchain_core.messages import ToolMessage
from langchain_tests.unit_tests import ToolsUnitTests
from recording_memory import BLOCK, RecordingMemory, bank

from langchain_hindsight import HindsightMiddleware, create_recall_node, create_retain_node
from langchain_hindsight.caller import identify
from langchain_hindsight.errors import ConfigurationError, HindsightError
from langchain_hindsight.recall_result import RecallResult
from langchain_hindsight.receipts import RetainReceipt
from langchain_hindsight.tools import create_hindsight_tools

ADA = {"configurable": {"user_id": "ada"}}
ARGUMENTS = {
    "hindsight_recall": {"query": "When do we deploy?"},
    "hindsight_retain": {"content": "Deploys happen on Fridays."},
    "hindsight_reflect": {"query": "How do we deploy?"},
    "hindsight_retain_life": {"content": "Prefers short answers."},
}


def _tool(name, memory=None):
    memory = memory or RecordingMemory(life=True)
    return next(one for one in create_hindsight_tools(memory) if one.name == name)


def _call(name):
    return {"name": name, "args": ARGUMENTS[name], "id": "c1", "type": "tool_call"}


async def _both(name, memory, config=None):
    """What the tool answers to a model, by its sync and its async side, which must agree."""
    tool = _tool(name, memory)
    sync = tool.invoke(_call(name), config)
    assert await tool.ainvoke(_call(name), config) == sync
    return sync


class _Standard(ToolsUnitTests):
    name: str

    @property
    def tool_constructor(self):
        return _tool(self.name)

    @property
    def tool_invoke_params_example(self):
        return ARGUMENTS[self.name]


class TestRecallTool(_Standard):
    name = "hindsight_recall"


class TestRetainTool(_Standard):
    name = "hindsight_retain"


class TestReflectTool(_Standard):
    name = "hindsight_reflect"


class TestRetainLifeTool(_Standard):
    name = "hindsight_retain_life"


def test_the_life_tool_is_there_only_where_there_is_a_life_bank():
    without = [one.name for one in create_hindsight_tools(RecordingMemory(life=False))]
    with_life = [one.name for one in create_hindsight_tools(RecordingMemory(life=True))]
    assert without == ["hindsight_recall", "hindsight_retain", "hindsight_reflect"]
    assert with_life == [*without, "hindsight_retain_life"]


@pytest.mark.parametrize("name", ARGUMENTS)
def test_a_model_can_choose_words_alone_and_never_a_bank(name):
    assert set(_tool(name).args) == set(ARGUMENTS[name])


def test_the_life_tool_says_that_it_is_permanent_across_projects_and_only_when_asked():
    description = _tool("hindsight_retain_life").description
    assert "Permanently" in description
    assert "across all their projects" in description
    assert "only when the person has asked" in description


@pytest.mark.parametrize("name", ARGUMENTS)
async def test_the_runs_config_reaches_the_memory(name):
    memory = RecordingMemory(life=True)
    await _both(name, memory, ADA)
    assert [call.config["configurable"]["user_id"] for call in memory.calls] == ["ada", "ada"]
    assert memory.calls[1].name == f"a{memory.calls[0].name}"


@pytest.mark.parametrize("name", ARGUMENTS)
async def test_every_tool_works_outside_a_graph(name):
    tool = _tool(name)
    assert tool.invoke(ARGUMENTS[name]) == await tool.ainvoke(ARGUMENTS[name])


async def test_recall_answers_with_the_fenced_block():
    assert (await _both("hindsight_recall", RecordingMemory())).content == BLOCK


async def test_recall_says_when_nothing_is_remembered():
    memory = RecordingMemory(result=RecallResult(project=bank()))
    answer = await _both("hindsight_recall", memory)
    assert answer.content == "Nothing relevant is remembered."
    assert answer.status == "success"


async def test_recall_says_why_nothing_was_asked():
    memory = RecordingMemory(result=RecallResult(reason="The query has no word in it."))
    answer = await _both("hindsight_recall", memory)
    assert answer.content == "Nothing was recalled: The query has no word in it."


async def test_recall_mentions_a_bank_that_failed_beside_what_the_other_gave():
    failed = bank(error=HindsightError("The server timed out."))
    memory = RecordingMemory(result=RecallResult(text=BLOCK, project=bank("x"), life=failed))
    answer = await _both("hindsight_recall", memory)
    assert answer.content == (f"{BLOCK}\n\nThe life bank could not be asked: The server timed out.")
    assert answer.status == "success"


async def test_recall_fails_when_every_bank_failed():
    failed = bank(error=HindsightError("The server timed out."))
    memory = RecordingMemory(result=RecallResult(project=failed, life=failed))
    answer = await _both("hindsight_recall", memory)
    assert answer.status == "error"
    assert "The server timed out." in answer.content


@pytest.mark.parametrize("name", ["hindsight_retain", "hindsight_retain_life"])
async def test_stored_is_said_only_when_it_is_stored(name):
    stored = await _both(name, RecordingMemory(life=True, receipt=RetainReceipt("stored")))
    queued = await _both(
        name, RecordingMemory(life=True, receipt=RetainReceipt("queued", "the server is busy."))
    )
    assert stored.content == "Stored."
    assert queued.content == (
        "Queued, and stored as soon as the memory server takes it: the server is busy."
    )


@pytest.mark.parametrize("name", ["hindsight_retain", "hindsight_retain_life"])
@pytest.mark.parametrize("status", ["failed", "skipped"])
async def test_what_was_not_remembered_is_an_error_that_says_why(name, status):
    receipt = RetainReceipt(status, "There is nothing to remember in it.")
    answer = await _both(name, RecordingMemory(life=True, receipt=receipt))
    assert answer.status == "error"
    assert answer.content == "Not remembered: There is nothing to remember in it."


@pytest.mark.parametrize("name", ["hindsight_reflect", "hindsight_retain_life"])
async def test_a_failure_becomes_a_plain_sentence_in_a_message_of_status_error(name):
    memory = RecordingMemory(life=True, error=HindsightError("No user_id was given."))
    answer = await _both(name, memory)
    assert isinstance(answer, ToolMessage)
    assert answer.status == "error"
    assert answer.content == "That failed: No user_id was given."


@pytest.mark.parametrize("name", ARGUMENTS)
async def test_every_tool_refuses_plainly_while_memory_is_ignored(name):
    memory = RecordingMemory(life=True)
    answer = await _both(name, memory, {"configurable": {"memory_mode": "ignored"}})
    assert answer.status == "error"
    assert "switched off for this run" in answer.content
    assert memory.calls == []


@pytest.mark.parametrize("name", ARGUMENTS)
async def test_every_tool_goes_on_while_memory_is_read_only(name):
    memory = RecordingMemory(life=True)
    answer = await _both(name, memory, {"configurable": {"memory_mode": "read-only"}})
    assert answer.status == "success"
    assert len(memory.calls) == 2


async def test_a_cancelled_call_is_cancelled_and_not_turned_into_an_answer():
    waiting = asyncio.Event()

    class Slow(RecordingMemory):
        async def areflect(self, query, config=None, *, context=None):
            waiting.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(_tool("hindsight_reflect", Slow()).ainvoke({"query": "How?"}))
    await waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("name", ARGUMENTS)
def test_a_tool_can_be_pickled_with_its_memory(name):
    copy = pickle.loads(pickle.dumps(_tool(name)))
    assert copy.invoke(ARGUMENTS[name])


class _Noting(RecordingMemory):
    """Notes which tool call it was asked within."""

    def retain(self, *args, **kwargs):
        self.calls.append(identify().tool_call_id)
        return self.receipt

    async def aretain(self, *args, **kwargs):
        return self.retain()


async def test_a_write_knows_the_tool_call_that_it_answers():
    memory = _Noting()
    tool = _tool("hindsight_retain", memory)
    tool.invoke(_call("hindsight_retain"))
    await tool.ainvoke(_call("hindsight_retain"))
    tool.invoke(ARGUMENTS["hindsight_retain"])
    assert memory.calls == ["c1", "c1", None]


@pytest.mark.parametrize(
    "make", [create_hindsight_tools, create_recall_node, create_retain_node, HindsightMiddleware]
)
@pytest.mark.parametrize("given", ["acme", None, 5])
def test_what_is_no_memory_is_told_so_at_once(make, given):
    with pytest.raises(ConfigurationError, match="memory must be a DualBankMemory, found"):
        make(given)
