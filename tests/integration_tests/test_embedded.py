"""The embedded server, for real: started, shared, killed in every way, and never left behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest
from hindsight_client import Hindsight

from langchain_hindsight.embedded import EmbeddedHindsight, EmbeddedServerError
from langchain_hindsight.embedded.embeddings import EmbeddingsEndpoint
from langchain_hindsight.embedded.lease import State
from langchain_hindsight.embedded.postgres import running_as_root

_HOLDER = """
import sys, time
from pathlib import Path
from langchain_hindsight.embedded import EmbeddedHindsight
server = EmbeddedHindsight(Path(sys.argv[1]))
print(server.start(), flush=True)
sys.stdin.read()
server.stop()
"""
_SERVE = "from langchain_hindsight.cli import main; main()"

posix_only = pytest.mark.skipif(sys.platform == "win32", reason="needs the signals of POSIX")


@pytest.fixture(scope="module")
def folder(servers_folder: Path, worker_id: str) -> Path:
    """A data folder that the tests here start in again and again, since a first start is slow."""
    return servers_folder / f"embedded-{worker_id}"


@pytest.fixture(scope="module")
def filled_folder(folder: Path) -> Path:
    """The same one, with one memory in it."""
    with EmbeddedHindsight(folder) as server:
        asyncio.run(_retain(server.url, "filled", "The deploy runs on Fridays."))
    return folder


@pytest.fixture
def new_folder(servers_folder: Path, bank_id: str) -> Path:
    """A data folder that nothing has been in."""
    return servers_folder / bank_id


async def test_memory_is_recalled_after_a_restart(filled_folder):
    async with EmbeddedHindsight(filled_folder) as server:
        assert await _recall(server.url, "filled", "When is the deploy?") == [
            "The deploy runs on Fridays."
        ]
    assert _processes_of(filled_folder) == []


def test_two_that_start_at_once_share_one_server_until_the_second_has_stopped(folder):
    servers = [EmbeddedHindsight(folder), EmbeddedHindsight(str(folder))]
    _in_threads(*(server.start for server in servers))
    first, second = servers

    assert first.url == second.url
    first.stop()
    assert _answers(second.url)
    second.stop()
    assert _processes_of(folder) == []


def test_a_running_server_with_other_settings_is_not_shared(servers_folder, hindsight_url):
    other = EmbeddedHindsight(
        servers_folder / "none",
        env={"HINDSIGHT_API_LLM_PROVIDER": "mock", "HINDSIGHT_API_LLM_API_KEY": "k-123"},
    )
    with pytest.raises(EmbeddedServerError, match="LLM_API_KEY, HINDSIGHT_API_LLM_PROVIDER"):
        other.start()
    assert _answers(hindsight_url)


def test_a_running_server_is_not_shared_by_who_wants_another_port(servers_folder, hindsight_url):
    server = EmbeddedHindsight(servers_folder / "none", port=_port_of(hindsight_url) - 1)
    with pytest.raises(EmbeddedServerError, match=r"already runs .* not at port"):
        server.start()


def test_a_running_server_is_shared_by_who_asks_for_what_it_has(servers_folder, hindsight_url):
    with EmbeddedHindsight(
        servers_folder / "none",
        port=_port_of(hindsight_url),
        env={"HINDSIGHT_API_LLM_PROVIDER": "none"},
    ) as server:
        assert server.url == hindsight_url
    assert _answers(hindsight_url)


def test_a_killed_holder_leaves_nothing_running(folder):
    with _process(_HOLDER, str(folder)) as holder:
        holder.stdout.readline()
        holder.kill()

    assert _gone(lambda: _processes_of(folder))


def test_a_start_after_a_killed_supervisor_finds_all_memory_at_the_same_address(folder, bank_id):
    with _process(_HOLDER, str(folder)) as holder:
        url = holder.stdout.readline().strip()
        asyncio.run(_retain(url, bank_id, "Releases are tagged on main."))
        orphans = _processes_of(folder)
        psutil.Process(State.read(folder).supervisor.pid).kill()

        with EmbeddedHindsight(folder) as server:
            found = asyncio.run(_recall(server.url, bank_id, "What is tagged?"))
            assert found == ["Releases are tagged on main."]
            assert server.url == url
            assert not any(_runs(orphan) for orphan in orphans if orphan.pid != holder.pid)
        holder.kill()
    assert _gone(lambda: _processes_of(folder))


@posix_only
def test_sigterm_ends_the_command_in_order(folder):
    with _process(_SERVE, "serve", "--data-dir", str(folder), "--quiet") as command:
        assert _answers(command.stdout.readline().strip())
        command.send_signal(signal.SIGTERM)
        assert command.wait(timeout=60) == 0
        assert _processes_of(folder) == []


@posix_only
def test_ctrl_c_ends_the_command_in_order_also_while_it_starts(folder):
    with _process(_SERVE, "serve", "--data-dir", str(folder), errors=True) as command:
        assert command.stderr.readline() == "Starting PostgreSQL ...\n"
        command.send_signal(signal.SIGINT)
        assert command.wait(timeout=60) == 0
    assert _gone(lambda: _processes_of(folder))


async def test_the_event_loop_runs_on_while_it_starts_and_a_cancelled_start_leaves_nothing(folder):
    said = asyncio.Event()
    loop = asyncio.get_running_loop()

    async def hold():
        async with EmbeddedHindsight(
            folder, on_progress=lambda _: loop.call_soon_threadsafe(said.set)
        ):
            pytest.fail("it was cancelled before it was ready")

    task = asyncio.create_task(hold())
    await asyncio.wait_for(said.wait(), 60)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(_gone, lambda: _processes_of(folder))


def test_a_server_that_fails_says_why_and_shows_no_credential(new_folder):
    secret = "correct-horse-battery"
    server = EmbeddedHindsight(
        new_folder,
        env={
            "HINDSIGHT_API_DATABASE_URL": f"postgresql://me:{secret}@127.0.0.1:1/mine",
            "HINDSIGHT_API_LLM_PROVIDER": secret,
            "HINDSIGHT_API_LLM_API_KEY": secret,
        },
    )
    with pytest.raises(EmbeddedServerError) as failure:
        server.start()

    assert "Invalid LLM provider: ***" in str(failure.value)
    assert secret not in str(failure.value)
    assert _processes_of(new_folder) == []
    assert not (new_folder / "postgres").exists()  # the user's own database is used in its place


def test_embeddings_of_another_size_than_the_stored_ones_are_refused_in_plain_words(
    filled_folder,
):
    endpoint = EmbeddingsEndpoint(lambda texts: (np.ones((len(texts), 64), "<f4"), 1))
    piece = endpoint.start()
    own = {
        "HINDSIGHT_API_EMBEDDINGS_PROVIDER": "openai",
        "HINDSIGHT_API_EMBEDDINGS_OPENAI_BASE_URL": piece.url,
        "HINDSIGHT_API_EMBEDDINGS_OPENAI_API_KEY": piece.secret,
        "HINDSIGHT_API_EMBEDDINGS_OPENAI_MODEL": "small",
    }
    try:
        with pytest.raises(EmbeddedServerError, match=r"of 256 dimensions.* have 64"):
            EmbeddedHindsight(filled_folder, env=own).start()
    finally:
        endpoint.stop()


def test_a_taken_port_is_refused_before_anything_starts(new_folder):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(EmbeddedServerError, match=f"Port {port} is taken"):
            EmbeddedHindsight(new_folder, port=port).start()
    assert not (new_folder / "postgres").exists()


def test_an_ordinary_user_runs_it_without_another_account():
    if sys.platform == "win32" or not running_as_root():
        pytest.skip("every other test here already runs as an ordinary user")
    import pwd

    nobody = pwd.getpwnam("nobody")
    python = _python_for(nobody.pw_uid)
    if python is None:
        pytest.skip("no Python of this version that another account may run")
    home = Path(tempfile.mkdtemp())
    try:
        os.chown(home, nobody.pw_uid, nobody.pw_gid)
        data = home / "data"
        with _process(
            _HOLDER, str(data), python=python, user=nobody.pw_uid, group=nobody.pw_gid, home=home
        ) as holder:
            assert _answers(holder.stdout.readline().strip())
            holder.communicate(timeout=60)
        assert _processes_of(data) == []
        assert (data / "postgres").stat().st_uid == nobody.pw_uid
    finally:
        shutil.rmtree(home)


async def _retain(url: str, bank: str, text: str) -> None:
    client = Hindsight(base_url=url)
    try:
        await client.aretain(bank_id=bank, content=text)
    finally:
        await client.aclose()


async def _recall(url: str, bank: str, query: str) -> list[str]:
    client = Hindsight(base_url=url)
    try:
        found = await client.arecall(bank_id=bank, query=query)
        return [result.text for result in found.results]
    finally:
        await client.aclose()


def _answers(url: str) -> bool:
    with urllib.request.urlopen(f"{url}/health", timeout=10) as response:
        return response.status == 200


def _port_of(url: str) -> int:
    return int(url.rpartition(":")[2])


def _in_threads(*works: Callable[[], object]) -> None:
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@contextlib.contextmanager
def _process(
    code: str, *arguments: str, python=sys.executable, home=None, errors=False, **identity
) -> Iterator[subprocess.Popen[str]]:
    variables = dict(os.environ)
    if home is not None:
        paths = [str(Path(__file__).parents[2]), sysconfig.get_paths()["purelib"]]
        variables = {"HOME": str(home), "PATH": os.defpath, "PYTHONPATH": os.pathsep.join(paths)}
    process = subprocess.Popen(
        [python, "-c", code, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE if errors else None,
        text=True,
        env=variables,
        cwd=home,
        **identity,
    )
    try:
        with process:
            yield process
            process.kill()
    finally:
        process.kill()


def _python_for(uid: int) -> str | None:
    """A Python of this version, with our packages, that the account can run."""
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    packages = sysconfig.get_paths()["purelib"]
    for python in filter(None, (sys.executable, shutil.which(version, path=os.defpath))):
        check = f"import sys; sys.path.insert(0, {packages!r}); import psutil, hindsight_client"
        with contextlib.suppress(PermissionError, subprocess.CalledProcessError):
            subprocess.run(
                [python, "-c", check], user=uid, check=True, capture_output=True, cwd="/"
            )
            return python
    return None


def _processes_of(folder: Path) -> list[psutil.Process]:
    """All that run for a data folder: by their arguments, or by where they work."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            traces = [*process.cmdline(), process.cwd()]
            if any(str(folder) in trace for trace in traces) and _runs(process):
                found.append(process)
    return found


def _runs(process: psutil.Process) -> bool:
    # What is orphaned in a container without an init stays a zombie: ended, but listed.
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _gone(found: Callable[[], list[psutil.Process]], timeout: float = 60) -> bool:
    """Wait for the end of processes that are not ours, which tell us nothing."""
    deadline = time.monotonic() + timeout
    while found():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True
