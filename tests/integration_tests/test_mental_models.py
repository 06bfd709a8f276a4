"""Mental models reach the model in their own section, and only those of this project."""

from __future__ import annotations

import json
import time
import urllib.request

import pytest
from hindsight_client import Hindsight
from remembering import open_memory, remember

from langchain_hindsight.budget import count_tokens
from langchain_hindsight.fence import parse

QUESTION = "When does the billing service deploy?"


@pytest.fixture
def bank(hindsight_mock_url, bank_id):
    """A bank with models of this project, of another and of none, each with content."""
    models = {"Ours": ["project:billing"], "Theirs": ["project:web"], "Free": []}
    with Hindsight(hindsight_mock_url) as client:
        for tags in models.values():
            client.retain(bank_id, "The billing service deploys on Fridays at noon.", tags=tags)
    for name, tags in models.items():
        _make(hindsight_mock_url, bank_id, name, tags)
    return bank_id


def _make(url, bank_id, name, tags):
    with Hindsight(url) as client:
        made = client.create_mental_model(bank_id, name, "What is deployed when?", tags=tags)
    address = f"{url}/v1/default/banks/{bank_id}/mental-models/{made.mental_model_id}"
    for _ in range(100):  # the server has no event to wait for
        with urllib.request.urlopen(f"{address}?detail=content") as answer:
            if json.load(answer)["content"]:
                return
        time.sleep(0.1)
    pytest.fail("the server made no content")


def test_models_of_this_project_alone_are_injected(hindsight_mock_url, bank):
    with open_memory(hindsight_mock_url, bank) as memory:
        result = memory.recall(QUESTION).raise_for_error()
    assert [one.text.partition(":")[0] for one in result.mental_models] == ["Ours"]
    assert parse(result.text).models[0].startswith("Ours: ")
    assert result.receipt()["mental_models"] == [result.mental_models[0].id]


def test_untagged_models_are_shown_where_they_may_be(hindsight_mock_url, bank):
    for scope in ({"include_shared": True}, {"mode": "isolated-bank"}):
        with open_memory(hindsight_mock_url, bank, scope=scope) as memory:
            shown = memory.recall(QUESTION).mental_models
        assert [one.text.partition(":")[0] for one in shown] == ["Free", "Ours"]


def test_what_is_recalled_beside_them_stays_byte_for_byte(hindsight_mock_url, bank):
    with open_memory(hindsight_mock_url, bank, mental_models={"inject": False}) as memory:
        without = memory.recall(QUESTION)
    with open_memory(hindsight_mock_url, bank) as memory:
        beside = memory.recall(QUESTION)
    assert not without.mental_models
    assert beside.text.startswith(without.text.removesuffix("</hindsight-memory>"))


def test_they_keep_to_their_own_cap(hindsight_mock_url, bank):
    with open_memory(
        hindsight_mock_url, bank, recall={"max_tokens": 0}, mental_models={"max_tokens": 60}
    ) as memory:
        assert count_tokens(memory.recall(QUESTION).text) <= 60


def test_they_are_asked_for_once_in_a_while(hindsight_mock_url, bank, monkeypatch):
    with open_memory(hindsight_mock_url, bank, recall={"cache_ttl": 0}) as memory:
        gateway = memory._gateway
        asked, ask = [], gateway.mental_models

        async def counted(bank_id, **options):
            asked.append(bank_id)
            return await ask(bank_id, **options)

        monkeypatch.setattr(gateway, "mental_models", counted)
        for question in (QUESTION, "Who deploys?", "Where?"):
            memory.recall(question)
    assert asked == [bank]


def test_a_server_without_an_llm_has_none_and_recalls_all_the_same(hindsight_url, bank_id):
    with open_memory(hindsight_url, bank_id) as memory:
        remember(memory, "The billing service deploys on Fridays at noon.")
        result = memory.recall(QUESTION).raise_for_error()
    assert "Fridays" in result.text
    assert result.mental_models == ()
