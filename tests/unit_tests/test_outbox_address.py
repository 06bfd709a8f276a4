from __future__ import annotations

from random import Random

import pytest
from scripted_server import ScriptedServer, failure
from test_delivery import BANK, turn
from test_outbox_store import contents, open_store, retain, said

from langchain_hindsight.errors import ConfigurationError, HindsightError
from langchain_hindsight.outbox import default_file, delivery, polls
from langchain_hindsight.outbox.address import address_of, server_of
from langchain_hindsight.retain import Retainer
from langchain_hindsight.settings import HindsightSettings, OutboxSettings

SERVER = "http://memory.example"
KEY = "a-key-of-one-tenant"


@pytest.mark.parametrize(
    "url",
    [
        "http://localhost:8888",
        "http://localhost:8888/",
        "HTTP://LocalHost:8888",
        "http://127.0.0.1:8888",
        "http://127.0.0.2:8888",
        "http://[::1]:8888/",
        "http://0.0.0.0:8888",
        "http://localhost.:8888",
        "http://me:secret@localhost:8888",
        " http://localhost:8888 ",
    ],
)
def test_every_spelling_of_this_machine_is_one_server(url):
    assert server_of(url) == "http://localhost:8888"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("http://memory.example:80/", "http://Memory.Example"),
        ("https://memory.example:443", "https://memory.example"),
        ("https://memory.example/base/", "https://memory.example/base"),
        ("http://[2001:DB8::1]:9", "http://[2001:db8::1]:9"),
    ],
)
def test_case_slash_and_the_schemes_own_port_make_no_other_server(one, other):
    assert server_of(one) == server_of(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("http://memory.example", "https://memory.example"),
        ("http://memory.example:8888", "http://memory.example:8889"),
        ("http://memory.example/a", "http://memory.example/b"),
        ("https://memory.example:80", "https://memory.example"),
        ("http://localhost.example:8888", "http://localhost:8888"),
    ],
)
def test_another_scheme_port_or_path_is_another_server(one, other):
    assert server_of(one) != server_of(other)


def test_an_address_tells_keys_apart_and_shows_nothing_of_them():
    address = address_of(SERVER, KEY)
    assert address != address_of(SERVER, "another")
    assert address != address_of(SERVER, None) == SERVER
    assert KEY not in address
    assert len(address.partition("#")[2]) == 12


@pytest.fixture
def store(tmp_path):
    opened = open_store(tmp_path / "outbox.db")
    yield opened
    opened.close()


def test_a_conversation_known_under_one_key_is_new_under_another(store):
    one, other = address_of(SERVER, KEY), address_of(SERVER, "another")
    assert retain(store, said("a", "b"), server=one) == 2
    assert retain(store, said("a", "b"), server=other) == 2
    assert contents(store, server=one) == ["a", "b"]
    assert contents(store, server=other) == ["a", "b"]


def test_entries_given_another_address_go_there_with_all_that_is_known_of_them(store):
    retain(store, said("a", "b"))
    contents(store)
    retain(store, said("a", "b", "c"))
    assert store.readdress(SERVER, "http://new.example") == 1
    assert contents(store) == []
    assert store.counts("http://new.example").delivered == 2
    assert retain(store, said("a", "b", "c", "d"), server="http://new.example") == 1
    assert contents(store, server="http://new.example") == ["c", "d"]
    assert store.readdress("http://new.example", "http://third.example") == 0
    assert retain(store, said("a", "b", "c", "d"), server="http://third.example") == 0


def test_entries_given_an_address_where_there_are_some_already_join_them(store):
    retain(store, said("a"))
    retain(store, said("x"), bank="other")
    retain(store, said("b"), server="http://new.example", thread="t2")
    assert store.readdress(SERVER, "http://new.example") == 2
    assert sorted(contents(store, server="http://new.example")) == ["a", "b", "x"]
    assert store.counts("http://new.example").other_servers == {}


@pytest.mark.parametrize("knows", ["the same program", "another program"])
@pytest.mark.parametrize("others", [(), ("http://new.example",), ("http://third.example",)])
def test_a_program_that_goes_on_at_an_address_whose_entries_left_begins_anew(
    store, tmp_path, others, knows
):
    for address in others:
        retain(store, said("x"), server=address, thread="t2")
    said_so_far = ["a", "b"]
    retain(store, said(*said_so_far))
    for number, target in enumerate(["http://new.example", "http://third.example"] * 2):
        store.readdress(SERVER, target)
        program = store if knows == "the same program" else open_store(tmp_path / "outbox.db")
        for more in ("c", "d"):
            said_so_far.append(f"{more}{number}")
            assert retain(program, said(*said_so_far)) > 0
            assert retain(program, said(*said_so_far)) == 0
        if program is not store:
            program.close()
        waiting = store.counts(SERVER).waiting
        assert waiting == len(said_so_far)
    assert contents(store) == said_so_far


def test_nothing_is_lost_in_whatever_order_addresses_are_moved_and_written_to(store):
    addresses = [SERVER, "http://b.example", "http://c.example", "http://d.example"]
    for seed in range(40):
        random, bank = Random(seed), f"bank-{seed}"
        conversation = [f"{seed}"]
        for step in range(12):
            source, target = random.sample(addresses, 2)
            if random.random() < 0.5:
                store.readdress(source, target)
            conversation.append(f"{seed}-{step}")
            assert retain(store, said(*conversation), server=source, bank=bank) > 0
            assert retain(store, said(*conversation), server=source, bank=bank) == 0


def test_an_address_whose_entries_all_left_is_nobodys(store):
    retain(store, said("a"))
    retain(store, said("b"), server="http://new.example", thread="t2")
    store.readdress(SERVER, "http://new.example")
    assert store.addresses() == ["http://new.example"]
    assert store.counts("http://new.example").waiting == 2
    assert store.claim(SERVER) == []


def test_a_request_under_way_goes_along_as_it_was(store):
    retain(store, said("a", "b"))
    (lane,) = store.claim(SERVER)
    batch = store.next_batch(lane, unit="turn", limit=9)
    store.release([lane.id])
    store.readdress(SERVER, "http://new.example")
    (lane,) = store.claim("http://new.example")
    again = store.next_batch(lane, unit="turn", limit=9)
    assert (again.operation_id, again.request()) == (batch.operation_id, batch.request())


def test_entries_that_another_process_is_delivering_keep_their_address(store, tmp_path):
    retain(store, said("a"))
    other = open_store(tmp_path / "outbox.db")
    other.claim(SERVER)
    with pytest.raises(HindsightError, match="Another process is delivering"):
        store.readdress(SERVER, "http://new.example")
    other.close()
    assert store.counts(SERVER).waiting == 1


@pytest.fixture
def open_retainer(tmp_path, monkeypatch):
    monkeypatch.setattr(delivery, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(delivery, "PROBE", 0.05)
    monkeypatch.setattr(polls, "FIRST", 0.005)
    monkeypatch.setattr(polls, "LONGEST", 0.01)
    monkeypatch.setattr(default_file, "user_state_path", lambda _: tmp_path)
    opened, servers = [], []

    def open_one(key, memory=None, *, own=False):
        server = ScriptedServer()
        server.key = key
        if memory is not None:  # the same memory, behind the server's door
            server.stored, server._operations = memory.stored, memory._operations
        settings = HindsightSettings(
            outbox=OutboxSettings(
                url=None if own else f"sqlite:///{(tmp_path / 'outbox.db').as_posix()}"
            )
        )
        servers.append(server)
        opened.append(Retainer(server, settings))
        return opened[-1], server

    yield open_one
    for retainer, server in zip(opened, servers, strict=True):
        retainer.stop(0)
        server.loop.close()


def refusing(server):
    """The server refuses the key from now on."""
    server.facts = failure("auth", status=401)
    server.retains.extend(failure("auth", status=401) for _ in range(100))


def retain_with_a_refused_key(open_retainer, key, *, own):
    """What a program leaves behind whose key was never good."""
    retainer, server = open_retainer(key, own=own)
    refusing(server)
    retainer.retain_transcript(BANK, turn("a"), thread_id="t")
    retainer.flush(20)
    assert retainer.status().paused == ("work",)
    retainer.stop(0)


def test_what_was_retained_under_one_key_is_never_delivered_with_another(open_retainer):
    one, first = open_retainer(KEY)
    one.retain_transcript(BANK, turn("a"), thread_id="t")
    assert one.flush(10).delivered == 1
    refusing(first)
    one.retain_transcript(BANK, turn("a", "b"), thread_id="t")
    one.flush(20)
    one.stop(0)
    other, second = open_retainer("another")
    other.retain_transcript(BANK, turn("x"), thread_id="t")
    report = other.flush(20)
    assert second.contents() == ["user: x"]
    assert (report.delivered, report.elsewhere) == (1, 1)
    assert other.status().other_servers == {address_of(SERVER, KEY): 1}


def test_a_key_that_replaces_another_of_the_same_memory_delivers_what_waits(open_retainer):
    one, first = open_retainer(KEY)
    one.retain_transcript(BANK, turn("a"), thread_id="t")
    one.flush(10)
    refusing(first)
    one.retain_transcript(BANK, turn("a", "b"), thread_id="t")
    one.flush(20)
    one.stop(0)
    other, second = open_retainer("the-new-key", memory=first)
    report = other.flush(20)
    assert (report.delivered, report.elsewhere, report.timed_out) == (1, 0, False)
    assert second.contents() == ["assistant: b", "user: a"]
    again = other.retain_transcript(BANK, turn("a", "b"), thread_id="t")
    assert again.status == "skipped"


@pytest.mark.parametrize(("wrong", "own"), [("a-mistyped-key", True), (None, True), (None, False)])
def test_a_key_that_was_missing_or_mistyped_from_the_start_is_cured_by_the_right_one(
    open_retainer, wrong, own
):
    retain_with_a_refused_key(open_retainer, wrong, own=own)
    other, second = open_retainer(KEY, own=own)
    assert other.flush(20).delivered == 1
    assert second.contents() == ["user: a"]


def test_what_was_retained_under_a_refused_key_stays_in_an_outbox_that_others_may_share(
    open_retainer,
):
    retain_with_a_refused_key(open_retainer, "a-tenants-expired-key", own=False)
    other, second = open_retainer(KEY)
    assert other.flush(20).elsewhere == 1
    assert second.stored == {}


def test_what_was_retained_under_a_refused_key_stays_where_another_key_was_good(open_retainer):
    tenant, _ = open_retainer("a-third-key", own=True)
    tenant.retain_transcript(BANK, turn("z"), thread_id="t")
    tenant.flush(10)
    tenant.stop(0)
    retain_with_a_refused_key(open_retainer, "a-mistyped-key", own=True)
    other, second = open_retainer(KEY, own=True)
    assert other.flush(20).elsewhere == 1
    assert second.stored == {}


def test_what_was_retained_under_a_refused_key_stays_where_ones_own_was_good_before(open_retainer):
    tenant, own = open_retainer(KEY, own=True)
    tenant.retain_transcript(BANK, turn("z"), thread_id="t")
    tenant.flush(10)
    tenant.stop(0)
    retain_with_a_refused_key(open_retainer, "another-tenants-key", own=True)
    again, second = open_retainer(KEY, memory=own, own=True)
    assert again.flush(20).elsewhere == 1
    assert second.contents() == ["user: z"]


def test_a_wrong_key_takes_over_nothing(open_retainer):
    retain_with_a_refused_key(open_retainer, None, own=False)
    other, second = open_retainer("wrong-too")
    refusing(second)
    assert other.flush(20).elsewhere == 1


def test_a_key_that_changes_under_a_running_memory_takes_along_what_it_wrote(open_retainer):
    retainer, server = open_retainer(KEY)
    refusing(server)
    retainer.retain_transcript(BANK, turn("a", "b"), thread_id="t")
    retainer.flush(20)
    server.key, server.facts = "the-new-key", False
    server.retains.clear()
    report = retainer.flush(10)
    assert (report.delivered, report.elsewhere) == (2, 0)
    assert retainer.retain_transcript(BANK, turn("a", "b"), thread_id="t").status == "skipped"


def test_what_is_retained_while_the_key_cannot_be_had_waits_until_it_can(
    open_retainer, monkeypatch
):
    retainer, server = open_retainer(KEY)

    def no_key():
        msg = "The function that gives the API key failed (OSError)."
        raise ConfigurationError(msg)

    with monkeypatch.context() as patch:
        patch.setattr(server, "address", no_key)
        receipt = retainer.retain_transcript(BANK, turn("a"), thread_id="t")
        assert receipt.status == "queued"
    assert retainer.flush(10).delivered == 1
    assert retainer.status().other_servers == {}
