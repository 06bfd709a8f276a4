"""Who is asking, read from config and runtime context."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import TypedDict

import pytest
from langchain_core.runnables import RunnableLambda
from pydantic import BaseModel

from langchain_hindsight.caller import identify


@dataclass
class DataclassContext:
    user_id: str | None = None


class ModelContext(BaseModel):
    user_id: str | None = None


class DictContext(TypedDict, total=False):
    user_id: str | None


CONTEXTS = [
    DataclassContext("anna"),
    ModelContext(user_id="anna"),
    DictContext(user_id="anna"),
    {"user_id": "anna"},
    SimpleNamespace(user_id="anna"),
]


@pytest.mark.parametrize("context", CONTEXTS, ids=lambda context: type(context).__name__)
def test_every_kind_of_runtime_context_is_read(context):
    assert identify({}, context).values["user_id"] == "anna"


@pytest.mark.parametrize("context", CONTEXTS, ids=lambda context: type(context).__name__)
def test_the_runtime_that_the_config_carries_is_read(context):
    config = {"configurable": {"__pregel_runtime": SimpleNamespace(context=context)}}
    assert identify(config).values["user_id"] == "anna"


def test_the_runtime_context_comes_before_the_config():
    config = {"configurable": {"user_id": "from-config"}}
    assert identify(config, {"user_id": "from-context"}).values["user_id"] == "from-context"


def test_none_in_the_context_leaves_it_to_the_config():
    config = {"configurable": {"user_id": "from-config"}}
    assert identify(config, DataclassContext()).values["user_id"] == "from-config"


def test_a_blank_in_the_context_decides():
    config = {"configurable": {"user_id": "from-config"}}
    assert identify(config, {"user_id": ""}).values["user_id"] == ""


def test_the_authenticated_user_stands_in_where_no_user_is_given():
    config = {"configurable": {"langgraph_auth_user_id": "u-1"}}
    assert identify(config).values["user_id"] == "u-1"


def test_a_context_cannot_say_who_was_authenticated():
    config = {"configurable": {"langgraph_auth_user_id": "u-1"}}
    values = identify(config, {"langgraph_auth_user_id": "u-2"}).values
    assert (values["langgraph_auth_user_id"], values["user_id"]) == ("u-1", "u-1")
    assert not identify({}, {"langgraph_auth_user_id": "u-2"}).values


def test_a_given_user_comes_before_the_authenticated_one():
    config = {"configurable": {"langgraph_auth_user_id": "u-1", "user_id": "u-2"}}
    assert identify(config).values["user_id"] == "u-2"


def test_a_name_that_is_no_text_is_passed_over():
    assert dict(identify({"configurable": {1: "x"}}, {2: "y"}).values) == {}


def test_the_thread_is_read_as_text():
    assert identify({"configurable": {"thread_id": 7}}).thread_id == "7"


def test_without_a_config_nobody_is_asking():
    caller = identify()
    assert (dict(caller.values), caller.thread_id, caller.mode) == ({}, None, "normal")


@pytest.mark.parametrize("mode", ["normal", "read-only", "ignored"])
def test_the_memory_mode_is_read(mode):
    assert identify({"configurable": {"memory_mode": mode}}).mode == mode


def test_an_unknown_memory_mode_neither_keeps_nor_shows_anything(caplog):
    assert identify({"configurable": {"memory_mode": "readonly"}}).mode == "ignored"
    assert "memory_mode" in caplog.text


def test_without_a_config_the_run_under_way_says_who_is_asking():
    run = RunnableLambda(lambda _: identify().values["user_id"])
    assert run.invoke(None, {"configurable": {"user_id": "anna"}}) == "anna"


async def test_without_a_config_an_awaited_run_says_who_is_asking():
    async def who(_):
        return identify().values["user_id"]

    run = RunnableLambda(who)
    assert await run.ainvoke(None, {"configurable": {"user_id": "anna"}}) == "anna"


def test_a_config_given_by_hand_replaces_the_run_under_way():
    run = RunnableLambda(lambda _: dict(identify({"configurable": {"tenant": "t"}}).values))
    assert run.invoke(None, {"configurable": {"user_id": "anna"}}) == {"tenant": "t"}
