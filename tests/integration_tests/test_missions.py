"""Banks are created with their missions, and those of a bank that is there are left alone."""

from __future__ import annotations

import asyncio
import threading

import pytest
from banks_there import bank_config, make_bank
from remembering import open_memory
from surfaces import both

from langchain_hindsight import DualBankMemory, HindsightError, HindsightSettings
from langchain_hindsight.templates import TEMPLATES

TURN = [("human", "We deploy on Fridays."), ("ai", "Noted.")]


@pytest.fixture(params=["none", "mock"])
def url(request):
    return request.getfixturevalue(
        "hindsight_url" if request.param == "none" else "hindsight_mock_url"
    )


def _retain(memory, *, use_async):
    if use_async:
        return asyncio.run(memory.aretain(TURN, thread_id="t"))
    return memory.retain(TURN, thread_id="t")


def _reflect(memory, *, use_async):
    question = "How do we deploy?"
    return asyncio.run(memory.areflect(question)) if use_async else memory.reflect(question)


@both
@pytest.mark.parametrize("use", ["coding", "conversation"])
def test_the_first_retain_creates_the_bank_with_the_missions_of_its_use(
    url, bank_id, life_bank_id, use, use_async
):
    with open_memory(url, bank_id, life_bank_id, use=use) as memory:
        assert _retain(memory, use_async=use_async).status == "queued"
        assert not memory.flush().timed_out
        assert memory.retain_life("Prefers short answers.").status == "stored"
    assert bank_config(url, bank_id) == TEMPLATES[f"project-{use}"].missions
    assert bank_config(url, life_bank_id) == TEMPLATES[f"life-{use}"].missions


@both
def test_settings_word_a_mission_of_their_own(url, bank_id, use_async):
    banks = {"project": {"retain_mission": "Keep what is said of tea."}}
    with open_memory(url, bank_id, banks=banks) as memory:
        _retain(memory, use_async=use_async)
        memory.flush()
    assert bank_config(url, bank_id) == {
        **TEMPLATES["project-coding"].missions,
        "retain_mission": "Keep what is said of tea.",
    }


@both
def test_a_bank_that_is_there_keeps_its_missions(url, bank_id, use_async):
    make_bank(url, bank_id, retain_mission="As it was.")
    with open_memory(url, bank_id) as memory:
        _retain(memory, use_async=use_async)
        assert memory.flush().delivered == 2
    assert bank_config(url, bank_id) == {"retain_mission": "As it was."}


def test_a_bank_that_is_there_without_missions_is_given_none(url, bank_id):
    make_bank(url, bank_id)
    with open_memory(url, bank_id) as memory:
        memory.retain("We deploy on Fridays.")
    assert bank_config(url, bank_id) == {}


def test_processes_that_create_a_bank_at_once_harm_nothing(url, bank_id, tmp_path):
    count = 6
    start = threading.Barrier(count, timeout=60)
    receipts = []

    def retain(number):
        outbox = {"url": f"sqlite:///{(tmp_path / f'{number}.db').as_posix()}"}
        settings = HindsightSettings(outbox=outbox)
        with DualBankMemory(url, project_bank=bank_id, project_id="p", settings=settings) as memory:
            start.wait()
            receipts.append(memory.retain(f"Service {number} deploys on Fridays."))

    threads = [threading.Thread(target=retain, args=(number,)) for number in range(count)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert [one.status for one in receipts] == ["stored"] * count
    assert bank_config(url, bank_id) == TEMPLATES["project-coding"].missions


@both
def test_neither_recall_nor_reflect_nor_a_status_creates_a_bank(url, bank_id, use_async):
    with open_memory(url, bank_id) as memory:
        memory.recall("When do we deploy?")
        memory.status()
        with pytest.raises(HindsightError, match="does not exist yet"):
            _reflect(memory, use_async=use_async)
    assert bank_config(url, bank_id) is None
