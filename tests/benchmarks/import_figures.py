"""What importing costs, and the first turn after it, each in fresh processes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping

from both_sides import LIFE, PROJECT, Places
from figures import Bar, Figure, Timings

_TIMES = 7
_IMPORTS = {
    "import langchain_hindsight": "import langchain_hindsight",
    "retriever": "from langchain_hindsight import HindsightRetriever",
    "langchain_core.retrievers": "import langchain_core.retrievers",
}
_TIMED_IMPORT = """
import time
started = time.perf_counter()
{statement}
print(time.perf_counter() - started)
"""
_OUR_FIRST_TURN = """
import asyncio, sys, time
{imported}
import langchain_hindsight
url, outbox, project, life = sys.argv[1:]

async def turn():
    memory = langchain_hindsight.DualBankMemory(
        url, project_bank=project, project_id="bench", life_bank=life
    )
    result = await memory.arecall("What did we decide?")
    elapsed = time.perf_counter() - started
    assert result.project.memories and result.life.memories
    print(elapsed)
    await memory.aclose()

started = time.perf_counter()
asyncio.run(turn())
"""
_RAW_FIRST_CALL = """
import asyncio, sys, time
url, outbox, project, life = sys.argv[1:]
started = time.perf_counter()
from hindsight_client import Hindsight

async def call():
    client = Hindsight(url)
    found = await client.arecall(
        project,
        "What did we decide?",
        max_tokens=4096,
        tag_groups=[{"tags": ["project:bench"], "match": "any_strict"}],
    )
    elapsed = time.perf_counter() - started
    assert found.results
    print(elapsed)
    await client.aclose()

asyncio.run(call())
"""


def imports() -> list[Figure]:
    """The package itself, and its retriever beside the class that it extends."""
    programs = {
        name: _TIMED_IMPORT.format(statement=statement) for name, statement in _IMPORTS.items()
    }
    times = _in_turn(programs)
    name = "from langchain_hindsight import HindsightRetriever ÷ import langchain_core.retrievers"
    return [
        times.milliseconds("import langchain_hindsight", "import langchain_hindsight", Bar(100)),
        times.ratio(name, "retriever", "langchain_core.retrievers", Bar(1.15)),
    ]


def first_turn(places: Places) -> list[Figure]:
    """The first dual recall, lazy loading included, beside importing the client and one call."""
    arguments = (
        places.stub_url,
        f"sqlite:///{(places.folder / 'first.db').as_posix()}",
        PROJECT.bank_id,
        LIFE.bank_id,
    )
    bare, loaded = "import langchain_hindsight", _IMPORTS["retriever"]
    sides = {
        "client": _RAW_FIRST_CALL,
        "ours": _OUR_FIRST_TURN.format(imported=bare),
        "ours, retriever loaded": _OUR_FIRST_TURN.format(imported=loaded),
    }
    times = _in_turn(sides, *arguments)
    rest = "÷ importing hindsight_client and one raw call, stub 50 ms"
    return [
        times.ratio(f"first turn after {bare} {rest}", "ours", "client", Bar(1.05)),
        times.ratio(
            f"first turn after {loaded} {rest}", "ours, retriever loaded", "client", Bar(1.05)
        ),
    ]


def _in_turn(programs: Mapping[str, str], *arguments: str) -> Timings:
    """Run each program several times, in turn; each prints its seconds. The first time is not kept.

    Raises:
        subprocess.CalledProcessError: If a program fails; it has said why.
    """
    runs: dict[str, list[list[float]]] = {name: [] for name in programs}
    for _ in range(_TIMES + 1):
        for name, program in programs.items():
            command = [sys.executable, "-c", program, *arguments]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            runs[name].append([float(done.stdout)])
    return Timings({name: kept[1:] for name, kept in runs.items()})
