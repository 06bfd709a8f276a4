"""Retain against a real server: nothing lost, nothing twice, whatever is killed or goes away."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from hindsight_client import Hindsight
from hindsight_client_api.exceptions import NotFoundException
from langchain_core.messages import AIMessage, HumanMessage
from relay import relaying

from langchain_hindsight.banks import LifeBank, ProjectBank
from langchain_hindsight.gateway import Gateway
from langchain_hindsight.outbox import delivery, leases
from langchain_hindsight.retain import Retainer
from langchain_hindsight.settings import HindsightSettings, OutboxSettings, RetainSettings

needs_sigkill = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL")


@pytest.fixture(autouse=True)
def _no_long_waits(monkeypatch):
    monkeypatch.setattr(leases, "LEASE", 0.5)
    monkeypatch.setattr(delivery, "FIRST_PAUSE", 0.05)


@pytest.fixture
def bank(bank_id):
    return ProjectBank(bank_id, "billing")


@pytest.fixture
def open_retainer(tmp_path):
    opened = []

    def open_one(url, **kept):
        settings = HindsightSettings(
            retain=RetainSettings(**kept), outbox=OutboxSettings(url=outbox_url(tmp_path))
        )
        gateway = Gateway(url, lambda: None, 30.0)
        opened.append((Retainer(gateway, settings), gateway))
        return opened[-1][0]

    yield open_one
    for retainer, gateway in opened:
        retainer.stop(0)
        if gateway.loop.is_open:
            gateway.loop.run(gateway.aclose())
            gateway.loop.close()


def outbox_url(folder):
    return f"sqlite:///{(folder / 'outbox.db').as_posix()}"


def talk(count, start=0):
    kinds = (HumanMessage, AIMessage)
    return [
        kinds[at % 2](f"This is sentence number {at} of the talk.", id=f"m{at}")
        for at in range(start, start + count)
    ]


def expected(count):
    speakers = ("user", "assistant")
    return sorted(
        f"{speakers[at % 2]}: This is sentence number {at} of the talk." for at in range(count)
    )


def stored(url, bank_id):
    """What the bank holds, as the server lists it."""

    async def read():
        client = Hindsight(url)
        try:
            found, total = [], 1
            while len(found) < total:
                page = await client.alist_memories(bank_id, limit=100, offset=len(found))
                found += page.items
                total = page.total
        except NotFoundException:  # there is no such bank
            return []
        else:
            return found
        finally:
            await client.aclose()

    return asyncio.run(read())


def texts(url, bank_id):
    return sorted(memory.text for memory in stored(url, bank_id))


def test_a_conversation_is_stored_once_however_often_it_is_passed(
    hindsight_url, open_retainer, bank
):
    retainer = open_retainer(hindsight_url)
    for _ in range(3):
        retainer.retain_transcript(bank, talk(4), thread_id="t")
        assert not retainer.flush(60).timed_out
    retainer.retain_transcript(bank, talk(6), thread_id="t")
    assert retainer.flush(60).delivered == 2
    assert texts(hindsight_url, bank.bank_id) == expected(6)


def test_a_memory_carries_tag_time_context_and_where_it_was_said(
    hindsight_url, open_retainer, bank
):
    retainer = open_retainer(hindsight_url, tags=("team:red",))
    spoken = HumanMessage(
        "Yes, do that.", id="m1", additional_kwargs={"timestamp": "2026-03-01T10:00:00+00:00"}
    )
    retainer.retain_transcript(bank, [AIMessage("Shall I deploy?", id="m0"), spoken], thread_id="t")
    retainer.flush(60)
    (found,) = [one for one in stored(hindsight_url, bank.bank_id) if "Yes" in one.text]
    assert set(found.tags) == {"project:billing", "team:red"}
    assert "Shall I deploy?" in found.context
    assert "2026-03-01T10:00:00" in str(found.to_dict())


def test_an_edited_message_replaces_what_was_stored(hindsight_url, open_retainer, bank):
    retainer = open_retainer(hindsight_url)
    retainer.retain_transcript(bank, talk(2), thread_id="t")
    retainer.flush(60)
    edited = [HumanMessage("This is another sentence.", id="m0"), talk(2)[1]]
    retainer.retain_transcript(bank, edited, thread_id="t")
    retainer.flush(60)
    assert texts(hindsight_url, bank.bank_id) == sorted(
        ["user: This is another sentence.", expected(2)[0]]
    )


def test_an_edit_of_a_delivered_turn_replaces_the_turn(hindsight_url, open_retainer, bank):
    retainer = open_retainer(hindsight_url, unit="turn")
    retainer.retain_transcript(bank, talk(2), thread_id="t")
    retainer.flush(60)
    edited = [HumanMessage("This is another sentence.", id="m0"), talk(2)[1]]
    retainer.retain_transcript(bank, edited, thread_id="t")
    retainer.flush(60)
    assert texts(hindsight_url, bank.bank_id) == [
        "user: This is another sentence.\n\nassistant: This is sentence number 1 of the talk."
    ]


def test_a_fork_adds_what_is_different(hindsight_url, open_retainer, bank):
    retainer = open_retainer(hindsight_url)
    retainer.retain_transcript(bank, talk(4), thread_id="t")
    fork = [*talk(2), HumanMessage("Let us go elsewhere.", id="f1")]
    for _ in range(2):
        retainer.retain_transcript(bank, fork, thread_id="t")
    retainer.flush(60)
    assert texts(hindsight_url, bank.bank_id) == sorted(
        [*expected(4), "user: Let us go elsewhere."]
    )


def test_a_server_with_an_llm_is_given_turns(hindsight_mock_url, open_retainer, bank):
    retainer = open_retainer(hindsight_mock_url)
    retainer.retain_note(bank, "The bank exists now.", wait=60)
    retainer.retain_transcript(bank, talk(4), thread_id="t")
    assert retainer.flush(60).waiting == 0
    found = stored(hindsight_mock_url, bank.bank_id)
    assert len({memory.document_id for memory in found if memory.document_id}) == 3


def test_notes_reach_both_banks_and_say_stored(hindsight_url, open_retainer, bank, life_bank_id):
    retainer = open_retainer(hindsight_url)
    for place in (bank, LifeBank(life_bank_id)):
        receipt = retainer.retain_note(place, "Prefers short answers.", wait=60)
        assert receipt.status == "stored"
        assert len(receipt.operation_ids) == 1
        assert texts(hindsight_url, place.bank_id) == ["Prefers short answers."]


def test_automatic_retain_reaches_no_bank_but_the_projects(
    hindsight_url, open_retainer, bank, life_bank_id
):
    retainer = open_retainer(hindsight_url)
    with pytest.raises(TypeError):
        retainer.retain_transcript(LifeBank(life_bank_id), talk(2), thread_id="t")
    retainer.retain_transcript(bank, talk(2), thread_id="t")
    retainer.flush(60)
    assert stored(hindsight_url, life_bank_id) == []


def test_a_bank_that_cannot_be_becomes_a_dead_letter_and_holds_up_no_other(
    hindsight_url, open_retainer, bank
):
    retainer = open_retainer(hindsight_url, unit="message")
    retainer.retain_transcript(ProjectBank("x" * 300, "billing"), talk(1), thread_id="t")
    retainer.retain_transcript(bank, talk(2), thread_id="t")
    report = retainer.flush(60)
    assert (report.delivered, report.dead, report.timed_out) == (2, 1, False)


def test_what_is_retained_while_the_server_is_away_is_delivered_when_it_is_back(
    hindsight_url, open_retainer, bank
):
    with relaying(hindsight_url) as relay:
        retainer = open_retainer(relay.url)
        relay.fault = "reset"
        started = time.monotonic()
        for count in range(2, 12, 2):
            receipt = retainer.retain_transcript(bank, talk(count), thread_id="t")
            assert receipt.status == "queued"
        assert time.monotonic() - started < 5
        note = retainer.retain_note(bank, "A note.", wait=10)
        assert note.status == "queued"
        assert "cannot be reached" in note.reason or "broke off" in note.reason
        assert retainer.status().waiting + retainer.status().in_flight == 11
        relay.fault = None
        assert not retainer.flush(60).timed_out
    assert texts(hindsight_url, bank.bank_id) == sorted([*expected(10), "A note."])


def test_an_answer_that_is_lost_on_the_way_stores_nothing_twice(hindsight_url, open_retainer, bank):
    with relaying(hindsight_url) as relay:
        retainer = open_retainer(relay.url)
        retainer.retain_note(bank, "A note.", wait=60)
        relay.fault = "swallow"
        retainer.retain_transcript(bank, talk(6), thread_id="t")
        deadline = time.monotonic() + 20
        while relay.faults < 4 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert relay.faults
        relay.fault = None
        assert not retainer.flush(60).timed_out
    assert texts(hindsight_url, bank.bank_id) == sorted([*expected(6), "A note."])


KILLED = """
import os, signal, sys
from langchain_core.messages import AIMessage, HumanMessage
from langchain_hindsight.banks import ProjectBank
from langchain_hindsight.gateway import Gateway
from langchain_hindsight.outbox.store import Store
from langchain_hindsight.retain import Retainer
from langchain_hindsight.settings import HindsightSettings, OutboxSettings

url, outbox, bank, moment = sys.argv[1:]

def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

before = getattr(Store, moment)
def run_then_die(*args, **named):
    if before(*args, **named) is not None:
        die()

setattr(Store, moment, run_then_die if moment == "next_batch" else die)
retainer = Retainer(
    Gateway(url, lambda: None, 30.0), HindsightSettings(outbox=OutboxSettings(url=outbox))
)
kinds = (HumanMessage, AIMessage)
say = "This is sentence number {} of the talk.".format
talk = [kinds[at % 2](say(at), id=f"m{at}") for at in range(6)]
retainer.retain_transcript(ProjectBank(bank, "billing"), talk, thread_id="t")
retainer.flush(60)
"""


@needs_sigkill
@pytest.mark.parametrize("moment", ["next_batch", "mark_accepted", "mark_done"])
def test_a_process_killed_in_the_middle_of_a_delivery_loses_and_repeats_nothing(
    hindsight_url, open_retainer, bank, tmp_path, moment
):
    arguments = [hindsight_url, outbox_url(tmp_path), bank.bank_id, moment]
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, *arguments],
        check=False,
        timeout=120,
        capture_output=True,
        text=True,
    )
    assert killed.returncode == -9, killed.stderr
    retainer = open_retainer(hindsight_url)
    retainer.start()
    retainer.retain_transcript(bank, talk(8), thread_id="t")
    assert not retainer.flush(60).timed_out
    assert texts(hindsight_url, bank.bank_id) == expected(8)


SHARING = """
import sys
from langchain_core.messages import AIMessage, HumanMessage
from langchain_hindsight.banks import ProjectBank
from langchain_hindsight.gateway import Gateway
from langchain_hindsight.retain import Retainer
from langchain_hindsight.settings import HindsightSettings, OutboxSettings

url, outbox, bank = sys.argv[1:]
gateway = Gateway(url, lambda: None, 30.0)
retainer = Retainer(gateway, HindsightSettings(outbox=OutboxSettings(url=outbox)))
kinds = (HumanMessage, AIMessage)
say = "This is sentence number {} of the talk.".format
talk = [kinds[at % 2](say(at), id=f"m{at}") for at in range(40)]
for count in range(2, 42, 2):
    receipt = retainer.retain_transcript(ProjectBank(bank, "billing"), talk[:count], thread_id="t")
    assert receipt.status in {"queued", "skipped"} and receipt.reason != "not durable", receipt
report = retainer.flush(90)
assert not report.timed_out, report
retainer.stop(1)
gateway.loop.run(gateway.aclose())
gateway.loop.close()
"""


def test_processes_that_share_an_outbox_store_every_message_once(hindsight_url, bank, tmp_path):
    command = [sys.executable, "-c", textwrap.dedent(SHARING)]
    command += [hindsight_url, outbox_url(tmp_path), bank.bank_id]

    def work(_):
        return subprocess.run(command, check=False, timeout=150, capture_output=True, text=True)

    with ThreadPoolExecutor(2) as pool:
        for process in pool.map(work, range(2)):
            assert process.returncode == 0, process.stderr
    assert texts(hindsight_url, bank.bank_id) == expected(40)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows has no fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_delivers_and_leaves_the_parents_delivery_well(
    hindsight_url, open_retainer, bank
):
    retainer = open_retainer(hindsight_url)
    retainer.retain_transcript(bank, talk(2), thread_id="t")
    assert not retainer.flush(60).timed_out
    child = os.fork()
    if child == 0:
        retainer.retain_transcript(bank, talk(4), thread_id="t")
        os._exit(1 if retainer.flush(60).timed_out else 0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    retainer.retain_transcript(bank, talk(6), thread_id="t")
    assert not retainer.flush(60).timed_out
    assert texts(hindsight_url, bank.bank_id) == expected(6)


def test_a_large_conversation_is_delivered_in_batches_and_whole(hindsight_url, open_retainer, bank):
    retainer = open_retainer(hindsight_url)
    assert retainer.retain_transcript(bank, talk(130), thread_id="t").items == 130
    assert not retainer.flush(120).timed_out
    assert texts(hindsight_url, bank.bank_id) == expected(130)
