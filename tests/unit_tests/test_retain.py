from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sqlite3
import threading
import time
from collections import Counter
from datetime import datetime

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from scripted_server import ScriptedServer, failure
from sqlalchemy.exc import OperationalError

from langchain_hindsight import redaction
from langchain_hindsight import retain as retain_module
from langchain_hindsight.banks import LifeBank, ProjectBank
from langchain_hindsight.errors import ConfigurationError, HindsightError
from langchain_hindsight.gateway import OperationStatus
from langchain_hindsight.outbox import enqueue, leases
from langchain_hindsight.outbox import store as store_module
from langchain_hindsight.outbox.database import Database
from langchain_hindsight.outbox.scope import Draft, Scope
from langchain_hindsight.redaction import redact
from langchain_hindsight.retain import Retainer
from langchain_hindsight.settings import HindsightSettings, OutboxSettings, RetainSettings
from langchain_hindsight.transcript import Transcript

BANK = ProjectBank("work", "billing")
SECRET = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCD"


@pytest.fixture
def server():
    scripted = ScriptedServer()
    yield scripted
    scripted.loop.close()


@pytest.fixture
def open_retainer(server, tmp_path):
    opened = []

    def open_one(url=None, outbox=None, **kept):
        settings = HindsightSettings(
            retain=RetainSettings(**{"unit": "message"} | kept),
            outbox=OutboxSettings(
                url=url or f"sqlite:///{(tmp_path / 'outbox.db').as_posix()}", **outbox or {}
            ),
        )
        opened.append(Retainer(server, settings))
        return opened[-1]

    yield open_one
    for retainer in opened:
        retainer.stop(0)


def turn(*texts):
    kinds = (HumanMessage, AIMessage)
    return [kinds[at % 2](text, id=f"id-{text}") for at, text in enumerate(texts)]


def sent_items(server):
    return [item for _, _, items in server.requests for item in items]


def test_a_life_bank_has_no_automatic_retain(open_retainer, server):
    retainer = open_retainer()
    with pytest.raises(TypeError, match="ProjectBank"):
        retainer.retain_transcript(LifeBank("life"), turn("a"), thread_id="t")
    assert retainer.flush(1).delivered == 0
    assert server.requests == []


def test_constructing_starts_no_thread_and_touches_no_file(open_retainer, server, tmp_path):
    before = threading.active_count()
    open_retainer()
    assert threading.active_count() == before
    assert not server.loop.is_open
    assert not (tmp_path / "outbox.db").exists()


def test_receipts_say_what_was_new(open_retainer):
    retainer = open_retainer()
    first = retainer.retain_transcript(BANK, turn("a", "b"), thread_id="t")
    assert (first.status, first.items, first.bank_id) == ("queued", 2, "work")
    assert retainer.retain_transcript(BANK, turn("a", "b"), thread_id="t").status == "skipped"
    assert retainer.retain_transcript(BANK, [], thread_id="t").status == "skipped"
    nothing = retainer.retain_transcript(BANK, [SystemMessage("rules")], thread_id=None)
    assert (nothing.status, nothing.items) == ("skipped", 0)


async def test_the_awaited_twin_does_the_same(open_retainer, server):
    retainer = open_retainer()
    receipts = [
        await retainer.aretain_transcript(BANK, turn("a", "b"), thread_id="t") for _ in range(2)
    ]
    assert [receipt.status for receipt in receipts] == ["queued", "skipped"]
    assert (await retainer.aflush(10)).delivered == 2
    assert (await retainer.aretain_note(BANK, "n", wait=10)).status == "stored"
    assert (await retainer.astatus()).delivered == 3
    await retainer.astop(1)


def test_an_item_carries_when_who_where_and_in_what_context(open_retainer, server):
    retainer = open_retainer(tags=("team:red",))
    spoken = HumanMessage(
        "Yes, do that.",
        id="id-2",
        name="Ada",
        additional_kwargs={"timestamp": "2026-03-01T10:00:00+00:00"},
    )
    asked = AIMessage("Shall I deploy to staging?", id="id-1")
    retainer.retain_transcript(BANK, [asked, spoken], thread_id="t-1")
    retainer.flush(10)
    first, second = sent_items(server)
    assert second["content"] == "Ada (user): Yes, do that."
    assert second["timestamp"] == datetime.fromisoformat("2026-03-01T10:00:00+00:00")
    assert second["context"] == "Before this, assistant: Shall I deploy to staging?"
    assert second["metadata"] == {
        "thread": "t-1",
        "role": "human",
        "speaker": "Ada (user)",
        "message_ids": "id-2",
    }
    assert second["tags"] == ["project:billing", "team:red"]
    assert second["observation_scopes"] == [["project:billing"]]
    assert first["timestamp"].tzinfo is not None
    assert first["context"] is None


def test_context_reaches_back_to_what_was_retained_before(open_retainer, server):
    retainer = open_retainer()
    retainer.retain_transcript(BANK, turn("a", "Shall I?"), thread_id="t")
    retainer.retain_transcript(
        BANK, [*turn("a", "Shall I?"), HumanMessage("yes", id="y")], thread_id="t"
    )
    retainer.flush(10)
    assert sent_items(server)[-1]["context"] == "Before this, user: a\nassistant: Shall I?"


def test_a_message_is_masked_once_however_many_turns_it_stands_behind(open_retainer, monkeypatch):
    masked = Counter()

    def counting(text):
        masked[text] += 1
        return redact(text)

    monkeypatch.setattr(redaction, "redact", counting)
    retainer = open_retainer()
    words = [f"said {number} with key {SECRET}" for number in range(12)]
    for end in range(2, 13, 2):
        retainer.retain_transcript(BANK, turn(*words[:end]), thread_id="t")
    assert [masked[said] for said in words] == [1] * 12
    assert [masked[f"id-{said}"] for said in words] == [1] * 12


def test_a_turn_joins_its_messages_and_what_they_carry(open_retainer, server):
    retainer = open_retainer(unit="turn")
    retainer.retain_transcript(BANK, turn("a", "b", "c", "d"), thread_id="t")
    retainer.flush(10)
    first, second = sent_items(server)
    assert first["content"] == "user: a\n\nassistant: b"
    assert first["metadata"]["message_ids"] == "id-a,id-b"
    assert first["metadata"]["role"] == "human,ai"
    assert second["context"] == "Before this, user: a\nassistant: b"


def test_context_is_short_and_never_what_is_off_the_record(open_retainer, server):
    retainer = open_retainer()
    retainer.retain_transcript(BANK, turn("a", "b"), thread_id="t")
    retainer.retain_transcript(BANK, turn("a", "b", "c", "d"), thread_id="t", keep=False)
    retainer.retain_transcript(BANK, turn("a", "b", "c", "d", "e" * 400, "f"), thread_id="t")
    retainer.flush(10)
    *_, asked, answered = sent_items(server)
    assert asked["context"] is None
    assert answered["context"] == f"Before this, user: {'e' * 293}…"


def test_context_is_never_what_was_withheld_two_messages_back(open_retainer, server):
    retainer = open_retainer()
    withheld = turn("mine is lupus", "I will not keep lupus")
    retainer.retain_transcript(BANK, withheld, thread_id="t", keep=False)
    asked = HumanMessage("and the weather?", id="id-q")
    for answer in ((), [AIMessage("rain", id="id-w")], [AIMessage("sun", id="id-w")]):
        retainer.retain_transcript(BANK, [*withheld, asked, *answer], thread_id="t")
        retainer.flush(10)
    assert [item["context"] for item in sent_items(server)] == [
        None,
        *["Before this, user: and the weather?"] * 2,
    ]


def test_every_metadata_value_is_a_string(open_retainer, server):
    retainer = open_retainer()
    retainer.retain_transcript(BANK, turn("a", "b"), thread_id="t")
    retainer.flush(10)
    for item in sent_items(server):
        assert all(isinstance(value, str) for value in item["metadata"].values())


def test_no_credential_reaches_the_disk_or_the_server(open_retainer, server, tmp_path):
    retainer = open_retainer(tags=(f"note {SECRET}",))
    messages = [
        HumanMessage(f"my key is {SECRET}", id="1", name=f"token={SECRET}"),
        AIMessage("", id="2", tool_calls=[{"name": "x", "args": {"api_key": SECRET}, "id": "c"}]),
        AIMessage("thanks", id=f"answer {SECRET}"),
        HumanMessage("and another", id=f"{SECRET}"),
    ]
    for _ in range(2):
        retainer.retain_transcript(BANK, messages, thread_id=f"thread {SECRET}")
    retainer.retain_note(LifeBank("life"), f"key {SECRET}", wait=0)
    retainer.flush(10)
    on_disk = b"".join(path.read_bytes() for path in tmp_path.glob("outbox.db*"))
    assert SECRET.encode() not in on_disk
    assert len(server.stored) == 5
    assert SECRET not in json.dumps(server.requests, default=str)


def test_messages_whose_ids_are_different_credentials_are_different_messages(open_retainer, server):
    retainer = open_retainer()
    said = [HumanMessage("yes", id=SECRET), HumanMessage("no", id=f"{SECRET}2")]
    assert retainer.retain_transcript(BANK, said[:1], thread_id="t", keep=False).items == 0
    assert retainer.retain_transcript(BANK, said, thread_id="t").items == 1
    assert retainer.retain_transcript(BANK, said, thread_id="t").items == 0
    retainer.flush(10)
    assert server.contents() == ["user: no"]


def test_masking_can_be_turned_off(open_retainer, server):
    retainer = open_retainer(redact=False)
    retainer.retain_transcript(BANK, turn(f"key {SECRET}"), thread_id="t")
    retainer.flush(10)
    assert SECRET in server.contents()[0]


def test_a_cut_message_is_counted_in_the_log_without_its_text(open_retainer, caplog):
    open_retainer(max_chars=100).retain_transcript(BANK, turn("secret " * 100), thread_id="t")
    assert "599 characters" in caplog.text
    assert "secret" not in caplog.text


@pytest.mark.parametrize("bank", [BANK, LifeBank("life")])
async def test_a_note_over_the_cap_is_cut_and_marked_and_hides_no_credential(
    open_retainer, server, caplog, bank
):
    retainer = open_retainer(max_chars=100)
    note = "x" * 95 + f" {SECRET} " + "word " * 200_000
    retainer.retain_note(bank, note, wait=10)
    await retainer.aretain_note(bank, note, wait=10)
    for content in server.contents():
        assert content.startswith("x" * 95)
        assert content.endswith(" more characters]")
        assert len(content) < 150
        assert SECRET[:5] not in content
    assert caplog.text.count("A note was cut by") == len(server.contents()) == 2
    assert "word" not in caplog.text


def test_a_long_message_that_is_context_first_is_kept_whole_all_the_same(open_retainer, server):
    retainer = open_retainer()
    long = AIMessage("word " * 4000 + "THE-END", id="2")
    retainer.retain_transcript(
        BANK, [HumanMessage("hi", id="1"), AIMessage("x", id="2")], thread_id="t"
    )
    retainer.retain_transcript(
        BANK, [HumanMessage("hi", id="1"), long, HumanMessage("next", id="3")], thread_id="t"
    )
    retainer.flush(10)
    assert any("THE-END" in content for content in server.contents())


def test_ids_and_names_that_no_database_can_hold_stop_nothing(open_retainer, server):
    retainer = open_retainer()
    messages = [HumanMessage("a", id="i\ud800\0", name="n\ud800\0"), AIMessage("b", id="2")]
    for _ in range(2):
        receipt = retainer.retain_transcript(BANK, messages, thread_id="t\ud800\0")
    assert receipt.status == "skipped"
    retainer.flush(10)
    assert len(server.stored) == 2
    assert json.dumps(server.requests, default=str, ensure_ascii=False).encode()


def test_threads_without_a_name_are_told_apart_by_how_they_begin(open_retainer, server):
    retainer = open_retainer()
    one, two = [HumanMessage("a"), AIMessage("ok")], [HumanMessage("b"), AIMessage("ok")]
    for messages in (one, two, [*one, HumanMessage("c")], two):
        retainer.retain_transcript(BANK, messages, thread_id=None)
    retainer.flush(10)
    assert len(server.stored) == 5


def test_a_thread_without_a_name_whose_ids_are_issued_anew_with_every_call_stays_one(
    open_retainer, server
):
    retainer = open_retainer()
    words = ["a", "b", "c", "d", "e", "f"]
    for end in (2, 4, 6):
        said = [m.model_copy(update={"id": f"{end}-{m.id}"}) for m in turn(*words[:end])]
        assert retainer.retain_transcript(BANK, said, thread_id=None).items == 2
    retainer.flush(10)
    assert len(server.stored) == 6


def test_the_same_messages_of_other_threads_projects_and_banks_stay_apart(open_retainer, server):
    retainer = open_retainer()
    places = [(BANK, "t"), (BANK, "u"), (ProjectBank("work", "other"), "t")]
    places += [(ProjectBank("home", "billing"), "t")]
    for bank, thread in places:
        retainer.retain_transcript(bank, turn("a"), thread_id=thread)
    retainer.flush(10)
    assert len(server.stored) == 4


def test_a_blank_note_is_skipped(open_retainer):
    receipt = open_retainer().retain_note(BANK, " \n\0", wait=1)
    assert (receipt.status, receipt.reason) == ("skipped", "the text is blank")


def test_the_same_note_twice_is_two_documents(open_retainer, server):
    retainer = open_retainer()
    for _ in range(2):
        retainer.retain_note(BANK, "use tabs", wait=10)
    assert server.contents() == ["use tabs", "use tabs"]


def test_the_same_note_of_the_same_tool_call_is_one_and_of_another_call_or_thread_is_not(
    open_retainer, server
):
    retainer = open_retainer()
    for call in (("t", "c1"), ("t", "c1"), ("t", "c2"), ("u", "c1")):
        receipt = retainer.retain_note(BANK, "use tabs", wait=10, call=call)
        assert receipt.status == "stored"
    retainer.retain_note(BANK, "use spaces", wait=10, call=("t", "c1"))
    assert server.contents() == ["use spaces", "use tabs", "use tabs", "use tabs"]


def test_notes_carry_the_tags_of_their_bank(open_retainer, server):
    retainer = open_retainer(tags=("team:red",))
    retainer.retain_note(BANK, "use tabs", wait=10)
    retainer.retain_note(LifeBank("life", ("person:ada",)), "likes tea", wait=10)
    retainer.retain_note(LifeBank("life"), "likes cake", wait=10)
    project, tagged, plain = sent_items(server)
    assert project["tags"] == ["project:billing", "team:red"]
    assert (tagged["tags"], tagged["observation_scopes"]) == (["person:ada"], [["person:ada"]])
    assert plain["tags"] == []
    assert "observation_scopes" not in plain


def test_where_no_disk_can_be_written_the_reply_goes_out_and_the_loss_is_said(
    open_retainer, server, tmp_path, caplog
):
    (tmp_path / "file").write_text("in the way")
    retainer = open_retainer(url=f"sqlite:///{(tmp_path / 'file' / 'outbox.db').as_posix()}")
    server.retains.append(failure("unreachable"))
    receipt = retainer.retain_transcript(BANK, turn("a"), thread_id="t")
    assert receipt.status == "queued"
    assert receipt.reason.startswith("not durable: ")
    assert "cannot be written" in caplog.text
    assert not retainer.status().durable


def test_what_waits_in_memory_is_delivered_too(open_retainer, server, tmp_path):
    (tmp_path / "file").write_text("in the way")
    retainer = open_retainer(url=f"sqlite:///{(tmp_path / 'file' / 'outbox.db').as_posix()}")
    retainer.retain_transcript(BANK, turn("a", "b"), thread_id="t")
    assert retainer.retain_transcript(BANK, turn("a", "b"), thread_id="t").status == "skipped"
    assert retainer.retain_note(BANK, "use tabs", wait=10).status == "stored"
    assert len(server.stored) == 3


def test_once_the_disk_is_back_the_outbox_is_durable_again(open_retainer, tmp_path):
    (tmp_path / "file").write_text("in the way")
    retainer = open_retainer(url=f"sqlite:///{(tmp_path / 'file' / 'outbox.db').as_posix()}")
    retainer.retain_transcript(BANK, turn("a"), thread_id="t")
    assert not retainer.flush(10).timed_out
    (tmp_path / "file").unlink()
    assert retainer.retain_transcript(BANK, turn("a", "b"), thread_id="t").reason is None
    assert retainer.status().durable


def test_a_locked_database_does_not_hold_the_reply_for_long(
    open_retainer, server, tmp_path, monkeypatch
):
    from langchain_hindsight.outbox import engine

    monkeypatch.setattr(engine, "BUSY_TIMEOUT_MS", 50)
    retainer = open_retainer()
    retainer.retain_transcript(BANK, turn("a"), thread_id="t")
    retainer.flush(10)
    other = sqlite3.connect(tmp_path / "outbox.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    receipt = retainer.retain_transcript(BANK, turn("a", "b"), thread_id="t")
    other.execute("ROLLBACK")
    other.close()
    assert receipt.status == "queued"
    assert "locked" in receipt.reason
    retainer.flush(10)
    assert "assistant: b" in server.contents()


@contextlib.contextmanager
def locked(path):
    """Another process is in the middle of a transaction."""
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        other.execute("ROLLBACK")
        other.close()


AWAY = OperationalError("SELECT 1", {}, ConnectionError("the server is away"))


@contextlib.contextmanager
def unreadable(monkeypatch, *, but_reads=False):
    """The outbox on disk can be neither written nor read, as when a PostgreSQL server is away.

    Or it can be read and not written, as when a disk is full.
    """
    run = Database.run

    def run_in_memory(self, work, *, reads=False, **options):
        if self.place.startswith("sqlite:///") and not (reads and but_reads):
            raise AWAY
        return run(self, work, reads=reads, **options)

    with monkeypatch.context() as patched:
        patched.setattr(Database, "run", run_in_memory)
        yield


@pytest.fixture
def shortly_busy(monkeypatch):
    from langchain_hindsight.outbox import database, engine

    monkeypatch.setattr(engine, "BUSY_TIMEOUT_MS", 50)
    monkeypatch.setattr(database, "_REST", 0.0)


@pytest.mark.usefixtures("shortly_busy")
class TestTheDiskCannotBeWritten:
    """What the disk knows of a conversation holds while memory stands in for it."""

    def test_only_what_is_new_goes_out(self, open_retainer, server, tmp_path):
        retainer = open_retainer()
        retainer.retain_transcript(BANK, turn(*"abcdef"), thread_id="t")
        retainer.flush(10)
        with locked(tmp_path / "outbox.db"):
            receipt = retainer.retain_transcript(BANK, turn(*"abcdefgh"), thread_id="t")
            assert receipt.items == 2
            again = retainer.retain_transcript(BANK, turn(*"abcdefgh"), thread_id="t")
            assert again.status == "skipped"
        retainer.flush(10)
        last = retainer.retain_transcript(BANK, turn(*"abcdefghij"), thread_id="t")
        assert (last.items, last.reason) == (2, None)
        retainer.flush(10)
        assert [item["content"][-1] for item in sent_items(server)] == list("abcdefghij")

    def test_what_was_withheld_stays_so(self, open_retainer, server, tmp_path):
        retainer = open_retainer()
        retainer.retain_transcript(BANK, turn("a", "b"), thread_id="t")
        retainer.retain_transcript(BANK, turn("a", "b", "c", "d"), thread_id="t", keep=False)
        with locked(tmp_path / "outbox.db"):
            retainer.retain_transcript(BANK, turn(*"abcdef"), thread_id="t")
        retainer.flush(10)
        assert sorted(one[-1] for one in server.contents()) == ["a", "b", "e", "f"]
        assert "c" not in str([item["context"] for item in sent_items(server)])

    def test_a_new_process_knows_what_is_on_disk(self, open_retainer, server, tmp_path):
        first = open_retainer()
        first.retain_transcript(BANK, turn("a", "b"), thread_id="t")
        first.retain_transcript(BANK, turn("a", "b", "c", "d"), thread_id="t", keep=False)
        first.stop(10)
        with locked(tmp_path / "outbox.db"):
            retainer = open_retainer()
            receipt = retainer.retain_transcript(BANK, turn(*"abcdef"), thread_id="t")
            assert (receipt.items, receipt.reason.count("wait")) == (2, 0)
            retainer.flush(10)
        assert sorted(one[-1] for one in server.contents()) == list("abef")

    def test_what_is_withheld_meanwhile_stays_so_for_every_process(
        self, open_retainer, server, tmp_path
    ):
        retainer = open_retainer()
        retainer.retain_transcript(BANK, turn("a", "b"), thread_id="t")
        with locked(tmp_path / "outbox.db"):
            retainer.retain_transcript(BANK, turn("a", "b", "c", "d"), thread_id="t", keep=False)
        for process in (retainer, open_retainer()):
            process.retain_transcript(BANK, turn(*"abcdef"), thread_id="t")
            process.flush(10)
        assert sorted(one[-1] for one in server.contents()) == ["a", "b", "e", "f"]

    def test_an_answer_is_in_one_document(self, open_retainer, server, tmp_path):
        retainer = open_retainer(unit="turn")
        retainer.retain_transcript(BANK, turn("a"), thread_id="t")
        retainer.flush(10)
        with locked(tmp_path / "outbox.db"):
            retainer.retain_transcript(BANK, turn(*"abcd"), thread_id="t")
        retainer.flush(10)
        retainer.retain_transcript(BANK, turn(*"abcdef"), thread_id="t")
        retainer.flush(10)
        told = " ".join(server.stored.values())
        assert [told.count(f": {letter}") for letter in "abcdef"] == [1] * 6

    @pytest.mark.parametrize("unit", ["message", "turn"])
    @pytest.mark.parametrize("restarts", [False, True])
    @pytest.mark.parametrize("outage", ["0101", "0110", "1011", "0011"])
    def test_the_same_words_without_ids_are_said_as_often_as_they_were(
        self, open_retainer, server, monkeypatch, outage, restarts, unit
    ):
        """Also by a process that begins after an outage, which nobody told what went out."""
        monkeypatch.setattr(leases, "LEASE", 1.0)  # which nobody gives back during an outage
        messages = []
        retainer = open_retainer(unit=unit)
        for number, is_away in enumerate(outage):
            answer = f"answer {number}" if unit == "turn" else "done"
            messages += [HumanMessage("go on"), AIMessage(answer)]
            away = unreadable(monkeypatch, but_reads=True)
            with away if is_away == "1" else contextlib.nullcontext():
                assert retainer.retain_transcript(BANK, messages, thread_id="t").items == 2
                retainer.flush(10)
        if restarts:
            retainer.stop(10)
            retainer = open_retainer(unit=unit)
            retainer.retain_transcript(BANK, messages, thread_id="t")
        retainer.flush(10)
        said = " ".join(server.stored.values())
        assert said.count("user: go on") == 4
        assert said.count("assistant: ") == 4
        assert len(server.stored) == (4 if unit == "turn" else 8)
        assert all(f"answer {number}" in said for number in range(4) if unit == "turn")


@pytest.mark.usefixtures("shortly_busy")
class TestTheDiskCannotBeRead:
    """Nobody knows then what an earlier run withheld, so only the newest turn is certain."""

    def test_what_was_withheld_stays_so(self, open_retainer, server, monkeypatch):
        retainer = open_retainer()
        retainer.retain_transcript(BANK, turn("a", "b"), thread_id="t")
        retainer.retain_transcript(BANK, turn("a", "b", "c", "d"), thread_id="t", keep=False)
        with unreadable(monkeypatch):
            receipt = retainer.retain_transcript(BANK, turn(*"abcde"), thread_id="t")
            assert (receipt.status, receipt.items) == ("queued", 1)
            assert receipt.reason.startswith("not durable: ")
            assert "4 earlier messages are not kept before" in receipt.reason
            answer = retainer.retain_transcript(BANK, turn(*"abcdef"), thread_id="t")
            assert (answer.status, answer.items) == ("queued", 1)
            again = retainer.retain_transcript(BANK, turn(*"abcdef"), thread_id="t")
            assert again.status == "skipped"
            retainer.retain_transcript(BANK, turn(*"abcdefgh"), thread_id="t")
            retainer.flush(5)
        retainer.retain_transcript(BANK, turn(*"abcdefghij"), thread_id="t")
        retainer.flush(10)
        contexts = {item["content"]: item["context"] for item in sent_items(server)}
        assert sorted(one[-1] for one in server.contents()) == list("abefghij")
        assert len(sent_items(server)) == 8
        assert not [one for one in contexts.values() if one and (": c" in one or ": d" in one)]

    def test_what_was_left_out_is_kept_when_it_is_passed_again(
        self, open_retainer, server, monkeypatch
    ):
        retainer = open_retainer()
        retainer.retain_transcript(BANK, turn("another"), thread_id="other")
        with unreadable(monkeypatch):
            receipt = retainer.retain_transcript(BANK, turn(*"abcdef"), thread_id="t")
            assert (receipt.items, "4 earlier messages" in receipt.reason) == (2, True)
            retainer.flush(5)
        receipt = retainer.retain_transcript(BANK, turn(*"abcdef"), thread_id="t")
        assert (receipt.items, receipt.reason) == (4, None)
        retainer.flush(10)
        assert Counter(item["content"][-1] for item in sent_items(server)) == Counter("rabcdef")

    @pytest.mark.parametrize("is_away", [False, True], ids=["delivered", "waiting"])
    @pytest.mark.parametrize("has_ids", [False, True])
    def test_what_was_left_out_is_kept_also_once_what_came_after_it_is_known(
        self, open_retainer, server, monkeypatch, has_ids, is_away
    ):
        messages = turn(*"abcdefgh")
        for one in messages:
            one.id = one.id if has_ids else None
        retainer = open_retainer()
        retainer.retain_transcript(BANK, messages[:2], thread_id="t")
        retainer.flush(10)
        with unreadable(monkeypatch):
            if is_away:
                server.retains.extend([failure("unreachable")] * 2)
            receipt = retainer.retain_transcript(BANK, messages[:6], thread_id="t")
            assert (receipt.items, "4 earlier messages" in receipt.reason) == (2, True)
            if not is_away:
                retainer.flush(10)
        counts = [
            retainer.retain_transcript(BANK, messages[:length], thread_id="t").items
            for length in (8, 8)
        ]
        assert counts == [4, 0]
        retainer.flush(20)
        assert [one[-1] for one in server.contents() if "user" in one] == list("aceg")
        assert [one[-1] for one in server.contents() if "assistant" in one] == list("bdfh")

    def test_what_was_left_out_stays_so_where_the_next_run_keeps_nothing(
        self, open_retainer, server, monkeypatch
    ):
        messages = [type(one)(one.content) for one in turn(*"abcdefgh")]
        retainer = open_retainer()
        retainer.retain_transcript(BANK, messages[:2], thread_id="t")
        retainer.flush(10)
        with unreadable(monkeypatch):
            retainer.retain_transcript(BANK, messages[:6], thread_id="t")
            retainer.flush(10)
        retainer.retain_transcript(BANK, messages[:6], thread_id="t", keep=False)
        retainer.retain_transcript(BANK, messages, thread_id="t")
        retainer.flush(20)
        assert sorted(one[-1] for one in server.contents()) == list("abefgh")

    def test_where_nobody_speaks_only_the_last_message_is_certain(
        self, open_retainer, server, monkeypatch
    ):
        messages = [AIMessage(text, id=text) for text in "abc"]
        retainer = open_retainer()
        retainer.retain_transcript(BANK, messages[:2], thread_id="t", keep=False)
        with unreadable(monkeypatch):
            assert retainer.retain_transcript(BANK, messages, thread_id="t").items == 1
            retainer.flush(5)
        assert server.contents() == ["assistant: c"]

    def test_an_outbox_that_is_not_there_yet_withheld_nothing(self, open_retainer, tmp_path):
        (tmp_path / "file").write_text("in the way")
        retainer = open_retainer(url=f"sqlite:///{(tmp_path / 'file' / 'outbox.db').as_posix()}")
        assert retainer.retain_transcript(BANK, turn(*"abcdef"), thread_id="t").items == 6


@pytest.mark.usefixtures("shortly_busy")
class TestTheDiskIsBack:
    """What memory delivered or withheld of a conversation is known on disk from then on."""

    def test_an_edit_leaves_none_of_the_old_words(self, open_retainer, server, tmp_path):
        retainer = open_retainer(unit="turn")
        retainer.retain_transcript(BANK, turn("a", "b"), thread_id="t")
        retainer.flush(10)
        with locked(tmp_path / "outbox.db"):
            retainer.retain_transcript(BANK, turn(*"abcd"), thread_id="t")
            retainer.flush(10)
        edited = [*turn("a", "b"), HumanMessage("new", id="id-c"), AIMessage("d", id="id-d")]
        retainer.retain_transcript(BANK, edited, thread_id="t")
        retainer.flush(10)
        assert sorted(server.stored.values()) == [
            "user: a\n\nassistant: b",
            "user: new\n\nassistant: d",
        ]
        assert retainer.retain_transcript(BANK, edited, thread_id="t").status == "skipped"

    @pytest.mark.parametrize(
        ("texts", "have_ids"), [("abcdefghi", True), ("ababacdef", False)], ids=["ids", "no ids"]
    )
    def test_a_restart_repeats_nothing(self, open_retainer, server, tmp_path, texts, have_ids):
        messages = turn(*texts)
        if not have_ids:
            messages = [one.model_copy(update={"id": None}) for one in messages]
        first = open_retainer()
        first.retain_transcript(BANK, messages[:3], thread_id="t")
        first.stop(10)
        retainer = open_retainer()
        with locked(tmp_path / "outbox.db"):
            retainer.retain_transcript(BANK, messages[:6], thread_id="t")
            retainer.flush(10)
        assert retainer.retain_transcript(BANK, messages[:8], thread_id="t").items == 2
        retainer.flush(10)
        retainer.stop(10)
        last = open_retainer()
        assert last.retain_transcript(BANK, messages[:8], thread_id="t").status == "skipped"
        assert last.retain_transcript(BANK, messages, thread_id="t").items == 1
        last.flush(30)
        assert Counter(item["content"][-1] for item in sent_items(server)) == Counter(texts)


def test_an_answer_edited_alone_leaves_the_document_of_its_turn_when_that_is_passed(
    open_retainer, server
):
    retainer = open_retainer(unit="turn")
    asked = HumanMessage("q", id="q")
    for said in ([asked, AIMessage("old", id="a")], [AIMessage("new", id="a")]):
        retainer.retain_transcript(BANK, said, thread_id="t")
        retainer.flush(10)
    whole = [asked, AIMessage("new", id="a")]
    retainer.retain_transcript(BANK, whole, thread_id="t")
    retainer.flush(10)
    assert server.contents() == ["assistant: new", "user: q"]
    assert retainer.retain_transcript(BANK, whole, thread_id="t").status == "skipped"


def test_a_note_to_one_bank_makes_no_other_bank_impatient(open_retainer, server):
    retainer = open_retainer()
    server.retains.append(failure("busy", status=429, retry_after=30.0))
    retainer.retain_transcript(BANK, turn("a"), thread_id="t")
    server.wait_for_requests(1)
    deadline = time.monotonic() + 10
    while retainer.status().last_error is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert retainer.retain_note(LifeBank("life"), "likes tea", wait=10).status == "stored"
    time.sleep(0.3)
    assert [bank for bank, _, _ in server.requests] == ["work", "life"]


def test_an_answer_of_a_run_that_keeps_nothing_and_died_is_not_kept_by_the_next(
    open_retainer, server
):
    retainer = open_retainer()
    retainer.retain_transcript(BANK, turn("a", "b"), thread_id="t")
    retainer.retain_transcript(BANK, turn("a", "b", "secret?"), thread_id="t", keep=False)
    said = turn("a", "b", "secret?", "the secret", "c", "d")
    assert retainer.retain_transcript(BANK, said, thread_id="t").items == 2
    assert retainer.retain_transcript(BANK, said, thread_id="t").status == "skipped"
    retainer.flush(10)
    assert "secret" not in str(sent_items(server))


async def test_a_caller_that_is_cancelled_while_it_retains_loses_nothing(open_retainer, server):
    retainer = open_retainer()
    for number in range(40):
        said = turn(f"q{number}", f"a{number}")
        task = asyncio.ensure_future(retainer.aretain_transcript(BANK, said, thread_id="t"))
        await asyncio.sleep(number % 4 / 2000)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    await retainer.aflush(20)
    assert len(server.stored) == 80


def test_a_database_that_stays_locked_costs_one_turn_a_second_and_the_others_nothing(
    open_retainer, server, tmp_path
):
    retainer = open_retainer()
    retainer.retain_transcript(BANK, turn("a"), thread_id="t")
    retainer.flush(10)
    other = sqlite3.connect(tmp_path / "outbox.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    took = []
    for at in range(4):
        started = time.monotonic()
        receipt = retainer.retain_transcript(BANK, turn(f"b{at}"), thread_id=f"t{at}")
        took.append(time.monotonic() - started)
        assert receipt.status == "queued"
        assert "locked" in receipt.reason
    started = time.monotonic()
    retainer.stop(0.5)
    closing = time.monotonic() - started
    other.execute("ROLLBACK")
    other.close()
    assert took[0] < 1.3
    assert max(took[1:]) < 0.3
    assert closing < 0.8
    assert len(server.stored) == 5


def test_a_server_that_hangs_does_not_hold_up_the_end(open_retainer, server):
    server.slow["work"] = 30.0
    retainer = open_retainer()
    retainer.retain_transcript(BANK, turn("a"), thread_id="t")
    server.wait_for_requests(1)
    started = time.monotonic()
    retainer.stop(0.3)
    assert time.monotonic() - started < 0.6


@pytest.mark.timeout(60)
def test_a_flush_that_is_cancelled_leaves_no_thread_that_holds_up_the_end(open_retainer, server):
    """As Ctrl-C cancels it: the loop's end waits for the loop's threads."""
    server.statuses.extend([OperationStatus("processing")] * 1000)
    retainer = open_retainer()
    retainer.retain_transcript(BANK, turn("a"), thread_id="t")

    async def cancelled():
        flush = asyncio.create_task(retainer.aflush(1000))
        await asyncio.to_thread(server.wait_for_requests, 1)
        flush.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await flush

    asyncio.run(cancelled())


def test_a_full_outbox_fails_loudly_and_raises_nothing(open_retainer, caplog):
    retainer = open_retainer(outbox={"max_entries": 1})
    receipt = retainer.retain_transcript(BANK, turn("a", "b"), thread_id="t")
    assert receipt.status == "failed"
    assert "outbox.max_entries" in receipt.reason
    assert "full" in caplog.text
    with pytest.raises(HindsightError):
        receipt.raise_for_error()


def test_a_fault_of_ours_never_breaks_the_agent_nor_quotes_it(open_retainer, monkeypatch, caplog):
    def fail(*_, **__):
        msg = "the words of somebody"
        raise ZeroDivisionError(msg)

    monkeypatch.setattr(retain_module, "content", fail)
    receipt = open_retainer().retain_transcript(BANK, turn("a"), thread_id="t")
    assert receipt.status == "failed"
    assert "somebody" not in caplog.text + receipt.reason


def test_an_impossible_outbox_url_is_refused_when_constructing(server):
    settings = HindsightSettings(outbox=OutboxSettings(url="mysql://host/x"))
    with pytest.raises(ConfigurationError, match=r"outbox\.url"):
        Retainer(server, settings)


def test_many_threads_retain_to_one_conversation_at_once(open_retainer, server):
    retainer = open_retainer()
    messages = turn(*(str(at) for at in range(20)))
    workers = [
        threading.Thread(
            target=retainer.retain_transcript,
            args=(BANK, messages[: 2 * at + 2]),
            kwargs={"thread_id": "t"},
        )
        for at in range(10)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    retainer.retain_transcript(BANK, messages, thread_id="t")
    retainer.flush(10)
    assert len(server.stored) == len(server.contents()) == len(set(server.contents()))


async def test_parallel_branches_that_retain_to_one_thread_lose_and_repeat_nothing(
    open_retainer, server
):
    retainer = open_retainer()
    question = HumanMessage("q", id="q")
    await asyncio.gather(
        *(
            retainer.aretain_transcript(
                BANK, [question, AIMessage(f"a{at}", id=f"a{at}")], thread_id="t"
            )
            for at in range(5)
        )
    )
    await retainer.aflush(10)
    assert server.contents() == [*(f"assistant: a{at}" for at in range(5)), "user: q"]


async def test_a_hand_off_does_not_wait_for_the_programs_own_slow_calls(open_retainer):
    retainer = open_retainer()
    go_on = threading.Event()
    slow = [asyncio.ensure_future(asyncio.to_thread(go_on.wait, 60)) for _ in range(64)]
    await asyncio.sleep(0.05)
    try:
        async with asyncio.timeout(20):
            receipt = await retainer.aretain_transcript(BANK, turn("a", "b"), thread_id="t")
            note = await retainer.aretain_note(BANK, "n", wait=10)
            assert (await retainer.aflush(10)).timed_out is False
            assert (await retainer.astatus()).waiting == 0
    finally:
        go_on.set()
        await asyncio.gather(*slow)
    assert (receipt.status, note.status) == ("queued", "stored")


def test_the_outboxes_on_disk_and_in_memory_never_wait_for_each_other(
    server, tmp_path, monkeypatch
):
    url = f"sqlite:///{(tmp_path / 'outbox.db').as_posix()}"
    # Not closed at the end, which would hang where they do wait.
    retainer = Retainer(server, HindsightSettings(outbox={"url": url}))
    disk, memory = retainer._on_disk().store, retainer._in_memory().store
    scope = Scope("http://memory.example", "work", "project:billing", "t")
    both = threading.Barrier(2, timeout=0.5)

    def retain(store, beside, *texts):
        transcript = Transcript(turn(*texts), roles=("human", "ai"), tools=())

        def draft(indexes, _hidden):
            lines = [(index, transcript.line(index)) for index in indexes]
            return [
                Draft(index, line.message_id, line.fingerprint, True, True, "{}")
                for index, line in lines
            ]

        def narrow(found):
            return beside.without_known(scope, transcript, found, keep=True) if beside else found

        return store.retain(scope, transcript, draft, narrow=narrow)

    def find_news(*args, **named):
        with contextlib.suppress(threading.BrokenBarrierError):
            both.wait()
        return find(*args, **named)

    assert retain(disk, None, "a") + retain(memory, None, "b") == 2
    find = enqueue.find_news
    monkeypatch.setattr(enqueue, "find_news", find_news)
    monkeypatch.setattr(store_module, "_APART", 0)
    threads = [
        threading.Thread(target=retain, args=(*stores, text), daemon=True)
        for *stores, text in ((disk, memory, "c"), (memory, disk, "d"))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert not any(thread.is_alive() for thread in threads)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows has no fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_an_outbox_that_was_deleted_before_a_fork_is_written_anew(
    open_retainer, tmp_path, monkeypatch
):
    retainer = open_retainer()
    monkeypatch.setattr(retainer, "_wake", lambda _: None)  # nothing else finds it deleted
    retainer.retain_transcript(BANK, turn("a", "b"), thread_id="t")
    for file in tmp_path.glob("outbox.db*"):
        file.unlink()
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    retainer.retain_transcript(BANK, turn("a", "b", "c")[2:], thread_id="t")
    status = retainer.status()
    assert status.waiting + status.in_flight == 3


@pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows has no fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_writes_to_the_same_outbox_and_breaks_nothing_of_the_parents(
    open_retainer, server
):
    retainer = open_retainer()
    retainer.retain_transcript(BANK, turn("a"), thread_id="t")
    retainer.flush(10)
    child = os.fork()
    if child == 0:
        receipt = Retainer.retain_transcript(retainer, BANK, turn("a", "b"), thread_id="t")
        os._exit(0 if receipt.status == "queued" else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    retainer.retain_transcript(BANK, turn("a", "b", "c"), thread_id="t")
    assert not retainer.flush(30).timed_out
    assert server.contents() == ["assistant: b", "user: a", "user: c"]
