from __future__ import annotations

import contextlib
import json
import re
import shutil
import sqlite3
import stat
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage
from scripted_server import ScriptedServer
from sqlalchemy import Engine, event
from sqlalchemy.exc import DBAPIError

from langchain_hindsight.errors import ConfigurationError
from langchain_hindsight.outbox import default_file
from langchain_hindsight.outbox.batching import Entry, plan
from langchain_hindsight.outbox.database import Database
from langchain_hindsight.outbox.leases import LEASE
from langchain_hindsight.outbox.room import OutboxFullError
from langchain_hindsight.outbox.scope import Draft, Scope
from langchain_hindsight.outbox.store import Store
from langchain_hindsight.retain import Retainer
from langchain_hindsight.settings import HindsightSettings, OutboxSettings
from langchain_hindsight.transcript import Transcript

SERVER = "http://memory.example"


def open_store(path=None, **caps):
    url = "sqlite://" if path is None else f"sqlite:///{path.as_posix()}"
    return Store(OutboxSettings(url=url, **caps))


@pytest.fixture
def store(tmp_path):
    opened = open_store(tmp_path / "outbox.db")
    yield opened
    opened.close()


def drafts(transcript):
    def at(indexes, _hidden):
        return [
            Draft(
                index=index,
                message_id=transcript.message_id(index),
                fingerprint=transcript.line(index).fingerprint,
                speech=transcript.line(index).is_speech,
                starts_turn=transcript.line(index).starts_turn,
                payload=payload(transcript.line(index).said),
            )
            for index in indexes
            if transcript.line(index)
        ]

    return at


def payload(text):
    return json.dumps(
        {
            "content": text,
            "context": None,
            "metadata": {},
            "tags": ["project:p"],
            "scopes": [["project:p"]],
            "said_at": "2026-03-01T10:00:00+00:00",
        }
    )


def retain(store, messages, thread="t", bank="b", server=SERVER, roles=("human", "ai")):
    transcript = Transcript(messages, roles=roles, tools=())
    scope = Scope(server, bank, "project:p", thread)
    return store.retain(scope, transcript, drafts(transcript))


def deliver(store, *, unit="message", limit=50, server=SERVER):
    """Deliver everything as Hindsight takes it: a document sent again replaces what it held."""
    taken = {}
    for lane in store.claim(server):
        while batch := store.next_batch(lane, unit=unit, limit=limit):
            for item in batch.request():
                taken[item["document_id"]] = item["content"]
            store.mark_accepted(lane, batch.operation_id)
            store.mark_done(lane, batch.operation_id)
        store.release([lane.id])
    return taken


def said(*texts, ids=True):
    kinds = (HumanMessage, AIMessage)
    return [kinds[at % 2](text, id=f"id-{text}" if ids else None) for at, text in enumerate(texts)]


def contents(store, **how):
    return list(deliver(store, **how).values())


def test_a_whole_thread_passed_again_with_its_new_part_adds_only_that(store):
    assert retain(store, said("a", "b")) == 2
    assert retain(store, said("a", "b")) == 0
    assert retain(store, said("a", "b", "c", "d")) == 2
    assert contents(store) == ["a", "b", "c", "d"]


def test_the_new_part_alone_is_as_good_as_the_whole(store):
    retain(store, said("a", "b"))
    assert retain(store, said("c", "d")) == 2
    assert retain(store, said("c", "d")) == 0


def test_ids_issued_anew_repeat_nothing(store):
    retain(store, said("a", "b", "c", "d"))
    renamed = [m.model_copy(update={"id": f"new-{m.content}"}) for m in said("a", "b", "c", "d")]
    assert retain(store, [*renamed, HumanMessage("e", id="e")]) == 1


@pytest.mark.parametrize("window", [8, 60])
def test_a_turn_under_the_ids_of_a_much_older_one_is_new_and_new_once(store, window):
    before = said(*(f"q{at // 2}" if at % 2 == 0 else f"a{at // 2}" for at in range(60)))
    retain(store, before)
    reissued = [HumanMessage("other q", id="id-q1"), AIMessage("other a", id="id-a1")]
    shown = [*before[-window:], *reissued, *said("next q", "next a")]
    assert [retain(store, shown) for _ in range(3)] == [4, 0, 0]
    assert sorted(contents(store)) == sorted(one.content for one in (*before, *shown[window:]))


def test_a_question_and_its_answer_edited_at_once_are_edits(store):
    before = said("a", "b", "c", "d")
    retain(store, before)
    deliver(store)
    for at, words in ((2, "c, but edited"), (3, "d, but edited")):
        before[at] = before[at].model_copy(update={"content": words})
    assert retain(store, before) == 2
    assert contents(store) == ["c, but edited", "d, but edited"]


def test_without_ids_a_repeat_is_known_and_the_same_words_said_again_are_not(store):
    assert retain(store, said("hi", "hello", ids=False)) == 2
    assert retain(store, said("hi", "hello", ids=False)) == 0
    assert retain(store, said("hi", "hello", "hi", "hello", ids=False)) == 2
    assert len(deliver(store)) == 4


def test_without_ids_another_turn_that_ends_alike_is_new(store):
    retain(store, said("a", "ok", ids=False))
    assert retain(store, said("b", "ok", ids=False)) == 2


def test_the_same_short_turn_said_again_under_new_ids_is_new(store):
    retain(store, said("a", "b", "yes", "done"))
    again = [HumanMessage("yes", id="y2"), AIMessage("done", id="d2")]
    assert retain(store, again) == 2


def test_the_same_short_turn_passed_alone_again_and_again_under_new_ids_is_new(store):
    retain(store, said("a", "b"))
    for at in range(3):
        again = [HumanMessage("yes", id=f"y{at}"), AIMessage("done", id=f"d{at}")]
        assert retain(store, again) == 2


@pytest.mark.parametrize("before", [[], ["a", "b"]])
@pytest.mark.parametrize("words", [["yes"], ["yes", "ok"], ["run it", "running", "all green"]])
def test_the_only_exchange_of_a_thread_said_again_under_new_ids_is_new(store, words, before):
    retain(store, said(*before))
    for at in range(3):
        kinds = (HumanMessage, AIMessage, AIMessage)
        again = [kinds[n](text, id=f"{at}-{n}") for n, text in enumerate(words)]
        assert retain(store, again) == len(words)


@pytest.mark.parametrize("ids", [True, False])
def test_a_history_that_was_trimmed_repeats_and_loses_nothing(store, ids):
    retain(store, said(*"abcdefghij", ids=ids))
    assert retain(store, said(*"ghijkl", ids=ids)) == 2
    assert sorted(contents(store)) == sorted("abcdefghijkl")


def test_a_summary_in_place_of_the_beginning_repeats_and_loses_nothing(store):
    retain(store, said(*"abcdefgh"))
    summary = HumanMessage("so far ...", id="s", additional_kwargs={"lc_source": "summarization"})
    assert retain(store, [summary, *said(*"efghij")[0:6]]) == 2


def test_a_fork_retains_what_is_different_and_going_back_repeats_nothing(store):
    retain(store, said("a", "b", "c", "d"))
    fork = said("a", "b", "x", "y")
    assert retain(store, fork) == 2
    assert retain(store, said("a", "b", "c", "d", "e", "f")) == 2
    assert retain(store, fork) == 0


def test_a_turn_run_again_from_a_checkpoint_with_the_same_words_is_one(store):
    retain(store, said("a", "b", "c", "d"))
    again = [*said("a", "b", "c"), AIMessage("d", id="another")]
    assert retain(store, again) == 0


def test_an_edited_message_replaces_its_document(store):
    retain(store, said("a", "b"))
    first = deliver(store)
    edited = [HumanMessage("A!", id="id-a"), AIMessage("b", id="id-b")]
    assert retain(store, edited) == 1
    second = deliver(store)
    assert {**first, **second} == dict(zip(first, ["A!", "b"], strict=True))
    assert retain(store, edited) == 0


def test_an_edit_that_is_taken_back_goes_out_under_another_operation(store):
    operations = []
    for text in ("a", "A", "a"):
        retain(store, [HumanMessage(text, id="1")])
        (lane,) = store.claim(SERVER)
        batch = store.next_batch(lane, unit="message", limit=9)
        operations.append(batch.operation_id)
        store.mark_done(lane, batch.operation_id)
    assert len(set(operations)) == 3


def test_an_edit_of_one_message_of_a_delivered_turn_sends_the_turn_again_whole(store):
    retain(store, said("a", "b"))
    (document,) = deliver(store, unit="turn")
    retain(store, [HumanMessage("A!", id="id-a"), AIMessage("b", id="id-b")])
    assert deliver(store, unit="turn", limit=1) == {document: "A!\n\nb"}


def test_an_edit_whose_turn_is_no_longer_at_hand_overwrites_nothing(store):
    retain(store, said("a", "b"))
    (document,) = deliver(store, unit="turn")
    retain(store, [HumanMessage("A!", id="id-a")])
    second = deliver(store, unit="turn")
    assert list(second.values()) == ["A!"]
    assert document not in second


def test_an_edit_before_delivery_goes_out_once(store):
    retain(store, said("a", "b"))
    retain(store, [HumanMessage("A!", id="id-a"), AIMessage("b", id="id-b")])
    assert contents(store) == ["A!", "b"]


def test_an_edit_while_its_request_is_under_way_goes_out_afterwards(store):
    retain(store, said("a", "b"))
    (lane,) = store.claim(SERVER)
    batch = store.next_batch(lane, unit="turn", limit=9)
    retain(store, [HumanMessage("A!", id="id-a"), AIMessage("b", id="id-b")])
    resent = store.next_batch(lane, unit="turn", limit=9)
    assert (resent.operation_id, resent.request()) == (batch.operation_id, batch.request())
    store.mark_accepted(lane, batch.operation_id)
    assert store.next_batch(lane, unit="turn", limit=9) is None
    store.mark_done(lane, batch.operation_id)
    again = store.next_batch(lane, unit="turn", limit=9)
    assert again.request()[0]["content"] == "A!\n\nb"
    assert again.items[0].document == batch.items[0].document


def test_the_same_id_twice_in_one_list_loses_neither(store):
    assert retain(store, [HumanMessage("a", id="1"), AIMessage("b", id="1")]) == 2
    assert contents(store) == ["a", "b"]


def test_a_known_message_moved_behind_many_new_ones_breaks_nothing(store):
    retain(store, said(*"abcdefgh"))
    messages = said(*"abcdefgh")
    later = [HumanMessage(f"n{at}", id=f"n{at}") for at in range(20)]
    assert retain(store, [*messages, *later[:3], messages[0], *later[3:]]) == 20


steps = st.lists(
    st.sampled_from(["turn", "repeat", "trim", "reissue", "part", "deliver", "edit"]),
    min_size=3,
    max_size=14,
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(steps=steps, unit=st.sampled_from(["message", "turn"]), ids=st.booleans())
def test_every_message_is_stored_exactly_once_whatever_happens_to_the_list(steps, unit, ids):
    store = open_store()
    shown, everything, stored, number = [], {}, {}, 0
    for step in steps:
        if step == "turn":
            for kind in (HumanMessage, AIMessage):
                number += 1
                name = f"m{number}" if ids else None
                shown.append(kind(f"text {number};", id=name))
                everything[number] = f"text {number};"
        elif step == "trim":
            shown = shown[max(0, len(shown) - 4) :]
        elif step == "reissue" and not ids:
            shown = [m.model_copy(update={"id": None}) for m in shown]
        elif step == "edit" and ids and shown:
            edited = shown[-1].model_copy(update={"content": f"edited {number};"})
            shown = [*shown[:-1], edited]
            everything[number] = f"edited {number};"
        elif step == "deliver":
            stored.update(deliver(store, unit=unit, limit=3))
        part = shown[-2:] if step == "part" else shown
        retain(store, part)
    stored.update(deliver(store, unit=unit, limit=3))
    store.close()
    found = sorted(text for content in stored.values() for text in content.split("\n\n"))
    assert found == sorted(everything.values())


def test_a_conversation_that_goes_on_is_written_without_being_read(store):
    told = ["q", "a", "q2", "a2"]
    retain(store, said(*told))
    with statements() as made:
        retain(store, said(*told, "q3", "a3"))
    assert not [one for one in made if one.startswith("SELECT")], made
    assert len(made) <= 4


@contextlib.contextmanager
def statements():
    made = []

    def note(_connection, _cursor, statement, *_):
        made.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield made
    finally:
        event.remove(Engine, "before_cursor_execute", note)


def test_processes_that_take_turns_in_one_conversation_keep_each_message_once(store, tmp_path):
    other = open_store(tmp_path / "outbox.db")
    told = []
    for number in range(12):
        told += [f"q{number};", f"a{number};"]
        assert retain(other if number % 3 else store, said(*told)) == 2
        assert retain(store, said(*told)) == 0
    other.close()
    assert contents(store) == told


def test_a_message_known_for_longer_than_is_remembered_is_not_kept_again(store):
    told = [f"said {at};" for at in range(80)]
    shown = said(*told)
    for end in range(2, 81, 2):
        retain(store, shown[:end])
    new = HumanMessage("new;", id="new")
    assert retain(store, [*shown, shown[3], new]) == 1
    assert retain(store, [*shown, shown[3], new]) == 0
    assert contents(store) == [*told, "new;"]


def test_a_conversation_whose_bank_was_given_to_another_server_goes_on_at_its_own(store, tmp_path):
    retain(store, said("q", "a"))
    other = open_store(tmp_path / "outbox.db")
    other.readdress(SERVER, "http://other.example")
    other.close()
    assert retain(store, said("q", "a", "q2", "a2")) == 4
    assert retain(store, said("q", "a", "q2", "a2")) == 0
    assert retain(store, said("q", "a", "q2", "a2", "q3", "a3")) == 2
    assert store.counts("http://other.example").waiting == 2
    assert contents(store) == ["q", "a", "q2", "a2", "q3", "a3"]
    store.readdress("http://other.example", SERVER)
    assert retain(store, said("q", "a", "q2", "a2", "q3", "a3")) == 0


def test_a_conversation_that_is_moved_twice_is_delivered(store):
    retain(store, said("q", "a"))
    assert contents(store) == ["q", "a"]
    store.readdress(SERVER, "http://other.example")
    assert retain(store, said("q", "a")) == 2
    store.readdress(SERVER, "http://other.example")
    assert contents(store, server="http://other.example") == ["q", "a"]
    assert store.counts("http://other.example").waiting == 0


def test_a_turn_of_which_one_message_says_nothing_any_more_goes_out_without_it(store):
    retain(store, said("q", "a"))
    assert contents(store, unit="turn") == ["q\n\na"]
    edited = [HumanMessage("q, again", id="id-q"), AIMessage("", id="id-a"), *said("q2", "a2")]
    assert retain(store, edited) == 3
    assert retain(store, edited) == 0
    assert contents(store, unit="turn") == ["q, again", "q2\n\na2"]


def test_a_conversation_is_not_taken_for_another_of_an_outbox_that_was_made_anew(tmp_path):
    store = open_store(tmp_path / "outbox.db")
    retain(store, said("q;", "a;"), thread="t")
    store.close()
    for file in tmp_path.glob("outbox.db*"):
        file.unlink()
    other = open_store(tmp_path / "outbox.db")
    retain(other, said("other;", "words;"), thread="u")
    other.close()
    assert retain(store, said("q;", "a;", "q2;", "a2;"), thread="t") == 4
    assert retain(store, said("other;", "words;"), thread="u") == 0
    store.close()


def test_what_is_not_kept_is_no_edit_of_what_has_its_id(store):
    retain(store, [HumanMessage("q;", id="1")], roles=("human",))
    shown = [HumanMessage("q2;", id="2"), AIMessage("an answer;", id="1")]
    assert retain(store, shown, roles=("human",)) == 1
    assert contents(store) == ["q;", "q2;"]


def test_a_row_that_others_make_first_is_met_again_after_another_collision(tmp_path):
    """A lane may be made by a second process while this one tries again for another reason."""
    database = Database(OutboxSettings(url=f"sqlite:///{(tmp_path / 'outbox.db').as_posix()}"))
    collisions = [sqlite3.OperationalError("database is locked"), *[sqlite3.IntegrityError()] * 2]

    def work(connection):
        if collisions:
            error = collisions.pop(0)
            raise DBAPIError.instance("", {}, error, sqlite3.Error)
        return connection.exec_driver_sql("SELECT 1").scalar()

    assert database.run(work) == 1
    database.close()


def test_an_edit_is_seen_by_the_process_that_wrote_the_message(store):
    retain(store, said("q;", "a;", "q2;", "a2;"))
    shown = said("q;", "a;", "q2;", "a2;", "q3;", "a3;")
    shown[3] = shown[3].model_copy(update={"content": "changed;"})
    assert retain(store, shown) == 3
    assert contents(store) == ["q;", "a;", "q2;", "changed;", "q3;", "a3;"]


def test_the_cost_of_a_turn_follows_what_it_adds_and_not_the_length_of_the_thread(store):
    class Counted(list):
        looked_at = 0

        def __getitem__(self, index):
            Counted.looked_at += 1
            return super().__getitem__(index)

    seen = {}
    for length in (20, 2000):
        messages = said(*(f"{length}-{at}" for at in range(length)))
        retain(store, messages, thread=f"t{length}")
        messages += said(f"{length}-new", f"{length}-newer")
        Counted.looked_at = 0
        assert retain(store, Counted(messages), thread=f"t{length}") == 2
        seen[length] = Counted.looked_at
    assert seen[20] == seen[2000]


def test_a_batch_recorded_is_sent_again_as_it_was_until_it_is_settled(store):
    retain(store, said("a", "b"))
    (lane,) = store.claim(SERVER)
    batch = store.next_batch(lane, unit="message", limit=50)
    retain(store, said("a", "b", "c", "d"))
    assert store.next_batch(lane, unit="message", limit=50) == batch
    store.mark_accepted(lane, batch.operation_id)
    store.mark_lost(batch.operation_id)
    assert store.next_batch(lane, unit="message", limit=50) == batch


def test_the_same_messages_in_another_outbox_are_the_same_operation(tmp_path):
    operations = set()
    for name in ("one.db", "two.db"):
        store = open_store(tmp_path / name)
        retain(store, said("a", "b"))
        (lane,) = store.claim(SERVER)
        operations.add(store.next_batch(lane, unit="turn", limit=50).operation_id)
        store.close()
    assert len(operations) == 1


def test_a_turn_is_not_cut_by_the_end_of_a_batch(store):
    retain(store, said(*"abcdefgh"))
    (lane,) = store.claim(SERVER)
    batch = store.next_batch(lane, unit="turn", limit=5)
    assert [item["content"] for item in batch.request()] == ["a\n\nb", "c\n\nd"]


def test_threads_that_alternate_keep_their_turns_apart(store):
    retain(store, said("a"), thread="one")
    retain(store, said("x"), thread="two")
    retain(store, said("a", "b"), thread="one")
    retain(store, said("x", "y"), thread="two")
    assert contents(store, unit="turn") == ["a\n\nb", "x\n\ny"]


def test_the_answers_of_two_forks_do_not_share_a_turn(store):
    retain(store, said("a", "b"))
    retain(store, said("a", "x"))
    assert contents(store, unit="turn") == ["a\n\nb", "x"]


def test_a_document_is_never_twice_in_a_batch_nor_in_one_beside_another_that_is_under_way():
    entries = [
        Entry(
            id=at,
            thread=None,
            seq=0,
            parent=None,
            starts_turn=True,
            document=document,
            regrouped=False,
            revision=0,
            fingerprint="",
            payload={"role": "project"},
            created=0.0,
        )
        for at, document in enumerate(["one", "two", "one", "three"])
    ]
    items = plan(entries, unit="message", limit=50, busy={"three"})
    assert [(item.document, item.entries[0].id) for item in items] == [("one", 0), ("two", 1)]


def test_a_refused_batch_is_cut_until_the_poisoned_entry_is_alone(store):
    retain(store, said(*"abcdefgh"))
    (lane,) = store.claim(SERVER)
    taken = []
    while batch := store.next_batch(lane, unit="message", limit=50):
        texts = [item["content"] for item in batch.request()]
        if "f" in texts:
            store.mark_refused(lane, batch.operation_id, "422: no f, please")
        else:
            taken += texts
            store.mark_done(lane, batch.operation_id)
    assert sorted(taken) == sorted("abcdegh")
    (letter,) = store.dead_letters()
    assert letter.error == "422: no f, please"
    assert store.content(letter.id) == "f"


def test_a_dead_letter_can_be_tried_again_under_another_operation_or_dropped(tmp_path):
    store = open_store(tmp_path / "outbox.db", keep_receipts=0)
    retain(store, said("a"))
    (lane,) = store.claim(SERVER)
    first = store.next_batch(lane, unit="message", limit=50)
    store.mark_refused(lane, first.operation_id, "no")
    assert store.counts(SERVER).dead == 1
    store.prune()
    assert store.retry() == 1
    second = store.next_batch(lane, unit="message", limit=50)
    assert second.operation_id != first.operation_id
    store.mark_refused(lane, second.operation_id, "no")
    assert store.drop([store.dead_letters()[0].id]) == 1
    assert store.counts(SERVER).dead == 0
    assert retain(store, said("a")) == 0
    store.close()


def test_a_bank_that_another_process_delivers_to_is_left_alone_until_its_lease_ends(
    tmp_path, monkeypatch
):
    one, two = open_store(tmp_path / "o.db"), open_store(tmp_path / "o.db")
    retain(one, said("a"))
    assert len(one.claim(SERVER)) == 1
    assert two.claim(SERVER) == []
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + LEASE + 1)
    assert len(two.claim(SERVER)) == 1
    one.close()
    two.close()


@pytest.mark.parametrize("seconds", [600, 86_400])
def test_a_clock_that_went_back_holds_nothing_up(store, monkeypatch, seconds):
    retain(store, said("a"))
    (lane,) = store.claim(SERVER)
    store.postpone(lane, delay=lambda _: 1.0, error="away", paused=False)
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now - seconds)
    other = store
    other.owner = "another"
    assert [one.id for one in other.claim(SERVER)] == [lane.id]


def test_entries_of_another_server_are_listed_and_not_delivered(store):
    retain(store, said("a"), server="http://other.example")
    retain(store, said("b"))
    assert contents(store) == ["b"]
    assert store.counts(SERVER).other_servers == {"http://other.example": 1}


def test_a_full_outbox_refuses_and_says_what_to_change(store, tmp_path):
    small = open_store(tmp_path / "small.db", max_entries=3)
    retain(small, said("a", "b"))
    with pytest.raises(OutboxFullError, match="max_entries = 3"):
        retain(small, said("a", "b", "c", "d"))
    deliver(small)
    assert retain(small, said("a", "b", "c", "d")) == 2
    small.close()


def test_a_full_outbox_by_bytes_refuses_too(tmp_path):
    small = open_store(tmp_path / "small.db", max_bytes=500)
    with pytest.raises(OutboxFullError):
        retain(small, said("x" * 1000))
    small.close()


def test_a_turn_that_others_overtake_again_and_again_is_written_all_the_same(store, tmp_path):
    retain(store, said("a"))
    other = open_store(tmp_path / "outbox.db")
    transcript = Transcript(said("mine", "too"), roles=("human", "ai"), tools=())
    overtaken = []

    def drafts_late(indexes, hidden):
        with contextlib.suppress(DBAPIError, TimeoutError):  # locked out at last
            retain(other, said(f"theirs {len(overtaken)}"))
            overtaken.append(True)
        return drafts(transcript)(indexes, hidden)

    scope = Scope(SERVER, "b", "project:p", "t")
    assert store.retain(scope, transcript, drafts_late) == 2
    assert 0 < len(overtaken) < 6
    assert sorted(contents(store)) == sorted(
        ["a", "mine", "too", *(f"theirs {number}" for number in range(len(overtaken)))]
    )
    other.close()


def test_branches_that_retain_to_one_conversation_at_once_all_do(store):
    branches = 24
    together = Barrier(branches, timeout=20)  # one that fails does not hold the others for ever

    def branch(number):
        for turn in range(4):
            words = said(f"q {number} {turn}", f"a {number} {turn}")
            transcript = Transcript(words, roles=("human", "ai"), tools=())

            def drafts_slowly(indexes, hidden, transcript=transcript):
                time.sleep(0.002)
                return drafts(transcript)(indexes, hidden)

            together.wait()
            scope = Scope(SERVER, "b", "project:p", "t")
            assert store.retain(scope, transcript, drafts_slowly) == 2

    with ThreadPoolExecutor(branches) as pool:
        list(pool.map(branch, range(branches)))
    assert len(set(contents(store))) == branches * 4 * 2


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such modes")
def test_file_and_folder_are_their_owners_alone(tmp_path):
    store = open_store(tmp_path / "state" / "outbox.db")
    retain(store, said("a"))
    modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in (tmp_path / "state").iterdir()}
    assert set(modes.values()) == {0o600}
    assert stat.S_IMODE((tmp_path / "state").stat().st_mode) == 0o700
    store.close()


def test_an_outbox_of_a_newer_version_is_refused_and_left_as_it_was(tmp_path):
    path = tmp_path / "outbox.db"
    store = open_store(path)
    retain(store, said("a"))
    store.close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE hindsight_outbox_version SET version = 99")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(ConfigurationError, match="newer"):
        retain(store, said("b"))
    store.close()
    assert path.read_bytes() == before


def downgrade(path, to):
    """What an earlier version would have written."""
    with sqlite3.connect(path) as connection:
        if to < 3:
            connection.execute("ALTER TABLE hindsight_outbox_lanes DROP COLUMN ledger")
        if to < 2:
            connection.execute("ALTER TABLE hindsight_outbox_batches DROP COLUMN failures")
            connection.execute("ALTER TABLE hindsight_outbox_batches DROP COLUMN due")
        connection.execute("UPDATE hindsight_outbox_version SET version = ?", [to])
    connection.close()


@pytest.mark.parametrize("earlier", [1, 2])
def test_an_outbox_of_an_earlier_version_is_brought_up_to_date_with_what_it_holds(
    tmp_path, earlier
):
    path = tmp_path / "outbox.db"
    store = open_store(path)
    retain(store, said("a"))
    store.close()
    downgrade(path, earlier)
    assert contents(store) == ["a"]
    assert retain(store, said("a")) == 0
    store.close()


def test_an_outbox_whose_servers_had_several_spellings_is_brought_under_one(tmp_path):
    path = tmp_path / "outbox.db"
    store = open_store(path)
    retain(store, said("a"), server="http://127.0.0.1:8888")
    retain(store, said("b"), server="http://localhost:8888/", bank="other")
    retain(store, said("c"), server="http://localhost:8888", thread="t2")
    store.close()
    downgrade(path, 2)
    assert contents(store, server="http://localhost:8888") == ["a", "c", "b"]
    assert retain(store, said("b"), server="http://localhost:8888", bank="other") == 0
    assert retain(store, said("c"), server="http://localhost:8888", thread="t2") == 0
    store.close()


@pytest.mark.parametrize("where", [0, 4096])
def test_a_damaged_file_is_set_aside_and_a_new_one_begun(tmp_path, caplog, where):
    path = tmp_path / "outbox.db"
    store = open_store(path)
    retain(store, said("before"), thread="other")
    store.close()
    with path.open("r+b") as file:
        file.seek(where)
        file.write(b"this is no database" * 1000)
    assert retain(store, said("a")) == 1
    store.close()
    (aside,) = tmp_path.glob("outbox.db.damaged-*")
    assert b"this is no database" in aside.read_bytes()
    assert "damaged" in caplog.text


def test_whatever_lies_in_the_packages_own_place_is_set_aside(tmp_path, monkeypatch):
    monkeypatch.setattr(default_file, "user_state_path", lambda _: tmp_path)
    (tmp_path / "outbox.db").write_bytes(b"this is no database" * 1000)
    store = Store(OutboxSettings())
    assert retain(store, said("a")) == 1
    store.close()
    assert len(list(tmp_path.glob("outbox.db.damaged-*"))) == 1


def a_text(path):
    path.write_text("a shopping list, and no database")


def a_database(path, mode="DELETE"):
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA journal_mode = {mode}")
        connection.execute("CREATE TABLE customers (name)")
        connection.execute("INSERT INTO customers VALUES ('somebody')")
    connection.close()


def a_log_database(path):
    a_database(path, "WAL")


def a_damaged_database(path):
    a_database(path)
    with path.open("r+b") as file:
        file.write(b"garbage!" * 8)


@pytest.mark.parametrize("make", [a_text, a_database, a_log_database, a_damaged_database])
def test_a_file_of_something_else_is_refused_and_left_as_it_was(tmp_path, make):
    path = tmp_path / "precious"
    make(path)
    before = path.read_bytes()
    store = open_store(path)
    with pytest.raises(ConfigurationError, match="something else"):
        retain(store, said("a"))
    with pytest.raises(ConfigurationError, match="something else"):
        store.counts(SERVER)
    store.close()
    assert path.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == ["precious"]


def test_a_file_of_something_else_is_refused_while_somebody_has_it_open(tmp_path):
    path = tmp_path / "precious"
    a_database(path, "WAL")
    other = sqlite3.connect(path)
    other.execute("INSERT INTO customers VALUES ('another')")
    other.commit()
    store = open_store(path)
    with pytest.raises(ConfigurationError, match="something else"):
        retain(store, said("a"))
    store.close()
    assert len(other.execute("SELECT * FROM customers").fetchall()) == 2
    other.close()


def test_a_memory_whose_outbox_is_a_file_of_something_else_is_refused_at_once(tmp_path):
    path = tmp_path / "precious"
    a_text(path)
    settings = OutboxSettings(url=f"sqlite:///{path.as_posix()}")
    with pytest.raises(ConfigurationError, match="something else"):
        Retainer(ScriptedServer(), HindsightSettings(outbox=settings))


def test_a_program_that_changes_its_folder_keeps_its_outbox(tmp_path, monkeypatch, caplog):
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    monkeypatch.chdir(here)
    store = Store(OutboxSettings(url="sqlite:///outbox.db"))
    retain(store, said("a"))
    monkeypatch.chdir(there)
    assert retain(store, said("a", "b")) == 1
    store.close()
    assert contents(store) == ["a", "b"]
    store.close()
    assert list(there.iterdir()) == []
    assert caplog.text == ""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows deletes no open file")
@pytest.mark.parametrize("gone", ["the file", "the file and its log", "the folder"])
def test_a_file_that_somebody_deletes_is_written_anew_with_all_it_held(tmp_path, caplog, gone):
    folder = tmp_path / "state"
    one, two = open_store(folder / "outbox.db"), open_store(folder / "outbox.db")
    retain(one, said("a", "b"))
    retain(two, said("x"), thread="u")
    if gone == "the folder":
        shutil.rmtree(folder)
    else:
        for file in folder.glob("outbox.db*" if gone == "the file and its log" else "outbox.db"):
            file.unlink()
    assert retain(one, said("a", "b", "c")) == 1
    assert retain(two, said("x", "y"), thread="u") == 1
    assert "deleted" in caplog.text
    one.close()
    two.close()
    again = open_store(folder / "outbox.db")
    assert sorted(contents(again)) == ["a", "b", "c", "x", "y"]
    assert retain(again, said("a", "b", "c")) == 0
    assert {path.name for path in folder.iterdir()} <= {
        *("outbox.db", "outbox.db-wal", "outbox.db-shm", "outbox.db.recovery")
    }
    again.close()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows deletes no open file")
def test_another_file_in_the_place_of_the_outbox_is_used_and_the_loss_said(tmp_path, caplog):
    store = open_store(tmp_path / "outbox.db")
    retain(store, said("a"))
    for file in tmp_path.glob("outbox.db*"):
        file.unlink()
    newer = open_store(tmp_path / "outbox.db")
    retain(newer, said("x"), thread="u")
    assert retain(store, said("a", "b")) == 2
    assert "another is in its place" in caplog.text
    assert sorted(contents(newer)) == ["a", "b", "x"]
    newer.close()
    store.close()


def test_two_that_meet_a_damaged_file_set_it_aside_once_and_lose_nothing(tmp_path):
    path = tmp_path / "outbox.db"
    stores = [open_store(path), open_store(path)]
    for at, store in enumerate(stores):
        retain(store, said(f"old{at}"), thread=f"old{at}")
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    with path.open("r+b") as file:
        file.write(b"garbage!" * 4096)
    for at, store in enumerate(stores):
        assert retain(store, said(f"new{at}"), thread=f"new{at}") == 1
    assert len(list(tmp_path.glob("outbox.db.damaged-*[!lm]"))) == 1
    assert contents(stores[0]) == ["new0", "new1"]
    for store in stores:
        store.close()


@pytest.mark.parametrize(
    "damaged",
    [
        {"said_at": "nonsense"},
        {"said_at": 5},
        {"content": 5},
        {"metadata": [1]},
        {"metadata": {"a": 1}},
        {"tags": 5},
        {"tags": [5]},
        {"scopes": "x", "tags": None},
        {"context": ["a"]},
    ],
)
def test_an_entry_of_another_shape_is_laid_by_and_those_behind_it_go_on(store, tmp_path, damaged):
    retain(store, said("a", "b"))
    with sqlite3.connect(tmp_path / "outbox.db") as connection:
        text = json.dumps(json.loads(payload("a")) | damaged)
        connection.execute("UPDATE hindsight_outbox_entries SET payload = ? WHERE id = 1", [text])
    connection.close()
    assert contents(store) == ["b"]
    assert [dead.id for dead in store.dead_letters()] == [1]
    assert store.content(1)


def test_an_unreadable_entry_is_laid_by_and_those_behind_it_go_on(store, tmp_path):
    retain(store, said("a", "b"))
    with sqlite3.connect(tmp_path / "outbox.db") as connection:
        connection.execute("UPDATE hindsight_outbox_entries SET payload = '{' WHERE seq = 1")
    connection.close()
    assert contents(store) == ["b"]
    assert store.counts(SERVER).dead == 1


def test_what_is_committed_survives_without_closing(tmp_path):
    path = tmp_path / "outbox.db"
    store = open_store(path)
    retain(store, said("a", "b"))
    for file in tmp_path.glob("outbox.db*"):
        shutil.copy(file, tmp_path / file.name.replace("outbox", "copy"))
    copy = open_store(tmp_path / "copy.db")
    assert contents(copy) == ["a", "b"]
    copy.close()
    store.close()


def test_delivered_content_leaves_the_disk(store, tmp_path):
    retain(store, said("a very particular sentence"))
    deliver(store)
    with sqlite3.connect(tmp_path / "outbox.db") as connection:
        (left,) = connection.execute(
            "SELECT count(*) FROM hindsight_outbox_entries WHERE payload IS NOT NULL"
        ).fetchone()
    connection.close()
    assert left == 0


def test_a_note_whose_transaction_is_run_again_is_one_note(store, monkeypatch):
    once = store._database.run

    def twice(work, **named):
        once(work, **named)  # committed, and the answer to that was lost
        return once(work, **named)

    monkeypatch.setattr(store._database, "run", twice)
    document = store.add_note(Scope(SERVER, "b"), payload("note"))
    assert document != store.add_note(Scope(SERVER, "b"), payload("note"))
    assert store.counts(SERVER).waiting == 2
    assert store.note_state(document) is not None


def test_old_records_of_deliveries_are_pruned(tmp_path):
    store = open_store(tmp_path / "o.db", keep_receipts=0)
    retain(store, said("a"))
    store.add_note(Scope(SERVER, "b"), payload("note"))
    deliver(store)
    store.prune()
    with sqlite3.connect(tmp_path / "o.db") as connection:
        batches = connection.execute("SELECT count(*) FROM hindsight_outbox_batches").fetchone()
        notes = connection.execute(
            "SELECT count(*) FROM hindsight_outbox_entries WHERE thread IS NULL"
        ).fetchone()
    connection.close()
    assert (batches, notes) == ((0,), (0,))
    assert retain(store, said("a")) == 0
    store.close()


def test_constructing_a_store_touches_no_file(tmp_path):
    open_store(tmp_path / "none" / "outbox.db")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("module", "package"), [("psycopg", "psycopg[binary]"), ("psycopg2", "psycopg2-binary")]
)
def test_a_driver_that_is_not_installed_is_named_with_its_package_at_once(
    monkeypatch, module, package
):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ConfigurationError, match=re.escape(f"pip install '{package}'")):
        Store(OutboxSettings(url=f"postgresql+{module}://me:a-password@host/database"))


def test_an_asynchronous_driver_is_refused_at_once():
    with pytest.raises(ConfigurationError, match="asynchronous"):
        Store(OutboxSettings(url="postgresql+asyncpg://host/database"))


@pytest.mark.parametrize("url", ["nonsense", "mysql://host/x", "oracle://host"])
def test_a_url_that_can_never_work_is_refused_at_once(url):
    with pytest.raises(ConfigurationError, match=r"outbox\.url"):
        Store(OutboxSettings(url=url))


@pytest.mark.parametrize("ids", [True, False])
@pytest.mark.parametrize("restarted", [True, False])
def test_a_turn_of_a_long_thread_is_as_little_work_for_the_database_as_one_of_a_short_one(
    tmp_path, ids, restarted
):
    """Counted in twenties of steps of SQLite's machine, which no other load changes."""
    steps = {}
    for length in (10, 5000):
        with counted_steps() as counter:
            store = open_store(tmp_path / f"{length}.db")
            told = [f"said {at}" for at in range(length)]
            retain(store, said(*told, ids=ids))
            if restarted:
                store.close()
                store = open_store(tmp_path / f"{length}.db")
                store.exists()
            before = counter[0]
            retain(store, said(*told, "new", "newer", ids=ids))
            steps[length] = counter[0] - before
            store.close()
    assert 0 < steps[5000] <= 2 * steps[10], steps


@contextlib.contextmanager
def counted_steps():
    counter = [0]

    def count():
        counter[0] += 1

    def watch(connection, _record):
        connection.set_progress_handler(count, 20)

    event.listen(Engine, "connect", watch)
    yield counter
    event.remove(Engine, "connect", watch)
