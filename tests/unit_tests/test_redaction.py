"""Credentials are masked, what only looks like one is not, and no text can make that slow."""

# Punctuation of other languages is the point here.
# ruff: noqa: RUF001

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections import namedtuple
from random import Random
from time import process_time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from redaction_corpus import LOOKALIKES, POSITIVES, Positive
from redaction_corpus.held_out import FORMS, WORDS
from redaction_corpus.positives import TOKENS

from langchain_hindsight.redaction import redact, redact_value

_PIECE = 8


def _without_markers(text: str) -> str:
    return " ".join(
        part.partition("]")[2] if i else part for i, part in enumerate(text.split("[redacted:"))
    )


def _survives(secret: str, masked: str) -> bool:
    left = _without_markers(masked)
    size = min(_PIECE, len(secret))
    return any(secret[i : i + size] in left for i in range(len(secret) - size + 1))


def _missed(positive: Positive) -> bool:
    return any(_survives(secret, redact(positive.text)) for secret in positive.secrets)


def _token(kind: str, seed: object = 0) -> str:
    return TOKENS[kind](Random(f"{kind} {seed}"))


def test_the_corpus_is_as_large_and_as_varied_as_the_rates_claim():
    assert len(POSITIVES) >= 200
    assert len({positive.kind for positive in POSITIVES}) >= 40
    assert len(LOOKALIKES) >= 400
    assert len({alike.text for alike in LOOKALIKES}) == len(LOOKALIKES)
    for rows in (POSITIVES, LOOKALIKES):
        assert sum(row.held_out for row in rows) == pytest.approx(len(rows) / 3, rel=0.1)


def test_no_credential_of_the_corpus_survives():
    lost = [f"{p.name}: {redact(p.text)}" for p in POSITIVES if _missed(p)]
    assert lost == []


def test_fewer_than_one_look_alike_in_a_hundred_is_masked():
    false = [
        f"{a.text[:200]} -> {redact(a.text)[:200]}" for a in LOOKALIKES if redact(a.text) != a.text
    ]
    assert len(false) < len(LOOKALIKES) / 100, "\n".join(false)


def test_no_marker_is_torn_by_another():
    stripe = f"curl -u {_token('stripe-test')}: https://api.example.com"
    url = f"https://x{_token('sendgrid')}u:p@host/"
    for text in (stripe, url, *(positive.text for positive in POSITIVES)):
        masked = redact(text)
        assert masked.count("[redacted:") == len(re.findall(r"\[redacted:[a-z0-9-]+\]", masked)), (
            masked
        )


@pytest.mark.parametrize("scheme", ["Basic", "Bearer", "Token"])
@pytest.mark.parametrize("letter", "İıſK密é")
def test_a_letter_that_only_ignoring_case_makes_ascii_is_no_trouble(scheme, letter):
    for text in (
        f"{scheme} password{letter}",
        f"Authorization: {scheme} pass{letter}word",
        f"{letter} api_{letter}key=",
    ):
        assert isinstance(redact(text), str)


def test_what_stands_around_a_credential_stays():
    changed = []
    for positive in POSITIVES:
        masked = redact(positive.text)
        if not (masked.startswith(positive.before) and masked.endswith(positive.after)):
            changed.append(f"{positive.name}: {masked}")
    assert changed == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"use {_token('openai-project')} now", "use [redacted:openai-key] now"),
        (f"凭证为{_token('stripe-test')}，请", "凭证为[redacted:stripe-key]，请"),
        (f"a {_token('jwt')}.", "a [redacted:jwt]."),
        ("İİİİİ password=hunter2 ok", "İİİİİ password=[redacted:password] ok"),
        ("DB_PASSWORD=hunter2", "DB_PASSWORD=[redacted:password]"),
        (
            "-Djavax.net.ssl.keyStorePassword=hunter2 -jar x",
            "-Djavax.net.ssl.keyStorePassword=[redacted:password] -jar x",
        ),
        ("storepass: hunter2", "storepass: [redacted:password]"),
        ("| user | password |\n|---|---|\n| a | b |", "| user | password |\n|---|---|\n| a | b |"),
        ("postgres://app:hunter2@db/shop", "postgres://app:[redacted:url-password]@db/shop"),
        ('{"password": "hun\\"ter2", "n": 1}', '{"password": "[redacted:password]", "n": 1}'),
        ('{"password": "secret"}', '{"password": "[redacted:password]"}'),
        ("Authorization: Bearer abc123def456", "Authorization: Bearer [redacted:authorization]"),
        ("Cookie: sid=abc123def; theme=dark", "Cookie: [redacted:cookie]"),
        ("run --password hunter2 --fast", "run --password [redacted:password] --fast"),
        (
            "https://a.example/?page=2&token=abc123def456&x=1",
            "https://a.example/?page=2&token=[redacted:token]&x=1",
        ),
    ],
)
def test_a_marker_names_the_kind_and_takes_the_place_of_the_value_alone(text, expected):
    assert redact(text) == expected


_ONE, _OTHER = _token("github-classic", 1)[4:36], _token("github-classic", 2)[4:36]
_PEM = "-----BEGIN {0}-----\n" + 20 * _ONE + "\n-----END {0}-----\n"


@pytest.mark.parametrize(
    ("text", "secrets"),
    [
        ("curl https://x.example/a \\\n  -u bob:Heron42! -X POST", ["Heron42!"]),
        ("curl \\\n-u bob:Heron42! https://x.example", ["Heron42!"]),
        ('curl "https://x.example/?a=1&b=2" -u bob:Heron42!', ["Heron42!"]),
        ("curl 'https://x.example/?a=1;b=2|3' --user 'bob:Heron42!'", ["Heron42!"]),
        ('["curl", "-u", "bob:Heron42!", "https://x.example"]', ["Heron42!"]),
        ("run(['curl','--user','bob:Heron42!'])", ["Heron42!"]),
        (f'"api_keys": ["{_ONE}", "{_OTHER}"]', [_ONE, _OTHER]),
        (f"tokens: [{_ONE}, {_OTHER}]", [_ONE, _OTHER]),
        (f"secrets:\n- {_ONE}\n- {_OTHER}\n", [_ONE, _OTHER]),
        (f"API_KEYS={_ONE},{_OTHER}", [_ONE, _OTHER]),
        ("passwords: Heron42!, Gravel77!", ["Heron42!", "Gravel77!"]),
        (
            f"client-key-data: {b64encode(_PEM.format('EC PRIVATE KEY').encode()).decode()}",
            ["LS0tLS1CRUdJTiBFQ"],
        ),
        (f"eyJ{_ONE}..{_ONE[:16]}.{_OTHER}.{_ONE[:22]}", [_OTHER]),
        ("<td>password</td><td>Heron42!</td>", ["Heron42!"]),
        ("mijn wachtwoord is Heron42!", ["Heron42!"]),
        ("moje hasło to Heron42!", ["Heron42!"]),
        ("mật khẩu là Heron42!", ["Heron42!"]),
        ("كلمة المرور: Heron42!", ["Heron42!"]),
    ],
)
def test_a_credential_is_found_in_a_list_a_long_command_a_table_and_other_languages(text, secrets):
    masked = redact(text)
    assert [secret for secret in secrets if secret in masked] == []
    assert redact(masked) == masked


@pytest.mark.parametrize(
    "text",
    [
        f"client-certificate-data: {b64encode(_PEM.format('CERTIFICATE').encode()).decode()}",
        *("boarding pass: LH1234", "pw: 3.2cm", "Pass: 2:30pm", "host key: ecdsa-sha2-nistp256"),
        *("echo $TOKEN | sha256sum", "if (password === confirm2) {", "${DB_PASSWORD:?missing}"),
        *("unzip -p archive.zip file", "tokens: [128, 256]", "secrets: [db, api]"),
        *('cookies: ["session", "theme"]', "passwords: at least 12 characters"),
        *('tokens: ["hello", "world2"]', "jina_embeddings_v3 is a model", "hasło jest wymagane"),
        *("napi_create_string_utf8 is called", "the fw_version_2024 is new", "api_keys: list[str]"),
    ],
)
def test_what_only_looks_like_such_a_credential_stays(text):
    assert redact(text) == text


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"api_keys": [_ONE, "main"]}, {"api_keys": ["[redacted:api-key]", "main"]}),
        ({"tokens": [_ONE, 12]}, {"tokens": ["[redacted:token]", 12]}),
        ({"tokens": ["hello", "world"]}, {"tokens": ["hello", "world"]}),
        ({"auth": ["bob", "heron"]}, {"auth": ["bob", "[redacted:password]"]}),
        ({"password": b"heron"}, {"password": "[redacted:password]"}),
        (
            {"variable": "DB_PASSWORD", "value": "heron"},
            {"variable": "DB_PASSWORD", "value": "[redacted:password]"},
        ),
    ],
)
def test_what_a_list_or_an_entry_holds_is_known_by_its_name(value, expected):
    assert redact_value(value) == expected


@pytest.mark.parametrize("depth", range(4))
def test_a_password_is_found_however_often_its_json_was_quoted_again(depth):
    text = json.dumps({"password": 'kestrel"77\\', "next": "kept"})
    for _ in range(depth):
        text = json.dumps({"arguments": text, "n": 1})
    masked = redact(text)
    assert "kestrel" not in masked
    assert "77" not in masked
    for _ in range(depth):
        masked = json.loads(masked)["arguments"]
    assert json.loads(masked) == {"password": "[redacted:password]", "next": "kept"}


def test_a_picture_of_a_megabyte_stays_as_it_is():
    picture = "data:image/png;base64," + "".join(Random(1).choices("ABCdef0123+/", k=1_000_000))
    assert redact(picture) == picture


def test_a_credential_far_into_a_long_text_is_found():
    token = _token("github-classic")
    assert not _survives(token, redact("word " * 50_000 + token + " word" * 50_000))


@pytest.mark.parametrize(("kind", "text", "secret"), FORMS)
def test_a_form_written_before_its_rule_is_masked(kind, text, secret):
    masked = redact(text)
    assert secret not in masked
    assert redact(masked) == masked


def test_words_written_before_the_rules_stay():
    false = [f"{words} -> {redact(words)}" for words in WORDS if redact(words) != words]
    assert len(false) < len(WORDS) / 100, "\n".join(false)


_HOSTILE_PIECES = st.sampled_from(
    [
        *(
            "password",
            "api_key",
            "token",
            "Authorization",
            "Bearer ",
            "Basic ",
            "Cookie",
            "=",
            ": ",
            " is ",
        ),
        *(
            '"',
            "'",
            "\\",
            '\\"',
            "\n",
            "\\n",
            " ",
            "`",
            "```\n",
            "://",
            "@",
            "u:p@h",
            "?",
            "&",
            "-p ",
            "--password ",
        ),
        *(
            "-----BEGIN PRIVATE KEY-----",
            "-----END PRIVATE KEY-----",
            "A1b2C3d4E5f6G7h8",
            "eyJ",
            ".",
            "sk-",
            "ghp_",
        ),
        *(
            "[redacted:password]",
            "[redacted:",
            "]",
            "<",
            ">",
            "${X}",
            "hunter2!",
            "mysql ",
            "curl -u ",
            "密码",
            "为",
            "İ",
        ),
        *(_token("github-classic"), _token("aws-access"), _token("jwt"), _token("anthropic")),
    ]
)


@settings(max_examples=600, deadline=None)
@given(st.lists(_HOSTILE_PIECES | st.text(max_size=6), max_size=14).map("".join))
@example("password=[redacted:token]x password=[redacted:password]")
@example("Authorization: Basic [redacted:password]")
@example("/--password ghp_: hunter2!Cookie<x")
@example("u:p@hmysql x:Bearer A1b2C3d4E5f6G7h8sk-://eyJ" + _token("anthropic"))
@example("Bearer A1b2C3d4E5f6G7h8,A1b2C3d4E5f6G7h8=")
def test_masking_twice_changes_nothing(text):
    once = redact(text)
    assert redact(once) == once


def test_masking_the_corpus_twice_changes_nothing():
    for positive in POSITIVES:
        once = redact(positive.text)
        assert redact(once) == once


@settings(deadline=None)
@given(st.text(st.characters(exclude_characters="=:@/-_.~", exclude_categories=["Nd", "Cs"])))
def test_a_text_without_digits_and_delimiters_stays_as_it_is(text):
    assert redact(text) == text


_CONTEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


@settings(max_examples=400, deadline=None)
@given(
    kind=st.sampled_from(sorted(TOKENS)),
    seed=st.integers(0, 10_000),
    before=_CONTEXT.filter(
        lambda text: not (text[-1:].isascii() and (text[-1:].isalnum() or text[-1:] in "+/=_-.~"))
    ),
    after=_CONTEXT.filter(
        lambda text: not (text[:1].isascii() and (text[:1].isalnum() or text[:1] in "+/=_-.~%@"))
    ),
)
def test_a_token_survives_in_no_context(kind, seed, before, after):
    token = _token(kind, seed)
    assert not _survives(token, redact(before + token + after))


@settings(deadline=None)
@given(
    password=st.from_regex(r"[A-Za-z]{3}[!@#%^*+=?][A-Za-z]{3}[0-9]{2}", fullmatch=True),
    form=st.sampled_from(
        [
            "password={}",
            'password: "{}"',
            '{{"password":"{}"}}',
            "my password is {}",
            "--password {}",
            "密码：{}",
            "x://u:{}@h/",
        ]
    ),
    before=_CONTEXT.map(lambda text: text + "\n"),
    after=_CONTEXT.map(lambda text: "\n" + text),
)
def test_a_password_survives_in_no_context(password, form, before, after):
    masked = redact(before + form.format(password) + after)
    # Only what the context itself says may be left.
    assert _without_markers(masked).count(password) <= (before + after).count(password)


_REPEATED = [
    *(
        "a",
        " ",
        "\n",
        "=",
        ":",
        "-",
        '"',
        "\\",
        '\\"',
        "A1b2C3",
        "key=",
        "api_key=",
        "password=",
        "password: ",
        "token ",
    ),
    *(
        'password="',
        "password='",
        "password=\"password='",
        'password=\\"',
        "password is ",
        "--password ",
        "<password>a",
    ),
    *(
        "-----BEGIN PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY-----\n",
        "-----END PRIVATE KEY-----\n",
        "eyJ",
        "eyJ.",
        "eyJ-",
    ),
    *(
        "a:",
        "://",
        "x://a:b",
        "x://a:@",
        "?token=",
        "&a",
        "sk-",
        "sk-abcd\n",
        "sk-a1\na1b2c3d4\n",
        "AKIA",
        "ghp_",
        "SG.",
    ),
    *(
        "authorization: ",
        "bearer ",
        "basic a",
        "cookie: a=b; ",
        "curl -u a:",
        "mysql ",
        "docker login ",
        "1234567890:",
    ),
    *(
        "密码",
        "中",
        "İ",
        "token=[redacted:token]",
        "DB_PASSWORD\n value: ",
        "ENV password a1 ",
        "hooks.slack.com/services/",
        "value: a1 name: ",
        'name="password" a="b" ',
        "password,\n",
        "vault login ",
        "curl ",
        "curl -b a=",
        "a:11:b:c:",
        "token you gave me, ",
    ),
    *(
        "tokens=a,",
        "secrets: [",
        "secrets: [a, ",
        "tokens:\n- a",
        "API_KEYS=a1b2c3d4e5f6,",
        "keyss",
    ),
    *('["-u", "a', 'curl "', "curl '\n", "curl \\\n", "curl 'a' ", "LS0tLS1CRUdJTi", "</td><td>"),
]


def _seconds(text: str) -> float:
    best = float("inf")
    for _ in range(3):
        start = process_time()
        redact(text)
        best = min(best, process_time() - start)
    return best


@pytest.mark.parametrize("unit", _REPEATED)
def test_time_grows_linearly_with_hostile_text(unit):
    # Four times the text may take eight times as long, as caches are small; squared would be 16.
    size = 12_000
    for _ in range(4):
        short, long = (_seconds(unit * (n // len(unit))) for n in (size, 4 * size))
        if long <= 8 * short or long < 0.002:
            return
        size *= 2
    pytest.fail(f"{4 * size} characters take {long / short:.1f} times as long as {size}")


def test_a_url_that_never_ends_its_user_is_read_once():
    assert redact("https://" + "a:" * 100_000) == "https://" + "a:" * 100_000


def test_ten_megabytes_of_one_character_come_back_as_they_were():
    text = "a" * 10_000_000
    assert redact(text) == text


def test_values_are_masked_to_any_depth_with_their_shape_kept():
    token = _token("github-classic")
    pair = namedtuple("pair", "a b")  # noqa: PYI024 - an untyped one is the case
    value = {"a": [token, {"b": (f"see {token}", 3, None, True)}], "c": pair(token, 1)}
    masked = redact_value(value)
    marked = "[redacted:github-token]"
    assert masked == {"a": [marked, {"b": (f"see {marked}", 3, None, True)}], "c": pair(marked, 1)}
    assert isinstance(masked["c"], pair)
    assert value["a"][0] == token


@pytest.mark.parametrize(
    "key",
    [
        *(
            "password",
            "Password",
            "db_password",
            "dbPassword",
            "passphrase",
            "keyPassword",
            "trustStorePassword",
            "keyPassphrase",
            "api_key",
            "apiKey",
            "API_KEY",
            "x-api-key",
        ),
        *(
            "authorization",
            "Proxy-Authorization",
            "HTTP_AUTHORIZATION",
            "cookie",
            "Set-Cookie",
            "access_token",
            "clientSecret",
            "token",
            "secret",
        ),
        *("private_key", "aws_secret_access_key", "STRIPE_SECRET_KEY_TEST", "密码", "credential"),
    ],
)
def test_a_value_under_a_credentials_name_is_masked_whole(key):
    for word in ("secret", "password", "z", "admin"):
        assert redact_value({key: word})[key].startswith("[redacted:")
    masked = redact_value({key: "plain words", "kept": "plain words"})
    assert masked[key].startswith("[redacted:")
    assert masked[key].endswith("]")
    assert masked["kept"] == "plain words"
    assert redact_value(masked) == masked


@pytest.mark.parametrize(
    "value",
    [
        {
            "max_tokens": 4096,
            "token_count": "12",
            "next_page_token": "abc",
            "primary_key": "id",
            "cache_key": "user:1",
        },
        {
            "password": None,
            "api_key": "",
            "token": "<your-token>",
            "secret": "${SECRET}",
            "use_password": True,
        },
        {"properties": {"password": {"type": "string", "description": "The password"}}},
        {
            "thread_id": "t-1",
            "bank_id": "coding",
            "document_id": "550e8400-e29b-41d4-a716-446655440000",
        },
        ["project:billing-api", "topic:passwords", "token"],
        3.5,
        None,
    ],
)
def test_values_that_only_resemble_credentials_stay(value):
    assert redact_value(value) == value


def test_everything_inside_a_credentials_value_is_masked():
    masked = redact_value(
        {"credentials": 5, "credential": {"user": "ann", "parts": ["one", "two"]}, "password": 1234}
    )
    assert masked["credential"] == {"user": "[redacted:secret]", "parts": ["[redacted:secret]"] * 2}
    assert masked["password"] == "[redacted:password]"


@pytest.mark.parametrize(
    "value",
    [
        {"name": "DB_PASSWORD", "value": "swordfish"},
        {"key": "Authorization", "value": "swordfish"},
        {"Key": "Password", "Value": "swordfish"},
        {"val": "swordfish", "name": "DB_PASSWORD"},
        {"ParameterKey": "MasterUserPassword", "ParameterValue": "swordfish"},
        ["Cookie", "swordfish"],
        [("x-api-key", "swordfish"), ("accept", "*/*")],
    ],
)
def test_a_value_is_masked_where_its_name_stands_beside_it(value):
    assert "swordfish" not in json.dumps(redact_value(value))


def test_a_credential_used_as_a_key_is_masked_and_no_entry_is_lost():
    masked = redact_value({_token("github-classic", 1): "a", _token("github-classic", 2): "b"})
    assert masked == {"[redacted:github-token]": "a", "[redacted:github-token]#2": "b"}


def test_a_value_nested_without_end_is_cut_off_rather_than_raising():
    value: dict[str, object] = {"secret": "x"}
    for _ in range(5_000):
        value = {"a": value}
    assert "[redacted:too-deep]" in str(redact_value(value))


@pytest.mark.parametrize("key", ["api_key", "token", "db_password"])
def test_a_number_and_a_typed_value_under_a_credentials_name_are_masked(key):
    assert redact_value({key: 123456789012})[key].startswith("[redacted:")
    assert redact_value({key: True}) == {key: True}
    typed = {key: {"sensitive": True, "type": "string", "value": "Kx7#pQ2mVz"}}
    assert "Kx7#pQ2mVz" not in str(redact_value(typed))
    schema = {key: {"type": "string", "description": "The key of the service."}}
    assert redact_value(schema) == schema
