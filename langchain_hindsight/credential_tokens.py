"""Credentials that give themselves away by their own shape: `ghp_…`, `AKIA…`, a JWT.

Promises: the time taken grows linearly with the text, whatever it holds; only the shapes of which
an anchor stands in the text are looked for; what stands beside a credential stays as it was.
Boundaries are ASCII, never a word boundary, so that a token glued to Chinese text is found.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from langchain_hindsight.credential_values import (
    has_letters_and_digits,
    is_generated,
    is_mixed,
    is_opaque,
    is_template,
    marker,
)
from langchain_hindsight.private_keys import SIGNS_OF_A_KEY, mask_private_keys

# What may stand before a token: no letter or digit, unless it ends an escape (`\n`, `\u4e3a`,
# `%3D`) or a terminal color code, as in the JSON of tool-call arguments, a URL or a pasted log.
_LEFT = (
    r"(?:(?<![A-Za-z0-9])|(?<=\\[nrtbfv])|(?<=\\u[0-9A-Fa-f]{4})|(?<=\\x[0-9A-Fa-f]{2})"
    r"|(?<=%[0-9A-Fa-f]{2})|(?<=\[[0-9]m)|(?<=\[[0-9]{2}m))"
)

# For prefixes that base64 data can contain by chance.
_LEFT_OF_DATA = _LEFT.replace("[A-Za-z0-9]", "[A-Za-z0-9+/=]", 1)

_RIGHT = r"(?![A-Za-z0-9_-])"

_WORD = "A-Za-z0-9"

_SNAKE = "A-Za-z0-9_"

_URL64 = "A-Za-z0-9_-"

_DOTTED = "A-Za-z0-9_.-"

_B64 = "A-Za-z0-9+/="

# kind, prefixes, characters of the body, least length of the body, length of a whole body.
# The least is below what services issue today, since prefixes outlive lengths; `is_opaque` decides
# what a short one is. The whole length says when a token cannot go on in the next line.
_PREFIXED: tuple[tuple[str, str, str, int, int], ...] = (
    ("anthropic-key", "sk-ant-api03- sk-ant-admin01- sk-ant-sid01- sk-ant-", _URL64, 6, 101),
    ("openrouter-key", "sk-or-v1-", _WORD, 16, 64),
    ("langfuse-key", "sk-lf-", _URL64, 16, 36),
    ("openai-key", "sk-proj- sk-svcacct- sk-admin- sk-None-", _URL64, 6, 156),
    ("stripe-key", "sk_live_ sk_test_ rk_live_ rk_test_", _SNAKE, 6, 99),
    ("webhook-secret", "whsec_", "A-Za-z0-9+/=_-", 16, 38),
    ("mapbox-token", "sk.eyJ", _DOTTED, 24, 80),
    ("api-key", "sk-", _URL64, 12, 48),
    ("groq-key", "gsk_", _WORD, 16, 52),
    ("xai-key", "xai-", _WORD, 20, 80),
    ("perplexity-key", "pplx-", _WORD, 16, 48),
    ("nvidia-key", "nvapi-", _URL64, 40, 64),
    ("cerebras-key", "csk-", _WORD, 40, 48),
    ("fireworks-key", "fw_", _WORD, 22, 24),
    ("together-key", "tgp_v1_", _URL64, 24, 43),
    ("jina-key", "jina_", _URL64, 40, 60),
    ("voyage-key", "pa-", _URL64, 40, 43),
    ("elevenlabs-key", "sk_", "a-f0-9", 40, 48),
    ("firecrawl-key", "fc-", "a-f0-9", 32, 32),
    ("e2b-key", "e2b_", "a-f0-9", 40, 40),
    ("posthog-key", "phx_", _WORD, 32, 43),
    ("tavily-key", "tvly-", _URL64, 16, 41),
    ("pinecone-key", "pcsk_", _SNAKE, 20, 70),
    ("replicate-token", "r8_", _WORD, 16, 37),
    ("huggingface-token", "hf_ api_org_", _WORD, 16, 34),
    ("langsmith-key", "lsv2_pt_ lsv2_sk_ lsv2_ ls__", _SNAKE, 16, 43),
    ("hindsight-key", "hs_ hsk_ hs- hsk-", _URL64, 12, 64),
    ("google-api-key", "AIza", _URL64, 20, 35),
    ("google-oauth-secret", "GOCSPX-", _URL64, 16, 28),
    ("google-oauth-token", "ya29. 1//0", _DOTTED, 20, 200),
    ("aws-session-token", "IQoJb3JpZ2lu", "A-Za-z0-9+/=%", 40, 2000),
    ("aws-bedrock-key", "ABSK bedrock-api-key-", "A-Za-z0-9+/=_-", 40, 130),
    ("aws-mws-token", "amzn.mws.", "a-f0-9-", 30, 36),
    ("azure-devops-token", "AZDO", _WORD, 20, 52),
    ("github-token", "github_pat_", _SNAKE, 6, 82),
    ("github-token", "ghp_ gho_ ghu_ ghs_ ghr_", _SNAKE, 6, 36),
    (
        "gitlab-token",
        "glpat- gldt- glrt- glrtr- glptt- glft- glsoat- glcbt- glagent- gloas- glimt- GR1348941",
        _DOTTED,
        6,
        20,
    ),
    (
        "slack-token",
        "xoxb- xoxp- xoxa- xoxr- xoxs- xoxo- xoxd- xoxc- xoxe- xoxe.xoxb- xoxe.xoxp- xapp- xwfp-",
        "A-Za-z0-9%/+-",
        8,
        160,
    ),
    ("mailgun-key", "key- pubkey-", "a-f0-9", 32, 32),
    ("sendgrid-key", "SG.", _DOTTED, 24, 66),
    ("brevo-key", "xkeysib- xsmtpsib-", _URL64, 20, 81),
    ("resend-key", "re_", _SNAKE, 24, 33),
    ("pypi-token", "pypi-", _URL64, 24, 200),
    ("npm-token", "npm_", _WORD, 16, 36),
    ("rubygems-key", "rubygems_", "a-f0-9", 24, 48),
    ("cargo-token", "cio", _WORD, 32, 32),
    ("nuget-key", "oy2", "a-z0-9", 43, 43),
    ("docker-token", "dckr_pat_ dckr_oat_", _URL64, 16, 27),
    ("digitalocean-token", "dop_v1_ doo_v1_ dor_v1_", _WORD, 20, 64),
    ("cloudflare-token", "cfut_ cfat_ cfk_ v1.0-", _URL64, 24, 50),
    ("databricks-token", "dapi", "a-f0-9-", 32, 34),
    ("linear-key", "lin_api_ lin_oauth_ lin_wh_", _WORD, 16, 40),
    ("neon-key", "napi_", _WORD, 40, 64),
    ("aiven-password", "AVNS_", _URL64, 16, 19),
    ("mercadopago-token", "APP_USR-", "a-f0-9-", 50, 64),
    ("supabase-key", "sbp_ sb_secret_ sbp_oauth_", _URL64, 16, 40),
    ("notion-token", "ntn_ secret_", _WORD, 20, 46),
    ("figma-token", "figd_ figu_ figo_ figdr_ figur_ figor_ figoh_", _URL64, 16, 40),
    ("shopify-token", "shpat_ shpca_ shppa_ shpss_ shpua_ shptka_", _WORD, 16, 32),
    ("square-token", "sq0atp- sq0csp- sq0idp-", _URL64, 16, 43),
    ("postman-key", "PMAK-", _URL64, 20, 59),
    ("newrelic-key", "NRAK- NRII- NRIQ- NRJS- NRRA- NRAA- NRBR-", _URL64, 16, 32),
    ("datadog-key", "ddapp_ ddapi_ ddpat_", _SNAKE, 16, 40),
    ("sentry-token", "sntrys_ sntryu_ sntrya_ sntryi_", "A-Za-z0-9+/=_", 20, 200),
    ("vercel-token", "vercel_ vcp_ vci_ vca_ vcr_ vck_ vercel_blob_rw_", _SNAKE, 16, 60),
    ("netlify-token", "nfp_ nfc_ nfo_ nfu_ nfb_", _WORD, 16, 40),
    ("heroku-key", "HRKU-", _URL64, 20, 65),
    ("fly-token", "fo1_ fm1a_ fm1r_ fm2_", "A-Za-z0-9+/=_,-", 20, 1000),
    ("render-key", "rnd_", _WORD, 16, 32),
    ("planetscale-token", "pscale_tkn_ pscale_pw_ pscale_oauth_", _DOTTED, 16, 43),
    ("doppler-token", "dp.pt. dp.st. dp.ct. dp.sa. dp.scim. dp.audit.", _DOTTED, 20, 60),
    ("vault-token", "hvs. hvb. hvr.", _URL64, 20, 100),
    ("grafana-token", "glc_ glsa_", "A-Za-z0-9+/=_", 20, 120),
    ("pulumi-token", "pul-", "a-f0-9", 24, 40),
    ("atlassian-token", "ATATT3 ATCTT3 ATBB ATSTT3", "A-Za-z0-9_=-", 20, 190),
    ("dropbox-token", "sl.", _URL64, 40, 140),
    ("meta-token", "EAACEdEose0cBA EAA", _WORD, 60, 200),
    ("contentful-token", "CFPAT-", _URL64, 16, 43),
    ("sonar-token", "sqp_ sqa_ squ_", "a-f0-9", 24, 40),
    ("circleci-token", "CCIPAT_ CCIPRJ_", _SNAKE, 20, 63),
    ("buildkite-token", "bkua_ bkaj_", _WORD, 20, 40),
    ("sourcegraph-token", "sgp_", _SNAKE, 20, 57),
    ("onepassword-token", "ops_eyJ", _URL64, 24, 800),
    ("age-key", "AGE-SECRET-KEY-1", "A-Z0-9", 24, 58),
    ("alibaba-key", "LTAI", _WORD, 12, 20),
    ("tencent-key", "AKID", _WORD, 28, 32),
    ("yandex-key", "AQVN y0_", _URL64, 35, 58),
    ("hubspot-token", "pat-na1- pat-eu1-", _URL64, 30, 36),
    ("razorpay-key", "rzp_live_ rzp_test_", _WORD, 12, 14),
    ("flutterwave-key", "FLWSECK_TEST- FLWSECK-", _URL64, 16, 34),
    ("plaid-token", "access-sandbox- access-production- access-development-", _URL64, 30, 36),
    ("shippo-token", "shippo_live_ shippo_test_", _WORD, 20, 40),
    ("typeform-token", "tfp_", _DOTTED, 24, 59),
    ("jfrog-key", "AKCp cmVmdGtuOj", _WORD, 30, 69),
    ("tailscale-key", "tskey-", _URL64, 16, 60),
    ("dynatrace-token", "dt0c01. dt0s16.", _DOTTED, 24, 90),
    ("readme-key", "rdme_", _WORD, 24, 70),
    ("prefect-key", "pnu_ pnb_", _WORD, 20, 36),
    ("cursor-key", "crsr_", _WORD, 20, 64),
    ("easypost-key", "EZAK EZTK", _WORD, 40, 54),
    ("square-token", "EAAA", _URL64, 56, 60),
)

# Prefixes that mean nothing else, so that any body with a digit and a letter will do.
_UNMISTAKABLE = frozenset(
    ("anthropic-key", "openai-key", "stripe-key", "github-token", "gitlab-token", "slack-token")
)

_CHANCE = frozenset(
    (
        "meta-token",
        "square-token",
        "google-oauth-token",
        "tencent-key",
        "alibaba-key",
        "easypost-key",
    )
)

# Between an AWS key's id and its secret: a delimiter, and perhaps the secret's name.
_BETWEEN = r"[^A-Za-z0-9/+]{1,12}(?:[A-Za-z_ -]{1,40}[^A-Za-z0-9/+]{1,6})?"
# kind, anchors, expression whose group `s` is masked. No repetition here is open-ended on its left.
_SHAPED: tuple[tuple[str, str, str], ...] = (
    (
        "slack-webhook",
        "hooks.slack",
        r"hooks\.slack(?:-gov)?\.com/(?:services|workflows|triggers)/(?P<s>[A-Za-z0-9_/-]{16,})",
    ),
    (
        "discord-webhook",
        "/webhooks/",
        r"discord(?:app)?\.com/api/(?:v\d+/)?webhooks/\d{10,22}/(?P<s>[A-Za-z0-9_-]{30,})",
    ),
    (
        "teams-webhook",
        "webhook.office.com",
        r"webhook\.office\.com/webhookb2/(?P<s>[A-Za-z0-9@/-]{36,})",
    ),
    ("zapier-webhook", "hooks.zapier", r"hooks\.zapier\.com/hooks/catch/(?P<s>[A-Za-z0-9/]{8,})"),
    ("telegram-token", "bot", r"(?<=bot)(?P<s>[0-9]{8,10}:[A-Za-z0-9_-]{35})(?![A-Za-z0-9_-])"),
    ("telegram-token", ":", _LEFT + r"(?P<s>[0-9]{8,10}:[A-Za-z0-9_-]{35})(?![A-Za-z0-9_-])"),
    (
        "discord-token",
        ".",
        _LEFT
        + r"(?P<s>[MNO][A-Za-z0-9_-]{22,27}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,38})"
        + _RIGHT,
    ),
    ("discord-token", "mfa.", _LEFT + r"(?P<s>mfa\.[A-Za-z0-9_-]{60,})"),
    ("twilio-key", "SK", _LEFT + r"(?P<s>SK[0-9a-f]{32})(?![A-Za-z0-9])"),
    ("mailgun-key", "-", _LEFT + r"(?P<s>[0-9a-f]{32}-[0-9a-f]{8}-[0-9a-f]{8})(?![A-Za-z0-9-])"),
    ("mailchimp-key", "-us", _LEFT + r"(?P<s>[0-9a-f]{32}-us[0-9]{1,2})(?![A-Za-z0-9])"),
    ("airtable-token", "pat", _LEFT + r"(?P<s>pat[A-Za-z0-9]{14}\.[0-9a-f]{40,64})(?![A-Za-z0-9])"),
    (
        "azure-client-secret",
        "Q~",
        _LEFT + r"(?P<s>[A-Za-z0-9_~.-]{3}[0-9]Q~[A-Za-z0-9_~.-]{31,34})",
    ),
    (
        "azure-devops-token",
        "AZDO",
        _LEFT + r"(?P<s>[A-Za-z0-9]{76}AZDO[A-Za-z0-9]{4})(?![A-Za-z0-9])",
    ),
    (
        "azure-key",
        "JQQJ99",
        _LEFT + r"(?P<s>[A-Za-z0-9]{48,52}JQQJ99[A-Za-z0-9]{26,30})(?![A-Za-z0-9])",
    ),
    (
        "terraform-token",
        ".atlasv1.",
        _LEFT + r"(?P<s>[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_-]{40,})",
    ),
    ("newrelic-key", "NRAL", _LEFT + r"(?P<s>[0-9a-f]{28,36}NRAL)(?![A-Za-z0-9])"),
    (
        "asana-token",
        "/",
        _LEFT + r"(?P<s>[0-9]/[0-9]{16}(?:/[0-9]{16})?:[0-9a-f]{32})(?![A-Za-z0-9])",
    ),
    (
        "braintree-token",
        "$production$",
        r"(?P<s>access_token\$production\$[0-9a-z]{16}\$[0-9a-f]{32})",
    ),
    (
        "launchdarkly-key",
        "-4",
        _LEFT
        + r"(?P<s>(?:sdk|api|mob)-[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12})",
    ),
    ("aws-signature", "ignature=", r"(?i:signature=)(?P<s>[0-9a-f]{64})(?![A-Za-z0-9])"),
    # A secret key has no shape of its own; beside its id there is no doubt.
    (
        "aws-secret-key",
        "AKIA ASIA",
        r"(?:AKIA|ASIA)[A-Z0-9]{16}" + _BETWEEN + r"(?P<s>[A-Za-z0-9/+]{40})(?![A-Za-z0-9/+=])",
    ),
    (
        "aws-access-key",
        "AKIA ASIA ABIA ACCA A3T",
        _LEFT + r"(?P<s>(?:AKIA|ASIA|ABIA|ACCA|A3T[A-Z0-9])[A-Z0-9]{16})(?![A-Za-z0-9])",
    ),
)

# A sign that stands in most texts is no anchor without what the shape has behind it.
_BEHIND = {
    ":": re.compile(r":[A-Za-z0-9_-]{35}"),
    ".": re.compile(r"\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27}"),
    "-": re.compile(r"-[0-9a-f]{8}-[0-9a-f]{8}"),
    "-4": re.compile(r"-4[0-9a-f]{3}-"),
    "-us": re.compile(r"-us[0-9]"),
    "/": re.compile(r"/[0-9]{16}"),
    "bot": re.compile(r"bot[0-9]{8}"),
    "pat": re.compile(r"pat[A-Za-z0-9]{14}\."),
    "SK": re.compile(r"SK[0-9a-f]{32}"),
}

_WRAP = re.compile(
    r"""["'`]?[ \t]{0,40}[+.\\]?[ \t]{0,8}(?:\r?\n|\\{1,4}r?\\{0,3}n)"""
    r"""(?:[ \t]{0,40}```[a-z]{0,12}[ \t]{0,8}\r?\n){0,2}[ \t>|+]{0,40}["'`]?"""
)

_LINE_ENDS = re.compile(r"""["'`,;)\]}]{0,4}[ \t]{0,40}[+.\\]?[ \t]{0,8}(?:\r|\n|\\{1,4}[rn]|\Z)""")

_MOST_LINES = 40


@dataclass(frozen=True, slots=True)
class _Prefixed:
    kind: str
    anchors: tuple[str, ...]
    head: re.Pattern[str]
    """The anchors alone: a pattern that begins with what stands to the left is slow to search."""
    left: re.Pattern[str]
    body: re.Pattern[str]
    least: int
    whole: int


def _prefixed(kind: str, prefixes: str, body: str, least: int, whole: int) -> _Prefixed:
    anchors = tuple(sorted(prefixes.split(), key=len, reverse=True))
    head = re.compile("|".join(map(re.escape, anchors)))
    left = re.compile(_LEFT_OF_DATA if kind in _CHANCE else _LEFT)
    return _Prefixed(kind, anchors, head, left, re.compile(f"[{body}]*+"), least, whole)


_PREFIXED_SHAPES = tuple(_prefixed(*row) for row in _PREFIXED)

_SHAPES = tuple((kind, re.compile(pattern)) for kind, _, pattern in _SHAPED)

_SHAPE_ANCHORS = tuple(
    (anchor, at) for at, (_, anchors, _) in enumerate(_SHAPED) for anchor in anchors.split()
)

_ANY_HEAD = re.compile("|".join(re.escape(a) for shape in _PREFIXED_SHAPES for a in shape.anchors))


# Nearly every anchor has a sign in it. What ends with the first one tells which may be in a text.
_SIGN = re.compile(r"[-_.](?<=(...))", re.DOTALL)


def _ending(anchor: str) -> str:
    sign = _SIGN.search(anchor)
    return sign[1] if sign else ""


_BY_ENDING: dict[str, list[tuple[str, int]]] = {}
for _at, _shape in enumerate(_PREFIXED_SHAPES):
    for _anchor in _shape.anchors:
        _BY_ENDING.setdefault(_ending(_anchor), []).append((_anchor, _at))


def _has_both(body: str) -> bool:
    return has_letters_and_digits(body) or is_generated(body)


def mask_tokens(text: str) -> str:
    """Mask every credential in `text` that is known by its own shape."""
    if any(sign in text for sign in SIGNS_OF_A_KEY):
        text = mask_private_keys(text)
    if "eyJ" in text:
        text = _mask_bodies(text, _JWT, _is_jwt)
    for at in sorted(
        {at for anchor, at in _SHAPE_ANCHORS if anchor in text and _stands(anchor, text)}
    ):
        text = _mask_shape(text, *_SHAPES[at])
    for shape in _possible(text):
        accept = _has_both if shape.kind in _UNMISTAKABLE else is_generated
        text = _mask_bodies(text, shape, accept)
    return text


def _stands(anchor: str, text: str) -> bool:
    """Whether behind an anchor in a text there is what its shape has there."""
    return anchor not in _BEHIND or _BEHIND[anchor].search(text) is not None


def _possible(text: str) -> list[_Prefixed]:
    """The shapes of which an anchor stands in a text, in their order; a mask adds none to it."""
    endings = _BY_ENDING.keys() & {"", *_SIGN.findall(text)}
    found = {at for end in endings for anchor, at in _BY_ENDING[end] if anchor in text}
    return [_PREFIXED_SHAPES[at] for at in sorted(found)]


def _mask_shape(text: str, kind: str, pattern: re.Pattern[str]) -> str:
    def masked(match: re.Match[str]) -> str:
        start, end = match.start("s") - match.start(), match.end("s") - match.start()
        return match[0][:start] + marker(kind) + match[0][end:]

    return pattern.sub(masked, text)


def _mask_bodies(text: str, shape: _Prefixed, accept: Callable[[str], bool]) -> str:
    parts: list[str] = []
    kept = at = 0
    while head := shape.head.search(text, at):
        if not shape.left.match(text, head.start()):
            at = head.start() + 1
            continue
        at, secret = _read_body(text, shape, head.end())
        if len(secret) < shape.least or not accept(secret) or is_template(secret):
            # Nothing inside a run that is no secret is one, so the search goes on behind it.
            continue
        parts += text[kept : head.start()], marker(shape.kind)
        kept = at
    return "".join(parts) + text[kept:] if parts else text


def _read_body(text: str, shape: _Prefixed, start: int) -> tuple[int, str]:
    """Read a token's body, over line breaks where it is plainly cut, to its end and text."""
    first = shape.body.match(text, start)
    if first is None:
        return start, ""
    end, secret = first.end(), first[0]
    if secret and secret[-1] in ".,-=" and not _WRAP.match(text, end):
        secret = secret.rstrip(".,")
        end = start + len(secret)
    first_end, joined = end, secret
    for _ in range(_MOST_LINES):
        if not secret or len(joined) >= shape.whole or not (gap := _WRAP.match(text, end)):
            break
        piece = shape.body.match(text, gap.end())
        if piece is None or not piece[0] or _ANY_HEAD.match(text, gap.end()):
            break
        alone = _LINE_ENDS.match(text, piece.end()) is not None
        if not _continues(piece[0], alone=alone, complete=len(joined) >= shape.least):
            break
        joined, end = joined + piece[0], piece.end()
    if len(secret) >= shape.least or len(joined) >= shape.least:
        return end, joined
    return first_end, secret


def _continues(piece: str, *, alone: bool, complete: bool) -> bool:
    if complete:
        return alone and (is_mixed(piece, 4) or is_opaque(piece))
    return alone or is_opaque(piece)


_JWT = _Prefixed(
    "jwt",
    ("eyJ",),
    re.compile("eyJ"),
    re.compile(_LEFT),
    re.compile(r"[A-Za-z0-9_.-]*+"),
    20,
    4000,
)


def _is_jwt(body: str) -> bool:
    parts = body.split(".", 5)
    if len(parts) == 5 and not parts[1]:  # noqa: PLR2004 - an encrypted one may hold no key
        del parts[1]
    return len(parts) >= 2 and len(parts[0]) >= 8 and len(parts[1]) >= 8  # noqa: PLR2004 - "{}" is 4
