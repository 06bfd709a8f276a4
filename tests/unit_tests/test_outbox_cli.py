"""`langchain-hindsight outbox` over an outbox on disk; what it cannot reach is a closed port."""

from __future__ import annotations

import json
import sqlite3

import pytest
from test_outbox_store import open_store, retain, said
from typer.testing import CliRunner

from langchain_hindsight.cli import app
from langchain_hindsight.outbox.address import address_of

URL = "http://127.0.0.1:9"
SERVER = "http://localhost:9"


@pytest.fixture
def path(tmp_path, monkeypatch):
    file = tmp_path / "outbox.db"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HINDSIGHT_API_URL", URL)
    monkeypatch.setenv("HINDSIGHT_OUTBOX__URL", f"sqlite:///{file.as_posix()}")
    return file


@pytest.fixture
def store(path):
    opened = open_store(path)
    yield opened
    opened.close()


def run(*words, code=0):
    result = CliRunner().invoke(app, ["outbox", *words], env={"COLUMNS": "200"})
    assert result.exit_code == code, result.output
    return result.stdout


def run_json(*words, code=0):
    return json.loads(run(*words, "--json", code=code))


def die(store, *texts):
    """Dead letters, each refused by itself."""
    retain(store, said(*texts), server=SERVER)
    (lane,) = store.claim(SERVER)
    while batch := store.next_batch(lane, unit="message", limit=50):
        store.mark_refused(lane, batch.operation_id, "422: no, thank you")
    store.release([lane.id])
    return [one.id for one in store.dead_letters()]


@pytest.mark.parametrize(
    ("command", "code"),
    [("status", 0), ("list", 0), ("show 1", 1), ("retry --all", 0), ("drop --all", 0)],
)
def test_a_look_at_an_outbox_that_is_not_there_makes_none(path, command, code):
    run(*command.split(), code=code)
    assert not path.exists()


def test_status_counts_what_waits_is_dead_or_is_for_others(store, path):
    die(store, "a", "b")
    retain(store, said("c"), thread="t2", server=SERVER)
    retain(store, said("d"), server="http://other.example")
    found = run_json("status")
    assert (found["waiting"], found["dead"], found["in_flight"]) == (1, 2, 0)
    assert found["other_servers"] == {"http://other.example": 1}
    assert found["place"].endswith("outbox.db")
    shown = run("status")
    assert "http://other.example" in shown
    assert str(path) in shown


def test_list_and_show_name_entries_and_hide_what_they_hold_unless_asked(store):
    (dead,) = die(store, "a very private sentence")
    for shown in (run("list"), run("show", str(dead)), run("list", "--json")):
        assert "422: no, thank you" in shown
        assert "private" not in shown
    for shown in (
        run("list", "--content"),
        run("show", str(dead), "--content"),
        run("list", "--content", "--json"),
        run("show", str(dead), "--content", "--json"),
    ):
        assert "a very private sentence" in shown


def test_list_takes_a_state_and_a_limit(store):
    die(store, "a", "b")
    retain(store, said("c"), thread="t2", server=SERVER)
    assert [one["state"] for one in run_json("list")] == ["dead", "dead", "waiting"]
    assert len(run_json("list", "--state", "dead", "--limit", "1")) == 1
    assert len(run_json("list", "--state", "waiting")) == 1
    assert run_json("list", "--state", "in-flight") == []


def test_retry_and_drop_settle_the_dead_letters_that_are_named(store):
    one, other, third = die(store, "a", "b", "c")
    assert run_json("retry", str(one)) == {"retried": 1}
    assert run_json("drop", str(other)) == {"dropped": 1}
    assert store.counts(SERVER).dead == 1
    assert run_json("retry", "--all") == {"retried": 1}
    assert store.counts(SERVER).waiting == 2
    assert third


def test_an_id_that_is_no_dead_letter_changes_nothing(store):
    (dead,) = die(store, "a")
    run("drop", str(dead), "999", code=1)
    assert store.counts(SERVER).dead == 1


@pytest.mark.parametrize("command", ["retry", "drop"])
@pytest.mark.parametrize("words", [(), ("1", "--all")])
def test_retry_and_drop_want_either_ids_or_all(store, command, words):
    die(store, "a")
    run(command, *words, code=2)
    assert store.counts(SERVER).dead == 1


def test_readdress_gives_what_waits_elsewhere_to_this_server(store):
    retain(store, said("a"), server="http://localhost:7")
    assert run_json("readdress", "http://127.0.0.1:7/") == {"readdressed": 1}
    assert store.counts(SERVER).waiting == 1


def test_readdress_to_another_server_keeps_keys_apart(store):
    for key in ("one", "two"):
        retain(store, said(key), server=address_of("http://old.example", key))
    run("readdress", "http://old.example", "http://new.example/")
    for key in ("one", "two"):
        assert store.counts(address_of("http://new.example", key)).waiting == 1


def test_readdress_of_one_key_leaves_the_others(store, monkeypatch):
    monkeypatch.setenv("HINDSIGHT_API_KEY", "mine")
    for key in ("one", "two"):
        retain(store, said(key), server=address_of(SERVER, key))
    assert run_json("readdress", address_of(SERVER, "one")) == {"readdressed": 1}
    assert store.counts(address_of(SERVER, "mine")).waiting == 1
    assert store.counts(address_of(SERVER, "two")).waiting == 1


def test_readdress_of_what_nothing_waits_for_says_so(store):
    retain(store, said("a"), server=SERVER)
    run("readdress", "http://nobody.example", code=1)


def test_another_place_is_looked_at_by_name(tmp_path, path):
    other = open_store(tmp_path / "other.db")
    retain(other, said("a"), server=SERVER)
    other.close()
    url = f"sqlite:///{(tmp_path / 'other.db').as_posix()}"
    assert run_json("status", "--outbox-url", url)["waiting"] == 1
    assert not path.exists()


def test_an_outbox_of_a_newer_version_is_refused_in_a_sentence(store, path):
    retain(store, said("a"))
    store.close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE hindsight_outbox_version SET version = 99")
    connection.close()
    assert "newer langchain-hindsight" in CliRunner().invoke(app, ["outbox", "status"]).output


def test_a_file_of_something_else_is_refused_in_a_sentence(path):
    path.write_text("a shopping list")
    result = CliRunner().invoke(app, ["outbox", "list"])
    assert result.exit_code == 1
    assert "something else" in result.output
    assert path.read_text() == "a shopping list"
