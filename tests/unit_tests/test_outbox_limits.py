"""What the outbox does where the disk, the file or the memory comes to its end."""

from __future__ import annotations

import sqlite3
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import pytest
from scripted_server import ScriptedServer, failure
from sqlalchemy import insert
from test_delivery import BANK, turn
from test_outbox_store import SERVER, open_store, payload

from langchain_hindsight.outbox.schema import entries
from langchain_hindsight.outbox.scope import Scope
from langchain_hindsight.outbox.store import Store
from langchain_hindsight.retain import Retainer
from langchain_hindsight.settings import HindsightSettings, OutboxSettings


def full_disk(connection):
    pages = connection.exec_driver_sql("PRAGMA page_count").scalar()
    connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")


def read_only_file(connection):
    connection.exec_driver_sql("PRAGMA query_only = ON")


@pytest.fixture
def server():
    scripted = ScriptedServer()
    yield scripted
    scripted.loop.close()


@pytest.fixture
def broken(server, tmp_path):
    """A memory whose outbox file cannot be written any more."""
    url = f"sqlite:///{(tmp_path / 'outbox.db').as_posix()}"
    retainer = Retainer(server, HindsightSettings(outbox=OutboxSettings(url=url)))
    retainer.retain_transcript(BANK, turn("a"), thread_id="t")
    assert not retainer.flush(30).timed_out
    retainer._on_disk().store._database.run(read_only_file)
    yield retainer
    retainer.stop(0)


def test_what_was_neither_on_disk_nor_delivered_is_said_to_be_lost_at_the_end(
    server, broken, caplog
):
    server.poison = ("poison",)
    broken.retain_transcript(BANK, turn("poison"), thread_id="u")
    assert broken.flush(30).dead == 1
    server.retains.extend([failure("unreachable")] * 50)
    broken.retain_transcript(BANK, turn("b", "c"), thread_id="v")
    broken.flush(0.2)
    broken.stop(0)
    assert "3 entries that could not be written to disk" in caplog.text
    assert "(1 of them were dead letters)" in caplog.text


def test_nothing_is_said_to_be_lost_where_memory_delivered_all(broken, caplog):
    broken.retain_transcript(BANK, turn("b"), thread_id="u")
    assert not broken.flush(30).timed_out
    broken.stop(0)
    assert "lost" not in caplog.text.replace("is lost if this process ends", "")


@pytest.mark.parametrize(
    ("breaks", "reason"),
    [(full_disk, "full"), (read_only_file, "readonly")],
    ids=["full", "closed"],
)
def test_a_disk_that_takes_nothing_lets_the_reply_out_and_the_loss_is_said_everywhere(
    server, tmp_path, caplog, breaks, reason
):
    url = f"sqlite:///{(tmp_path / 'outbox.db').as_posix()}"
    retainer = Retainer(server, HindsightSettings(outbox=OutboxSettings(url=url)))
    retainer.retain_transcript(BANK, turn("a"), thread_id="t")
    assert not retainer.flush(30).timed_out
    database = retainer._on_disk().store._database
    database.run(breaks, reads=False)
    long = "b" * 50_000
    receipt = retainer.retain_transcript(BANK, turn("a", long), thread_id="t")
    assert receipt.status == "queued"
    assert receipt.reason.startswith("not durable")
    assert reason in receipt.reason
    status = retainer.status()
    assert not status.durable
    assert reason in status.last_error
    assert "cannot be written" in caplog.text
    retainer.flush(30)
    assert f"assistant: {long}" in server.contents()
    retainer.stop(0)


def test_a_disk_that_keeps_everybody_waiting_is_left_alone_after_one_turn(server, tmp_path):
    """SQLite waits for its whole time-out at each access."""
    path = tmp_path / "outbox.db"
    settings = OutboxSettings(url=f"sqlite:///{path.as_posix()}")
    store = Store(settings)
    store.counts(SERVER)
    store.close()
    retainer = Retainer(server, HindsightSettings(outbox=settings))
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("PRAGMA locking_mode = EXCLUSIVE")
    other.execute("BEGIN EXCLUSIVE")
    other.execute("DELETE FROM hindsight_outbox_entries WHERE 0")
    assert retainer.retain_transcript(BANK, turn("b"), thread_id="first").status == "queued"
    started = time.monotonic()
    with ThreadPoolExecutor(4) as pool:
        receipts = [
            pool.submit(retainer.retain_transcript, BANK, turn(text), thread_id=text)
            for text in "cdef"
        ]
        assert {one.result().status for one in receipts} == {"queued"}
    assert "not durable" in receipts[0].result().reason
    assert not retainer.status().durable
    assert time.monotonic() - started < 0.8, "the time-out of one access"
    other.execute("ROLLBACK")
    other.close()
    retainer.flush(30)
    assert sorted(one[-1] for one in server.contents()) == list("bcdef")
    retainer.stop(0)


def peak_of(work):
    """The most bytes that were held at once while something was done."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_and_requests_stay_the_same_however_many_entries_wait(tmp_path):
    peaks = {}
    for waiting in (200, 20_000):
        store = open_store(tmp_path / f"{waiting}.db")
        store.add_note(Scope(SERVER, "b"), payload("first"))
        rows = [
            {
                "lane": 1,
                "seq": 0,
                "fingerprint": f"{at:032d}",
                "speech": False,
                "starts_turn": True,
                "document": f"{at:036d}",
                "state": "waiting",
                "payload": payload(f"text {at}"),
                "size": 100,
                "created": time.time(),
            }
            for at in range(waiting)
        ]
        store._database.run(lambda c, rows=rows: c.execute(insert(entries), rows))

        def deliver(store=store):
            (lane,) = store.claim(SERVER)
            batch = store.next_batch(lane, unit="turn", limit=50)
            assert batch.entries == 50
            store.mark_accepted(lane, batch.operation_id)
            store.mark_done(lane, batch.operation_id)
            store.counts(SERVER)
            store.next_due(SERVER)

        deliver()  # whatever is made once is made
        peaks[waiting] = peak_of(deliver)
        store.close()
    assert peaks[20_000] < 2 * peaks[200]  # a hundred times the entries
