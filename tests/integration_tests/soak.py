"""The long run behind `make soak`: many kills of processes that share an outbox.

Prints its progress, and the result as JSON; ends with 1 where anything was lost, repeated, out of
order or left behind.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from killing import Report, kill_workers
from postgres_outbox import new_database, running_postgres

from langchain_hindsight.embedded import EmbeddedHindsight

_WORKERS = {"sqlite": 2, "postgresql": 4}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--kills", type=int, default=200, help="for each unit and outbox (default: 200)"
    )
    parser.add_argument("--units", nargs="+", default=["message", "turn"])
    parser.add_argument("--outboxes", nargs="+", choices=_WORKERS, default=[*_WORKERS])
    parser.add_argument("--workers", type=int, help="2 for SQLite and 4 for PostgreSQL")
    parser.add_argument("--server", help="URL of a server without an LLM (default: one is started)")
    asked = parser.parse_args()
    for name in [name for name in os.environ if name.startswith("HINDSIGHT_")]:
        del os.environ[name]
    clean = True
    with tempfile.TemporaryDirectory() as folder, _server(asked.server) as url:
        for kind, unit in itertools.product(asked.outboxes, asked.units):
            place = Path(folder) / f"{kind}-{unit}"
            place.mkdir()
            _write(f"{kind}, unit {unit}")
            with _outbox(kind, place) as outbox:
                report = kill_workers(
                    url,
                    place,
                    kills=asked.kills,
                    outbox=outbox,
                    unit=unit,
                    workers=asked.workers or _WORKERS[kind],
                    tell=_say,
                )
            _write(report.as_json())
            clean = clean and not report.faults
    return 0 if clean else 1


@contextlib.contextmanager
def _server(url: str | None) -> Iterator[str]:
    if url is not None:
        yield url
        return
    env = {"HINDSIGHT_API_LLM_PROVIDER": "none"}
    # Under root, PostgreSQL runs as another account, which has to reach the folder.
    with (
        tempfile.TemporaryDirectory() as folder,
        EmbeddedHindsight(Path(folder) / "server", env=env) as server,
    ):
        Path(folder).chmod(0o711)
        yield server.url


@contextlib.contextmanager
def _outbox(kind: str, place: Path) -> Iterator[str]:
    if kind == "sqlite":
        yield f"sqlite:///{(place / 'outbox.db').as_posix()}"
        return
    with running_postgres() as url:
        yield new_database(url)


def _say(report: Report) -> None:
    if report.kills % 10 == 0:
        per_minute = report.kills / max(report.minutes, 0.01)
        _write(f"{report.kills} kills, {per_minute:.0f} a minute")


def _write(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
