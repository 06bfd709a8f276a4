"""Mental models never hold a recall up, and are shown by their own tags alone."""

from __future__ import annotations

import asyncio

import pytest

from langchain_hindsight import HindsightSettings
from langchain_hindsight.banks import LifeBank, ProjectBank
from langchain_hindsight.gateway import GatewayError, MentalModel
from langchain_hindsight.mental_models import MentalModels

BANK = ProjectBank("b", "billing")


class Server:
    """Stands for the network."""

    def __init__(self, *models, slow=None, broken=False):
        self.models = models
        self.slow = slow
        self.broken = broken
        self.asked = 0

    async def mental_models(self, bank_id, *, timeout):  # noqa: ASYNC109 - as the gateway
        self.asked += 1
        if self.slow:
            await self.slow.wait()
        if self.broken:
            raise GatewayError("down", kind="unreachable")
        return list(self.models)


def model(*tags):
    return MentalModel("/".join(tags), "name", "a question?", "an answer", tags)


async def shown(server, bank=BANK, **settings):
    models = MentalModels(server, HindsightSettings(**settings))
    with models.asked([bank]):
        return [one.id for one in await models.of([bank])]


TAGS = [("project:billing",), ("project:billing", "x"), ("project:web",), ("x",), (), ("old",)]


@pytest.mark.parametrize(
    ("scope", "ids"),
    [
        ({}, ["project:billing", "project:billing/x"]),
        ({"include_shared": True}, ["project:billing", "project:billing/x", ""]),
        ({"mode": "isolated-bank"}, ["project:billing", "project:billing/x", ""]),
        ({"legacy_tags": ["old"]}, ["project:billing", "project:billing/x", "old"]),
    ],
)
async def test_a_model_of_another_project_or_of_none_is_not_shown(scope, ids):
    assert await shown(Server(*(model(*tags) for tags in TAGS)), scope=scope) == ids


async def test_the_life_bank_shows_what_its_tags_let_through():
    server = Server(model("a"), model("b"), model())
    assert await shown(server, LifeBank("l")) == ["a", "b", ""]
    assert await shown(server, LifeBank("l", ("a",))) == ["a"]


async def test_late_models_are_left_out_and_there_for_the_next_turn():
    server = Server(model("project:billing"), slow=asyncio.Event())
    models = MentalModels(server, HindsightSettings())
    async with asyncio.timeout(5):
        with models.asked([BANK]):
            assert await models.of([BANK]) == []
    assert models.under_way([BANK])
    server.slow.set()
    await asyncio.gather(*models.under_way([BANK]))
    with models.asked([BANK]):
        assert len(await models.of([BANK])) == 1
    assert server.asked == 1


async def test_a_server_that_fails_is_not_asked_with_every_turn():
    server = Server(broken=True)
    models = MentalModels(server, HindsightSettings())
    for _ in range(3):
        with models.asked([BANK]):
            assert await models.of([BANK]) == []
    assert server.asked == 1


@pytest.mark.parametrize("off", [{"inject": False}, {"max_tokens": 0}])
async def test_switched_off_nothing_is_asked(off):
    server = Server(model("project:billing"))
    assert await shown(server, mental_models=off) == []
    assert server.asked == 0
