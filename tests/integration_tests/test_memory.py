"""The one door, against a real Hindsight and against what may stand in its place."""

from __future__ import annotations

import asyncio
import copy
import gc
import logging
import multiprocessing
import os
import pickle
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from faulty_network import HTML, answering, closed_port, hanging, resetting
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from remembering import stored

from langchain_hindsight import (
    BankResolutionError,
    ConfigurationError,
    DualBankMemory,
    HindsightError,
    HindsightSettings,
    LifeBankDisabledError,
)
from langchain_hindsight.gateway import GatewayError

NO_MODELS = HindsightSettings(mental_models={"inject": False})  # requests are counted


@pytest.fixture
def memory(hindsight_url, bank_id, life_bank_id):
    with DualBankMemory(
        hindsight_url, project_bank=bank_id, project_id="billing", life_bank=life_bank_id
    ) as memory:
        yield memory


def remember(memory, *texts):
    for text in texts:
        assert memory.retain(text).status == "stored"


# Recall and retain


def test_a_project_note_is_stored_and_recalled(memory):
    remember(memory, "The billing service deploys on Fridays.")
    result = memory.recall("When does the billing service deploy?")
    assert "deploys on Fridays" in result.text
    assert result.project.memories[0].tags == ("project:billing",)
    assert result.life.memories == ()


def test_a_life_note_is_stored_and_recalled_beside_the_project(memory):
    remember(memory, "The billing service deploys on Fridays.")
    assert memory.retain_life("Prefers short answers about deploys.").status == "stored"
    result = memory.recall("Give me an answer about deploys.")
    assert [one.text for one in result.life.memories] == ["Prefers short answers about deploys."]
    assert result.project.memories


async def test_everything_awaited_does_the_same(memory):
    assert (await memory.aretain("We use PostgreSQL 18.")).status == "stored"
    assert (await memory.aretain_life("Likes PostgreSQL.")).status == "stored"
    result = await memory.arecall("Which PostgreSQL do we use?")
    assert result.project.memories
    assert result.life.memories
    await memory.aclose()


def test_a_conversation_is_queued_delivered_and_recalled(memory):
    talk = [HumanMessage("We chose Kafka for events.", id="1"), AIMessage("Noted.", id="2")]
    receipt = memory.retain(talk, thread_id="t")
    assert (receipt.status, receipt.items) == ("queued", 2)
    assert not memory.flush(30).timed_out
    assert "Kafka" in memory.recall("What did we choose for events?").text


def test_the_same_conversation_again_is_nothing_new(memory):
    talk = [HumanMessage("We chose Kafka.", id="1"), AIMessage("Noted.", id="2")]
    memory.retain(talk, thread_id="t")
    assert memory.retain(talk, thread_id="t").items == 0


def test_a_message_that_was_edited_under_its_id_is_another_turn(memory):
    remember(memory, "We deploy on Fridays.", "The mascot is a hedgehog.")
    config = {"configurable": {"thread_id": "t"}}
    memory.recall_turn([HumanMessage("When do we deploy?", id="m")], config)
    edited = memory.recall_turn([HumanMessage("What is the mascot?", id="m")], config)
    assert "hedgehog" in edited.project.memories[0].text


def test_dicts_and_pairs_are_messages_too(memory):
    talk = [{"role": "user", "content": "We chose Kafka for events."}, ("ai", "Noted.")]
    assert memory.retain(talk, thread_id="t").items == 2
    memory.flush(30)
    assert "Kafka" in memory.recall([("human", "What did we choose for events?")]).text


def test_another_projects_memories_in_the_same_bank_stay_unseen(memory, hindsight_url, bank_id):
    remember(memory, "The billing service deploys on Fridays.")
    with DualBankMemory(hindsight_url, project_bank=bank_id, project_id="other") as other:
        assert other.recall("When does the billing service deploy?").text == ""


def test_a_bank_that_does_not_exist_yet_recalls_nothing_and_is_no_error(memory, caplog):
    result = memory.recall("When do we deploy?").raise_for_error()
    assert (result.text, result.project.error, result.life.error) == ("", None, None)
    assert not [one for one in caplog.records if one.levelno >= logging.WARNING]


@pytest.mark.parametrize("query", ["", "   ", "?!", "🙂", "\n\t", "…"])
def test_a_question_without_words_asks_nothing_and_says_why(memory, query):
    memory.close()
    with answering() as server, DualBankMemory(server.url, project_bank="b", project_id="p") as one:
        result = one.recall(query)
        assert (result.text, server.asked) == ("", 0)
        assert result.reason


def test_a_limit_of_zero_asks_nothing():
    settings = HindsightSettings(recall={"max_tokens": 0})
    with (
        answering() as server,
        DualBankMemory(server.url, project_bank="b", project_id="p", settings=settings) as memory,
    ):
        assert memory.recall("When do we deploy?").raise_for_error().text == ""
        assert server.asked == 0


def test_a_bank_that_is_both_is_asked_once(hindsight_url, bank_id):
    with DualBankMemory(hindsight_url, project_bank=bank_id, project_id="p") as before:
        remember(before, "We deploy on Fridays.")
    with pytest.raises(ConfigurationError, match="is the Project Bank's id too"):
        DualBankMemory(hindsight_url, project_bank=bank_id, project_id="p", life_bank=bank_id)
    with DualBankMemory(
        hindsight_url, project_bank=lambda _: bank_id, project_id="p", life_bank=bank_id
    ) as memory:
        result = memory.recall("When do we deploy?")
        assert len(result.project.memories) == 1
        assert result.life is None
        with pytest.raises(ConfigurationError, match="same bank"):
            memory.retain_life("Likes Fridays.")


@pytest.mark.parametrize("said", ["A note.", [HumanMessage("We chose Kafka.")]])
def test_nothing_is_retained_to_a_project_bank_that_is_the_callers_life_bank(hindsight_url, said):
    with DualBankMemory(
        hindsight_url,
        project_bank=lambda values: values["tenant"],
        project_id="p",
        life_bank="{user_id}",
    ) as memory:
        asking = {"configurable": {"tenant": "anna", "user_id": "anna"}}
        receipt = memory.retain(said, "t", asking)
        assert receipt.status == "skipped"
        assert "Life Bank" in receipt.reason


def test_the_same_question_again_costs_no_request_until_the_bank_takes_something_new(memory):
    remember(memory, "We deploy on Fridays.")
    first = memory.recall("When do we deploy?")
    assert memory.recall("When do we deploy?") is first
    remember(memory, "We also deploy on Mondays.")
    assert "Mondays" in memory.recall("When do we deploy?").text


def test_a_turn_keeps_its_recall_when_something_is_retained_in_between(memory):
    remember(memory, "We deploy on Fridays.")
    turn = [HumanMessage("When do we deploy?", id="m")]
    config = {"configurable": {"thread_id": "t"}}
    first = memory.recall_turn(turn, config)
    remember(memory, "We also deploy on Mondays.")
    assert memory.recall_turn([*turn, AIMessage("", tool_calls=[])], config) is first


# Who is asking


def test_a_missing_value_loses_that_bank_and_nothing_else(hindsight_url, bank_id, caplog):
    with DualBankMemory(
        hindsight_url, project_bank=bank_id, project_id="p", life_bank="life-{user_id}"
    ) as memory:
        remember(memory, "We deploy on Fridays.")
        result = memory.recall("When do we deploy?")
    assert result.project.memories
    assert isinstance(result.life.error, BankResolutionError)
    assert result.life.bank_id is None
    assert len([one for one in caplog.records if one.levelno == logging.WARNING]) == 1


def test_a_missing_value_skips_automatic_retain_and_refuses_an_explicit_one(hindsight_url):
    with DualBankMemory(
        hindsight_url, project_bank="coding-{tenant}", project_id="p", life_bank="life-{user_id}"
    ) as memory:
        receipt = memory.retain([HumanMessage("x")], thread_id="t")
        assert receipt.status == "skipped"
        assert "tenant" in receipt.reason
        with pytest.raises(BankResolutionError, match="user_id"):
            memory.retain_life("Likes tea.", {"configurable": {"user_id": "  "}})
        with pytest.raises(BankResolutionError, match="tenant"):
            memory.reflect("Why?")


def test_two_people_never_see_each_other(hindsight_url, bank_id):
    with DualBankMemory(
        hindsight_url, project_bank=bank_id, project_id="p", life_bank=f"{bank_id}-{{user_id}}"
    ) as memory:
        one = {"configurable": {"user_id": "one"}}
        two = {"configurable": {"user_id": "two"}}
        memory.retain_life("Drinks green tea.", one)
        assert "tea" in memory.recall("What tea is drunk?", one).text
        assert memory.recall("What tea is drunk?", two).text == ""


def test_the_memory_modes_hold(memory):
    remember(memory, "We deploy on Fridays.")
    talk = [HumanMessage("We chose Kafka.")]
    reading = {"configurable": {"memory_mode": "read-only"}}
    ignoring = {"configurable": {"memory_mode": "ignored"}}
    assert memory.recall("When do we deploy?", reading).text
    assert memory.retain(talk, "t", reading).status == "skipped"
    assert memory.retain("A note by hand.", config=reading).status == "stored"
    assert memory.recall("When do we deploy?", ignoring).text == ""
    assert memory.retain(talk, "t", ignoring).status == "skipped"
    with pytest.raises(HindsightError, match="ignored"):
        memory.retain_life("Likes tea.", ignoring)


def everything_in(memory, *questions):
    """What recall knows of some questions, and what is still to be delivered of them."""
    assert not memory.flush(30).timed_out
    return " ".join(memory.recall(question).text for question in questions)


SECRET = "The merger partner is Quixotic."


def turn(number, said, answer):
    return [HumanMessage(said, id=f"h{number}"), AIMessage(answer, id=f"a{number}")]


@pytest.mark.parametrize("unit", ["message", "turn"])
@pytest.mark.parametrize("mode", ["read-only", "ignored", "no such mode"])
@pytest.mark.parametrize("use_async", [False, True])
def test_what_is_said_off_the_record_is_kept_by_no_later_run(
    hindsight_url, bank_id, mode, unit, use_async
):
    settings = HindsightSettings(retain={"unit": unit})
    off = {"configurable": {"memory_mode": mode}}
    talk = [
        *turn(1, "We chose Kafka.", "Noted."),
        *turn(2, SECRET, "The Quixotic merger, I see."),
        *turn(3, "We deploy on Fridays.", "Good."),
    ]
    with DualBankMemory(
        hindsight_url, project_bank=bank_id, project_id="p", settings=settings
    ) as memory:

        def retain(part, config=None):
            if use_async:
                return asyncio.run(memory.aretain(part, "t", config))
            return memory.retain(part, "t", config)

        assert retain(talk[:2]).items == 2
        assert retain(talk[:4], off).status == "skipped"
        assert retain(talk).items == 2
        assert retain(talk).items == 0
        known = everything_in(memory, "What about Kafka?", "When do we deploy on Fridays?", SECRET)
    assert "Kafka" in known
    assert "Fridays" in known
    assert "Quixotic" not in known


def test_not_even_the_context_of_what_is_kept_names_what_was_off_the_record(
    hindsight_url, bank_id, monkeypatch
):
    sent = []
    off = {"configurable": {"memory_mode": "read-only"}}
    with DualBankMemory(hindsight_url, project_bank=bank_id, project_id="p") as memory:
        send = memory._gateway.retain

        async def watched(bank, items, *, operation_id):
            sent.extend(items)
            return await send(bank, items, operation_id=operation_id)

        monkeypatch.setattr(memory._gateway, "retain", watched)
        talk = turn(1, SECRET, "The Quixotic merger, I see.")
        memory.retain(talk, "t", off)
        memory.retain([*talk, *turn(2, "Yes, do that.", "Done.")], "t")
        assert not memory.flush(30).timed_out
    assert [item["content"] for item in sent] == ["user: Yes, do that.", "assistant: Done."]
    assert "Quixotic" not in str(sent)
    assert "Yes, do that." in sent[1]["context"]


def test_words_that_change_under_their_id_stay_off_the_record(memory):
    off = {"configurable": {"memory_mode": "ignored"}}
    memory.retain([HumanMessage("Half a", id="h1")], "t", off)
    memory.retain([HumanMessage(SECRET, id="h1"), *turn(2, "We chose Kafka.", "Noted.")], "t")
    known = everything_in(memory, SECRET, "What about Kafka?")
    assert "Kafka" in known
    assert "Quixotic" not in known


def test_words_that_were_kept_and_changed_off_the_record_stay_as_they_were(memory):
    off = {"configurable": {"memory_mode": "ignored"}}
    memory.retain([HumanMessage("We chose Kafka.", id="h1")], "t")
    memory.flush(30)
    memory.retain([HumanMessage(SECRET, id="h1")], "t", off)
    memory.retain([HumanMessage(SECRET, id="h1")], "t")
    known = everything_in(memory, SECRET, "What about Kafka?")
    assert "Kafka" in known
    assert "Quixotic" not in known


def test_a_turn_off_the_record_that_fails_after_its_recall_is_not_kept_later(memory):
    off = {"configurable": {"memory_mode": "read-only", "thread_id": "t"}}
    memory.recall_turn([HumanMessage(SECRET, id="h1")], off)
    memory.retain([HumanMessage(SECRET, id="h1"), *turn(2, "We chose Kafka.", "Noted.")], "t")
    assert "Quixotic" not in everything_in(memory, SECRET)


def test_no_tool_traffic_of_a_run_off_the_record_is_kept_later(memory):
    off = {"configurable": {"memory_mode": "read-only"}}
    calls = [{"name": "search", "args": {"q": "Quixotic"}, "id": "c"}]
    talk = [
        HumanMessage("Look it up.", id="h1"),
        AIMessage("", id="a1", tool_calls=calls),
        ToolMessage("Quixotic failed", id="t1", tool_call_id="c", name="search", status="error"),
    ]
    memory.retain(talk, "t", off)
    memory.retain([*talk, *turn(2, "We chose Kafka.", "Noted.")], "t")
    assert "Quixotic" not in everything_in(memory, "What about Quixotic?", "Which search failed?")


def test_messages_without_ids_stay_off_the_record_too(memory):
    off = {"configurable": {"memory_mode": "ignored"}}
    talk = [HumanMessage(SECRET), AIMessage("The Quixotic merger, I see.")]
    memory.retain(talk, "t", off)
    memory.retain([*talk, HumanMessage("We chose Kafka."), AIMessage("Noted.")], "t")
    known = everything_in(memory, SECRET, "What about Kafka?")
    assert "Kafka" in known
    assert "Quixotic" not in known


def test_no_word_that_was_off_the_record_is_written_to_the_outbox(memory, tmp_path):
    memory.retain(
        [HumanMessage(SECRET, id="h1")], "t", {"configurable": {"memory_mode": "ignored"}}
    )
    memory.close()
    written = b"".join(one.read_bytes() for one in tmp_path.glob("outbox.db*"))
    assert written
    assert b"Quixotic" not in written


def test_no_life_bank_is_said_plainly(hindsight_url, bank_id):
    with (
        DualBankMemory(hindsight_url, project_bank=bank_id, project_id="p") as memory,
        pytest.raises(LifeBankDisabledError, match="life_bank"),
    ):
        memory.retain_life("Likes tea.")


# A server that is not there, or not well


@pytest.mark.parametrize(
    ("body", "kind", "status", "headers"),
    [
        (b'{"results": []}', "application/json; charset=foo", 200, {}),
        (b"[" * 200_000, "application/json", 200, {}),
        (b'{"results": ' + b"[" * 3000 + b"]" * 3000 + b"}", "application/json", 200, {}),
        (b'{"results": [{"id": "1", "te', "application/json", 200, {}),
        (b'{"results": [{"id": "1", "text": "\xff"}]}', "application/json", 200, {}),
        (b"", "text/plain", 302, {"Location": "foo://x"}),
        (b"", "text/plain", 302, {"Location": "/"}),
        (b"xx", "application/json", 200, {"Content-Encoding": "gzip"}),
        (b'{"detail": "x"}', "application/json", 429, {"Retry-After": "nan"}),
        (b'{"detail": [1, {"msg": 2}]}', "application/json", 400, {}),
    ],
)
def test_no_answer_however_odd_makes_recall_raise(body, kind, status, headers):
    with (
        answering(status, body, kind=kind, headers=headers) as server,
        DualBankMemory(server.url, project_bank="b", project_id="p") as memory,
    ):
        assert isinstance(memory.recall("When do we deploy?").project.error, GatewayError)


@pytest.fixture(
    params=["refused", "reset", "500", "html", "hangs", "busy", "json of another kind", "401"]
)
def sick_url(request):
    if request.param == "refused":
        yield f"http://127.0.0.1:{closed_port()}"
    elif request.param == "reset":
        with resetting() as url:
            yield url
    elif request.param == "hangs":
        with hanging() as url:
            yield url
    else:
        answer = {
            "500": {"status": 500, "body": b"oops"},
            "html": {"body": HTML},
            "busy": {"status": 503, "headers": {"Retry-After": "120"}},
            "json of another kind": {"body": b'{"a": 1}', "kind": "application/json"},
            "401": {"status": 401, "body": b'{"detail": "no"}', "kind": "application/json"},
        }[request.param]
        with answering(**answer) as server:
            yield server.url


@pytest.fixture
def sick_memory(sick_url):
    settings = HindsightSettings(
        recall={"timeout": 1.0}, timeout=1.0, outbox={"shutdown_timeout": 0.1}
    )
    with DualBankMemory(
        sick_url, "made-up-key", project_bank="b", project_id="p", life_bank="l", settings=settings
    ) as memory:
        memory.recall("Load the client, so that the deadline is the server's alone.")
        yield memory


def test_a_sick_server_costs_its_deadline_its_memories_and_one_warning(
    sick_memory, sick_url, caplog
):
    started = time.monotonic()
    result = sick_memory.recall("When do we deploy?")
    assert time.monotonic() - started < 2.0
    assert result.text == ""
    assert sick_url in str(result.project.error)
    assert sick_url in str(result.life.error)
    assert len([one for one in caplog.records if one.levelno == logging.WARNING]) == 1
    with pytest.raises(GatewayError):
        result.raise_for_error()


async def test_a_sick_server_costs_an_awaiting_caller_the_same(sick_memory, sick_url):
    started = time.monotonic()
    result = await sick_memory.arecall("When do we deploy?")
    assert time.monotonic() - started < 2.0
    assert sick_url in str(result.project.error)


def test_a_sick_server_never_makes_retain_raise(sick_memory):
    assert sick_memory.retain([HumanMessage("We chose Kafka.")], "t").status == "queued"
    assert sick_memory.status().waiting + sick_memory.status().in_flight == 1


def test_an_explicit_call_to_a_sick_server_says_which_and_what_to_try(sick_memory, sick_url):
    with pytest.raises(HindsightError, match=sick_url):
        sick_memory.reflect("How do we deploy?")


def test_nothing_that_is_said_holds_a_part_of_the_key(sick_memory, caplog):
    result = sick_memory.recall("When do we deploy?")
    receipt = sick_memory.retain("A note.")
    said = f"{result} {result.project.error} {receipt} {sick_memory} {sick_memory.settings}"
    assert "made-up-key" not in said + caplog.text + str(sick_memory.status())


def test_one_bank_down_leaves_the_others_memory(memory, monkeypatch):
    remember(memory, "We deploy on Fridays.")
    memory.retain_life("Likes to deploy.")
    recall = memory._gateway.recall

    async def half(bank_id, *args, **kwargs):
        if bank_id == memory.settings.banks.life.bank_id:
            msg = "The Life Bank is away."
            raise GatewayError(msg, kind="unreachable")
        return await recall(bank_id, *args, **kwargs)

    monkeypatch.setattr(memory._gateway, "recall", half)
    result = memory.recall("When do we deploy?")
    assert "Fridays" in result.text
    assert "away" in str(result.life.error)


def test_a_failure_is_never_held_as_nothing_known(hindsight_url, bank_id, monkeypatch):
    with DualBankMemory(hindsight_url, project_bank=bank_id, project_id="p") as memory:
        remember(memory, "We deploy on Fridays.")
        with monkeypatch.context() as patched:

            async def away(*_args, **_kwargs):
                msg = "away"
                raise GatewayError(msg, kind="unreachable")

            patched.setattr(memory._gateway, "recall", away)
            assert memory.recall("When do we deploy?").text == ""
        assert "Fridays" in memory.recall("When do we deploy?").text


def test_a_short_overload_is_waited_for_and_a_long_one_is_not():
    with (
        answering(503, headers={"Retry-After": "0"}) as server,
        DualBankMemory(server.url, project_bank="b", project_id="p", settings=NO_MODELS) as memory,
    ):
        assert memory.recall("When do we deploy?").project.error.kind == "busy"
        assert server.asked == 3
    with (
        answering(503, headers={"Retry-After": "120"}) as server,
        DualBankMemory(server.url, project_bank="b", project_id="p", settings=NO_MODELS) as memory,
    ):
        memory.recall("When do we deploy?")
        assert server.asked == 1


# The key


def test_a_missing_and_a_wrong_key_are_told_apart_and_said_once(caplog):
    refusal = {"status": 401, "body": b'{"detail": "no"}', "kind": "application/json"}
    with answering(**refusal) as server:
        with DualBankMemory(server.url, project_bank="b", project_id="p") as memory:
            assert "none was sent" in str(memory.recall("When?").project.error)
            memory.recall("Why?")
        with DualBankMemory(server.url, "made-up-key", project_bank="b", project_id="p") as memory:
            assert "refused the API key" in str(memory.recall("When?").project.error)
    said = [one.getMessage() for one in caplog.records if one.levelno == logging.ERROR]
    assert len(said) == 2


@pytest.mark.parametrize(
    ("variable", "key"),
    [("HINDSIGHT_API_KEY", None), ("TEAM_KEY", {"source": "env", "name": "TEAM_KEY"})],
)
def test_a_key_that_is_renewed_in_the_environment_is_read_once_more(
    monkeypatch, hindsight_url, variable, key
):
    seen = []
    monkeypatch.setenv(variable, "old")
    with DualBankMemory(
        hindsight_url, key, project_bank="b", project_id="p", settings=NO_MODELS
    ) as memory:
        send = memory._gateway._translate

        async def refuse_the_old(call):
            seen.append(memory._gateway._key)
            if memory._gateway._key == "old":
                call.close()
                msg = "refused"
                raise GatewayError(msg, kind="auth", status=401)
            return await send(call)

        monkeypatch.setattr(memory._gateway, "_translate", refuse_the_old)
        assert memory.recall("When?").project.error is not None
        monkeypatch.setenv(variable, "new")
        assert memory.recall("Why?").project.error is None
    assert seen == ["old", "old", "new"]


def test_a_key_that_no_header_can_hold_is_refused_without_being_shown(hindsight_url):
    with pytest.raises(ConfigurationError) as refused:
        DualBankMemory(hindsight_url, "made\nup", project_bank="b", project_id="p")
    assert "made" not in str(refused.value)


def test_such_a_key_in_the_environment_costs_the_memories_alone(hindsight_url, monkeypatch):
    monkeypatch.setenv("HINDSIGHT_API_KEY", "made\nup")
    with DualBankMemory(hindsight_url, project_bank="b", project_id="p") as memory:
        error = memory.recall("When do we deploy?").project.error
        assert isinstance(error, ConfigurationError)
        assert "made" not in str(error)


def broken_vault():
    msg = "vault down, token made-up-key"
    raise ConnectionError(msg)


def test_a_function_for_the_key_that_fails_costs_the_memories_and_shows_nothing(hindsight_url):
    with DualBankMemory(hindsight_url, broken_vault, project_bank="b", project_id="p") as memory:
        error = memory.recall("When do we deploy?").project.error
        assert "ConnectionError" in str(error)
        assert "made-up-key" not in str(error)


def test_a_function_for_the_key_that_hangs_costs_the_deadline(hindsight_url):
    settings = HindsightSettings(recall={"timeout": 0.5})
    released = threading.Event()
    with DualBankMemory(
        hindsight_url,
        lambda: released.wait(10) and "key",
        project_bank="b",
        project_id="p",
        settings=settings,
    ) as memory:
        started = time.monotonic()
        assert memory.recall("When do we deploy?").project.error.kind == "timeout"
        assert time.monotonic() - started < 5
        released.set()


def test_a_working_directory_that_is_gone_costs_the_memories_and_says_so(
    hindsight_url, tmp_path, monkeypatch
):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with DualBankMemory(hindsight_url, project_bank="b") as memory:
        assert "pin project_id" in str(memory.recall("When do we deploy?").project.error)
        assert memory.retain([HumanMessage("x")], "t").status == "skipped"
    monkeypatch.undo()


def test_an_error_can_be_copied_and_pickled():
    error = GatewayError("busy", kind="busy", status=503, retry_after=1.0)
    again = pickle.loads(pickle.dumps(copy.deepcopy(error)))
    assert (str(again), again.kind, again.status, again.retry_after) == ("busy", "busy", 503, 1.0)


@pytest.mark.parametrize("url", ["localhost:8888", "ftp://host", "http://", "", "http://h:port"])
def test_a_url_that_is_none_is_refused_at_once(url):
    with pytest.raises(ConfigurationError, match="url"):
        DualBankMemory(url, project_bank="b", project_id="p")


# Threads, loops, forks, copies, lifetime


async def test_the_synchronous_face_works_inside_a_running_loop(memory):
    remember(memory, "We deploy on Fridays.")
    assert "Fridays" in memory.recall("When do we deploy?").text


def test_several_event_loops_one_after_the_other_all_recall(memory):
    remember(memory, "We deploy on Fridays.")
    for question in ("When do we deploy?", "On which day do we deploy?", "Deploy when?"):
        assert "Fridays" in asyncio.run(memory.arecall(question)).text


def test_many_threads_at_once_all_recall(memory):
    remember(memory, "We deploy on Fridays.")
    with ThreadPoolExecutor(8) as pool:
        results = pool.map(lambda n: memory.recall(f"When do we deploy, {n}?").text, range(24))
        assert all("Fridays" in text for text in results)


def test_callers_that_come_at_once_build_one_client(memory, monkeypatch):
    from langchain_hindsight import gateway

    built = []
    build = gateway._new_connection
    monkeypatch.setattr(gateway, "_new_connection", lambda *a: built.append(1) or build(*a))
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: memory.recall(f"When, {n}?"), range(8)))
    assert len(built) == 1


def in_a_child(memory, results):
    try:
        results.put(memory.recall("When do we deploy?").raise_for_error().text)
    finally:
        memory.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_worker_recalls_and_leaves_the_parents_memory_working(memory):
    remember(memory, "We deploy on Fridays.")
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()
    children = [context.Process(target=in_a_child, args=(memory, results)) for _ in range(2)]
    for child in children:
        child.start()
    answers = [results.get() for _ in children]
    for child in children:
        child.join(30)
    assert [child.exitcode for child in children] == [0, 0]
    assert all("Fridays" in text for text in answers)
    assert "Fridays" in memory.recall("Which day do we deploy on?").text


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_while_a_recall_is_under_way_leaves_both_sides_working(hindsight_url, bank_id):
    with DualBankMemory(hindsight_url, project_bank=bank_id, project_id="p") as memory:
        remember(memory, "We deploy on Fridays.")
        let_go = threading.Event()
        send = memory._gateway.recall

        async def held(*args, **kwargs):
            await asyncio.to_thread(let_go.wait, 20)
            return await send(*args, **kwargs)

        memory._gateway.recall = held
        with ThreadPoolExecutor(1) as pool:
            call = pool.submit(memory.recall, "When do we deploy?")
            while not memory._recall._in_flight:
                time.sleep(0.01)
            forking = multiprocessing.get_context("fork")
            results = forking.SimpleQueue()

            def ask(memory, results):
                memory._gateway.recall = send
                in_a_child(memory, results)

            child = forking.Process(target=ask, args=(memory, results))
            child.start()
            assert "Fridays" in results.get()
            child.join(30)
            let_go.set()
            assert "Fridays" in call.result(30).text
        assert child.exitcode == 0


@pytest.fixture
def patient_memory():
    """A memory whose server is away and whose outbox keeps all."""
    settings = HindsightSettings(outbox={"shutdown_timeout": 0.0})
    url = f"http://127.0.0.1:{closed_port()}"
    with DualBankMemory(url, project_bank="b", project_id="p", settings=settings) as memory:
        yield memory


def note_down(memory, name):
    receipt = memory.retain([HumanMessage(f"Said by {name}.", id=name)], name)
    assert (receipt.status, receipt.reason) == ("queued", None)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_what_forked_workers_write_down_outlives_the_parents_close(patient_memory):
    forking = multiprocessing.get_context("fork")
    begun, closed = forking.Semaphore(0), forking.Semaphore(0)

    def work(memory, name):
        note_down(memory, f"{name}-before")
        begun.release()
        assert closed.acquire(timeout=30)
        note_down(memory, f"{name}-after")
        os._exit(0)  # as a worker that is killed: nothing is put in order

    note_down(patient_memory, "parent")
    names = ("one", "two")
    workers = [forking.Process(target=work, args=(patient_memory, name)) for name in names]
    for worker in workers:
        worker.start()
    for _ in workers:
        assert begun.acquire(timeout=30)
    patient_memory.close()
    for _ in workers:
        closed.release()
    for worker in workers:
        worker.join(30)
    assert [worker.exitcode for worker in workers] == [0, 0]
    assert patient_memory.status().waiting + patient_memory.status().in_flight == 5


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_worker_forked_while_its_parent_writes_finds_no_lock_in_its_way(patient_memory):
    forking = multiprocessing.get_context("fork")
    ended = threading.Event()

    def write():
        for number in range(10_000):
            if ended.is_set():
                return
            note_down(patient_memory, f"parent-{number}")

    def work(memory, name):
        note_down(memory, name)
        os._exit(0)

    with ThreadPoolExecutor(2) as pool:
        writing = [pool.submit(write)]
        codes = []
        for number in range(4):
            worker = forking.Process(target=work, args=(patient_memory, f"worker-{number}"))
            worker.start()
            worker.join(30)
            codes.append(worker.exitcode)
        ended.set()
        for one in writing:
            one.result(30)
    assert codes == [0] * 4


def test_a_copy_is_the_same_memory(memory):
    assert copy.copy(memory) is memory
    assert copy.deepcopy(memory) is memory


def test_a_pickle_holds_the_configuration_and_not_the_key(hindsight_url, bank_id):
    with DualBankMemory(
        hindsight_url, "made-up-key", project_bank=bank_id, project_id="p"
    ) as memory:
        frozen = pickle.dumps(memory)
    assert b"made-up-key" not in frozen
    with pickle.loads(frozen) as again:
        remember(again, "We deploy on Fridays.")
        assert "Fridays" in again.recall("When do we deploy?").text


def test_closing_leaves_no_thread_session_or_task(memory):
    before = set(threading.enumerate())
    remember(memory, "We deploy on Fridays.")
    memory.recall("When do we deploy?")
    memory.close()
    memory.close()
    gc.collect()  # an unclosed session would warn here, and warnings are errors
    assert set(threading.enumerate()) <= before


def test_a_closed_memory_opens_again_when_it_is_used(memory):
    remember(memory, "We deploy on Fridays.")
    memory.close()
    assert "Fridays" in memory.recall("When do we deploy?").text


def test_a_memory_that_nobody_closed_leaves_nothing_behind_when_collected(hindsight_url, bank_id):
    before = set(threading.enumerate())
    memory = DualBankMemory(hindsight_url, project_bank=bank_id, project_id="p")
    memory.recall("When do we deploy?")
    del memory
    gc.collect()
    deadline = time.monotonic() + 10
    while set(threading.enumerate()) - before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not set(threading.enumerate()) - before


def test_a_memory_that_nobody_closed_delivers_all_it_holds_when_the_program_ends(
    hindsight_url, bank_id
):
    program = f"""
import gc
from langchain_hindsight import DualBankMemory

def work():
    memory = DualBankMemory({hindsight_url!r}, project_bank={bank_id!r}, project_id="p")
    said = [message for week in range(30) for message in
            (("human", f"We deploy on Friday {{week}}."), ("ai", f"Noted, {{week}}."))]
    print(memory.retain(said, "t").status)

work()
gc.collect()
"""
    many_requests = {"HINDSIGHT_OUTBOX__BATCH_SIZE": "1"}
    patient = {"HINDSIGHT_OUTBOX__SHUTDOWN_TIMEOUT": "20"}
    run = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **many_requests, **patient},
    )
    assert (run.stdout.strip(), run.stderr) == ("queued", "")
    assert len(stored(hindsight_url, bank_id)) == 60


def test_an_agent_in_another_thread_goes_on_when_the_main_thread_has_ended(hindsight_url, bank_id):
    program = f"""
import asyncio, threading
from langchain_hindsight import DualBankMemory

memory = DualBankMemory({hindsight_url!r}, project_bank={bank_id!r}, project_id="p")

async def agent():
    while threading.main_thread().is_alive():
        await asyncio.sleep(0.01)
    for turn in range(2):
        said = [("human", f"Service {{turn}} deploys on Fridays."), ("ai", "Noted.")]
        print((await memory.aretain(said, "t")).status)
        print((await memory.arecall("When do we deploy?")).project.error)
    print((await memory.aflush(30)).timed_out)
    await memory.aclose()

threading.Thread(target=lambda: asyncio.run(agent())).start()
"""
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert run.stdout.split() == ["queued", "None"] * 2 + ["False"]
    assert run.stderr == ""
    assert len(stored(hindsight_url, bank_id)) == 4


async def test_cancelling_the_run_cancels_the_request():
    async def until(condition):
        async with asyncio.timeout(10):
            while not condition():  # noqa: ASYNC110 - what the other thread holds has no event
                await asyncio.sleep(0.01)

    with hanging() as url, DualBankMemory(url, project_bank="b", project_id="p") as memory:
        task = asyncio.ensure_future(memory.arecall("When do we deploy?"))
        await until(lambda: memory._recall._in_flight)
        (shared,) = memory._recall._in_flight.values()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: not memory._recall._in_flight and shared.task.cancelled())


def test_what_an_earlier_process_left_behind_is_delivered_by_the_next_that_recalls(
    hindsight_url, bank_id
):
    settings = HindsightSettings(outbox={"shutdown_timeout": 0.0})
    names = {"project_bank": bank_id, "project_id": "p", "settings": settings}
    with DualBankMemory(hindsight_url, **names) as memory:
        memory._gateway.retain = None  # the process dies before it can send
        assert memory.retain([HumanMessage("We chose Kafka.")], "t").status == "queued"
    with DualBankMemory(hindsight_url, **names) as memory:
        memory.recall("Load what was left.")
        deadline = time.monotonic() + 20
        while not memory.status().delivered and time.monotonic() < deadline:
            time.sleep(0.05)
        assert memory.status().delivered == 1
        assert "Kafka" in memory.recall("Is Kafka what we chose?").text


def test_a_note_that_is_cancelled_while_it_waits_is_written_down_and_holds_up_nothing(bank_id):
    def written_down(status):
        return status.waiting + status.in_flight

    async def give_up(memory):
        task = asyncio.ensure_future(memory.aretain("We deploy on Fridays."))
        async with asyncio.timeout(10):
            while not written_down(await memory.astatus()):  # noqa: ASYNC110 - a row has no event
                await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with hanging() as url, DualBankMemory(url, project_bank=bank_id, project_id="p") as memory:
        started = time.monotonic()
        asyncio.run(give_up(memory))
        assert time.monotonic() - started < 8
        assert written_down(memory.status()) == 1
