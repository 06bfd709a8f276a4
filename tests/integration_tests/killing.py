"""Kills of processes that share an outbox, and what must be in Hindsight afterwards.

What was acknowledged must be there once, in its last acknowledged version, and in order; what was
under way when a worker was killed may be there, once; and nothing else.
"""

from __future__ import annotations

import json
import multiprocessing
import queue
import random
import re
import sys
import threading
import time
import urllib.parse
import urllib.request
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from http_relay import HttpRelay, Moment, Request, relaying_requests
from killed_worker import INSIDE, Unit, Worker, read_log, work

from langchain_hindsight import DualBankMemory, HindsightSettings

_SENTENCE = re.compile(r"Sentence (\d+) of (\S+), version (\d+)\.")
_MOMENTS: tuple[tuple[Moment, str], ...] = (
    ("arrived", "retain"),
    ("taken", "retain"),
    ("answered", "retain"),
    ("taken", "status"),
)
"""When a request of a worker is at a moment, the worker is killed."""
_PRELOADED = [
    *("__main__", "aiohttp", "hindsight_client", "sqlalchemy.dialects.sqlite", "uuid_utils"),
    *("langchain_core.runnables", "langchain_core.callbacks", "langchain_core.prompt_values"),
    *("langchain_hindsight.memory", "langchain_hindsight.outbox.delivery"),
]
_START = 60.0
_REACH = 2.0
_DELIVER = 600.0
_KILLED = {-9} if sys.platform != "win32" else {1, 15}

Said = tuple[str, int]
"""A thread and the number of a message in it."""


@dataclass(slots=True)
class Report:
    """What became of a run."""

    unit: str
    workers: int
    kills: int = 0
    moments: dict[str, int] = field(default_factory=dict)
    acknowledged: int = 0
    found_once: int = 0
    unacknowledged_found: int = 0
    not_durable: int = 0
    lost: list[str] = field(default_factory=list)
    repeated: list[str] = field(default_factory=list)
    stale: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    out_of_order: list[str] = field(default_factory=list)
    waiting: int = 0
    dead: int = 0
    minutes: float = 0.0

    @property
    def faults(self) -> list[str]:
        """What was lost, repeated, out of date, made up, out of order or left behind."""
        named = ("lost", "repeated", "stale", "unknown", "out_of_order")
        faults = [f"{name}: {what}" for name in named for what in getattr(self, name)]
        if self.waiting or self.dead:
            faults.append(f"{self.waiting} entries wait and {self.dead} are dead letters")
        if self.acknowledged != self.found_once or not self.acknowledged:
            faults.append(f"{self.acknowledged} acknowledged, {self.found_once} found once")
        return faults

    def as_json(self) -> str:
        """As it is printed."""
        return json.dumps(asdict(self), indent=2)


class _Slot:
    """A place for a worker, which is started anew whenever it was killed."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.process: BaseProcess
        self.retained: threading.Event

    def start(self) -> None:
        """Start a worker; ``retained`` is set once it has retained something, or has ended."""
        reader, writer = _context().Pipe(duplex=False)
        self.process = _context().Process(target=work, args=(self.worker, writer), daemon=True)
        self.process.start()
        writer.close()
        self.retained = threading.Event()
        threading.Thread(target=_drain, args=(reader, self.retained), daemon=True).start()

    def kill(self) -> None:
        """End it as a system does that runs out of memory."""
        self.process.kill()

    def has_died(self, timeout: float | None = None) -> bool:
        """Whether it has been killed; one that ended otherwise failed."""
        self.process.join(timeout)
        code = self.process.exitcode
        assert code is None or code in _KILLED, f"A worker ended by itself, with {code}."
        return code is not None


def _drain(reader: Connection, retained: threading.Event) -> None:
    """Note what a worker says, for as long as it lives."""
    try:
        while reader.recv_bytes():
            retained.set()
    except (EOFError, OSError):
        retained.set()
    reader.close()


def _context() -> Any:
    """How processes are made: where it can be, from one that has imported everything."""
    if sys.platform == "win32":
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    return context


def kill_workers(
    url: str,
    folder: Path,
    *,
    kills: int,
    outbox: str,
    unit: Unit,
    workers: int = 2,
    tell: Callable[[Report], None] = lambda _: None,
) -> Report:
    """Kill workers that share an outbox so many times, let the rest be delivered, and look.

    Args:
        url: The real server.
        folder: A folder of its own, for what the workers write down.
        kills: How many.
        outbox: The URL of the outbox.
        unit: What goes out as one document.
        workers: How many processes share the outbox.
        tell: Called after each kill.
    """
    started = time.monotonic()
    banks = tuple(f"killed-{uuid.uuid4().hex}" for _ in range(3))
    report = Report(unit, workers)
    with relaying_requests(url) as relay:
        slots = [
            _Slot(Worker(at, relay.url, outbox, banks, folder / f"slot-{at}.log", unit))
            for at in range(workers)
        ]
        for slot in slots:
            slot.start()
        try:
            while report.kills < kills:
                slot, moment = _kill(slots, relay)
                report.moments[moment] = report.moments.get(moment, 0) + 1
                report.kills += 1
                report.minutes = round((time.monotonic() - started) / 60, 2)
                tell(report)
                inside = random.choice([None, None, None, *range(len(INSIDE))])
                slot.worker = replace(slot.worker, dies_inside=inside)
                slot.start()
        finally:
            for slot in slots:
                slot.kill()
                slot.process.join()
        _deliver_the_rest(relay.url, outbox, banks, unit, report)
    _compare(url, banks, [slot.worker.log for slot in slots], report)
    report.minutes = round((time.monotonic() - started) / 60, 2)
    return report


def _kill(slots: Sequence[_Slot], relay: HttpRelay) -> tuple[_Slot, str]:
    """Kill a worker, or see one end, at some moment; which."""
    slot = random.choice(slots)
    if slot.worker.dies_inside is not None:
        module, name = INSIDE[slot.worker.dies_inside]
        if slot.has_died(_REACH):
            return slot, f"inside {module.__name__.rpartition('.')[2]}.{name}"
    moment = random.choice([None, *_MOMENTS])
    if moment is not None:
        killed = _kill_at(slots, relay, *moment)
        if killed is not None:
            return killed, f"{moment[1]} {moment[0]}"
    assert slot.retained.wait(_START)
    time.sleep(random.uniform(0, 0.5))
    slot.kill()
    assert slot.has_died()
    return slot, "any"


def _kill_at(slots: Sequence[_Slot], relay: HttpRelay, moment: Moment, kind: str) -> _Slot | None:
    """Kill the worker whose request is first where one is to be; None if none comes."""
    by_agent = {slot.worker.agent: slot for slot in slots}
    killed: queue.SimpleQueue[_Slot] = queue.SimpleQueue()
    only_one = threading.Lock()

    def watch(now: Moment, request: Request) -> None:
        right = request.retains if kind == "retain" else "/operations/" in request.line
        slot = by_agent.get(request.headers.get("user-agent", ""))
        if now == moment and right and slot is not None and only_one.acquire(blocking=False):
            slot.kill()
            slot.process.join()
            killed.put(slot)

    relay.watch = watch
    try:
        slot = killed.get(timeout=_REACH)
    except queue.Empty:
        if only_one.acquire(blocking=False):
            return None
        slot = killed.get(timeout=_START)
    finally:
        relay.watch = lambda _moment, _request: None
    assert slot.has_died()
    return slot


def _deliver_the_rest(
    url: str, outbox: str, banks: Sequence[str], unit: Unit, report: Report
) -> None:
    settings = HindsightSettings(retain={"unit": unit}, outbox={"url": outbox})
    with DualBankMemory(url, project_bank=banks[0], project_id="p", settings=settings) as memory:
        memory.flush(_DELIVER)
        status = memory.status()
    report.waiting = status.waiting + status.in_flight
    report.dead = status.dead


def _compare(url: str, banks: Sequence[str], logs: Sequence[Path], report: Report) -> None:
    allowed, acknowledged = _expected(logs)
    found: dict[Said, list[int]] = defaultdict(list)
    said_at: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for memory in (memory for bank in banks for memory in memories(url, bank)):
        said = [(m[2], int(m[1]), int(m[3])) for m in _SENTENCE.finditer(memory["text"])]
        numbers = [number for _, number, _ in said]
        if numbers != sorted(numbers) or len({thread for thread, _, _ in said}) != 1:
            report.out_of_order.append(memory["text"])
        for thread, number, version in said:
            found[thread, number].append(version)
            if thread.startswith("bare"):  # one writer, and nothing is edited later
                said_at[thread].append((number, memory["mentioned_at"]))
    for thread, times in said_at.items():
        in_order = [time for _, time in sorted(times)]
        if in_order != sorted(in_order):
            report.out_of_order.append(thread)
    report.acknowledged = len(acknowledged)
    report.lost = [_name(said) for said in acknowledged - found.keys()]
    report.unknown = [_name(said) for said in found.keys() - allowed.keys()]
    report.repeated = [_name(said) for said, versions in found.items() if len(versions) > 1]
    report.stale = [
        f"{_name(said)}: version {versions} where {sorted(allowed[said])} was said last"
        for said, versions in found.items()
        if said in allowed and not set(versions) <= allowed[said]
    ]
    right = {said for said, versions in found.items() if len(versions) == 1}
    report.found_once = len(acknowledged & right)
    report.unacknowledged_found = len(found.keys() - acknowledged)
    report.not_durable = sum(log.read_text().count('"not_durable"') for log in logs)


def _expected(logs: Sequence[Path]) -> tuple[dict[Said, set[int]], set[Said]]:
    """The versions that each message may be found in, and the messages that must be found."""
    allowed: dict[Said, set[int]] = defaultdict(set)
    acknowledged: set[Said] = set()
    for log in logs:
        for thread, said, done in read_log(log):
            for number, version in said:
                if done and not thread.startswith("shared"):
                    allowed[thread, number] = {version}
                allowed[thread, number].add(version)
                if done:
                    acknowledged.add((thread, number))
    return allowed, acknowledged


def _name(said: Said) -> str:
    return f"{said[1]} of {said[0]}"


def memories(url: str, bank: str) -> Iterator[dict[str, Any]]:
    """All that a bank holds; the bank is at rest, so that no page repeats another."""
    seen, total = 0, 1
    while seen < total:
        address = f"{url}/v1/default/banks/{urllib.parse.quote(bank)}/memories/list"
        with urllib.request.urlopen(f"{address}?limit=500&offset={seen}") as response:
            page = json.load(response)
        yield from page["items"]
        total = page["total"]
        seen += len(page["items"]) or total
