"""LangChain's own standard tests, against a real Hindsight."""

from __future__ import annotations

import pytest
from langchain_tests.integration_tests import RetrieversIntegrationTests, ToolsIntegrationTests
from remembering import QUESTION, open_memory, remember_both

from langchain_hindsight import HindsightRetriever, create_hindsight_tools


@pytest.fixture
def memory(hindsight_mock_url, bank_id, life_bank_id):
    with open_memory(hindsight_mock_url, bank_id, life_bank_id) as memory:
        yield memory


class TestRetriever(RetrieversIntegrationTests):
    @pytest.fixture(autouse=True)
    def remembered(self, hindsight_url, bank_id, life_bank_id):
        with open_memory(hindsight_url, bank_id, life_bank_id) as self.memory:
            remember_both(self.memory)
            yield

    @property
    def retriever_constructor(self):
        return HindsightRetriever

    @property
    def retriever_constructor_params(self):
        return {"memory": self.memory}

    @property
    def retriever_query_example(self):
        return QUESTION


class _Tool(ToolsIntegrationTests):
    name: str
    arguments: dict

    @pytest.fixture(autouse=True)
    def made(self, memory):
        memory.retain("The billing service deploys on Fridays.")
        tools = {one.name: one for one in create_hindsight_tools(memory)}
        self.made_tool = tools[self.name]

    @property
    def tool_constructor(self):
        return self.made_tool

    @property
    def tool_invoke_params_example(self):
        return self.arguments


class TestRecallTool(_Tool):
    name = "hindsight_recall"
    arguments = {"query": QUESTION}  # noqa: RUF012 - the suite never changes it


class TestRetainTool(_Tool):
    name = "hindsight_retain"
    arguments = {"content": "The billing service deploys on Fridays."}  # noqa: RUF012


class TestReflectTool(_Tool):
    name = "hindsight_reflect"
    arguments = {"query": QUESTION}  # noqa: RUF012


class TestRetainLifeTool(_Tool):
    name = "hindsight_retain_life"
    arguments = {"content": "Prefers short answers."}  # noqa: RUF012
