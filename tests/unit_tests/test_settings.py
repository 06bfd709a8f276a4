"""The configuration: its sources, their order, and what profiles switch."""

import copy
import errno
import logging
import math
import os
import pickle
import re
import traceback
from pathlib import Path

import pytest
from pydantic import SecretStr

from langchain_hindsight import (
    ConfigurationError,
    DualBankMemory,
    HindsightSettings,
    create_hindsight_tools,
)
from langchain_hindsight.settings import PROFILES, OutboxSettings, RecallSettings, Switches
from langchain_hindsight.settings_sources import (
    config_files,
    is_masked,
    masked_url,
    options_of,
    read,
    settings_of,
)

CHOICES = {
    name: options_of(field.annotation)
    for name, field in settings_of(HindsightSettings).items()
    if options_of(field.annotation)
}
SECRET = "made-up-word"


def test_the_life_cap_is_half_of_the_project_cap_whatever_that_is():
    assert HindsightSettings().recall.life_limit == 400
    assert HindsightSettings(recall={"max_tokens": 501}).recall.life_limit == 250


def test_a_life_cap_that_is_set_stands_alone():
    assert (
        HindsightSettings(recall={"max_tokens": 100, "life_max_tokens": 0}).recall.life_limit == 0
    )


def test_the_environment_sets_nested_names(monkeypatch):
    monkeypatch.setenv("HINDSIGHT_RECALL__MAX_TOKENS", "321")
    assert HindsightSettings().recall.max_tokens == 321


@pytest.mark.parametrize("variable", ["HINDSIGHT_URL", "HINDSIGHT_API_URL", "HINDSIGHT_BASE_URL"])
def test_every_variable_that_names_a_server_is_read(monkeypatch, variable):
    monkeypatch.setenv(variable, "http://other:1")
    assert HindsightSettings().url == "http://other:1"


def test_api_url_comes_before_base_url(monkeypatch):
    monkeypatch.setenv("HINDSIGHT_API_URL", "http://api:1")
    monkeypatch.setenv("HINDSIGHT_BASE_URL", "http://base:1")
    assert HindsightSettings().url == "http://api:1"


def test_sources_are_read_in_the_promised_order(monkeypatch, tmp_path):
    (tmp_path / "pyproject.toml").write_text("[tool.langchain-hindsight.recall]\nmax_tokens = 2\n")
    assert HindsightSettings().recall.max_tokens == 2
    (tmp_path / ".hindsight.toml").write_text("[recall]\nmax_tokens = 3\n")
    assert HindsightSettings().recall.max_tokens == 3
    monkeypatch.setenv("HINDSIGHT_RECALL__MAX_TOKENS", "4")
    assert HindsightSettings().recall.max_tokens == 4
    assert HindsightSettings(recall={"max_tokens": 5}).recall.max_tokens == 5


def test_the_named_file_comes_between_the_variables_and_the_project(monkeypatch, tmp_path):
    (tmp_path / ".hindsight.toml").write_text("[recall]\nmax_tokens = 3\ncontext_turns = 3\n")
    (tmp_path / "team.toml").write_text("[recall]\nmax_tokens = 4\n")
    monkeypatch.setenv("HINDSIGHT_CONFIG_FILE", "team.toml")
    recall = HindsightSettings().recall
    assert (recall.max_tokens, recall.context_turns) == (4, 3)
    monkeypatch.setenv("HINDSIGHT_RECALL__MAX_TOKENS", "5")
    assert HindsightSettings().recall.max_tokens == 5


def test_a_named_file_that_is_missing_is_an_error(monkeypatch):
    monkeypatch.setenv("HINDSIGHT_CONFIG_FILE", "nowhere.toml")
    with pytest.raises(ConfigurationError, match=r"nowhere\.toml: it cannot be read"):
        HindsightSettings()


@pytest.mark.parametrize("named", ["~nobody-has-this-name/x.toml", "x" * 5000, "a\nb.toml"])
def test_a_name_that_no_file_can_have_is_an_error_that_names_the_variable(monkeypatch, named):
    monkeypatch.setenv("HINDSIGHT_CONFIG_FILE", named)
    with pytest.raises(ConfigurationError, match=r"cannot be read .*HINDSIGHT_CONFIG_FILE"):
        HindsightSettings()


@pytest.mark.parametrize("more", ["", "x" * 5000])
def test_what_a_file_should_hold_in_place_of_its_name_shows_no_key(monkeypatch, more):
    text = f'{{"apiKey": "{SECRET}", "more": "{more}"}}'
    monkeypatch.setenv("HINDSIGHT_CONFIG_FILE", text)
    with pytest.raises(ConfigurationError, match="HINDSIGHT_CONFIG_FILE") as caught:
        HindsightSettings()
    assert SECRET not in f"{caught.value}{config_files()}"


@pytest.fixture
def closed(tmp_path, monkeypatch):
    """A folder that may not be looked into, for whomever the tests run as."""
    folder = tmp_path / "closed"
    folder.mkdir()
    stat, read = Path.stat, Path.read_text

    def refuse(method, path, *args, **more):
        if folder in path.parents:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return method(path, *args, **more)

    monkeypatch.setattr(Path, "stat", lambda *args, **more: refuse(stat, *args, **more))
    monkeypatch.setattr(Path, "read_text", lambda *args, **more: refuse(read, *args, **more))
    return folder


def test_a_configuration_folder_that_may_not_be_looked_into_holds_nothing(closed, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(closed))
    assert HindsightSettings(timeout=3).timeout == 3
    (closed / "project").mkdir()
    monkeypatch.chdir(closed / "project")
    assert HindsightSettings(timeout=3).timeout == 3


def test_a_named_file_that_may_not_be_looked_at_is_an_error(closed, monkeypatch):
    monkeypatch.setenv("HINDSIGHT_CONFIG_FILE", str(closed / "team.toml"))
    with pytest.raises(ConfigurationError, match=r"team\.toml: it cannot be read \(Permission den"):
        HindsightSettings()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes")
def test_a_pipe_is_refused_and_never_waited_for(monkeypatch, tmp_path):
    os.mkfifo(tmp_path / "team.json")
    monkeypatch.setenv("HINDSIGHT_CONFIG_FILE", "team.json")
    with pytest.raises(ConfigurationError, match=r"team\.json: it cannot be read \(it is a pipe"):
        HindsightSettings()


@pytest.mark.parametrize("depth", [100, 900, 5000])
@pytest.mark.parametrize("name", ["team.json", "team.toml", "HINDSIGHT_RECALL__MIN_SCORES"])
def test_what_is_nested_without_end_is_told_with_its_place(monkeypatch, tmp_path, name, depth):
    if name.startswith("HINDSIGHT"):
        monkeypatch.setenv(name, '{"a":' * depth + "1" + "}" * depth)
    else:
        text = '{"a":' * depth + "1" + "}" * depth
        (tmp_path / name).write_text(
            text if name == "team.json" else f"a={'[' * depth}{']' * depth}"
        )
        monkeypatch.setenv("HINDSIGHT_CONFIG_FILE", name)
    with pytest.raises(ConfigurationError, match=re.escape(name)):
        HindsightSettings()


@pytest.mark.parametrize(
    "url", ["http://[::1", "http://[a]", "http://host:x", "host", "http://", " "]
)
def test_a_url_that_is_none_is_a_configuration_error(url):
    with pytest.raises(ConfigurationError, match="url must be an http or https URL"):
        DualBankMemory(url=url, project_bank="b")


def test_a_variable_that_is_blank_is_not_set(monkeypatch, tmp_path):
    (tmp_path / ".hindsight.toml").write_text("timeout = 3\n")
    monkeypatch.setenv("HINDSIGHT_TIMEOUT", "")
    assert HindsightSettings().timeout == 3


def test_a_section_given_as_an_object_leaves_the_rest_to_lower_sources(monkeypatch):
    monkeypatch.setenv("HINDSIGHT_RECALL__CONTEXT_TURNS", "5")
    recall = HindsightSettings(recall=RecallSettings(max_tokens=9)).recall
    assert (recall.max_tokens, recall.context_turns) == (9, 5)


def test_sources_fill_one_tree_together(monkeypatch, tmp_path):
    (tmp_path / ".hindsight.toml").write_text('[banks.project]\nbank_id = "coding"\n')
    monkeypatch.setenv("HINDSIGHT_RECALL__MAX_TOKENS", "4")
    settings = HindsightSettings(banks={"life": {"bank_id": "life"}})
    assert settings.banks.project.bank_id == "coding"
    assert settings.banks.life.bank_id == "life"
    assert settings.recall.max_tokens == 4


def test_camel_case_is_read(tmp_path):
    (tmp_path / ".hindsight.toml").write_text("[recall]\nmaxTokens = 7\nlifeMaxTokens = 2\n")
    recall = HindsightSettings().recall
    assert (recall.max_tokens, recall.life_max_tokens) == (7, 2)


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ({"recall": {"max_tokens": -1}}, "recall.max_tokens"),
        ({"recall": {"max_tokens": "many"}}, "recall.max_tokens"),
        ({"recall": {"timeout": 0}}, "recall.timeout"),
        ({"recall": {"timeout": math.inf}}, "recall.timeout"),
        ({"timeout": math.nan}, "timeout"),
        ({"recall": {"no_such_name": 1}}, "recall.no_such_name"),
        ({"profile": 7}, "profile"),
        ({"recall": {"min_scores": {"vague": 1}}}, "recall.min_scores"),
        ({"scope": {"legacy_tags": "old"}}, "scope.legacy_tags"),
    ],
)
def test_a_value_that_does_not_hold_is_named(values, name):
    with pytest.raises(ConfigurationError, match=name.replace(".", r"\.")):
        HindsightSettings(**values)


def test_no_repr_dump_or_error_shows_the_key(monkeypatch):
    monkeypatch.setenv("HINDSIGHT_API_KEY", "made-up-key")
    settings = HindsightSettings()
    assert "made-up-key" not in repr(settings)
    assert "made-up-key" not in str(settings.model_dump())
    with pytest.raises(ConfigurationError) as caught:
        HindsightSettings(api_key={"made-up-key": 1})
    assert "made-up-key" not in str(caught.value)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: HindsightSettings.model_validate_json(f'{{"api_key": "{SECRET}"'),
        lambda: OutboxSettings(url=[SECRET]),
        lambda: OutboxSettings.model_validate_json(f'{{"url": "{SECRET}"'),
    ],
)
def test_no_error_of_pydantics_own_shows_a_credential(wrong):
    with pytest.raises(ValueError, match="validation error") as caught:
        wrong()
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(("section", "name"), [("api_key", "api_key"), ("outbox", "url")])
def test_what_cannot_be_changed_is_said_without_the_value(section, name):
    settings = HindsightSettings()
    changed = settings if section == name else getattr(settings, section)
    with pytest.raises(ConfigurationError, match=f"{name} cannot be set") as caught:
        setattr(changed, name, SECRET)
    assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_no_repr_shows_a_key_that_was_put_in_unchecked():
    for settings in (
        HindsightSettings().model_copy(update={"api_key": SECRET}),
        HindsightSettings.model_construct(api_key=SECRET),
    ):
        assert SECRET not in f"{settings!r}{settings}"


def test_no_repr_shows_a_password_inside_a_url():
    settings = HindsightSettings(
        url="https://anna:made-up@host", outbox={"url": "postgresql://anna:made-up@host/outbox"}
    )
    assert "made-up" not in repr(settings)


def test_no_error_shows_a_password_inside_a_url():
    with pytest.raises(ConfigurationError) as caught:
        HindsightSettings(outbox="postgresql://anna:made-up-word@host/outbox")
    assert "made-up-word" not in str(caught.value)


def test_a_section_that_is_no_table_is_a_configuration_error_without_its_value(monkeypatch):
    monkeypatch.setenv("HINDSIGHT_OUTBOX", "postgresql://anna:made-up-word@host/outbox")
    with pytest.raises(ConfigurationError) as caught:
        HindsightSettings()
    assert "made-up-word" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "key", "nearest"),
    [
        ("[recal]\nmax_tokens = 1\n", "recal", "recall"),
        ('projects = "zz"\n', "projects", "banks.project"),
        ("zz = 1\n", "zz", None),
        ("[recall]\nmax_token = 1\n", "recall.max_token", "recall.max_tokens"),
        ("[retain]\nenabeld = false\n", "retain.enabeld", "retain.enabled"),
        ("max_tokens = 1\n", "max_tokens", "recall.max_tokens"),
        ('[banks.lief]\nbank_id = "x"\n', "banks.lief", "banks.life"),
    ],
)
def test_an_unknown_key_is_told_with_its_file_and_the_nearest_known_one(
    tmp_path, text, key, nearest
):
    (tmp_path / ".hindsight.toml").write_text(text)
    hint = f"did you mean {nearest}" if nearest else "remove it"
    told = rf"\.hindsight\.toml: {re.escape(key)}: there is no such setting; {hint}"
    with pytest.raises(ConfigurationError, match=told):
        HindsightSettings()


def test_an_unknown_argument_is_told_with_the_nearest_known_one():
    with pytest.raises(ConfigurationError, match=r"argument recal: .* did you mean recall\?"):
        HindsightSettings(recal={"max_tokens": 1})


def test_an_unknown_variable_of_a_table_of_ours_is_told(monkeypatch):
    monkeypatch.setenv("HINDSIGHT_RECALL__MAX_TOKEN", "1")
    with pytest.raises(ConfigurationError, match=r"HINDSIGHT_RECALL__MAX_TOKEN: .*max_tokens"):
        HindsightSettings()


@pytest.mark.parametrize(
    ("write", "place"),
    [
        (".hindsight.toml", r"\.hindsight\.toml: recall\.maxTokens = 'many'"),
        ("pyproject.toml", r"pyproject\.toml: tool\.langchain-hindsight\.recall\.max_tokens = 'ma"),
        ("HINDSIGHT_RECALL__MAX_TOKENS", r"HINDSIGHT_RECALL__MAX_TOKENS = 'many'"),
        ("HINDSIGHT_RECALL", r"HINDSIGHT_RECALL = 'many'"),
        ("argument", r"argument recall\.max_tokens = 'many'"),
    ],
)
def test_a_wrong_value_is_told_with_its_source(monkeypatch, tmp_path, write, place):
    arguments = {}
    if write == ".hindsight.toml":
        (tmp_path / write).write_text('[recall]\nmaxTokens = "many"\n')
    elif write == "pyproject.toml":
        text = '[tool.langchain-hindsight.recall]\nmax_tokens = "many"\n'
        (tmp_path / write).write_text(text)
    elif write == "HINDSIGHT_RECALL":
        monkeypatch.setenv(write, '{"max_tokens": "many"}')
    elif write == "argument":
        arguments = {"recall": {"max_tokens": "many"}}
    else:
        monkeypatch.setenv(write, "many")
    with pytest.raises(ConfigurationError, match=place) as caught:
        HindsightSettings(**arguments)
    assert "valid integer" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("HINDSIGHT_RECAL__MAX_TOKENS", "HINDSIGHT_RECALL__MAX_TOKENS"),
        ("HINDSIGHT_PROFIL", "HINDSIGHT_PROFILE"),
        ("HINDSIGHT_BANK__LIFE__BANK_ID", "HINDSIGHT_BANKS__LIFE__BANK_ID"),
        ("HINDSIGHT_RETAIN_ENABLED", "HINDSIGHT_RETAIN__ENABLED"),
    ],
)
def test_a_variable_that_is_nearly_ours_is_told_with_the_nearest(
    monkeypatch, caplog, name, nearest
):
    monkeypatch.setenv(name, "1")
    HindsightSettings()
    assert caplog.messages == [f"{name}: there is no such setting; did you mean {nearest}?"]


def test_a_list_that_is_no_json_is_told_with_its_variable(monkeypatch):
    monkeypatch.setenv("HINDSIGHT_RETAIN__TOOLS", "search, browse")
    with pytest.raises(ConfigurationError, match="HINDSIGHT_RETAIN__TOOLS = 'search, browse'"):
        HindsightSettings()


@pytest.mark.parametrize("text", ["world", "world,experience", "world, x", "['world']"])
@pytest.mark.parametrize("name", ["RECALL__TYPES", "SCOPE__LEGACY_TAGS", "RETAIN__ROLES"])
def test_a_text_where_a_list_is_due_is_told_how_a_list_is_written(monkeypatch, name, text):
    monkeypatch.setenv(f"HINDSIGHT_{name}", text)
    with pytest.raises(ConfigurationError, match=rf'{name} = .*expected a list such as \["a", "b"'):
        HindsightSettings()


@pytest.mark.parametrize("others", [{}, {"HINDSIGHT_API_URL": "http://other:1"}])
@pytest.mark.parametrize(
    ("variable", "value", "name"),
    [
        ("HINDSIGHT_RECALL__MIN_SCORES__FINAL", "0.5", "recall.min_scores"),
        ("HINDSIGHT_API_KEY__SOURCE", "env", "api_key"),
        ("HINDSIGHT_RECALL__MAX_TOKENS__", "3", "recall.max_tokens"),
        ("HINDSIGHT_BANKS__PROJECT__BANK_ID__X", "a", "banks.project.bank_id"),
    ],
)
def test_a_value_of_nested_variables_is_told_with_one_of_them(
    monkeypatch, others, variable, value, name
):
    for other in others:
        monkeypatch.setenv(other, others[other])
    monkeypatch.setenv(variable, value)
    assert str(read(HindsightSettings, {}).origins[name]) == variable


def test_everything_that_is_wrong_is_told_at_once(monkeypatch, tmp_path):
    (tmp_path / ".hindsight.toml").write_text("nonsense = 1\n[recall]\nmax_tokens = -1\n")
    monkeypatch.setenv("HINDSIGHT_TIMEOUT", "soon")
    with pytest.raises(ConfigurationError, match=r"nonsense.*") as caught:
        HindsightSettings()
    assert all(word in str(caught.value) for word in ("recall.max_tokens", "HINDSIGHT_TIMEOUT"))


def set_in(tree, name, value):
    *path, last = name.split(".")
    for part in path:
        tree = tree.setdefault(part, {})
    tree[last] = value


def value_of(settings, name):
    for part in name.split("."):
        settings = getattr(settings, part)
    return settings


@pytest.mark.parametrize("name", CHOICES)
def test_an_unknown_choice_falls_back_to_its_default_with_one_warning(name, caplog):
    field = settings_of(HindsightSettings)[name]
    is_list = isinstance(field.default, tuple) or name == "recall.types"
    arguments = {}
    set_in(arguments, name, ["no-such-word"] if is_list else "no-such-word")
    settings = HindsightSettings(**arguments)
    assert value_of(settings, name) == field.default
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert name in caplog.text


def test_the_default_stands_for_an_unknown_choice_also_where_a_lower_source_has_another(
    monkeypatch, tmp_path
):
    (tmp_path / ".hindsight.toml").write_text('[recall]\nbudget = "high"\n')
    monkeypatch.setenv("HINDSIGHT_RECALL__BUDGET", "hihg")
    assert HindsightSettings().recall.budget == "mid"


def test_an_unknown_profile_is_as_good_as_none():
    assert HindsightSettings(profile="everything", banks=BOTH).switches.life


@pytest.mark.parametrize("mode", ["router", "both", "", 1, True, None])
def test_every_mode_of_life_retain_is_explicit_only(mode, caplog):
    settings = HindsightSettings(life_retain={"mode": mode})
    assert settings.life_retain.mode == "explicit-only"
    assert len(caplog.records) == 1
    assert "automatic writes to the Life Bank are off" in caplog.text


def test_a_variable_of_the_servers_is_none_of_ours(monkeypatch, caplog):
    monkeypatch.setenv("HINDSIGHT_API_LLM_PROVIDER", "mock")
    monkeypatch.setenv("HINDSIGHT_API_TIMEOUT", "1")
    monkeypatch.setenv("HINDSIGHT_SOMETHING", "else")
    assert HindsightSettings().recall.max_tokens == 800
    assert not caplog.messages


def test_a_broken_file_is_a_configuration_error_that_names_it(tmp_path):
    (tmp_path / ".hindsight.toml").write_text("[recall\nx=")
    with pytest.raises(ConfigurationError, match=r"\.hindsight\.toml"):
        HindsightSettings()


def test_a_key_may_be_a_secret_or_a_variable(monkeypatch):
    assert HindsightSettings(api_key="k").api_key == SecretStr("k")
    assert HindsightSettings(api_key=SecretStr("k")).api_key == SecretStr("k")
    key = HindsightSettings(api_key={"source": "env", "name": "TEAM_KEY"}).api_key
    assert key.read() is None
    monkeypatch.setenv("TEAM_KEY", "first")
    assert key.read() == "first"
    monkeypatch.setenv("TEAM_KEY", "second")
    assert key.read() == "second"


@pytest.mark.parametrize("key", ["12345", "true", "null", '{"a": 1}', "[1]"])
def test_a_key_that_looks_like_json_is_a_key(monkeypatch, key):
    monkeypatch.setenv("HINDSIGHT_API_KEY", key)
    assert HindsightSettings().api_key.get_secret_value() == key


def test_a_file_may_say_in_which_variable_the_key_stands(tmp_path, monkeypatch):
    (tmp_path / ".hindsight.toml").write_text('api_key = { source = "env", name = "TEAM_KEY" }\n')
    monkeypatch.setenv("TEAM_KEY", SECRET)
    settings = HindsightSettings()
    assert settings.api_key.read() == SECRET
    assert SECRET not in f"{settings!r}{settings.model_dump()}{settings.model_dump_json()}"


@pytest.mark.parametrize(
    "key",
    [
        {"source": "vault", "name": SECRET},
        {"source": "env", "name": "no name"},
        {"source": "env"},
        {SECRET: 1},
        [SECRET],
        7,
    ],
)
def test_a_key_of_no_known_form_is_told_without_a_word_of_it(key):
    with pytest.raises(
        ConfigurationError, match=r'api_key = .\*+.: expected .*source = "env"'
    ) as e:
        HindsightSettings(api_key=key)
    assert SECRET not in str(e.value)


def test_a_key_in_a_variable_is_read_there_each_time(monkeypatch):
    reference = {"source": "env", "name": "TEAM_KEY"}
    held = [
        DualBankMemory(api_key=reference, project_bank="b"),
        DualBankMemory(settings=HindsightSettings(api_key=reference), project_bank="b"),
    ]
    for key in ("first", "second"):
        monkeypatch.setenv("TEAM_KEY", key)
        assert [memory._gateway._api_key() for memory in held] == [key, key]


def with_secrets():
    return {
        "url": f"https://anna:{SECRET}@host/",
        "api_key": SECRET,
        "outbox": {"url": f"postgresql://anna:{SECRET}@host/outbox"},
    }


def test_a_pickle_holds_no_key_and_no_password(monkeypatch, tmp_path):
    settings = HindsightSettings(**with_secrets())
    for kept in (settings, settings.outbox, DualBankMemory(project_bank="b", settings=settings)):
        assert SECRET.encode() not in pickle.dumps(kept)
    assert settings.outbox.url.endswith(f"{SECRET}@host/outbox")


def test_an_unpickled_configuration_takes_its_credentials_from_where_it_is(monkeypatch):
    settings = HindsightSettings(**with_secrets(), timeout=3)
    pickled = pickle.dumps(settings)
    monkeypatch.setenv("HINDSIGHT_URL", settings.url)
    monkeypatch.setenv("HINDSIGHT_API_KEY", SECRET)
    monkeypatch.setenv("HINDSIGHT_OUTBOX__URL", settings.outbox.url)
    assert pickle.loads(pickled) == settings


@pytest.mark.parametrize("missing", ["HINDSIGHT_URL", "HINDSIGHT_OUTBOX__URL"])
def test_a_password_that_is_not_known_where_it_is_unpickled_is_said_to_be_missing(
    monkeypatch, missing
):
    settings = HindsightSettings(**with_secrets())
    pickled = pickle.dumps(settings)
    monkeypatch.setenv("HINDSIGHT_URL", settings.url)
    monkeypatch.setenv("HINDSIGHT_OUTBOX__URL", settings.outbox.url)
    monkeypatch.setenv(missing, "postgresql://anna:other@elsewhere/outbox")
    with pytest.raises(ConfigurationError, match=f"set {missing}") as caught:
        pickle.loads(pickled)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "masked"),
    [
        ("sqlite:///x.db", "sqlite:///x.db"),
        ("http://host:1/path?a=b", "http://host:1/path?a=b"),
        (f"http://anna:{SECRET}@host", "http://anna:***@host"),
        (f"https://{SECRET}@host/x", "https://***@host/x"),
        (f"postgresql+psycopg://anna:{SECRET}@@host/o", "postgresql+psycopg://anna:***@host/o"),
        ("postgresql://anna@host/o", "postgresql://anna@host/o"),
        (f"http://anna:{SECRET}@[::1", "http://anna:***@[::1"),
        ("no url", "no url"),
    ],
)
def test_a_url_is_masked_where_its_credentials_are_and_nowhere_else(url, masked):
    assert masked_url(url) == masked
    assert is_masked(masked) == (url != masked)


def test_copies_keep_their_credentials():
    settings = HindsightSettings(**with_secrets())
    assert copy.copy(settings) == copy.deepcopy(settings) == settings
    assert copy.deepcopy(settings).outbox.url == settings.outbox.url


def test_a_pickle_without_credentials_asks_nothing_of_where_it_is_unpickled(monkeypatch):
    pickled = pickle.dumps(HindsightSettings(outbox=OutboxSettings(url="sqlite:///x.db")))
    monkeypatch.setenv("HINDSIGHT_TIMEOUT", "soon")
    assert pickle.loads(pickled).outbox.url == "sqlite:///x.db"


BOTH = {"project": {"bank_id": "coding"}, "life": {"bank_id": "life"}}


@pytest.mark.parametrize(
    ("profile", "switches"),
    [
        ("project-only", Switches(project=True, life=False, recall=True, automatic_retain=True)),
        ("project+life", Switches(project=True, life=True, recall=True, automatic_retain=True)),
        ("life-only", Switches(project=False, life=True, recall=True, automatic_retain=False)),
        ("recall-only", Switches(project=True, life=True, recall=True, automatic_retain=False)),
    ],
)
def test_a_profile_is_a_set_of_switches(profile, switches):
    assert HindsightSettings(profile=profile, banks=BOTH).switches == switches


def test_a_switch_set_by_hand_wins_over_the_profile():
    settings = HindsightSettings(profile="recall-only", banks=BOTH, retain={"enabled": True})
    assert settings.switches.automatic_retain


def test_automatic_retain_has_nowhere_to_go_without_a_project_bank():
    settings = HindsightSettings(profile="life-only", banks=BOTH, retain={"enabled": True})
    assert not settings.switches.automatic_retain


def test_naming_a_life_bank_opts_in():
    assert HindsightSettings(banks=BOTH).switches.life
    assert not HindsightSettings(banks={"project": BOTH["project"]}).switches.life


@pytest.mark.parametrize("asked", [{"profile": "project+life"}, {"profile": "life-only"}])
@pytest.mark.parametrize("named", [True, False])
def test_a_life_bank_that_is_asked_for_must_be_named(asked, named):
    if named:
        assert DualBankMemory(project_bank="b", life_bank="l", settings=HindsightSettings(**asked))
        return
    with pytest.raises(ConfigurationError, match="HINDSIGHT_BANKS__LIFE__BANK_ID"):
        DualBankMemory(project_bank="b", settings=HindsightSettings(**asked))


def test_a_life_bank_that_is_switched_on_by_hand_must_be_named():
    settings = HindsightSettings(banks={"life": {"enabled": True}})
    with pytest.raises(ConfigurationError, match="life_bank"):
        DualBankMemory(project_bank="b", settings=settings)


def test_a_profile_needs_no_life_bank_where_it_is_switched_off_or_not_its_point():
    off = HindsightSettings(profile="project+life", banks={"life": {"enabled": False}})
    assert not off.lacks_life_bank
    assert not HindsightSettings(profile="recall-only").lacks_life_bank


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("enabled", [True, False])
def test_every_switch_set_by_hand_wins_over_every_profile(profile, enabled):
    banks = {role: {**BOTH[role], "enabled": enabled} for role in BOTH}
    settings = HindsightSettings(profile=profile, banks=banks, retain={"enabled": enabled})
    switches = settings.switches
    assert (switches.project, switches.life, switches.automatic_retain) == (enabled,) * 3


def test_the_page_shows_each_switch_of_each_profile():
    page = (Path(__file__).parents[2] / "docs/configuration.md").read_text(encoding="utf-8")
    for profile, switches in PROFILES.items():
        cells = re.search(rf"^\| `{re.escape(profile)}` \|(.*)\|$", page, re.MULTILINE)[1].split(
            "|"
        )
        shown = [cell.strip().startswith("yes") for cell in cells]
        expected = [switches.project, switches.life, switches.recall, switches.automatic_retain]
        assert shown == [*expected, switches.life]


@pytest.mark.parametrize("profile", [None, *PROFILES])
@pytest.mark.parametrize("enabled", [None, True, False])
def test_the_life_tool_is_there_exactly_where_a_life_bank_is(profile, enabled):
    given = {} if profile is None else {"profile": profile}
    banks = {"project": BOTH["project"], "life": {"bank_id": "life", "enabled": enabled}}
    settings = HindsightSettings(**given, banks=banks)
    tools = create_hindsight_tools(DualBankMemory(settings=settings))
    assert ("hindsight_retain_life" in {one.name for one in tools}) == settings.switches.life
    expected = profile != "project-only" if enabled is None else enabled
    assert settings.switches.life == expected


def test_a_key_of_a_memory_may_name_its_variable_and_nothing_of_another_form():
    with pytest.raises(ConfigurationError, match="api_key"):
        DualBankMemory(api_key={"source": "vault", "name": SECRET}, project_bank="b")


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("settings", {"recall": {"max_tokens": 400}}),
        ("settings", {}),
        ("project_bank", 42),
        ("project_id", 42),
        ("life_bank", ["life"]),
        ("url", 8888),
    ],
)
def test_an_argument_of_another_type_is_named(argument, value):
    given = {"project_bank": "b", argument: value}
    with pytest.raises(ConfigurationError, match=f"{argument} must be a .*{type(value).__name__}"):
        DualBankMemory(**given)
