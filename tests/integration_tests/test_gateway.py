"""The one request of our own, recall, beside the official client's."""

from __future__ import annotations

import asyncio
import json

import pytest
from faulty_network import answering
from hindsight_client import Hindsight

from langchain_hindsight import DualBankMemory, HindsightSettings
from langchain_hindsight.banks import ProjectBank, project_tag_groups
from langchain_hindsight.gateway import Gateway

_SHARED_AND_OLD = {"include_shared": True, "legacy_tags": ("old",)}
_EMPTY = {"body": b'{"results": []}', "kind": "application/json"}


def asked_for(*, types=None, prefer_observations=None, scope=None):
    settings = HindsightSettings(scope=scope or {})
    return {
        "max_tokens": 4096,
        "budget": "mid",
        "types": types,
        "tag_groups": project_tag_groups(ProjectBank("b", "p"), settings),
        "prefer_observations": prefer_observations,
    }


REQUESTS = [
    asked_for(),
    asked_for(types=["world", "observation"], prefer_observations=True),
    asked_for(scope=_SHARED_AND_OLD),
]


def by_gateway(url, bank_id, query, request):
    gateway = Gateway(url, lambda: "made-up-key", 10)
    try:
        return gateway.loop.run(gateway.recall(bank_id, query, timeout=10, **request))
    finally:
        gateway.loop.run(gateway.aclose())
        gateway.loop.close()


def by_client(url, bank_id, query, request):
    async def ask():
        client = Hindsight(url, "made-up-key", user_agent="theirs")
        try:
            return (await client.arecall(bank_id, query, **request)).results
        finally:
            await client.aclose()

    return asyncio.run(ask())


def without_defaults(body):
    """What is left of a request where a null or a default of the server's stands for nothing."""
    defaults = {"trace": False, "tags_match": "any"}
    kept = {name: value for name, value in body.items() if value is not None}
    kept = {name: value for name, value in kept.items() if defaults.get(name, ...) != value}
    include = kept.pop("include")
    assert all(value is None for value in include.values())
    assert "entities" in include  # left out, the server would add them
    groups = json.loads(json.dumps(kept["tag_groups"]), object_hook=_without_exact_resolve)
    return kept | {"tag_groups": groups}


def _without_exact_resolve(group):
    return {name: value for name, value in group.items() if (name, value) != ("resolve", "exact")}


@pytest.mark.parametrize("request_", REQUESTS)
@pytest.mark.parametrize("bank_id", ["b", "a b/ü?#:", "100%25"])
def test_a_recall_is_asked_as_the_client_asks_it(bank_id, request_):
    with answering(**_EMPTY) as server:
        base = f"{server.url}/behind/a/proxy"
        by_gateway(base, bank_id, "Wann, „genau“?", request_)
        by_client(base, bank_id, "Wann, „genau“?", request_)
    (our_path, our_headers, ours), (path, headers, theirs) = server.seen
    assert our_path == path
    assert our_headers.pop("User-Agent").startswith("langchain-hindsight/")
    headers.pop("User-Agent")
    our_headers.pop("Content-Length")
    headers.pop("Content-Length")
    assert our_headers == headers
    assert without_defaults(json.loads(ours)) == without_defaults(json.loads(theirs))


@pytest.mark.parametrize("request_", REQUESTS)
def test_a_recall_is_read_as_the_client_reads_it(hindsight_url, bank_id, request_):
    with DualBankMemory(hindsight_url, project_bank=bank_id, project_id="p") as memory:
        for note in ("We deploy on Fridays.", "The deploy needs two approvals."):
            memory.retain(note).raise_for_error()
        assert not memory.flush(60).timed_out
    ours = by_gateway(hindsight_url, bank_id, "When do we deploy?", request_)
    theirs = by_client(hindsight_url, bank_id, "When do we deploy?", request_)
    assert ours
    for mine, other in zip(ours, theirs, strict=True):
        scores = other.scores.to_dict() if other.scores else {}
        assert (mine.id, mine.text, mine.type) == (other.id, other.text, other.type)
        assert mine.document_id == other.document_id
        assert mine.tags == tuple(other.tags or ())
        assert mine.scores == pytest.approx({k: v for k, v in scores.items() if v is not None})
        assert mine.date.isoformat().startswith((other.occurred_start or other.mentioned_at)[:19])
