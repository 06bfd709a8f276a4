"""What outlives the death of a process, of the server and of the interpreter."""

from __future__ import annotations

import pytest
from killing import kill_workers


@pytest.mark.timeout(300)
@pytest.mark.parametrize("unit", ["message", "turn"])
def test_workers_killed_at_any_moment_lose_and_repeat_nothing_of_what_was_acknowledged(
    hindsight_url, tmp_path, unit
):
    outbox = f"sqlite:///{(tmp_path / 'outbox.db').as_posix()}"
    report = kill_workers(hindsight_url, tmp_path, kills=8, outbox=outbox, unit=unit)
    assert report.faults == []
