"""The long run behind `make soak`: many kills of processes that share an outbox.

Prints its progress, and the result as JSON; ends with 1 where anything was lost, repeated, out of
order or left behind.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from killing import Report, kill_workers

from langchain_hindsight.embedded import EmbeddedHindsight


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200, help="for each unit (default: 200)")
    parser.add_argument("--units", nargs="+", default=["message", "turn"])
    parser.add_argument("--workers", type=int, help="2 for SQLite and 4 for another outbox")
    parser.add_argument("--outbox", help="URL of an empty database (default: a SQLite file)")
    parser.add_argument("--server", help="URL of a server without an LLM (default: one is started)")
    asked = parser.parse_args()
    for name in [name for name in os.environ if name.startswith("HINDSIGHT_")]:
        del os.environ[name]
    clean = True
    with tempfile.TemporaryDirectory() as folder, _server(asked.server) as url:
        for unit in asked.units:
            place = Path(folder) / unit
            place.mkdir()
            report = kill_workers(
                url,
                place,
                kills=asked.kills,
                outbox=asked.outbox or f"sqlite:///{(place / 'outbox.db').as_posix()}",
                unit=unit,
                workers=asked.workers or (4 if asked.outbox else 2),
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


def _say(report: Report) -> None:
    if report.kills % 10 == 0:
        per_minute = report.kills / max(report.minutes, 0.01)
        _write(f"{report.kills} kills, {per_minute:.0f} a minute")


def _write(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
