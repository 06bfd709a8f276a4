"""Configurations in older words: the same behavior as the equal one in words of today."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from langchain_hindsight import ConfigurationError, DualBankMemory, HindsightSettings
from langchain_hindsight.banks import LifeBank
from langchain_hindsight.settings_sources import settings_of

FILE = Path("older.jsonc")


def older(config, text=None):
    """The settings that a configuration of elsewhere gives."""
    FILE.write_text(text or json.dumps(config), encoding="utf-8")
    os.environ["HINDSIGHT_CONFIG_FILE"] = str(FILE)
    try:
        return HindsightSettings()
    finally:
        del os.environ["HINDSIGHT_CONFIG_FILE"]


WORDS = {
    "url": ["hindsight.baseUrl", "hindsight.base_url", "baseUrl"],
    "timeout": ["hindsight.timeoutMs", "timeoutMs"],
    "api_key": ["hindsight.apiKey", "apiKey"],
    "use": ["agentUse"],
    "profile": ["profile"],
    "life_retain.mode": ["userRetain.mode", "globalRetain.mode", "lifeRetain.mode", "userRetain"],
    "recall.life_query_preamble": [
        "recall.userQueryPreamble",
        "recall.globalQueryPreamble",
        "userQueryPreamble",
        "globalQueryPreamble",
        "recall.lifeQueryPreamble",
    ],
    "recall.life_max_tokens": [
        "recall.userMaxTokens",
        "recall.globalMaxTokens",
        "userMaxTokens",
        "recall.lifeMaxTokens",
    ],
    "recall.query_preamble": ["recall.queryPreamble", "recall.projectQueryPreamble"],
    "recall.max_tokens": ["recall.maxTokens"],
    "recall.context_turns": ["recall.contextTurns"],
    "recall.max_query_chars": ["recall.maxQueryChars"],
    "recall.timeout": ["recall.timeoutMs"],
    "recall.cache_ttl": ["recall.cacheTtlMs"],
    "recall.min_scores": ["recall.minScores"],
    "recall.prefer_observations": ["recall.preferObservations"],
    "recall.enabled": ["recall.enabled"],
    "recall.budget": ["recall.budget"],
    "retain.enabled": ["retain.enabled"],
    "retain.redact": ["retain.redactSecrets"],
    "outbox.shutdown_timeout": ["retain.shutdownFlushTimeoutMs"],
    "mental_models.inject": ["mentalModels.inject"],
    "mental_models.cache_ttl": ["mentalModels.cacheTtlMs"],
    "scope.mode": ["scope.mode"],
    "scope.project_id": ["scope.projectId"],
    "scope.project_id_strategy": ["scope.projectIdStrategy"],
    "scope.include_shared": ["scope.includeSharedObservations", "scope.includeShared"],
    "scope.legacy_tags": ["scope.legacyTags"],
    "scope.life_tags": ["scope.userScopeTags", "scope.lifeTags"],
    **{
        f"banks.{role}.{name}": [f"banks.{word}.{camel}" for word in words]
        for role, words in {
            "project": ["coding", "project"],
            "life": ["global", "user", "life"],
        }.items()
        for name, camel in {
            "enabled": "enabled",
            "bank_id": "bankId",
            "retain_mission": "retainMission",
            "reflect_mission": "reflectMission",
            "observations_mission": "observationsMission",
        }.items()
    },
}
"""Each setting of today, and what it was called elsewhere."""

OLDER_VALUES = {
    "profile": {
        "project+life": ["project+global", "project+user"],
        "life-only": ["global-only", "user-only"],
    },
    "scope.project_id_strategy": {"git-remote": ["remote"], "folder": ["basename"]},
}

texts = st.text(st.characters(codec="utf-8", exclude_categories=["C"]), min_size=1, max_size=12)
whole = st.integers(1, 10**6)
seconds = st.integers(1, 10**7).map(lambda ms: ms / 1000)
VALUES = {
    "url": st.just("http://host:1"),
    "timeout": seconds,
    "api_key": st.text("abcXYZ09_", min_size=1),
    "use": st.sampled_from(["coding", "conversation"]),
    "profile": st.sampled_from(["project-only", "project+life", "life-only", "recall-only"]),
    "life_retain.mode": st.sampled_from(["explicit-only", "router", "both", "", "auto"]),
    "recall.timeout": seconds,
    "recall.cache_ttl": seconds,
    "outbox.shutdown_timeout": seconds,
    "mental_models.cache_ttl": seconds,
    "recall.min_scores": st.dictionaries(
        st.sampled_from(["semantic", "keyword", "final"]), st.floats(0, 1)
    ),
    "recall.budget": st.sampled_from(["low", "mid", "high"]),
    "scope.mode": st.sampled_from(["domain-tagged", "isolated-bank"]),
    "scope.project_id_strategy": st.sampled_from(["git-remote", "folder"]),
    "scope.legacy_tags": st.lists(texts, max_size=2),
    "scope.life_tags": st.lists(texts, max_size=2),
    "banks.project.bank_id": st.just("coding"),
    "banks.life.bank_id": st.just("life"),
    "scope.project_id": st.just("billing"),
}
for name in WORDS:
    if name.endswith(("enabled", "redact", "inject", "observations", "include_shared")):
        VALUES[name] = st.booleans()
    elif name.endswith(("tokens", "turns", "chars")):
        VALUES[name] = whole
    else:
        VALUES.setdefault(name, texts)


def put(tree, name, value):
    *path, last = name.split(".")
    for part in path:
        tree = tree.setdefault(part, {})
    tree[last] = value


@st.composite
def configurations(draw):
    """A configuration of elsewhere, and the equal one of today."""
    before, today = {}, {}
    for name in draw(st.sets(st.sampled_from(sorted(WORDS)))) | {"banks.life.bank_id"}:
        value = draw(VALUES[name])
        written = draw(st.sampled_from(WORDS[name]))
        put(today, name, "explicit-only" if name == "life_retain.mode" else value)
        if written.lower().endswith("ms"):
            value = round(value * 1000)
        elif name in OLDER_VALUES:
            value = draw(st.sampled_from(OLDER_VALUES[name].get(value, [value])))
        if written == "userRetain" or (
            written.startswith("userRetain.") and "userRetain" in before
        ):
            before["userRetain"] = value
        else:
            put(before, written, value)
    return before, today


@given(configurations(), st.booleans())
def test_an_older_configuration_is_the_equal_one_of_today(found, with_comments):
    before, today = found
    text = json.dumps(before, indent=1)
    if with_comments:
        text = f"// of elsewhere\n{text[:-2]}, /* last */\n}}\n"
    settings, equal = older(before, text), HindsightSettings(**today)
    assert settings == equal
    assert settings.switches == equal.switches
    assert settings.recall.life_limit == equal.recall.life_limit


@given(configurations(), st.text(max_size=8) | st.booleans() | st.integers() | st.none())
@example(({}, {}), "router")
def test_no_older_configuration_writes_to_the_life_bank_automatically(found, mode):
    before, _ = found
    before.pop("globalRetain", None)
    before["userRetain"] = {"mode": mode}
    settings = older(before)
    assert settings.life_retain.mode == "explicit-only"
    if settings.switches.project:
        memory = DualBankMemory(project_bank="coding", settings=settings)
        assert not isinstance(memory._banks.project({}), LifeBank)
        assert memory._banks.project({}).bank_id == "coding"
    else:
        assert not settings.switches.automatic_retain


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=4,
)


@given(
    configurations(),
    st.dictionaries(texts.map(lambda t: f"x{t}"), junk, max_size=3),
    st.sampled_from(["", "recall", "retain", "banks", "status", "userRetain", "scope"]),
)
def test_what_is_not_understood_is_left_out_and_never_an_error(found, more, place):
    before, today = found
    if not isinstance(before.get(place, {}), dict):
        return
    (before.setdefault(place, {}) if place else before).update(more)
    assert older(before) == HindsightSettings(**today)


def test_every_setting_of_the_table_is_one_of_today():
    assert set(WORDS) <= set(settings_of(HindsightSettings))


@pytest.mark.parametrize("mode", ["router", "both", "anything", None, True])
@pytest.mark.parametrize("word", ["userRetain", "globalRetain"])
def test_another_mode_becomes_explicit_only_with_one_warning(word, mode, caplog):
    assert older({word: {"mode": mode}}).life_retain.mode == "explicit-only"
    told = [one for one in caplog.messages if "automatic writes to the Life Bank are off" in one]
    assert len(caplog.messages) == len(told) == (mode is not None)


def test_of_an_old_and_a_new_name_the_new_one_wins_and_the_clash_is_told(caplog):
    settings = older(
        {
            "url": "http://new:1",
            "hindsight": {"baseUrl": "http://old:1"},
            "banks": {
                "life": {"bankId": "new"},
                "user": {"bankId": "old"},
                "global": {"bankId": "x"},
            },
            "recall": {"max_tokens": 7, "maxTokens": 8, "userMaxTokens": 3, "lifeMaxTokens": 4},
        }
    )
    assert settings.url == "http://new:1"
    assert settings.banks.life.bank_id == "new"
    assert (settings.recall.max_tokens, settings.recall.life_max_tokens) == (7, 4)
    for winner, loser in [
        ("url", "hindsight.baseUrl"),
        ("banks.life.bankId", "banks.user.bankId"),
        ("banks.life.bankId", "banks.global.bankId"),
        ("recall.max_tokens", "recall.maxTokens"),
        ("recall.lifeMaxTokens", "recall.userMaxTokens"),
    ]:
        told = [one for one in caplog.messages if f"{loser}: {winner} is set too and wins" in one]
        assert len(told) == 1
    assert len(caplog.messages) == 5


def test_a_clash_in_todays_own_files_is_told_too(tmp_path, caplog):
    (tmp_path / ".hindsight.toml").write_text("[recall]\nmaxTokens = 8\nmax_tokens = 7\n")
    assert HindsightSettings().recall.max_tokens == 7
    assert "recall.maxTokens: recall.max_tokens is set too and wins" in caplog.text


@pytest.mark.parametrize(
    ("bank", "mode", "strategy"),
    [
        ({"derive": "repo"}, "isolated-bank", "git-remote"),
        ({"derive": "cwd"}, "isolated-bank", "folder"),
        ({"derive": "manual", "bankId": "coding"}, "domain-tagged", "auto"),
        ({"derive": "repo", "bankId": "coding"}, "domain-tagged", "auto"),
    ],
)
def test_a_bank_named_after_the_project_stays_the_projects_own(bank, mode, strategy):
    scope = older({"banks": {"project": bank}}).scope
    assert (scope.mode, scope.project_id_strategy) == (mode, strategy)


def test_a_configuration_that_was_switched_off_recalls_and_retains_nothing():
    settings = older(
        {
            "enabled": False,
            "recall": {"enabled": True},
            "banks": {"project": {"bankId": "p"}, "user": {"enabled": True, "bankId": "l"}},
        }
    )
    switches = settings.switches
    assert (switches.recall, switches.automatic_retain, switches.life) == (False, False, False)


@pytest.mark.parametrize(
    "asked", [{"profile": "project+user"}, {"banks": {"user": {"enabled": True, "bankId": " "}}}]
)
def test_a_life_bank_that_was_never_named_is_left_out_and_said_to_be(asked, caplog):
    settings = older(asked)
    assert DualBankMemory(project_bank="b", settings=settings).has_life is False
    assert "set banks.life.bank_id" in caplog.text


@pytest.mark.parametrize("profile", ["global-only", "user-only", "life-only"])
@pytest.mark.parametrize("bank", [{}, {"bankId": " "}, {"bankId": None, "enabled": True}])
async def test_a_life_bank_alone_that_was_never_named_leaves_no_bank_and_no_error(
    profile, bank, caplog
):
    settings = older({"profile": profile, "banks": {"user": bank, "project": {"bankId": "p"}}})
    memory = DualBankMemory(settings=settings)
    assert "set banks.life.bank_id" in caplog.text
    said = [("human", "We deploy on Fridays."), ("ai", "Noted.")]
    for receipt in (memory.retain(said, "t"), await memory.aretain(said, "t")):
        assert (receipt.status, receipt.reason) == ("skipped", "The Project Bank takes no part.")
    for result in (memory.recall("When?"), await memory.arecall("When?")):
        assert (result.text, result.reason) == ("", "No bank takes part.")


@pytest.mark.parametrize("profile", ["global-only", "user-only"])
def test_a_life_bank_alone_that_is_named_elsewhere_takes_part_alone(profile, monkeypatch):
    monkeypatch.setenv("HINDSIGHT_BANKS__LIFE__BANK_ID", "life")
    for memory in (
        DualBankMemory(settings=older({"profile": profile})),
        DualBankMemory(life_bank="life", settings=older({"profile": profile})),
    ):
        switches = memory.settings.switches
        assert (switches.project, switches.automatic_retain) == (False, False)
        assert memory.has_life


def lower(text):
    Path(".hindsight.toml").write_text(text)


@pytest.mark.parametrize("profile", ["project+user", "global-only", "project-only"])
@pytest.mark.parametrize("enabled", [None, True])
def test_a_life_bank_that_any_source_names_is_named(profile, enabled, monkeypatch, caplog):
    bank = {"enabled": enabled, "bankId": "life"}
    config = {"profile": profile, "banks": {"coding": {"bankId": "p"}, "user": bank}}
    together = older(config).switches
    del bank["bankId"]
    lower('[banks.life]\nbank_id = "life"\n')
    assert older(config).switches == together
    Path(".hindsight.toml").unlink()
    monkeypatch.setenv("HINDSIGHT_BANKS__LIFE__BANK_ID", "life")
    assert older(config).switches == together
    assert not caplog.messages


def test_a_lower_profile_never_stands_in_for_one_without_its_life_bank():
    lower('profile = "life-only"\n')
    switches = older({"profile": "project+user"}).switches
    assert (switches.project, switches.life, switches.automatic_retain) == (True, False, True)
    lower('[banks.life]\nbank_id = "life"\n[banks.project]\nenabled = true\n')
    switches = older({"profile": "user-only"}).switches
    assert (switches.project, switches.life) == (True, True)


@pytest.mark.parametrize("profile", ["project+user", "user-only"])
def test_a_profile_that_a_higher_source_sets_leaves_nothing_of_the_older_one(monkeypatch, profile):
    monkeypatch.setenv("HINDSIGHT_PROFILE", "project-only")
    assert older({"profile": profile}).switches == HindsightSettings().switches
    monkeypatch.setenv("HINDSIGHT_PROFILE", "project+life")
    monkeypatch.setenv("HINDSIGHT_BANKS__LIFE__BANK_ID", "life")
    assert older({"profile": profile}).switches == HindsightSettings().switches


@pytest.mark.parametrize("name", ["hindsight.conf", "a.json5", ".hindsightrc", "team.toml"])
@pytest.mark.parametrize("ahead", ["", "\ufeff\n ", "// of elsewhere\n", "/* of elsewhere */"])
def test_json_is_known_by_what_it_holds(monkeypatch, name, ahead):
    Path(name).write_text(ahead + '{"hindsight": {"timeoutMs": 1500}, "x": 1}', encoding="utf-8")
    monkeypatch.setenv("HINDSIGHT_CONFIG_FILE", name)
    assert HindsightSettings().timeout == 1.5


@pytest.mark.parametrize("name", ["TEAM_KEY", "env:TEAM_KEY"])
def test_a_reference_to_the_keys_variable_stays_one(monkeypatch, name):
    monkeypatch.setenv("TEAM_KEY", "k")
    assert older({"hindsight": {"apiKeyRef": name}}).api_key.read() == "k"
    reference = {"source": "env", "name": "TEAM_KEY"}
    assert older({"hindsight": {"apiKey": reference}}).api_key.read() == "k"


def test_a_null_is_no_setting():
    assert older({"url": None, "recall": {"maxTokens": None}, "hindsight": None}).url


@pytest.mark.parametrize("text", ["{", "[1]", '{"a": }', "nonsense"])
def test_a_broken_older_file_is_told_with_its_name(text):
    with pytest.raises(ConfigurationError, match=r"older\.jsonc: "):
        older(None, text)


def test_a_wrong_value_in_an_older_file_is_told_with_its_key():
    with pytest.raises(ConfigurationError, match=r"older\.jsonc: recall\.maxTokens = 'many'"):
        older({"recall": {"maxTokens": "many"}})


def test_older_words_are_read_wherever_settings_are(tmp_path, monkeypatch):
    (tmp_path / ".hindsight.toml").write_text(
        'profile = "project+user"\n[hindsight]\ntimeoutMs = 1500\n[banks.user]\nbankId = "l"\n'
    )
    monkeypatch.setenv("HINDSIGHT_RECALL__USER_MAX_TOKENS", "5")
    settings = HindsightSettings(banks={"coding": {"bank_id": "p"}})
    assert settings.profile == "project+life"
    assert settings.timeout == 1.5
    assert (settings.banks.project.bank_id, settings.banks.life.bank_id) == ("p", "l")
    assert settings.recall.life_max_tokens == 5
