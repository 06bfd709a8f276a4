"""The outbox on a PostgreSQL, shared by processes on one machine or many."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from threading import Barrier

import pytest
from faulty_network import hanging
from hindsight_client import Hindsight
from langchain_core.messages import AIMessage, HumanMessage
from postgres_outbox import new_database, running_postgres
from relay import Relay, relaying
from sqlalchemy import create_engine, make_url, text

from langchain_hindsight.banks import ProjectBank
from langchain_hindsight.gateway import Gateway
from langchain_hindsight.outbox import database, engine
from langchain_hindsight.retain import Retainer
from langchain_hindsight.settings import HindsightSettings, OutboxSettings

pytest.importorskip("psycopg")

WORKERS = 4
THREADS = 4
MESSAGES = 10


@pytest.fixture(scope="module")
def postgres_url() -> Iterator[str]:
    """A PostgreSQL of this module's own."""
    with running_postgres() as url:
        yield url


@pytest.fixture
def outbox(postgres_url: str) -> str:
    """An outbox in a database of its own, where the users' tables are too."""
    url = new_database(postgres_url)
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE somebodys_own (id integer)"))
    engine.dispose()
    return url


@pytest.fixture
def bank() -> ProjectBank:
    return ProjectBank(f"project-{uuid.uuid4().hex}", "billing")


@pytest.fixture
def open_retainer(hindsight_url, outbox):
    opened = []

    def open_one(url=hindsight_url):
        gateway = Gateway(url, lambda: None, 30.0)
        settings = HindsightSettings(outbox=OutboxSettings(url=outbox))
        opened.append((Retainer(gateway, settings), gateway))
        return opened[-1][0]

    yield open_one
    for retainer, gateway in opened:
        retainer.stop(0)
        gateway.loop.run(gateway.aclose())
        gateway.loop.close()


def say(thread, at):
    return f"This is sentence number {at} of talk {thread}."


def talk(thread, count):
    kinds = (HumanMessage, AIMessage)
    return [kinds[at % 2](say(thread, at), id=f"{thread}-{at}") for at in range(count)]


def texts(url: str, bank_id: str) -> list[str]:
    """The text of everything that a bank holds, chunk by chunk."""

    async def listed():
        found = []
        async with aclosing(Hindsight(url)) as client:
            while True:
                page = await client.alist_memories(bank_id, limit=100, offset=len(found))
                found += [one["text"] if isinstance(one, dict) else one.text for one in page.items]
                if len(page.items) < 100:
                    return found

    return sorted(asyncio.run(listed()))


WORK = """
import sys
from langchain_core.messages import AIMessage, HumanMessage
from langchain_hindsight.banks import ProjectBank
from langchain_hindsight.gateway import Gateway
from langchain_hindsight.retain import Retainer
from langchain_hindsight.settings import HindsightSettings, OutboxSettings

url, outbox, bank, threads, messages = sys.argv[1:]
gateway = Gateway(url, lambda: None, 60.0)
settings = HindsightSettings(outbox=OutboxSettings(url=outbox, batch_size=10))
retainer = Retainer(gateway, settings)
kinds = (HumanMessage, AIMessage)
for count in range(2, int(messages) + 2, 2):
    for thread in range(int(threads)):
        talk = [
            kinds[at % 2](f"This is sentence number {at} of talk {thread}.", id=f"{thread}-{at}")
            for at in range(count)
        ]
        receipt = retainer.retain_transcript(
            ProjectBank(bank, "billing"), talk, thread_id=f"t{thread}"
        )
        assert receipt.status in {"queued", "skipped"}, receipt
        assert not (receipt.reason or "").startswith("not durable"), receipt
        print("committed", flush=True)
report = retainer.flush(240)
assert not report.timed_out, (report, retainer.status())
retainer.stop(1)
gateway.loop.run(gateway.aclose())
gateway.loop.close()
"""


def command(hindsight_url, outbox, bank):
    words = [hindsight_url, outbox, bank.bank_id, str(THREADS), str(MESSAGES)]
    return [sys.executable, "-c", textwrap.dedent(WORK), *words]


def everything():
    return sorted(
        f"{('user', 'assistant')[at % 2]}: {say(thread, at)}"
        for thread in range(THREADS)
        for at in range(MESSAGES)
    )


def test_branches_of_several_programs_that_retain_to_one_conversation_at_once_all_do(
    outbox, open_retainer, bank
):
    retainers = [open_retainer("http://127.0.0.1:9") for _ in range(4)]
    together = Barrier(12, timeout=60)

    def branch(number):
        for turn in range(4):
            together.wait()
            said = [HumanMessage(f"q {number} {turn}"), AIMessage(f"a {number} {turn}")]
            receipt = retainers[number % 4].retain_transcript(bank, said, thread_id="t")
            assert (receipt.status, receipt.reason, receipt.items) == ("queued", None, 2)

    with ThreadPoolExecutor(12) as pool:
        list(pool.map(branch, range(12)))
    assert retainers[0].status().waiting == 12 * 4 * 2


def test_what_is_retained_is_delivered_once_beside_tables_of_somebody_else(
    hindsight_url, outbox, open_retainer, bank
):
    retainer = open_retainer()
    assert retainer.status().waiting == 0
    engine = create_engine(outbox)
    with engine.connect() as connection:
        tables = connection.execute(
            text("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        ).scalars()
        assert list(tables) == ["somebodys_own"]  # looking makes none
    engine.dispose()
    assert retainer.retain_transcript(bank, talk(0, 4), thread_id="t").status == "queued"
    assert retainer.retain_transcript(bank, talk(0, 4), thread_id="t").status == "skipped"
    assert retainer.retain_note(bank, "A note.", wait=60).status == "stored"
    assert not retainer.flush(60).timed_out
    expected = [f"{('user', 'assistant')[at % 2]}: {say(0, at)}" for at in range(4)]
    assert texts(hindsight_url, bank.bank_id) == sorted([*expected, "A note."])
    assert retainer.status().delivered == 5


def test_four_processes_that_retain_the_same_conversations_store_each_message_once(
    hindsight_url, outbox, bank
):
    def work(_):
        return subprocess.run(
            command(hindsight_url, outbox, bank),
            check=False,
            timeout=280,
            capture_output=True,
            text=True,
        )

    with ThreadPoolExecutor(WORKERS) as pool:
        for process in pool.map(work, range(WORKERS)):
            assert process.returncode == 0, process.stderr
    assert texts(hindsight_url, bank.bank_id) == everything()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL")
def test_processes_that_are_killed_leave_everything_to_the_others(hindsight_url, outbox, bank):
    workers = [
        subprocess.Popen(
            command(hindsight_url, outbox, bank),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(WORKERS)
    ]
    for at, killed in enumerate(workers[: WORKERS - 1]):
        for _ in range(5 * (at + 1)):
            killed.stdout.readline()
        os.kill(killed.pid, signal.SIGKILL)
    for killed in workers[: WORKERS - 1]:
        killed.communicate()
    _, errors = workers[-1].communicate(timeout=280)
    assert workers[-1].returncode == 0, errors
    assert texts(hindsight_url, bank.bank_id) == everything()


def test_a_bank_that_another_process_serves_is_passed_over_without_waiting(
    outbox, open_retainer, bank
):
    one = open_retainer("http://127.0.0.1:9")
    one.retain_transcript(bank, talk(0, 2), thread_id="t")
    store = one._on_disk().store
    address = one.status().address
    one.stop(0)
    engine = create_engine(outbox)
    with engine.begin() as connection:
        connection.execute(text("SELECT * FROM hindsight_outbox_lanes FOR UPDATE"))
        assert store.claim(address) == []
    engine.dispose()
    store.hurry(address)
    assert len(store.claim(address)) == 1
    store.close()


def test_a_database_that_is_away_leaves_the_turn_in_memory_and_says_so(
    hindsight_url, bank, postgres_url
):
    gateway = Gateway(hindsight_url, lambda: None, 30.0)
    url = "postgresql+psycopg://nobody:a-secret@127.0.0.1:9/nothing"
    retainer = Retainer(gateway, HindsightSettings(outbox=OutboxSettings(url=url)))
    receipt = retainer.retain_transcript(bank, talk(0, 2), thread_id="t")
    assert receipt.status == "queued"
    assert receipt.reason.startswith("not durable")
    assert "a-secret" not in receipt.reason
    assert not retainer.status().durable
    assert not retainer.flush(200).timed_out
    assert len(texts(hindsight_url, bank.bank_id)) == 2
    retainer.stop(0)
    gateway.loop.run(gateway.aclose())
    gateway.loop.close()


@pytest.fixture
def relayed(hindsight_url, outbox, monkeypatch) -> Iterator[tuple[Retainer, Relay]]:
    """A memory that waits a second for its outbox to answer, and the relay that is between them."""
    monkeypatch.setattr(database, "_ANSWER_TIMEOUT", 1.0)
    monkeypatch.setattr(database, "_ANSWER_TIMEOUT_EACH", 0.0)
    monkeypatch.setattr(database, "_REST", 2.0)
    address = make_url(outbox)
    gateway = Gateway(hindsight_url, lambda: None, 30.0)
    with relaying(f"http://{address.host}:{address.port}") as relay:
        between = address.set(host="127.0.0.1", port=int(relay.url.rpartition(":")[2]))
        url = between.render_as_string(hide_password=False)
        retainer = Retainer(gateway, HindsightSettings(outbox=OutboxSettings(url=url)))
        yield retainer, relay
        retainer.stop(0)
    gateway.loop.run(gateway.aclose())
    gateway.loop.close()


@pytest.mark.parametrize("stalls_on", [b"", b"COMMIT"], ids=["statement", "commit"])
def test_a_database_that_stops_answering_costs_one_turn_its_time_out(
    hindsight_url, relayed, bank, stalls_on
):
    """What was under way comes to it late, and is in memory by then: it is stored once."""
    retainer, relay = relayed
    retainer._wake = lambda *_, **__: None
    retainer.retain_transcript(bank, talk(0, 2), thread_id="t")
    relay.stalls_on, relay.fault = stalls_on, "stall"
    taken = []
    for messages in (talk(0, 4), talk(0, 6), [*talk(0, 6), *talk(1, 2)]):
        started = time.monotonic()
        receipt = retainer.retain_transcript(bank, messages, thread_id="t")
        taken.append(time.monotonic() - started)
        assert (receipt.status, receipt.items) == ("queued", 2)
        assert "not durable: the database did not answer within 1 s" in receipt.reason
    note = retainer.retain_note(bank, "Written down while it was away.", wait=0.1)
    assert note.status == "queued"
    assert relay.faults
    assert max(taken) < 2.5
    assert max(taken[1:]) < 0.5
    relay.fault = None
    time.sleep(max(taken) * 2)
    messages = [*talk(0, 6), *talk(1, 2), *talk(2, 2)]
    receipt = retainer.retain_transcript(bank, messages, thread_id="t")
    assert (receipt.status, receipt.items, receipt.reason) == ("queued", 2, None)
    del retainer._wake
    assert not retainer.flush(200).timed_out
    found = [one.rpartition(": ")[2] for one in texts(hindsight_url, bank.bank_id)]
    assert sorted(found) == sorted(
        [*(one.text for one in messages), "Written down while it was away."]
    )


def test_a_note_whose_commit_is_answered_late_is_stored_once(hindsight_url, relayed, bank):
    retainer, relay = relayed
    retainer.retain_transcript(bank, talk(0, 2), thread_id="t")
    assert not retainer.flush(200).timed_out
    retainer._disk.delivery.stop(3)
    retainer._wake = lambda *_, **__: None
    relay.stalls_on, relay.fault = b"COMMIT", "stall"
    assert retainer.retain_note(bank, "Remember this.", wait=0.1).status == "queued"
    assert relay.faults
    relay.fault = None
    time.sleep(2.5)
    del retainer._wake
    retainer.retain_transcript(bank, talk(1, 2), thread_id="u")
    assert not retainer.flush(200).timed_out
    found = texts(hindsight_url, bank.bank_id)
    assert [one for one in found if "Remember" in one] == ["Remember this."]
    assert len(found) == 5


def test_a_database_that_takes_connections_and_answers_none_costs_one_turn_its_time_out(
    hindsight_url, bank, monkeypatch
):
    monkeypatch.setitem(engine._PATIENCE, "connect_timeout", 2)
    gateway = Gateway(hindsight_url, lambda: None, 30.0)
    with hanging() as there:
        port = there.rpartition(":")[2]
        url = f"postgresql+psycopg://nobody:a-secret@127.0.0.1:{port}/nothing"
        retainer = Retainer(gateway, HindsightSettings(outbox=OutboxSettings(url=url)))
        taken = []
        for length in (2, 4, 6):
            started = time.monotonic()
            receipt = retainer.retain_transcript(bank, talk(0, length), thread_id="t")
            taken.append(time.monotonic() - started)
            assert (receipt.status, receipt.items) == ("queued", 2)
        assert taken[0] < 4
        assert max(taken[1:]) < 0.5
        assert not retainer.flush(200).timed_out
        assert len(texts(hindsight_url, bank.bank_id)) == 6
        retainer.stop(0)
    gateway.loop.run(gateway.aclose())
    gateway.loop.close()
