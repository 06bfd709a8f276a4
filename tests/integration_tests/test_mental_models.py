"""Mental models reach the model in their own section, and only those of this project."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest
from hindsight_client import Hindsight
from remembering import open_memory, remember

from langchain_hindsight import gateway
from langchain_hindsight.budget import count_tokens
from langchain_hindsight.fence import parse

QUESTION = "When does the billing service deploy?"


@pytest.fixture
async def bank(hindsight_mock_url, bank_id):
    """A bank with models of this project, of another and of none, each with content."""
    models = {"Ours": ["project:billing"], "Theirs": ["project:web"], "Free": []}
    async with aclosing(Hindsight(hindsight_mock_url)) as client:
        for tags in models.values():
            said = "The billing service deploys on Fridays at noon."
            await client.aretain(bank_id, said, tags=tags)
        for name, tags in models.items():
            await _make(client, bank_id, name, tags)
    return bank_id


async def _make(client, bank_id, name, tags):
    question = "What is deployed when?"
    made = await client.acreate_mental_model(bank_id, name, question, tags=tags)
    for _ in range(100):  # the server has no event to wait for
        found = await client.aget_mental_model(bank_id, made.mental_model_id, detail="content")
        if found.content:
            return
        await asyncio.sleep(0.1)
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


@pytest.mark.parametrize("cap", [0, 20, 40, 60, 400])
def test_they_keep_to_their_own_cap(hindsight_mock_url, bank, cap):
    with open_memory(hindsight_mock_url, bank, mental_models={"max_tokens": cap}) as memory:
        result = memory.recall(QUESTION)
    assert result.project.memories
    assert count_tokens(result.text) - result.project.tokens <= cap
    assert bool(result.mental_models) is (cap >= 60)


def test_a_bank_that_is_given_no_room_gives_no_model_either(hindsight_mock_url, bank):
    with open_memory(hindsight_mock_url, bank, recall={"max_tokens": 0}) as memory:
        assert memory.recall(QUESTION).text == ""


def test_they_are_asked_for_once_in_a_while(hindsight_mock_url, bank, monkeypatch):
    with open_memory(hindsight_mock_url, bank, recall={"cache_ttl": 0}) as memory:
        asked, ask = [], memory._gateway.mental_models

        async def counted(bank_id, **options):
            asked.append(bank_id)
            return await ask(bank_id, **options)

        monkeypatch.setattr(memory._gateway, "mental_models", counted)
        for question in (QUESTION, "Who deploys?", "Where?"):
            memory.recall(question)
    assert asked == [bank]


@pytest.mark.parametrize("page", [1, 2, 3, 4])
def test_every_page_of_them_is_read(hindsight_mock_url, bank, monkeypatch, page):
    monkeypatch.setattr(gateway, "_PAGE", page)
    with open_memory(hindsight_mock_url, bank) as memory:
        found = memory._loop.run(memory._gateway.mental_models(bank))
    assert [one.name for one in found] == ["Free", "Ours", "Theirs"]


def test_a_server_without_an_llm_has_none_and_recalls_all_the_same(hindsight_url, bank_id):
    with open_memory(hindsight_url, bank_id) as memory:
        remember(memory, "The billing service deploys on Fridays at noon.")
        result = memory.recall(QUESTION).raise_for_error()
    assert "Fridays" in result.text
    assert result.mental_models == ()
