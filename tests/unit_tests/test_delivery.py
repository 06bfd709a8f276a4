from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections import Counter

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from scripted_server import ScriptedServer, failure

from langchain_hindsight.banks import LifeBank, ProjectBank
from langchain_hindsight.gateway import OperationStatus
from langchain_hindsight.outbox import delivery, polls
from langchain_hindsight.outbox.batching import Batch, Entry, plan
from langchain_hindsight.outbox.store import Store
from langchain_hindsight.retain import Retainer
from langchain_hindsight.settings import HindsightSettings, OutboxSettings, RetainSettings
from langchain_hindsight.templates import TEMPLATES

BANK = ProjectBank("work", "p")


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch):
    monkeypatch.setattr(delivery, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(delivery, "PROBE", 0.05)
    monkeypatch.setattr(polls, "FIRST", 0.005)
    monkeypatch.setattr(polls, "LONGEST", 0.01)


@pytest.fixture
def server():
    scripted = ScriptedServer()
    yield scripted
    scripted.loop.close()


@pytest.fixture
def open_retainer(server, tmp_path):
    opened = []

    def open_one(*, unit="message", on_accepted=lambda _: None, banks=None, **outbox):
        settings = HindsightSettings(
            banks=banks or {},
            retain=RetainSettings(unit=unit),
            outbox=OutboxSettings(
                **{"url": f"sqlite:///{(tmp_path / 'outbox.db').as_posix()}"} | outbox
            ),
        )
        opened.append(Retainer(server, settings, on_accepted=on_accepted))
        return opened[-1]

    yield open_one
    for retainer in opened:
        retainer.stop(0)


def turn(*texts):
    kinds = (HumanMessage, AIMessage)
    return [kinds[at % 2](text, id=f"id-{text}") for at, text in enumerate(texts)]


def test_what_is_retained_is_delivered_once_and_its_bank_told_of(server, open_retainer):
    told = []
    retainer = open_retainer(on_accepted=told.append)
    retainer.retain_transcript(BANK, turn("a", "b"), thread_id="t")
    report = retainer.flush(10)
    assert (report.delivered, report.waiting, report.timed_out) == (2, 0, False)
    assert server.contents() == ["assistant: b", "user: a"]
    assert set(told) == {"work"}


@pytest.mark.parametrize("kind", ["unreachable", "timeout", "busy", "server"])
def test_a_failure_that_may_pass_is_tried_again_as_the_same_operation(server, open_retainer, kind):
    server.retains.extend([failure(kind), failure(kind)])
    retainer = open_retainer()
    retainer.retain_transcript(BANK, turn("a", "b"), thread_id="t")
    assert not retainer.flush(10).timed_out
    assert len({operation for _, operation, _ in server.requests}) == 1
    assert len(server.requests) == 3
    assert len(server.stored) == 2


def test_an_answer_that_nothing_was_stored_is_no_delivery(server, open_retainer):
    server.retains.append(0)
    told = []
    retainer = open_retainer(on_accepted=told.append)
    retainer.retain_transcript(BANK, turn("a"), thread_id="t")
    assert retainer.flush(10).delivered == 1
    assert len(server.requests) == 2
    retainer.stop(5)  # what is told of comes right behind what is written down
    assert told == ["work", "work"]  # taken, and stored: not for the answer of nothing


def test_a_server_is_given_the_time_that_it_asks_for(server, open_retainer):
    server.retains.append(failure("busy", retry_after=30.0))
    retainer = open_retainer()
    retainer.retain_transcript(BANK, turn("a"), thread_id="t")
    report = retainer.flush(0.5)
    assert report.timed_out
    assert report.waiting == 1
    assert len(server.requests) == 1


def test_pauses_grow_with_each_failure_and_stay_under_the_longest(
    server, open_retainer, monkeypatch
):
    pauses = []
    retainer = open_retainer(retry_max_delay=0.05)
    store = retainer._on_disk().store
    postpone = store.postpone

    def listen(lane, *, delay, **more):
        pauses.extend([delay(0), delay(1), delay(30)])
        return postpone(lane, delay=delay, **more)

    monkeypatch.setattr(store, "postpone", listen)
    server.retains.append(failure("unreachable"))
    retainer.retain_transcript(BANK, turn("a"), thread_id="t")
    retainer.flush(10)
    first, second, late = pauses[:3]
    assert 0.005 <= first <= 0.01
    assert 0.01 <= second <= 0.02
    assert 0.025 <= late <= 0.05


def test_a_poisoned_entry_becomes_a_dead_letter_with_the_reason_and_the_others_go_on(
    server, open_retainer, caplog
):
    server.poison = ("poison",)
    retainer = open_retainer()
    retainer.retain_transcript(BANK, turn("a", "b", "poison", "c", "d"), thread_id="t")
    report = retainer.flush(10)
    assert (report.delivered, report.dead, report.waiting) == (4, 1, 0)
    assert len(server.stored) == 4
    assert "dead letter" in caplog.text
    assert "poison" not in caplog.text


def test_an_entry_that_the_server_chokes_on_holds_up_none_before_or_behind_it(
    server, open_retainer
):
    server.choking = ("choke",)
    retainer = open_retainer(retry_max_delay=0.1)
    retainer.retain_transcript(BANK, turn("a", "b", "choke", "c", "d"), thread_id="t")
    retainer.retain_transcript(BANK, turn("e"), thread_id="other")
    while (report := retainer.flush(0.2)).waiting > 1:  # pytest's own limit ends it
        pass
    assert (len(server.stored), report.waiting, report.dead) == (5, 1, 0)
    assert "server!" in retainer.status().last_error
    retainer.retain_transcript(BANK, turn("f"), thread_id="third")
    while "user: f" not in server.contents():
        retainer.flush(0.2)
    server.choking = ()
    assert not retainer.flush(10).timed_out
    assert len(server.stored) == 7
    assert len({item["document_id"] for _, _, items in server.requests for item in items}) == 7


@pytest.mark.parametrize("unit", ["message", "turn"])
@pytest.mark.parametrize(
    ("project", "life", "enabled"),
    [
        ("other", "work", None),
        ("other", "{user_id}", None),
        (None, "w{user_id}", None),
        ("work", "work", None),
        ("other", "work", False),
    ],
)
def test_what_waits_for_a_project_never_reaches_what_has_become_a_life_bank(
    server, open_retainer, caplog, project, life, enabled, unit
):
    before = open_retainer(unit=unit)
    before.retain_transcript(BANK, turn("a", "b"), thread_id="t")
    before.retain_note(BANK, "a note of the project", wait=0)
    before.stop(0)
    sent = list(server.requests)
    server.stored.clear()
    banks = {"project": {"bank_id": project}, "life": {"bank_id": life, "enabled": enabled}}
    after = open_retainer(unit=unit, banks=banks)
    after.retain_transcript(BANK, turn("c", "d"), thread_id="new")
    after.flush(10)
    assert after.retain_note(LifeBank("work"), "likes tea", wait=10).status == "stored"
    written = [items for _, _, items in server.requests[len(sent) :]]
    assert [item["content"] for items in written for item in items] == ["likes tea"]
    assert after.status().dead == 5 - sum(len(items) for _, _, items in sent)
    assert "only an explicit call" in caplog.text


def test_a_project_bank_that_keeps_its_name_beside_a_life_template_is_delivered_to(
    server, open_retainer
):
    banks = {"project": {"bank_id": "work"}, "life": {"bank_id": "{user_id}"}}
    retainer = open_retainer(banks=banks)
    retainer.retain_transcript(BANK, turn("a", "b"), thread_id="t")
    assert retainer.flush(10).delivered == 2


def test_a_life_bank_is_not_created_for_what_waits_for_a_project(server, open_retainer):
    server.facts = None
    retainer = open_retainer(banks={"project": {"bank_id": "other"}, "life": {"bank_id": "work"}})
    retainer.retain_transcript(BANK, turn("a"), thread_id="t")
    retainer.flush(10)
    assert retainer.status().dead == 1
    assert (server.created, server.requests) == ({}, [])


def test_a_server_that_fails_over_everything_is_asked_ever_more_rarely(
    server, open_retainer, monkeypatch
):
    monkeypatch.setattr(delivery, "FIRST_PAUSE", 0.2)
    server.choking = ("",)
    retainer = open_retainer()
    for at in range(8):
        retainer.retain_transcript(BANK, turn(f"a{at}"), thread_id=f"t{at}")
    retainer.flush(1.5)
    assert len(server.requests) < 16


def test_an_operation_that_fails_later_becomes_a_dead_letter(server, open_retainer):
    server.statuses.extend([OperationStatus("processing"), OperationStatus("failed", "no LLM")])
    retainer = open_retainer()
    retainer.retain_transcript(BANK, turn("a"), thread_id="t")
    assert retainer.flush(10).dead == 1
    (letter,) = retainer._on_disk().store.dead_letters()
    assert "no LLM" in letter.error


def test_an_operation_that_never_arrived_is_sent_again(server, open_retainer):
    server.statuses.append(OperationStatus("not_found"))
    retainer = open_retainer()
    retainer.retain_transcript(BANK, turn("a"), thread_id="t")
    assert retainer.flush(10).delivered == 1
    assert len(server.requests) == 2
    assert len(server.stored) == 1


def test_a_poll_that_fails_is_asked_again_without_sending_anew(server, open_retainer):
    server.statuses.append(failure("unreachable"))
    retainer = open_retainer()
    retainer.retain_transcript(BANK, turn("a"), thread_id="t")
    assert retainer.flush(10).delivered == 1
    assert len(server.requests) == 1


def test_a_refused_key_pauses_the_bank_says_so_once_and_goes_on_when_it_is_cured(
    server, open_retainer, caplog
):
    server.retains.extend([failure("auth", status=401)] * 3)
    retainer = open_retainer()
    with caplog.at_level(logging.ERROR):
        retainer.retain_transcript(BANK, turn("a"), thread_id="t")
        server.wait_for_requests(1)
        server.wait_for_requests(4)
    report = retainer.flush(10)
    assert (report.dead, report.waiting) == (0, 0)
    assert len(server.stored) == 1
    assert retainer.status().paused == ()
    assert sum("paused" in record.message for record in caplog.records) == 1


def test_a_paused_bank_is_named_and_a_flush_does_not_wait_for_it(
    server, open_retainer, monkeypatch
):
    monkeypatch.setattr(delivery, "PROBE", 60.0)
    server.retains.extend([failure("auth", status=403)] * 9)
    retainer = open_retainer()
    retainer.retain_transcript(BANK, turn("a"), thread_id="t")
    report = retainer.flush(30)
    assert (report.timed_out, report.waiting, report.dead) == (False, 1, 0)
    assert retainer.status().paused == ("work",)


def test_turns_that_come_one_upon_another_share_requests(server, open_retainer, monkeypatch):
    """Of two seconds of turns the first goes out at once and the others when no more come."""
    monkeypatch.setattr(delivery, "LINGER", (0.3, 30.0))
    monkeypatch.setattr(polls, "FIRST", 60.0)
    monkeypatch.setattr(polls, "LONGEST", 60.0)
    retainer = open_retainer()
    for number in range(60):
        retainer.retain_transcript(BANK, turn(f"q{number}", f"a{number}"), thread_id=f"t{number}")
        time.sleep(0.03)
    server.wait_for_items(120)
    assert len(server.requests) <= 12


def test_turns_that_never_cease_do_not_put_a_request_off_for_long(
    server, open_retainer, monkeypatch
):
    monkeypatch.setattr(delivery, "LINGER", (0.05, 0.2))
    retainer = open_retainer()
    retainer.retain_transcript(BANK, turn("q0"), thread_id="t0")
    assert not retainer.flush(10).timed_out
    server.requests.clear()
    began, number = time.monotonic(), 0
    while not server.requests and time.monotonic() - began < 3:
        number += 1
        retainer.retain_transcript(BANK, turn(f"q{number}"), thread_id=f"t{number}")
        time.sleep(0.01)
    assert server.requests


def test_requests_that_were_taken_long_ago_are_not_asked_about_with_each_new_one(
    server, open_retainer, monkeypatch
):
    monkeypatch.setattr(polls, "LONGEST", 10.0)
    monkeypatch.setattr(polls, "_GROWTH", 20.0)
    server.pending = True
    retainer = open_retainer()
    for number in range(5):
        retainer.retain_transcript(BANK, turn(f"q{number}"), thread_id=f"t{number}")
        server.wait_for_requests(number + 1)
        time.sleep(0.15)
    asked = Counter(server.asked_statuses)
    assert len(asked) == 5
    assert max(asked.values()) <= 3
    server.pending = False
    assert not retainer.flush(10).timed_out


def test_one_slow_bank_holds_up_no_other(server, open_retainer):
    server.slow["slow"] = 30.0
    retainer = open_retainer()
    retainer.retain_transcript(ProjectBank("slow", "p"), turn("s"), thread_id="t")
    server.wait_for_requests(1)
    retainer.retain_transcript(BANK, turn("a"), thread_id="t")
    server.wait_for_requests(2)
    assert server.requests[1][0] == "work"


def test_what_cannot_be_delivered_for_as_long_as_configured_becomes_a_dead_letter(
    server, open_retainer
):
    server.retains.extend([failure("unreachable")] * 50)
    retainer = open_retainer(retry_for=0.05)
    retainer.retain_transcript(BANK, turn("a"), thread_id="t")
    assert retainer.flush(10).dead == 1


def left_for_eight_days(tmp_path):
    """The entries of the outbox are as old as what a laptop held that was closed for so long."""
    with sqlite3.connect(tmp_path / "outbox.db") as connection:
        connection.execute("UPDATE hindsight_outbox_entries SET created = created - 8 * 86400")
    connection.close()


@pytest.mark.parametrize("kind", ["unreachable", "server"])
def test_what_waited_while_no_process_ran_is_tried_before_it_is_given_up(
    server, open_retainer, tmp_path, monkeypatch, kind
):
    with monkeypatch.context() as asleep:
        asleep.setattr(delivery.Delivery, "wake", lambda *_, **__: None)
        open_retainer().retain_transcript(BANK, turn("a"), thread_id="t")
    left_for_eight_days(tmp_path)
    server.retains.extend([failure(kind)] * 3)
    report = open_retainer().flush(10)
    assert (report.delivered, report.dead) == (1, 0)


def test_what_is_old_is_given_up_all_the_same_in_the_end(server, open_retainer, tmp_path):
    server.retains.extend([failure("unreachable")] * 50)
    retainer = open_retainer()
    retainer.retain_transcript(BANK, turn("a"), thread_id="t")
    server.wait_for_requests(1)
    left_for_eight_days(tmp_path)
    assert retainer.flush(10).dead == 1
    assert len(server.requests) >= 5


def test_an_entry_that_the_server_chokes_on_is_given_up_in_the_end(server, open_retainer):
    server.choking = ("b",)
    retainer = open_retainer(retry_for=0.05)
    retainer.retain_transcript(BANK, turn("a", "b"), thread_id="t")
    report = retainer.flush(20)
    assert (report.delivered, report.dead) == (1, 1)


def test_a_dead_letter_that_a_person_retries_has_the_whole_time_again(
    server, open_retainer, tmp_path
):
    server.retains.append(failure("rejected", status=422))
    retainer = open_retainer()
    retainer.retain_transcript(BANK, turn("a"), thread_id="t")
    assert retainer.flush(10).dead == 1
    left_for_eight_days(tmp_path)
    server.retains.extend([failure("unreachable")] * 6)
    store = Store(OutboxSettings(url=f"sqlite:///{(tmp_path / 'outbox.db').as_posix()}"))
    assert store.retry() == 1
    store.close()
    report = retainer.flush(20)
    assert (report.delivered, report.dead) == (1, 0)
    assert len(server.requests) == 8


@pytest.mark.parametrize(("facts", "items"), [(True, 1), (False, 2), (None, 2)])
def test_auto_sends_a_turn_to_a_bank_that_extracts_facts_and_messages_to_others(
    server, open_retainer, facts, items
):
    server.facts = facts
    retainer = open_retainer(unit="auto")
    retainer.retain_transcript(BANK, turn("a", "b"), thread_id="t")
    retainer.flush(10)
    assert len(server.stored) == items


def test_auto_asks_a_bank_once(server, open_retainer):
    server.facts = True
    retainer = open_retainer(unit="auto")
    for at in range(3):
        retainer.retain_transcript(BANK, turn(f"a{at}", f"b{at}"), thread_id="t")
        retainer.flush(10)
    assert server.asked_facts == 1


def test_a_fault_in_what_is_told_of_a_delivery_stops_nothing(server, open_retainer):
    def fail(_):
        msg = "cache"
        raise RuntimeError(msg)

    retainer = open_retainer(on_accepted=fail)
    retainer.retain_transcript(BANK, turn("a"), thread_id="t")
    assert retainer.flush(10).delivered == 1


def test_a_fault_of_the_database_is_survived(server, open_retainer, monkeypatch):
    monkeypatch.setattr(delivery, "_FAULT_PAUSE", 0.01)
    retainer = open_retainer()
    store = retainer._on_disk().store
    claim, failed = store.claim, threading.Event()

    def fail_once(url):
        if not failed.is_set():
            failed.set()
            msg = "disk"
            raise OSError(msg)
        return claim(url)

    monkeypatch.setattr(store, "claim", fail_once)
    retainer.retain_transcript(BANK, turn("a"), thread_id="t")
    assert retainer.flush(10).delivered == 1
    assert failed.is_set()


def test_stopping_delivers_for_its_time_and_leaves_the_rest_to_the_next_process(
    server, open_retainer
):
    server.retains.extend([failure("unreachable")] * 100)
    first = open_retainer()
    first.retain_transcript(BANK, turn("a"), thread_id="t")
    first.stop(0.2)
    assert server.stored == {}
    server.retains.clear()
    second = open_retainer()
    second.start()
    assert second.flush(10).waiting == 0
    assert server.contents() == ["user: a"]


def test_stopping_twice_and_without_work_is_harmless(server, open_retainer):
    retainer = open_retainer()
    retainer.stop(1)
    retainer.stop(1)
    assert not server.loop.is_open


def test_two_retainers_share_an_outbox_and_send_nothing_twice(server, open_retainer):
    one, two = open_retainer(), open_retainer()
    for at in range(10):
        one.retain_transcript(BANK, turn(f"a{at}"), thread_id=f"t{at}")
        two.retain_transcript(BANK, turn(f"a{at}", f"b{at}"), thread_id=f"t{at}")
    assert not one.flush(20).timed_out
    assert not two.flush(20).timed_out
    documents = [item["document_id"] for _, _, items in server.requests for item in items]
    assert len(documents) == len(set(documents)) == 20


def test_a_note_that_is_stored_says_so(server, open_retainer):
    receipt = open_retainer().retain_note(LifeBank("life"), "likes tea", wait=10)
    assert receipt.status == "stored"
    assert receipt.operation_ids == (server.requests[0][1],)
    assert server.contents() == ["likes tea"]


def test_a_note_says_queued_and_why_when_the_server_is_away_and_is(server, open_retainer):
    server.retains.append(failure("unreachable"))
    retainer = open_retainer()
    receipt = retainer.retain_note(BANK, "use tabs", wait=10)
    assert (receipt.status, receipt.reason) == ("queued", "unreachable!")
    assert retainer.flush(10).waiting == 0
    assert server.contents() == ["use tabs"]


def test_a_note_that_is_refused_says_failed_and_why(server, open_retainer):
    server.poison = ("tabs",)
    receipt = open_retainer().retain_note(BANK, "use tabs", wait=10)
    assert receipt.status == "failed"
    assert "rejected!" in receipt.reason
    assert receipt.error is not None


def test_a_note_that_takes_longer_than_one_waits_for_is_queued(server, open_retainer):
    server.statuses.extend([OperationStatus("processing")] * 1000)
    receipt = open_retainer().retain_note(BANK, "use tabs", wait=0.2)
    assert receipt.status == "queued"
    assert "not finished" in receipt.reason


@pytest.mark.parametrize("unit", ["auto", "message", "turn"])
def test_a_bank_is_created_with_its_missions_by_the_first_retain_to_it(server, open_retainer, unit):
    server.facts = None
    retainer = open_retainer(unit=unit)
    retainer.retain_transcript(BANK, turn("a", "b"), thread_id="t")
    assert not retainer.flush(10).timed_out
    assert set(server.created) == {"work"}
    assert server.created["work"] == TEMPLATES["project-coding"].missions
    assert server.contents()


def test_a_life_bank_is_created_with_missions_of_its_own(server, open_retainer):
    server.facts = None
    retainer = open_retainer()
    assert retainer.retain_note(LifeBank("anna"), "Likes tea.", wait=10).status == "stored"
    assert server.created == {"anna": TEMPLATES["life-coding"].missions}


def test_the_missions_of_a_bank_that_exists_are_left_alone(server, open_retainer):
    server.facts = None  # as a server answers that does not tell what a bank is set to
    server.banks = {"work"}
    retainer = open_retainer()
    retainer.retain_transcript(BANK, turn("a"), thread_id="t")
    assert retainer.flush(10).delivered == 1
    assert not server.created


def test_a_bank_that_may_not_be_created_with_missions_is_retained_to_all_the_same(
    server, open_retainer, caplog
):
    server.facts = None
    server.creations.append(failure("rejected", status=405))
    retainer = open_retainer()
    retainer.retain_transcript(BANK, turn("a"), thread_id="t")
    assert retainer.flush(10).delivered == 1
    assert caplog.text.count("without missions") == 1


def test_a_bank_that_cannot_be_created_for_now_is_tried_again(server, open_retainer):
    server.facts = None
    server.creations.append(failure("unreachable"))
    retainer = open_retainer()
    retainer.retain_transcript(BANK, turn("a"), thread_id="t")
    assert retainer.flush(10).delivered == 1
    assert set(server.created) == {"work"}


def test_looking_at_an_outbox_that_is_not_there_makes_none(open_retainer, tmp_path):
    retainer = open_retainer()
    assert retainer.status().waiting == 0
    assert retainer.flush(1).waiting == 0
    retainer.start()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("roles", [("project", "life"), ("life", "project"), (None, "life")])
def test_what_was_written_in_one_role_shares_no_request_with_the_other(roles):
    def entry(at, role):
        payload = {"content": "x", "tags": [] if role == "life" else ["project:p"]}
        return Entry(
            id=at,
            thread=None,
            seq=0,
            parent=None,
            starts_turn=True,
            document=f"d{at}",
            regrouped=False,
            revision=0,
            fingerprint=f"f{at}",
            payload=payload if role is None else payload | {"role": role},
            created=0.0,
        )

    waiting = [entry(at, roles[at % 2]) for at in range(6)]
    items = plan(waiting, unit="message", limit=10, busy=())
    assert [item.document for item in items] == ["d0", "d2", "d4"]
    assert Batch("op", "work", tuple(items)).role == (roles[0] or "project")
