"""The configuration: its sources, their order, and what profiles switch."""

import pytest

from langchain_hindsight import ConfigurationError, HindsightSettings
from langchain_hindsight.settings import Switches


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
        ({"recall": {"no_such_name": 1}}, "recall.no_such_name"),
        ({"profile": "everything"}, "profile"),
        ({"life_retain": {"mode": "router"}}, "life_retain.mode"),
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


@pytest.mark.parametrize("text", ["[recal]\nmax_tokens = 1\n", 'project_bank = "zz"\n'])
def test_a_mistyped_table_is_named(tmp_path, text):
    (tmp_path / ".hindsight.toml").write_text(text)
    with pytest.raises(ConfigurationError, match=r"recal\b|project_bank"):
        HindsightSettings()


def test_a_variable_of_the_servers_is_none_of_ours(monkeypatch):
    monkeypatch.setenv("HINDSIGHT_API_LLM_PROVIDER", "mock")
    monkeypatch.setenv("HINDSIGHT_SOMETHING", "else")
    assert HindsightSettings().recall.max_tokens == 800


def test_a_broken_file_is_a_configuration_error_that_names_it(tmp_path):
    (tmp_path / ".hindsight.toml").write_text("[recall\nx=")
    with pytest.raises(ConfigurationError, match=r"\.hindsight\.toml"):
        HindsightSettings()


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
