"""A process that retains without end until it is killed, and writes down what it did.

It writes down what it is about to retain and, once `retain` has returned, that it did. Started
again, it passes its threads again, as a graph that is resumed from its checkpoint does.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import time
import uuid
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Literal

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from langchain_hindsight import DualBankMemory, HindsightSettings, gateway
from langchain_hindsight.outbox import delivery, enqueue, leases, requests, settle

Unit = Literal["message", "turn"]

TURNS = 20
"""How many turns a thread has before the next one begins."""
_PAUSE = 0.2
INSIDE = (
    (enqueue, "write"),
    (requests, "record"),
    (settle, "mark_accepted"),
    (settle, "mark_done"),
    (leases, "claim"),
)
"""Steps inside a transaction, by the names by which the store calls them."""
NOTE = "note"


@dataclass(frozen=True, slots=True)
class Worker:
    """What a worker process has to know."""

    slot: int
    url: str
    outbox: str
    banks: tuple[str, ...]
    log: Path
    unit: Unit
    dies_inside: int | None = None
    """Which step of `INSIDE` is its last, if it is to end in the middle of a transaction."""

    @property
    def agent(self) -> str:
        """What its requests are known by."""
        return f"worker-{self.slot}"


@dataclass(frozen=True, slots=True)
class Call:
    """One retain: of a thread, as pairs of message number and version, or of a note."""

    thread: str
    said: tuple[tuple[int, int], ...]

    @property
    def messages(self) -> list[BaseMessage]:
        """The conversation; a thread that is called bare has no message ids."""
        kinds = (HumanMessage, AIMessage)
        return [
            kinds[number % 2](
                sentence(self.thread, number, version),
                id=None if self.thread.startswith("bare") else f"{self.thread}-{number}",
            )
            for number, version in self.said
        ]


def sentence(thread: str, number: int, version: int) -> str:
    """Words that nobody else says."""
    return f"Sentence {number} of {thread}, version {version}."


def calls(slot: int, done: dict[str, dict[int, int]]) -> Iterator[Call]:
    """What a worker retains, without end, from where its acknowledged calls ended."""
    kinds = (f"own-{slot}", "shared", f"bare-{slot}")
    progress = {kind: _progress(kind, done) for kind in kinds}
    turn = random.randrange(10)
    while True:
        turn += 1
        kind = random.choice(kinds)
        thread_number, said = progress[kind]
        if len(said) >= 2 * TURNS:
            thread_number, said = progress[kind] = (thread_number + 1, {})
        thread = f"{kind}-{thread_number}"
        if turn % 10 == 0:
            yield Call(f"{NOTE}-{uuid.uuid4().hex}", ((0, 0),))
        elif kind.startswith("own") and turn % 4 == 0 and said:
            number = random.choice(sorted(said)[-4:])
            said[number] += 1
            yield Call(thread, tuple(said.items()))
        else:
            said.update({len(said) + more: 0 for more in range(2)})
            yield Call(thread, tuple(said.items()))


def _progress(kind: str, done: dict[str, dict[int, int]]) -> tuple[int, dict[int, int]]:
    """The thread of a kind that a worker is at, and what it has said there."""
    threads = [thread for thread in done if thread.startswith(f"{kind}-")]
    number = max((int(thread.rpartition("-")[2]) for thread in threads), default=0)
    return number, dict(done.get(f"{kind}-{number}", {}))


def work(worker: Worker, ready: Connection) -> None:
    """A worker process: retain until killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gateway._AGENT = worker.agent
    leases.LEASE = 0.5
    leases._LOOK_AGAIN = 0.1
    delivery.FIRST_PAUSE = 0.05
    if worker.dies_inside is not None:
        _die_inside(*INSIDE[worker.dies_inside], after=random.randint(1, 3))
    run = _work_async if worker.slot % 2 else _work_sync
    run(worker, ready)


def _die_inside(module: Any, name: str, after: int) -> None:
    step = getattr(module, name)
    left = after

    def last_step(*args: Any, **named: Any) -> Any:
        nonlocal left
        result = step(*args, **named)
        left -= bool(result) or result is None
        if not left:
            os.kill(os.getpid(), getattr(signal, "SIGKILL", signal.SIGTERM))
        return result

    setattr(module, name, last_step)


def _work_sync(worker: Worker, ready: Connection) -> None:
    memories, log = _memories(worker), _Log(worker.log)
    for call in calls(worker.slot, log.done()):
        memory = memories[_bank_of(call.thread, len(memories))]
        number = log.begin(call)
        log.end(number, memory.retain(_content(call), thread_id=call.thread))
        ready.send_bytes(b"1")
        time.sleep(random.uniform(0, 2 * _PAUSE))


def _work_async(worker: Worker, ready: Connection) -> None:
    async def run() -> None:
        memories, log = _memories(worker), _Log(worker.log)
        for call in calls(worker.slot, log.done()):
            memory = memories[_bank_of(call.thread, len(memories))]
            number = log.begin(call)
            log.end(number, await memory.aretain(_content(call), thread_id=call.thread))
            ready.send_bytes(b"1")
            await asyncio.sleep(random.uniform(0, 2 * _PAUSE))

    asyncio.run(run())


def _content(call: Call) -> Any:
    return sentence(call.thread, 0, 0) if call.thread.startswith(NOTE) else call.messages


def _bank_of(thread: str, count: int) -> int:
    return sum(thread.encode()) % count


def _memories(worker: Worker) -> list[DualBankMemory]:
    settings = HindsightSettings(
        retain={"unit": worker.unit}, outbox={"url": worker.outbox, "shutdown_timeout": 0}
    )
    return [
        DualBankMemory(worker.url, project_bank=bank, project_id="p", settings=settings)
        for bank in worker.banks
    ]


class _Log:
    """What a worker was about to do and did; a line is in the file before the next step."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._count = path.read_text().count("\n")

    def begin(self, call: Call) -> int:
        self._count += 1
        self._write({"call": self._count, "thread": call.thread, "said": call.said})
        return self._count

    def end(self, number: int, receipt: Any) -> None:
        """What is not on disk, and is said not to be, is not acknowledged."""
        if receipt.status == "failed":
            self._write({"failed": number, "reason": receipt.reason})
        elif (receipt.reason or "").startswith("not durable"):
            self._write({"not_durable": number})
        else:
            self._write({"done": number})

    def done(self) -> dict[str, dict[int, int]]:
        """What was acknowledged, by thread."""
        found: dict[str, dict[int, int]] = defaultdict(dict)
        for thread, said, acknowledged in read_log(self._path):
            if acknowledged:
                found[thread].update(said)
        return found

    def _write(self, line: dict[str, Any]) -> None:
        os.write(self._file, json.dumps(line).encode() + b"\n")


def read_log(path: Path) -> Iterator[tuple[str, list[tuple[int, int]], bool]]:
    """The calls of a worker, in order, and whether each was acknowledged."""
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    done = {line["done"] for line in lines if "done" in line}
    for line in lines:
        if "failed" in line:
            msg = f"A retain failed: {line['reason']}"
            raise AssertionError(msg)
        if "call" in line:
            yield line["thread"], [(n, v) for n, v in line["said"]], line["call"] in done
