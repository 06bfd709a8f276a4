"""The command ``config``: what it shows, what it finds wrong, and what it makes of older files."""

import io
import json
import os
import stat
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_older_settings import configurations, junk
from typer.testing import CliRunner

from langchain_hindsight import HindsightSettings, __version__
from langchain_hindsight.cli import app, main
from langchain_hindsight.settings import PROFILES
from langchain_hindsight.settings_sources import masked, settings_of

SECRET = "made-up-word"


def run(*words, code=0):
    result = CliRunner().invoke(app, ["config", *words])
    assert result.exit_code == code, result.output
    return result.output


def shown(*words):
    return json.loads(run("show", "--json", *words))


@pytest.fixture(autouse=True)
def _no_outbox_variable(monkeypatch):
    monkeypatch.delenv("HINDSIGHT_OUTBOX__URL")


def test_the_version_is_told():
    result = CliRunner().invoke(app, ["--version"])
    assert result.output == f"langchain-hindsight {__version__}\n"


def test_show_has_every_setting_in_the_order_of_the_tree():
    assert list(shown()) == list(settings_of(HindsightSettings))


def test_show_tells_the_source_of_every_value(monkeypatch, tmp_path):
    (tmp_path / ".hindsight.toml").write_text("timeout = 3\n[recall]\nmaxTokens = 7\n")
    (tmp_path / "pyproject.toml").write_text("[tool.langchain-hindsight.retain]\nredact = false\n")
    (tmp_path / "config/langchain-hindsight").mkdir(parents=True)
    (tmp_path / "config/langchain-hindsight/config.toml").write_text('use = "conversation"\n')
    monkeypatch.setenv("HINDSIGHT_RECALL__BUDGET", "high")
    monkeypatch.setenv("HINDSIGHT_API_URL", "http://other:1")
    rows = {name: (row["value"], row["source"]) for name, row in shown().items()}
    assert rows["timeout"] == (3, f"{tmp_path}/.hindsight.toml: timeout")
    assert rows["recall.max_tokens"] == (7, f"{tmp_path}/.hindsight.toml: recall.maxTokens")
    key = "tool.langchain-hindsight.retain.redact"
    assert rows["retain.redact"] == (False, f"{tmp_path}/pyproject.toml: {key}")
    user = f"{tmp_path}/config/langchain-hindsight/config.toml"
    if sys.platform == "linux":
        assert rows["use"] == ("conversation", f"{user}: use")
    assert rows["recall.budget"] == ("high", "HINDSIGHT_RECALL__BUDGET")
    assert rows["url"] == ("http://other:1", "HINDSIGHT_API_URL")
    assert rows["recall.life_max_tokens"] == (3, "half of recall.max_tokens")
    assert rows["recall.cache_ttl"] == (60, "default")
    assert rows["scope.project_id"][1] == "the folder's name"
    assert rows["outbox.url"][1] == "the platform's state folder"


def test_show_says_that_the_project_is_the_git_remote(tmp_path):
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git/config").write_text('[remote "origin"]\nurl = git@host.org:a/b.git\n')
    row = shown()["scope.project_id"]
    assert row == {"value": "host-org-a-b", "source": "the git remote origin"}


def test_show_gives_the_bank_of_an_isolated_project(tmp_path):
    (tmp_path / ".hindsight.toml").write_text(
        '[scope]\nmode = "isolated-bank"\nproject_id = "billing"\n'
    )
    assert shown()["banks.project.bank_id"]["value"] == "project-billing"


@pytest.mark.parametrize("profile", PROFILES)
def test_show_says_what_the_profile_switches_and_what_a_hand_does(profile, monkeypatch):
    monkeypatch.setenv("HINDSIGHT_BANKS__LIFE__BANK_ID", "life")
    monkeypatch.setenv("HINDSIGHT_PROFILE", profile)
    row = shown()["retain.enabled"]
    assert row == {"value": PROFILES[profile].automatic_retain, "source": f"profile '{profile}'"}
    by_hand = str(not PROFILES[profile].life).lower()
    monkeypatch.setenv("HINDSIGHT_BANKS__LIFE__ENABLED", by_hand)
    row = shown()["banks.life.enabled"]
    assert row["source"] == "HINDSIGHT_BANKS__LIFE__ENABLED"
    assert row["note"] == f"wins over profile '{profile}'"


def test_show_says_why_a_switch_set_by_hand_has_no_effect(monkeypatch):
    monkeypatch.setenv("HINDSIGHT_PROFILE", "life-only")
    monkeypatch.setenv("HINDSIGHT_RETAIN__ENABLED", "true")
    monkeypatch.setenv("HINDSIGHT_BANKS__LIFE__ENABLED", "true")
    rows = shown()
    assert rows["retain.enabled"]["note"] == "set to true, but no Project Bank takes part"
    assert rows["banks.life.enabled"]["note"] == "set to true, but no Life Bank is named"


@pytest.mark.parametrize("words", [("show",), ("show", "--json"), ("check",), ("check", "--json")])
def test_no_credential_is_printed(words, monkeypatch):
    monkeypatch.setenv("HINDSIGHT_API_KEY", SECRET)
    monkeypatch.setenv("HINDSIGHT_URL", f"http://anna:{SECRET}@host")
    monkeypatch.setenv("HINDSIGHT_OUTBOX__URL", f"mysql://anna:{SECRET}@host/outbox")
    result = CliRunner().invoke(app, ["config", *words])
    assert SECRET not in result.output
    assert "anna:***@host" in result.output or "check" in words


def test_show_names_the_variable_that_a_key_stands_in(monkeypatch, tmp_path):
    (tmp_path / ".hindsight.toml").write_text('api_key = { source = "env", name = "TEAM_KEY" }\n')
    assert shown()["api_key"]["value"] == "**********, in TEAM_KEY (not set)"
    monkeypatch.setenv("TEAM_KEY", SECRET)
    assert shown()["api_key"]["value"] == "**********, in TEAM_KEY (set)"


def test_show_says_whether_there_is_a_key(monkeypatch):
    assert shown()["api_key"]["value"] is None
    monkeypatch.setenv("HINDSIGHT_API_KEY", SECRET)
    assert shown()["api_key"]["value"] == "**********"


def test_show_can_leave_out_what_is_not_set(monkeypatch):
    monkeypatch.setenv("HINDSIGHT_TIMEOUT", "3")
    assert list(shown("--set")) == ["timeout"]
    assert "HINDSIGHT_TIMEOUT" in run("show", "--set")


def test_show_fails_where_the_configuration_does_not_hold(monkeypatch):
    monkeypatch.setenv("HINDSIGHT_TIMEOUT", "soon")
    assert "HINDSIGHT_TIMEOUT" in run("show", code=1)


def test_show_for_programs_is_json_also_where_the_configuration_does_not_hold(monkeypatch):
    monkeypatch.setenv("HINDSIGHT_TIMEOUT", "soon")
    (fault,) = json.loads(run("show", "--json", code=1))["faults"]
    assert fault["key"] == "HINDSIGHT_TIMEOUT"


@pytest.mark.parametrize("words", [("show",), ("show", "--json")])
@pytest.mark.parametrize(("name", "value"), [("PROFILE", "x"), ("TIMEOUT", "x")])
def test_show_says_what_is_wrong_beside_what_it_shows(words, name, value, monkeypatch):
    monkeypatch.setenv(f"HINDSIGHT_{name}", value)
    result = CliRunner().invoke(app, ["config", *words])
    said_as_json = name == "TIMEOUT" and "--json" in words
    assert f"HINDSIGHT_{name}" in (result.stdout if said_as_json else result.stderr)
    if "--json" in words:
        json.loads(result.stdout)


@pytest.fixture
def on(monkeypatch):
    """Runs the command where the streams take an encoding alone, or are closed."""

    def ran(encoding, *words):
        streams = [
            encoding and io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="strict")
            for _ in range(2)
        ]
        monkeypatch.setattr(sys, "stdout", streams[0])
        monkeypatch.setattr(sys, "stderr", streams[1])
        monkeypatch.setattr(sys, "argv", ["langchain-hindsight", "config", *words])
        with pytest.raises(SystemExit):
            main()
        for one in filter(None, streams):
            one.flush()
        return [one and one.buffer.getvalue() for one in streams]

    return ran


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "latin-1", "utf-8"])
@pytest.mark.parametrize("file", ["мой.json", "no.json"])
@pytest.mark.parametrize("words", [("show",), ("check",), ("path",), ("migrate", "мой.json")])
def test_a_terminal_without_the_letters_gets_escapes(
    tmp_path, monkeypatch, on, encoding, file, words
):
    text = '{"banks": {"project": {"bankId": "мой ö 日本 \\ud800"}}, "x😀\\ud800": 1}'
    (tmp_path / "мой.json").write_text(text, encoding="utf-8")
    (tmp_path / "no.json").write_text('{"timeout": "日本 ö"}', encoding="utf-8")
    monkeypatch.setenv("HINDSIGHT_CONFIG_FILE", file)
    assert any(on(encoding, *words))
    if words[0] != "migrate":
        json.loads(on(encoding, *words, "--json")[0])


@pytest.mark.parametrize("words", [("show",), ("show", "--json"), ("check",), ("path",)])
def test_an_output_that_is_closed_is_no_error(on, words):
    assert on(None, *words) == [None, None]


@pytest.mark.parametrize("words", [("show",), ("check",), ("migrate", "team.json")])
@pytest.mark.parametrize("control", ["\x1b[31m", "\x07", "\u202e", "\x9b"])
def test_nothing_of_a_file_commands_the_terminal(tmp_path, monkeypatch, words, control):
    (tmp_path / "team.json").write_text(json.dumps({f"k{control}": 3, "x": control}))
    (tmp_path / "team.toml").write_text(f'"k{json.dumps(control)[1:-1]}" = 3\n')
    for name in ("team.json", "team.toml"):
        monkeypatch.setenv("HINDSIGHT_CONFIG_FILE", name)
        said = CliRunner().invoke(app, ["config", *words]).output
        assert said
        assert control not in said


def test_check_finds_nothing_wrong_where_nothing_is(monkeypatch):
    monkeypatch.setenv("HINDSIGHT_BANKS__PROJECT__BANK_ID", "coding")
    assert run("check").strip() == "Nothing is wrong."


def test_check_says_which_banks_a_program_must_name(monkeypatch):
    monkeypatch.setenv("HINDSIGHT_PROFILE", "project+life")
    notes = json.loads(run("check", "--json"))["notes"]
    assert [note.split(" ")[1] for note in notes] == ["Project", "Life"]


@pytest.mark.parametrize(
    ("text", "key", "found", "expected"),
    [
        ("[recall]\nmaxTokens = -1\n", "recall.maxTokens", "-1", "greater than or equal to 0"),
        ('[recall]\nbudget = "hihg"\n', "recall.budget", "'hihg'", "low, mid, high"),
        ("[recal]\nx = 1\n", "recal", "", "did you mean recall?"),
        ("timeout = \n", "", "", "no TOML"),
        ('[banks.life]\nbank_id = "a/b"\n', "banks.life.bank_id", "", "holds a '/'"),
        ('[banks.project]\nbank_id = "{}"\n', "banks.project.bank_id", "", "plain fields"),
        (
            '[banks]\nlife.bank_id = "b"\nproject.bank_id = "b"\n',
            "banks.life.bank_id",
            "",
            "name another bank",
        ),
        ('url = "no-url"\n', "url", "", "http or https"),
        ('[outbox]\nurl = "mysql://host/x"\n', "outbox.url", "", "sqlite and postgresql"),
        ('[life_retain]\nmode = "router"\n', "life_retain.mode", "", "are off"),
    ],
)
def test_check_says_what_is_wrong_and_where(tmp_path, text, key, found, expected):
    (tmp_path / ".hindsight.toml").write_text(text)
    (fault,) = json.loads(run("check", "--json", code=1))["faults"]
    assert fault["file"] == str(tmp_path / ".hindsight.toml")
    assert (fault["key"], fault["found"]) == (key, found)
    assert expected in fault["expected"]
    printed = run("check", code=1)
    assert f".hindsight.toml: {key}" in printed if key else ".hindsight.toml" in printed


def test_check_names_a_variable_that_is_wrong(monkeypatch):
    monkeypatch.setenv("HINDSIGHT_RECALL__TIMEOUT", "0")
    (fault,) = json.loads(run("check", "--json", code=1))["faults"]
    assert (fault["file"], fault["key"]) == (None, "HINDSIGHT_RECALL__TIMEOUT")


def test_path_lists_the_files_in_their_order(monkeypatch, tmp_path):
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    monkeypatch.setenv("HINDSIGHT_CONFIG_FILE", "older.json")
    files = json.loads(run("path", "--json"))
    assert [Path(one["path"]).name for one in files] == [
        "older.json",
        ".hindsight.toml",
        "pyproject.toml",
        "config.toml",
    ]
    assert [one["exists"] for one in files] == [False, False, True, False]
    assert files[2]["path"] == str(tmp_path / "pyproject.toml")
    assert str(tmp_path / "pyproject.toml") in run("path")


OLDER = {
    "hindsight": {"baseUrl": f"http://anna:{SECRET}@host", "apiKey": SECRET, "timeoutMs": 1500},
    "banks": {
        "coding": {"bankId": "coding"},
        "user": {"bankId": "life"},
        "global": {"bankId": "x"},
    },
    "userRetain": {"mode": "router"},
    "recall": {"budget": "high", "topK": 8},
}


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "older.json"
    path.write_text(json.dumps(OLDER))
    return path


def test_migrate_shows_what_becomes_of_each_value_and_writes_nothing(file, tmp_path):
    lines = run("migrate", "older.json").splitlines()
    for line in (
        '- banks.user.bankId = "life"',
        '+ banks.life.bank_id = "life"',
        "- hindsight.timeoutMs = 1500",
        "+ timeout = 1.5",
        '  recall.budget = "high"',
        "- recall.topK = 8",
        '- banks.global.bankId = "x"',
        '+ life_retain.mode = "explicit-only"',
    ):
        assert line in lines
    assert any(line.startswith("recall.topK: not understood") for line in lines)
    assert SECRET not in "".join(lines)
    assert [one.name for one in tmp_path.iterdir() if one.is_file()] == ["older.json"]


@pytest.mark.parametrize(
    "left_out",
    [
        {"api_key": "winner", "hindsight": {"apiKey": SECRET}},
        {"apiKey": "winner", "hindsight": {"apiKey": SECRET, "api_key": SECRET}},
        {"url": "http://host", "hindsight": {"baseUrl": f"http://{SECRET}@host/"}},
        {"hindsight": dict.fromkeys(("token", "secret", "authToken", "key", "auth"), SECRET)},
        {"apikey": SECRET, "apiKy": SECRET, "hindsight_api_key": [SECRET], "api_keys": [SECRET]},
        {"hindsite": {"apiKey": SECRET, "more": [{"baseUrl": f"http://{SECRET}@host/"}]}},
        {"recall": {"budget": f"http://{SECRET}@host/"}},
    ],
)
def test_migrate_prints_no_credential_of_what_is_left_out(tmp_path, left_out):
    (tmp_path / "older.json").write_text(json.dumps(left_out))
    printed = run("migrate", "older.json")
    assert SECRET not in printed
    assert any(line.startswith("- ") for line in printed.splitlines())


def test_masking_leaves_what_holds_no_credential():
    kept = {"keyword": "0.5", "topK": "8", "maxTokens": 8, "notes": ["http://host", None, "x"]}
    assert masked("recall", kept) == kept
    for name in settings_of(HindsightSettings):
        if name != "api_key":
            assert masked(name, "life-{user_id}") == "life-{user_id}"


def test_migrate_writes_with_write_alone_and_keeps_the_original(file, tmp_path):
    before = file.read_bytes()
    run("migrate", "older.json", "--write")
    assert file.read_bytes() == before
    written = HindsightSettings()
    assert written.timeout == 1.5
    assert written.api_key.get_secret_value() == SECRET
    if os.name == "posix":
        assert stat.S_IMODE((tmp_path / ".hindsight.toml").stat().st_mode) == 0o600


def test_migrate_overwrites_no_other_file(file, tmp_path):
    (tmp_path / ".hindsight.toml").write_text("timeout = 9\n")
    assert "--to" in run("migrate", "older.json", "--write", code=1)
    assert (tmp_path / ".hindsight.toml").read_text() == "timeout = 9\n"
    run("migrate", "older.json", "--write", "--to", "other.toml")
    assert "timeout = 1.5" in (tmp_path / "other.toml").read_text()


@pytest.mark.parametrize("target", ["older.json", "new.jsonc"])
def test_migrate_writes_no_toml_under_the_name_of_json(file, target):
    before = file.read_bytes()
    assert "--to" in run("migrate", "older.json", "--write", "--to", target, code=1)
    assert file.read_bytes() == before
    assert not Path("new.jsonc").exists()


def test_migrate_keeps_a_toml_file_of_older_words_under_another_name(tmp_path):
    text = '[banks.user]\nbankId = "life"\n'
    for number in (1, 2):
        (tmp_path / ".hindsight.toml").write_text(text)
        run("migrate", ".hindsight.toml", "--write")
        assert (tmp_path / f".hindsight.toml.before-{number}").read_text() == text
    assert HindsightSettings().banks.life.bank_id == "life"


@pytest.mark.parametrize("text", ["{", '{"recall": {"maxTokens": "many"}}'])
def test_migrate_writes_nothing_of_what_does_not_hold(file, text):
    file.write_text(text)
    assert "Nothing was written" in run("migrate", "older.json", "--write", code=1)
    assert not Path(".hindsight.toml").exists()


def test_migrate_of_a_file_that_is_missing_says_so():
    assert "cannot be read" in run("migrate", "nowhere.json", code=1)


@settings(max_examples=30)
@given(configurations(), st.dictionaries(st.sampled_from(["x1", "x2"]), junk))
def test_migrate_loses_nothing_that_it_understands_and_lists_the_rest(found, more):
    before, today = found
    Path(".hindsight.toml").unlink(missing_ok=True)
    Path("older.json").write_text(json.dumps({**before, **more}), encoding="utf-8")
    printed = run("migrate", "older.json", "--write")
    assert HindsightSettings() == HindsightSettings(**today)
    assert all(
        f"{key}: not understood" in printed for key, value in more.items() if value is not None
    )
