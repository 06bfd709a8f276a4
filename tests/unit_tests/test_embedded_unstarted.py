"""What holds of the embedded server before anything is started."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from langchain_hindsight.cli import app
from langchain_hindsight.embedded import EmbeddedHindsight, EmbeddedServerError
from langchain_hindsight.embedded.lease import State
from langchain_hindsight.embedded.postgres import Account, Postgres, _home
from langchain_hindsight.embedded.processes import ProcessId


def test_constructing_touches_nothing(tmp_path):
    EmbeddedHindsight(tmp_path / "data")

    assert list(tmp_path.iterdir()) == []


def test_importing_loads_nothing_heavy():
    code = (
        "import sys, langchain_hindsight.embedded, langchain_hindsight.cli\n"
        "heavy = {'hindsight_api', 'hindsight_client', 'numpy', 'wordllama', 'psutil', 'pg0'}\n"
        "print(heavy & set(sys.modules))"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)

    assert loaded.stdout.strip() == b"set()"


def test_the_url_of_what_is_not_started_says_what_to_do(tmp_path):
    with pytest.raises(EmbeddedServerError, match=r"call start\(\)"):
        _ = EmbeddedHindsight(tmp_path).url


def test_stopping_what_was_not_started_does_nothing(tmp_path):
    EmbeddedHindsight(tmp_path).stop()


def test_its_repr_shows_no_setting(tmp_path):
    server = EmbeddedHindsight(tmp_path, env={"HINDSIGHT_API_LLM_API_KEY": "plainly-secret"})

    assert "plainly-secret" not in repr(server)


def test_the_command_without_the_extra_says_how_to_install_it(tmp_path, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "pg0" else find(name)
    )
    result = CliRunner().invoke(app, ["serve", "--data-dir", str(tmp_path)])

    assert result.exit_code == 1
    assert 'pip install "langchain-hindsight[embedded]"' in result.output
    assert "Traceback" not in result.output


def test_a_port_that_is_no_number_is_named(tmp_path):
    server = EmbeddedHindsight(tmp_path, env={"HINDSIGHT_API_PORT": "eighty"})

    with pytest.raises(EmbeddedServerError, match="HINDSIGHT_API_PORT"):
        server.start()


def test_state_is_read_as_it_was_written_by_its_owner_alone(tmp_path):
    state = State(
        ProcessId(1, 2.5), "token", 3, {"HINDSIGHT_API_LLM_PROVIDER": "digest"}, ProcessId(4, 5.5)
    )
    state.write(tmp_path)

    assert State.read(tmp_path) == state
    if sys.platform != "win32":
        assert (tmp_path / "state.json").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"supervisor": 1, "api": null}'])
def test_state_that_cannot_be_understood_counts_as_none(tmp_path, content):
    (tmp_path / "state.json").write_text(content)

    assert State.read(tmp_path) is None


def test_a_pid_that_was_used_again_is_not_the_old_process():
    me = ProcessId.of(os.getpid())

    assert me.alive()
    assert not ProcessId(me.pid, me.started - 60).alive()


@pytest.mark.skipif(sys.platform == "win32", reason="needs the folder modes of POSIX")
@pytest.mark.parametrize(("mode", "passes"), [(0o711, True), (0o700, False), (0o744, False)])
def test_a_stranger_passes_a_folder_that_lets_everybody_through(tmp_path, mode, passes):
    tmp_path.chmod(mode)
    stranger = Account("stranger", uid=12345, gid=12345)

    assert stranger._can_pass(tmp_path.stat()) is passes


def test_an_ordinary_user_has_the_database_in_the_data_folder(tmp_path):
    assert _home(tmp_path, None) == tmp_path / "postgres"


@pytest.mark.skipif(sys.platform == "win32", reason="needs the folder modes of POSIX")
def test_root_has_the_database_where_the_unprivileged_account_can_reach_it(tmp_path):
    tmp_path.chmod(0o700)
    stranger = Account("stranger", uid=12345, gid=12345)
    other = tmp_path / "other"
    other.mkdir()

    assert _home(tmp_path, stranger).parent == Path("/var/lib/langchain-hindsight")
    assert _home(tmp_path, stranger) != _home(other, stranger)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has locales of its own")
def test_the_database_is_made_in_a_locale_that_knows_every_script(tmp_path, monkeypatch):
    monkeypatch.setenv("LC_ALL", "xx_XX.UTF-8")
    monkeypatch.setenv("PGDATABASE", "somebody-elses")
    monkeypatch.setenv("HINDSIGHT_API_LLM_API_KEY", "plainly-secret")
    variables = Postgres(tmp_path)._environment()

    assert variables["LC_ALL"] in {"C.UTF-8", "en_US.UTF-8"}
    assert not {"PGDATABASE", "HINDSIGHT_API_LLM_API_KEY"} & variables.keys()


@pytest.mark.skipif(sys.platform == "win32", reason="needs the folder modes of POSIX")
def test_an_open_folder_in_a_closed_one_is_out_of_reach(tmp_path):
    tmp_path.chmod(0o700)
    inner = tmp_path / "inner"
    inner.mkdir()
    inner.chmod(0o777)

    assert not Account("stranger", uid=12345, gid=12345).can_reach(inner)
