"""Which settings the embedded server gets, and what of them may be shown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_hindsight.embedded.environment import Piece, ServerEnvironment, mask

_POSTGRES = Piece("postgresql://hindsight:pw@127.0.0.1:5/hindsight", "pw")
_EMBEDDINGS = Piece("http://127.0.0.1:6/v1", "key")

_names = st.from_regex(r"HINDSIGHT_API_[A-Z]{1,12}", fullmatch=True)
_values = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=20)


def _variables(environ):
    environment = ServerEnvironment.of(environ)
    return environment.variables(
        _POSTGRES if environment.needs_postgres else None,
        _EMBEDDINGS if environment.needs_embeddings else None,
    )


def test_without_settings_it_runs_offline_and_without_a_language_model():
    variables = _variables({"PATH": "/bin"})

    assert variables["HINDSIGHT_API_LLM_PROVIDER"] == "none"
    assert variables["HINDSIGHT_API_RERANKER_PROVIDER"] == "rrf"
    assert variables["HINDSIGHT_API_VECTOR_INDEX_MIN_ROWS"] == "10000"
    assert variables["HINDSIGHT_API_DATABASE_URL"] == _POSTGRES.url
    assert variables["HINDSIGHT_API_EMBEDDINGS_OPENAI_BASE_URL"] == _EMBEDDINGS.url
    assert variables["HF_HUB_OFFLINE"] == "1"
    assert variables["PATH"] == "/bin"


@given(st.dictionaries(_names, _values))
def test_whatever_the_user_sets_reaches_the_server_as_it_is(asked):
    client_only = {"HINDSIGHT_API_URL", "HINDSIGHT_API_KEY"}
    ours = {"HINDSIGHT_API_HOST", "HINDSIGHT_API_PORT"}
    variables = _variables(asked)

    for name in asked.keys() - client_only - ours:
        assert variables[name] == asked[name]


@pytest.mark.parametrize("name", [n for n in _variables({}) if n.startswith("HINDSIGHT_API_")])
def test_the_users_value_wins_over_each_of_ours(name):
    assert _variables({name: "mine"})[name] == "mine"


def test_any_setting_of_a_language_model_replaces_the_default_of_none():
    assert "HINDSIGHT_API_LLM_PROVIDER" not in _variables({"HINDSIGHT_API_LLM_API_KEY": "k"})


def test_what_is_meant_for_clients_never_reaches_the_server():
    variables = _variables(
        {"HINDSIGHT_API_URL": "https://cloud.example", "HINDSIGHT_API_KEY": "client-key"}
    )

    assert "HINDSIGHT_API_URL" not in variables
    assert "HINDSIGHT_API_KEY" not in variables


def test_no_setting_makes_it_listen_on_another_address():
    assert "HINDSIGHT_API_HOST" not in _variables({"HINDSIGHT_API_HOST": "0.0.0.0"})


def test_a_blank_setting_counts_as_not_set():
    variables = _variables({"HINDSIGHT_API_LLM_PROVIDER": " ", "HINDSIGHT_API_DATABASE_URL": ""})

    assert variables["HINDSIGHT_API_LLM_PROVIDER"] == "none"
    assert variables["HINDSIGHT_API_DATABASE_URL"] == _POSTGRES.url


def test_a_database_of_the_users_own_replaces_ours():
    environment = ServerEnvironment.of({"HINDSIGHT_API_DATABASE_URL": "postgresql://own/db"})

    assert not environment.needs_postgres


@pytest.mark.parametrize("part", ["EMBEDDINGS", "RERANKER"])
def test_another_provider_may_use_a_model_hub(part):
    variables = _variables({f"HINDSIGHT_API_{part}_PROVIDER": "local"})

    assert "HF_HUB_OFFLINE" not in variables


def test_the_users_word_on_the_model_hub_stands():
    assert _variables({"HF_HUB_OFFLINE": "0"})["HF_HUB_OFFLINE"] == "0"


def test_its_own_parts_are_not_reached_through_a_proxy():
    variables = _variables({"HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": "intranet"})

    assert variables["NO_PROXY"] == "intranet,127.0.0.1,localhost"


def test_a_second_start_may_leave_out_what_the_first_has_set():
    running = ServerEnvironment.of({"HINDSIGHT_API_LLM_PROVIDER": "mock"}).digests("salt")

    assert ServerEnvironment.of({}).differing(running, "salt") == []


@pytest.mark.parametrize(
    "setting",
    [
        {"HINDSIGHT_API_LLM_PROVIDER": "openai"},
        {"HINDSIGHT_API_EMBEDDINGS_PROVIDER": "openai"},
        {"HINDSIGHT_API_DATABASE_URL": "postgresql://own/db"},
    ],
)
def test_a_second_start_that_wants_something_else_is_told_what(setting):
    running = ServerEnvironment.of({}).digests("salt")

    assert ServerEnvironment.of(setting).differing(running, "salt") == list(setting)


def test_a_second_start_that_asks_for_a_default_by_name_finds_it():
    running = ServerEnvironment.of({}).digests("salt")

    wanted = ServerEnvironment.of({"HINDSIGHT_API_LLM_PROVIDER": "none"})
    assert wanted.differing(running, "salt") == []


def test_another_log_level_is_no_reason_for_another_server():
    running = ServerEnvironment.of({}).digests("salt")

    wanted = ServerEnvironment.of({"HINDSIGHT_API_LOG_LEVEL": "debug"})
    assert wanted.differing(running, "salt") == []


def test_what_is_written_down_for_comparison_holds_no_setting():
    asked = {"HINDSIGHT_API_LLM_API_KEY": "plainly-secret"}

    assert "plainly-secret" not in str(ServerEnvironment.of(asked).digests("salt"))


@given(secret=st.from_regex(r"[A-Za-z0-9!*(]{6,30}", fullmatch=True))
@pytest.mark.parametrize(
    "name", ["HINDSIGHT_API_LLM_API_KEY", "AWS_SECRET_ACCESS_KEY", "PGPASSWORD"]
)
def test_a_credential_of_the_environment_is_masked_wherever_it_stands(name, secret):
    assert secret not in mask(f"before {secret}: refused by {secret}!", {name: secret})


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("could not reach postgresql://me:hunter22@db.example/mine", "hunter22"),
        ("Authorization: Bearer abc.def.ghi", "abc.def.ghi"),
        ('{"api_key": "abcdefgh"}', "abcdefgh"),
        ("invalid key sk-proj-0123456789abcdef", "0123456789abcdef"),
    ],
)
def test_what_has_the_look_of_a_credential_is_masked_too(text, secret):
    assert secret not in mask(text, {})


def test_the_password_of_a_database_url_is_masked_also_on_its_own_and_decoded():
    variables = {"HINDSIGHT_API_DATABASE_URL": "postgresql://me:p%40ssword@db/mine"}

    assert "p@ssword" not in mask("no entry for me with p@ssword", variables)


def test_text_without_credentials_stays_as_it_is():
    text = "connection to server at 127.0.0.1, port 5432 failed: Connection refused"

    assert mask(text, {"PATH": "/bin", "HINDSIGHT_API_LLM_PROVIDER": "openai"}) == text
