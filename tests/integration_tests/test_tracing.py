"""A turn's memory can be watched: in the custom stream, by callbacks, by OpenTelemetry."""

from __future__ import annotations

import asyncio
import json

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import HumanMessage
from langsmith.run_helpers import tracing_context
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from remembering import LIFE_NOTE, NOTES, QUESTION, model_of, open_memory, remember_both, stored
from surfaces import both, every_graph

THREAD = {"thread_id": "t-1"}


@pytest.fixture
def memory(hindsight_url, bank_id, life_bank_id):
    with open_memory(hindsight_url, bank_id, life_bank_id) as memory:
        remember_both(memory)
        yield memory


@pytest.fixture(scope="module")
def spans():
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    return exporter


@pytest.fixture(scope="module")
def readings():
    reader = InMemoryMetricReader()
    metrics.set_meter_provider(MeterProvider([reader]))
    return reader


class Watcher(BaseCallbackHandler):
    """Notes the runs that it sees, as a tracer does."""

    def __init__(self):
        self.runs = {}

    def on_chain_start(self, serialized, inputs, *, run_id, parent_run_id=None, name="", **kwargs):
        self.runs[run_id] = {"name": name, "parent": parent_run_id, "inputs": inputs}

    def on_chain_end(self, outputs, *, run_id, **kwargs):
        self.runs[run_id]["outputs"] = outputs

    def named(self, name):
        return [one for one in self.runs.values() if one["name"] == name]


def stream(graph, config, *, use_async):
    given = {"messages": [HumanMessage(QUESTION)]}

    async def collect():
        return [one async for one in graph.astream(given, config, stream_mode="custom")]

    if use_async:
        return asyncio.run(collect())
    return list(graph.stream(given, config, stream_mode="custom"))


@every_graph
@both
def test_the_custom_stream_tells_what_was_recalled_from_each_bank_and_retained(
    memory, build, use_async, bank_id, life_bank_id
):
    graph = build(memory, model_of("At noon."), use_async=use_async)
    told = stream(graph, {"configurable": THREAD}, use_async=use_async)
    assert [one["event"] for one in told] == [
        "recall_started",
        "recall_finished",
        "recall_finished",
        "retained",
    ]
    assert {one["type"] for one in told} == {"hindsight"}
    started, project, life, retained = told
    assert started["banks"] == {"project": bank_id, "life": life_bank_id}
    assert (project["bank"], project["bank_id"], project["limit"]) == ("project", bank_id, 800)
    assert (life["bank"], life["bank_id"], life["limit"]) == ("life", life_bank_id, 400)
    assert len(project["ids"]) == len(NOTES)
    assert 0 < life["tokens"] <= life["limit"]
    assert (retained["status"], retained["bank_id"], retained["items"]) == ("queued", bank_id, 2)


@every_graph
@both
def test_a_turn_shows_its_recall_and_its_retain_as_child_runs(memory, build, use_async, bank_id):
    watcher = Watcher()
    graph = build(memory, model_of("At noon."), use_async=use_async)
    stream(graph, {"configurable": THREAD, "callbacks": [watcher]}, use_async=use_async)
    [recalled], [retained] = (
        watcher.named("hindsight.recall"),
        watcher.named("hindsight.retain")[-1:],
    )
    assert recalled["parent"] in watcher.runs
    assert retained["parent"] in watcher.runs
    assert recalled["inputs"]["banks"]["project"] == bank_id
    assert recalled["outputs"]["project"]["tokens"] > 0
    assert retained["outputs"]["status"] == "queued"


@every_graph
@both
@pytest.mark.parametrize(("hidden", "shown"), [("", True), ("true", False)])
def test_remembered_text_is_told_to_tracing_alone_and_only_where_tracing_shows_it(
    memory, build, use_async, monkeypatch, hidden, shown
):
    monkeypatch.setenv("LANGSMITH_HIDE_OUTPUTS", hidden)
    monkeypatch.setenv("LANGSMITH_API_KEY", "none")  # asked for, though nothing is sent
    watcher = Watcher()
    graph = build(memory, model_of("At noon."), use_async=use_async)
    config = {"configurable": THREAD, "callbacks": [watcher]}
    with tracing_context(enabled="local"):
        told = stream(graph, config, use_async=use_async)
    [recalled] = watcher.named("hindsight.recall")
    assert (NOTES[0] in json.dumps(recalled["outputs"])) is shown
    assert ("query" in recalled["inputs"]) is shown
    assert not any(note in json.dumps(told) for note in (*NOTES, LIFE_NOTE))


@both
def test_without_tracing_no_remembered_text_is_told(memory, use_async):
    watcher = Watcher()
    config = {"configurable": THREAD, "callbacks": [watcher]}
    if use_async:
        assert asyncio.run(memory.arecall(QUESTION, config)).text
    else:
        assert memory.recall(QUESTION, config).text
    [recalled] = watcher.named("hindsight.recall")
    assert NOTES[0] not in json.dumps(recalled["outputs"])
    assert "query" not in recalled["inputs"]


@both
def test_spans_name_the_bank_the_server_and_the_counts_and_no_text(
    memory, spans, readings, use_async, bank_id, life_bank_id
):
    spans.clear()
    config = {"configurable": THREAD}
    said = [("human", "We deploy at noon."), ("ai", "Noted.")]
    if use_async:
        asyncio.run(memory.arecall(QUESTION, config))
        asyncio.run(memory.aretain(said, config=config))
    else:
        memory.recall(QUESTION, config)
        memory.retain(said, config=config)
    found = {one.name: one for one in spans.get_finished_spans()}
    recall, retain = found["hindsight.recall"], found["hindsight.retain"]
    assert recall.attributes["gen_ai.conversation.id"] == "t-1"
    for bank in (bank_id, life_bank_id):
        asked = found[f"retrieval {bank}"]
        assert asked.parent.span_id == recall.context.span_id
        assert asked.kind is trace.SpanKind.CLIENT
        assert asked.attributes["gen_ai.operation.name"] == "retrieval"
        assert asked.attributes["gen_ai.data_source.id"] == bank
        assert asked.attributes["server.address"] == "127.0.0.1"
        assert asked.attributes["hindsight.tokens"] > 0
        assert asked.end_time > asked.start_time
    assert retain.attributes["hindsight.retain.items"] == 2
    assert not any(note in one.to_json() for one in found.values() for note in NOTES)
    names = {
        one.name
        for resource in readings.get_metrics_data().resource_metrics
        for scope in resource.scope_metrics
        for one in scope.metrics
    }
    assert {
        "gen_ai.client.operation.duration",
        "hindsight.recall.tokens",
        "hindsight.retain.items",
    } <= names


@both
def test_a_bank_that_fails_is_an_error_to_those_who_watch(spans, bank_id, use_async):
    spans.clear()
    watcher = Watcher()
    config = {"configurable": THREAD, "callbacks": [watcher]}
    with open_memory("http://127.0.0.1:9", bank_id) as memory:
        if use_async:
            asyncio.run(memory.arecall(QUESTION, config))
        else:
            memory.recall(QUESTION, config)
    [recalled] = watcher.named("hindsight.recall")
    assert "127.0.0.1:9" in recalled["outputs"]["project"]["error"]
    [asked] = [one for one in spans.get_finished_spans() if one.name == f"retrieval {bank_id}"]
    assert asked.status.status_code is trace.StatusCode.ERROR
    assert asked.attributes["error.type"] == "GatewayError"


class Strict(BaseCallbackHandler):
    """A handler whose errors are to be raised."""

    raise_error = True

    def on_chain_start(self, serialized, inputs, *, name="", **kwargs):
        if name == "hindsight.retain":
            msg = "No."
            raise ValueError(msg)


@both
def test_a_handler_that_objects_is_heard_once_the_turn_is_on_disk(memory, bank_id, use_async):
    config = {"configurable": THREAD, "callbacks": [Strict()]}
    said = [("human", "We chose Kafka."), ("ai", "Noted.")]

    def retain():
        if use_async:
            return asyncio.run(memory.aretain(said, config=config))
        return memory.retain(said, config=config)

    with pytest.raises(ValueError, match="No"):
        retain()
    assert not memory.flush(60).timed_out
    assert any("Kafka" in one for one in stored(memory.settings.url, bank_id))
