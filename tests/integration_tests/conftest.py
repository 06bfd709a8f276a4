"""A real Hindsight server for the tests, shared by all workers of a run, and gone afterwards."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import filelock
import pytest

from langchain_hindsight.embedded import EmbeddedHindsight

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Started in the background, a shell has Ctrl-C ignored, and children would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)

_HOMES = (
    *("HOME", "USERPROFILE", "APPDATA", "LOCALAPPDATA"),
    *("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"),
)


@pytest.fixture(scope="session")
def servers_folder(testrun_uid: str, worker_id: str) -> Iterator[Path]:
    """One folder a run, which the last worker removes.

    Not pytest's own, which is closed to the account that PostgreSQL runs as under root. Where
    ``TEST_SERVERS_FOLDER`` names a folder, servers that already run over it are shared.
    """
    if kept := os.environ.get("TEST_SERVERS_FOLDER"):
        yield Path(kept)
        return
    folder = Path(tempfile.gettempdir()) / f"langchain-hindsight-{testrun_uid}"
    lock = filelock.FileLock(f"{folder}.lock")
    mine = folder / f"{worker_id}.worker"
    with lock:
        folder.mkdir(mode=0o711, exist_ok=True)
        mine.touch()
    yield folder
    with lock:
        mine.unlink()
        last = not list(folder.glob("*.worker"))
        if last:
            shutil.rmtree(folder)
    if last:
        with contextlib.suppress(OSError):  # some systems remove it by themselves
            Path(lock.lock_file).unlink()


@pytest.fixture(scope="session")
def hindsight_url(servers_folder: Path) -> Iterator[str]:
    """A server without an LLM: it stores chunks."""
    with _server(servers_folder / "none", "none") as server:
        yield server.url


@pytest.fixture(scope="session")
def hindsight_mock_url(servers_folder: Path) -> Iterator[str]:
    """A server with its own stand-in for an LLM: canned facts, observations and reflections."""
    with _server(servers_folder / "mock", "mock") as server:
        yield server.url


@pytest.fixture(autouse=True)
def own_surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No setting, home folder or outbox of the machine reaches a test."""
    for name in list(os.environ):
        if name.startswith("HINDSIGHT_"):
            monkeypatch.delenv(name)
    for name in _HOMES:
        monkeypatch.setenv(name, str(tmp_path / "home"))
    monkeypatch.setenv("HINDSIGHT_OUTBOX__URL", f"sqlite:///{(tmp_path / 'outbox.db').as_posix()}")


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A note waits for the server for as long as one that others keep busy may take."""
    monkeypatch.setattr("langchain_hindsight.memory._NOTE_WAIT", 60.0)


@pytest.fixture
def bank_id() -> str:
    """A Project Bank that no other test uses."""
    return f"project-{uuid.uuid4().hex}"


@pytest.fixture
def life_bank_id() -> str:
    """A Life Bank that no other test uses."""
    return f"life-{uuid.uuid4().hex}"


def _server(folder: Path, llm_provider: str) -> EmbeddedHindsight:
    # Blank is as good as unset, and whatever the machine has set is not for the tests.
    env = {name: "" for name in os.environ if name.startswith("HINDSIGHT_API_")}
    env["HINDSIGHT_API_LLM_PROVIDER"] = llm_provider
    # Two retains of one bank at once may deadlock in the server's own database; it tries the loser
    # again by itself, but a minute later by default, which is as long as a test waits.
    env["HINDSIGHT_API_WORKER_TASK_RETRY_BACKOFF_SECONDS"] = "1"
    return EmbeddedHindsight(folder, env=env)
