"""What `DualBankMemory` takes for a conversation, a thread and a key."""

from __future__ import annotations

import pytest
from langchain_core.messages import AIMessage, HumanMessage

from langchain_hindsight import ConfigurationError, DualBankMemory
from langchain_hindsight.settings import HindsightSettings, OutboxSettings

SAID = HumanMessage("Hello.", id="h")


@pytest.fixture
def memory(tmp_path):
    outbox = OutboxSettings(
        url=f"sqlite:///{(tmp_path / 'outbox.db').as_posix()}", shutdown_timeout=0.0
    )
    settings = HindsightSettings(outbox=outbox)
    with DualBankMemory(
        "http://127.0.0.1:9", project_bank="b", project_id="p", settings=settings
    ) as memory:
        yield memory


@pytest.mark.parametrize(
    ("messages", "items"),
    [
        (SAID, 1),
        (("human", "Hello."), 1),
        ({"role": "user", "content": "Hello."}, 1),
        ([("human", "Hello."), ("ai", "Hi.")], 2),
        ((SAID, AIMessage("Hi.")), 2),
        (iter([SAID, AIMessage("Hi.")]), 2),
    ],
)
def test_a_message_alone_and_any_iterable_of_them_is_a_conversation(memory, messages, items):
    assert memory.retain(messages, "t").items == items


@pytest.mark.parametrize("given", [None, 5, {"messages": []}])
async def test_what_is_no_conversation_is_a_type_error(memory, given):
    with pytest.raises(TypeError, match="messages must be a list of messages, or a text; found"):
        memory.retain(given, "t")
    with pytest.raises(TypeError, match="messages must be a list of messages, or a text; found"):
        await memory.aretain(given, "t")


def test_a_thread_may_be_named_by_a_number(memory):
    for thread in (0, 42):
        assert memory.retain([SAID], thread).items == 1
        assert memory.retain([SAID], str(thread)).status == "skipped"


@pytest.mark.parametrize("key", [5, b"key", ["key"]])
def test_a_key_of_another_type_is_told_so(key):
    with pytest.raises(ConfigurationError, match="api_key must be a text"):
        DualBankMemory(project_bank="b", project_id="p", api_key=key)


@pytest.mark.parametrize("url", ["http://x:abc", "http://[::1", "http://x:99999"])
def test_a_url_that_is_none_is_told_so(url):
    with pytest.raises(ConfigurationError):
        DualBankMemory(url, project_bank="b", project_id="p")


@pytest.mark.parametrize("url", ["postgresql+psycopg://h:abc/d", "postgresql://[::1", "no url"])
def test_an_outbox_url_that_is_none_is_told_so(url):
    settings = HindsightSettings(outbox=OutboxSettings(url=url))
    with pytest.raises(ConfigurationError, match=r"outbox\.url"):
        DualBankMemory(project_bank="b", project_id="p", settings=settings)
