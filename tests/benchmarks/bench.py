"""How fast we are, beside the client's own calls, measured side by side in one run.

Run with `make bench`, or `python tests/benchmarks/bench.py [--quick] [--only NAME ...]`. It starts
an embedded Hindsight and a stub server, prints a table and writes `build/bench/`. It asserts
nothing: a bar that is missed is shown, and the exit code stays 0.
"""

# The redaction corpus is found beside the tests that assert on it.

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "unit_tests"))

import import_figures
import recall_figures
import redaction_figures
import report
import retain_figures
import turn_figures
from both_sides import Places
from figures import Figure
from rich.console import Console
from stub_server import stub_server

from langchain_hindsight.embedded import EmbeddedHindsight

_CANDIDATES = 60
_OUT = Path(__file__).resolve().parents[2] / "build" / "bench"
_HOMES = (
    *("HOME", "USERPROFILE", "APPDATA", "LOCALAPPDATA"),
    *("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"),
)

BENCHMARKS: dict[str, Callable[[Places], list[Figure]]] = {
    "server": lambda places: asyncio.run(recall_figures.against_the_server(places)),
    "stub": lambda places: asyncio.run(recall_figures.against_the_stub(places)),
    "added": lambda places: asyncio.run(recall_figures.what_we_add(places)),
    "again": lambda places: asyncio.run(recall_figures.the_same_again(places)),
    "graph": lambda places: asyncio.run(recall_figures.in_a_graph(places)),
    "crowd": lambda places: asyncio.run(recall_figures.a_crowd(places)),
    "ten-calls": lambda places: asyncio.run(turn_figures.ten_model_calls(places)),
    "held": lambda places: asyncio.run(turn_figures.memory_held(places)),
    "hand-off": lambda places: asyncio.run(retain_figures.hand_off(places)),
    "long-thread": lambda places: asyncio.run(retain_figures.a_long_thread(places)),
    "imports": lambda _: import_figures.imports(),
    "first-turn": import_figures.first_turn,
    "masking": lambda places: asyncio.run(redaction_figures.speed(places.runs)),
    "masking-rates": lambda _: redaction_figures.rates(),
}


def main() -> None:
    """Run what is asked for and report it."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    options.add_argument("--quick", action="store_true", help="fewer and shorter runs")
    options.add_argument("--only", nargs="+", choices=sorted(BENCHMARKS), default=list(BENCHMARKS))
    chosen = options.parse_args()
    runs, calls, crowds, turns = (3, 15, 2, 1_000) if chosen.quick else (5, 60, 4, 10_000)
    console = Console(stderr=True)
    where = report.machine()
    figures: list[Figure] = []
    with _own_surroundings() as folder, stub_server() as stub, console.status("") as status:
        server = EmbeddedHindsight(folder / "hindsight", on_progress=status.update)
        with server:
            places = Places(
                server_url=server.url,
                stub_url=stub.url(delay_ms=50, candidates=_CANDIDATES),
                quick_stub_url=stub.url(delay_ms=0, candidates=_CANDIDATES),
                recalls=stub.recalls,
                folder=folder,
                turns=turns,
                runs=runs,
                calls=calls,
                crowds=crowds,
            )
            asyncio.run(recall_figures.fill_banks(places))
            for name in chosen.only:
                status.update(f"Measuring: {name}")
                figures += BENCHMARKS[name](places)
    report.show(figures, where)
    for path in report.write(figures, where, _OUT):
        console.print(f"Written: {path}")


@contextlib.contextmanager
def _own_surroundings() -> Iterator[Path]:
    """A folder to work in, where no setting, home folder or outbox of the machine takes part."""
    before = dict(os.environ), Path.cwd()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as made:
        folder = Path(made)
        folder.chmod(0o711)  # PostgreSQL runs as an account of its own under root
        for name in list(os.environ):
            if name.startswith("HINDSIGHT_"):
                del os.environ[name]
        home = folder / "home"
        home.mkdir()
        os.environ |= dict.fromkeys(_HOMES, str(home))
        os.chdir(home)
        try:
            yield folder
        finally:
            os.chdir(before[1])
            os.environ.clear()
            os.environ.update(before[0])


if __name__ == "__main__":
    main()
