"""Many tenants at once, over every surface, sync and async: no memory ever crosses.

``TENANT_CALLS`` makes it longer, as `make soak` does, and ``TENANT_SEED`` repeats a run.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
import threading
import urllib.parse
import urllib.request
import uuid
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from json import load

import pytest
from langchain_core.runnables import RunnableLambda
from remembering import stored
from surfaces import SURFACES

from langchain_hindsight import BankResolutionError, DualBankMemory, HindsightSettings

CALLS = int(os.environ.get("TENANT_CALLS", "2000"))
SEED = int(os.environ.get("TENANT_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 32)
THREADS, TASKS = 12, 24
QUESTIONS = (
    "When does the service deploy?",
    "What does the person like about deploys?",
)
NOBODY = (None, "", "  ", [], ["acme"], {"id": "acme"}, True, 1.5)
MARK = re.compile(r"(?:work|life)mark[a-z]+")

# Ids that meet where joining, cutting, casing or cleaning is careless.
PLACES = [
    ("a-b", "c", "billing"),
    ("a", "b-c", "billing"),
    ("a", "b-c", "Billing"),
    ("a/b", "c", "owner/billing"),
    ("x" * 300, "c", "billing"),
    ("x" * 301, "c", "billing"),
]
PEOPLE = ["anna", "Anna", "anna ", "an/na", 7]


@dataclass(frozen=True)
class Caller:
    """Who is asking, or half of it, and what this caller alone may see."""

    config: dict
    project: str | None
    life: str | None

    @property
    def own(self):
        return {self.project, self.life} - {None}


@dataclass
class Ledger:
    """What every bank was given and every caller was shown."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    banks: dict = field(default_factory=lambda: defaultdict(set))
    kept: dict = field(default_factory=lambda: defaultdict(set))
    wrong: list = field(default_factory=list)
    shown: int = 0

    def see(self, caller, text):
        seen = set(MARK.findall(text))
        with self.lock:
            self.shown += bool(seen)
            if not seen <= caller.own:
                self.wrong.append((caller, seen))

    def keep(self, receipt, mark, text):
        with self.lock:
            if mark is None:
                if receipt.status != "skipped" or receipt.bank_id is not None:
                    self.wrong.append((receipt, "nobody"))
            elif receipt.status not in {"queued", "stored"}:
                self.wrong.append((receipt, mark))
            else:
                self.banks[receipt.bank_id].add(mark)
                self.kept[receipt.bank_id].add(text)


def _letters(number):
    return "".join(chr(ord("a") + int(digit)) for digit in str(number))


PROJECT_MARKS = {place: f"workmark{_letters(n)}" for n, place in enumerate(PLACES)}
LIFE_MARKS = {person: f"lifemark{_letters(n)}" for n, person in enumerate(PEOPLE)}


def _caller(chance):
    """Somebody, by chance without some of what names them, in one of the ways to be named."""
    place, person = chance.choice(PLACES), chance.choice(PEOPLE)
    values = dict(zip(("tenant", "team", "repository"), place, strict=True))
    project, life = PROJECT_MARKS[place], LIFE_MARKS[person]
    if chance.random() < 0.15:
        values[chance.choice([*values])] = chance.choice(NOBODY)
        project = None
    if chance.random() < 0.15:
        person, life = chance.choice(NOBODY), None
    signed_in = life is not None and chance.random() < 0.3
    values["langgraph_auth_user_id" if signed_in else "user_id"] = person
    named = {name: value for name, value in values.items() if value is not None}
    return Caller({"configurable": {**named, "thread_id": uuid.uuid4().hex}}, project, life)


def _everybody():
    """A caller for every place and every person."""
    for at in range(max(len(PLACES), len(PEOPLE))):
        place, person = PLACES[at % len(PLACES)], PEOPLE[at % len(PEOPLE)]
        values = dict(zip(("tenant", "team", "repository"), place, strict=True))
        config = {"configurable": {**values, "user_id": person, "thread_id": f"first-{at}"}}
        yield Caller(config, PROJECT_MARKS[place], LIFE_MARKS[person])


def _call(caller, name, chance, memory, ledger):
    """One call, in its two forms."""
    said = f"The {caller.project} service deploys on Fridays, note {uuid.uuid4().hex}."
    liked = f"The person of {caller.life} likes deploys, note {uuid.uuid4().hex}."
    question = chance.choice(QUESTIONS)
    weights = [1 if name in {"nodes", "middleware", "classic"} else 15 for name in SURFACES]
    surface = chance.choices([*SURFACES.values()], weights)[0]

    def recall():
        run = RunnableLambda(lambda _: surface.ask(memory, question))
        ledger.see(caller, run.invoke(None, caller.config))

    async def arecall():
        async def ask(_):
            return await surface.aask(memory, question)

        ledger.see(caller, await RunnableLambda(ask).ainvoke(None, caller.config))

    def retain():
        receipt = memory.retain([("human", said)], config=caller.config)
        ledger.keep(receipt, caller.project, said)

    async def aretain():
        receipt = await memory.aretain([("human", said)], config=caller.config)
        ledger.keep(receipt, caller.project, said)

    def life():
        if caller.life is None:
            with pytest.raises(BankResolutionError):
                memory.retain_life(liked, caller.config)
        else:
            ledger.keep(memory.retain_life(liked, caller.config), caller.life, liked)

    async def alife():
        if caller.life is None:
            with pytest.raises(BankResolutionError):
                await memory.aretain_life(liked, caller.config)
        else:
            receipt = await memory.aretain_life(liked, caller.config)
            ledger.keep(receipt, caller.life, liked)

    return {"recall": (recall, arecall), "retain": (retain, aretain), "life": (life, alife)}[name]


def _all_banks(url, prefix):
    query = urllib.parse.urlencode({"q": prefix, "limit": 1000})
    with urllib.request.urlopen(f"{url}/v1/default/banks?{query}") as response:
        return {one["bank_id"] for one in load(response)["banks"]}


@pytest.mark.timeout(60 + CALLS)
def test_no_memory_crosses_from_one_caller_to_another(hindsight_url, caplog):
    caplog.set_level("CRITICAL")  # every missing value is said; here there are hundreds
    chance = random.Random(SEED)
    prefix = uuid.uuid4().hex
    ledger = Ledger()
    memory = DualBankMemory(
        hindsight_url,
        project_bank=f"{prefix}-{{tenant}}-{{team}}",
        project_id="{repository}",
        life_bank=f"{prefix}~{{user_id}}",
        settings=HindsightSettings(recall={"timeout": 60}),
    )
    kinds = ["recall"] * 196 + ["retain"] * 3 + ["life"]
    calls = [
        _call(_caller(chance), chance.choice(kinds), chance, memory, ledger) for _ in range(CALLS)
    ]
    first = [
        _call(one, name, chance, memory, ledger)[0]
        for one in _everybody()
        for name in ("retain", "life")
    ]
    with memory:
        with ThreadPoolExecutor(THREADS) as pool:
            for done in [pool.submit(one) for one in first]:
                done.result()
            assert not memory.flush(60).timed_out
            asynchronous = pool.submit(asyncio.run, _gathered([one for _, one in calls[1::2]]))
            for done in [pool.submit(one) for one, _ in calls[::2]]:
                done.result()
            asynchronous.result()
        assert not memory.flush(120).timed_out
    assert ledger.wrong == [], f"TENANT_SEED={SEED} TENANT_CALLS={CALLS} makes the same calls"
    assert ledger.shown > CALLS / 4
    marks = [mark for found in ledger.banks.values() for mark in found]
    assert _all_banks(hindsight_url, prefix) == set(ledger.banks)
    shared = [found for found in ledger.banks.values() if len(found) > 1]
    assert shared == [{PROJECT_MARKS["a", "b-c", name] for name in ("billing", "Billing")}]
    assert len(marks) == len(set(marks)) == len(PLACES) + len(PEOPLE)
    for bank, texts in ledger.kept.items():
        held = stored(hindsight_url, bank)
        assert {mark for text in held for mark in MARK.findall(text)} == ledger.banks[bank]
        everything = "\n".join(held)
        assert [everything.count(text) for text in texts] == [1] * len(texts)


async def _gathered(calls):
    room = asyncio.Semaphore(TASKS)

    async def within(call):
        async with room:
            await call()

    await asyncio.gather(*(within(one) for one in calls))
