"""A proxy's answer in Hindsight's place loses nothing; Hindsight alone refuses for good."""

from __future__ import annotations

import json
import uuid

import pytest
from faulty_network import answering
from langchain_core.messages import AIMessage, HumanMessage

from langchain_hindsight.banks import ProjectBank
from langchain_hindsight.gateway import Gateway, GatewayError
from langchain_hindsight.outbox import delivery
from langchain_hindsight.retain import Retainer
from langchain_hindsight.settings import HindsightSettings, OutboxSettings

DETAIL = json.dumps({"detail": "no, thank you"}).encode()
REFUSALS = [400, 404, 405, 409, 422]
OTHERS = [308, 402, 407, 410, 421, 431, 451]


@pytest.fixture
def open_gateway():
    opened = []

    def open_one(url):
        opened.append(Gateway(url, lambda: None, 60.0))
        return opened[-1]

    yield open_one
    for gateway in opened:
        if gateway.loop.is_open:
            gateway.loop.run(gateway.aclose())
        gateway.loop.close()


def refusal(gateway):
    item = {"content": "something", "document_id": "d"}
    with pytest.raises(GatewayError) as raised:
        gateway.loop.run(gateway.retain("work", [item], operation_id=str(uuid.uuid4())))
    return raised.value


@pytest.mark.parametrize("status", [*REFUSALS, *OTHERS])
@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"<html>no</html>", "text/html"),
        (b"", "text/plain"),
        (b'{"error": "no route"}', "application/json"),
    ],
    ids=["page", "nothing", "json of another"],
)
def test_a_refusal_that_is_not_hindsights_own_may_pass(open_gateway, status, body, kind):
    with answering(status, body, kind=kind) as proxy:
        error = refusal(open_gateway(proxy.url))
    assert error.retryable
    assert str(status) in str(error)


@pytest.mark.parametrize("status", REFUSALS)
def test_a_refusal_of_hindsights_own_is_for_good_and_gives_the_reason(open_gateway, status):
    with answering(status, DETAIL, kind="application/json") as server:
        error = refusal(open_gateway(server.url))
    assert not error.retryable
    assert "no, thank you" in str(error)


def test_what_is_too_large_for_a_proxy_is_cut_in_two(open_gateway):
    with answering(413) as proxy:
        assert refusal(open_gateway(proxy.url)).kind == "rejected"


@pytest.mark.parametrize("status", [400, 405, 308])
def test_a_proxy_that_stands_in_the_way_for_a_while_makes_no_dead_letter(
    hindsight_url, open_gateway, tmp_path, monkeypatch, status
):
    monkeypatch.setattr(delivery, "FIRST_PAUSE", 0.02)
    bank = ProjectBank(f"project-{uuid.uuid4().hex}", "billing")
    outbox = OutboxSettings(
        url=f"sqlite:///{(tmp_path / 'outbox.db').as_posix()}", retry_max_delay=0.1
    )
    gateway = open_gateway(hindsight_url)
    retainer = Retainer(gateway, HindsightSettings(outbox=outbox))
    with answering(status) as proxy:
        monkeypatch.setattr(gateway, "_address", proxy.url)
        talk = [HumanMessage("We chose Kafka.", id="h"), AIMessage("Good.", id="a")]
        retainer.retain_transcript(bank, talk, thread_id="t")
        report = retainer.flush(2)
        assert proxy.asked > 3
        assert (report.waiting, report.dead) == (2, 0)
        retainer.stop(0)
        gateway.loop.run(gateway.aclose())
        monkeypatch.setattr(gateway, "_address", hindsight_url)
    report = retainer.flush(60)
    assert (report.delivered, report.dead) == (2, 0)
    retainer.stop(0)
