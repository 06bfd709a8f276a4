"""Credentials known by the name before them: `password = x`, `"apiKey": "x"`, `密码是x`.

Promises: only the value is masked, the name stays; code that merely handles a credential
(`os.environ["API_KEY"]`, `password: str`) and prose about one stay as they are; linear time.
"""

# Names and punctuation of other languages are the point here.
# ruff: noqa: RUF001

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from langchain_hindsight.credential_values import (
    CODE,
    ENV_NAME,
    MARKER,
    PATH,
    PROSE,
    has_letters_and_digits,
    is_code,
    is_name,
    is_opaque,
    is_placeholder,
    is_technical,
    is_tough,
    marker,
)

# Words that end the name of a credential, in lower case, and the kind of credential they name.
_WORDS = {
    "password": r"pass(?:words?|wds?|phrases?|codes?|worts?)?|pwd|pswd|psw|pw|psk"
    r"|(?:store|key)pass(?:word|phrase)?|kennwort"
    r"|contrase(?:ñ|n)a|senha|palavra-passe|mot de passe|parola|wachtwoord|lösenord|adgangskode"
    r"|salasana|jelszó|hasło|heslo|şifre|mật khẩu|kata sandi|парол[ья]|κωδικός|סיסמה|كلمة المرور"
    r"|पासवर्ड|รหัสผ่าน|密码|密碼|口令|パスワード|비밀번호|identified by|requirepass",
    "key": r"key",
    "token": r"token|jwt|github_pat|gitlab_pat|azure_pat|devops_pat|access_pat",
    "secret": r"secret|credentials?|creds?|凭证|凭据|密钥|秘钥|令牌"
    r"|shared_?access_?signature|sig|_auth(?!orization)|sessionid|sessid|connect\.sid|csrftoken",
    "authorization": r"authorization",
    "cookie": r"cookie",
}

# No groups and a letter at the start of every branch: `re` then skips quickly to a possible start.
_CORE = re.compile("|".join(_WORDS.values()))

# Those that are parts of other words: `compass`, `design`.
_NEED_A_BOUNDARY = frozenset(
    ("pass", "pw", "psk", "jwt", "cred", "creds", "sig", "_auth", "sessionid", "cookie")
)

# A key alone opens a cache, a door or a piece of music; with one of these before it, it is secret.
_KEYS = (
    "api", "access", "secret", "private", "encryption", "encrypt", "signing", "master", "account",
    "shared", "service", "role", "webhook", "license", "licence", "app", "application", "consumer",
    "write", "subscription", "ssh", "jwt", "auth", "session", "admin", "deploy", "hmac", "cipher",
    "instrumentation", "ingest", "integration", "server", "sas", "host", "function",
)  # fmt: skip

_SUFFIX = (
    r"(?:[_-]?(?:[0-9]{1,2}|prod|production|stag|stage|staging|dev|test|live|base|new|old|current"
    r"|confirm|confirmation|value|string|primary|secondary|v[0-9])(?![A-Za-z0-9]))?"
)

_TYPES = (
    r"(?:str|string|String|bytes|char|text|SecretStr|object|any|Any|&str|&'static[ ]str|"
    r"Optional\[(?:str|SecretStr)\]|(?:str|SecretStr|string)[ ]?\|[ ]?(?:None|null|undefined))"
)

_SPACE = r"[ \t]{0,40}"

_BREAK = r"(?:\r?\n|\\{1,4}r?\\{0,3}n)"

_TAIL = re.compile(
    rf"""
    {_SUFFIX}
    (?P<close> \\{{0,7}}["'`*]{{0,2}} [\])]? )
    (?:
      {_SPACE} (?P<op>
          :?{_SPACE}{_TYPES}{_SPACE}=(?!=) | => | := | ={{1,3}}(?![=>]) | !={{1,2}}
        | -> | → | (?<=[ ])\|
        | :(?![:/=]) | ： | ＝
      ) \*{{0,2}}
    | (?P<is>
          (?: [ ](?:for|of|to|on|in|at) (?:[ ][A-Za-z0-9_.-]{{1,32}}){{1,4}}? )?
          (?: ['’]s[ ] | [ \t]{{1,4}} (?:is|was|to|are|es|est|ist|lautet|è|é|är|er|jest|là|هي|=)
            [ \t:]{{1,4}} )
        | [ \t]{{0,4}} (?:为|是|は|は、) [ \t:：]{{0,4}}
      )
    | (?P<xml> (?: </t[dh]> (?:[ \t]|{_BREAK}){{0,40}} <t[dh][^<>]{{0,80}} )? > ) (?! [ \t]*< )
    | (?P<entry> (?: ,? (?:[ \t]|{_BREAK}){{1,40}} | , )
        (?:[a-z]{{1,16}}=["'][^"'<>\r\n]{{0,40}}["'][ \t]{{1,4}}){{0,3}}
        \\{{0,7}}["']? (?:parameter)?val(?:ue)? \\{{0,7}}["']? {_SPACE} [:=]
        | </(?:name|key)> (?:[ \t]|{_BREAK}){{0,40}} <value>
        | [ \t]? \{{ (?:[ \t]|{_BREAK}){{1,40}} default [ \t]{{0,16}} = )
    | (?P<call> [ \t]? , (?=[ \t]?\\{{0,7}}["']) | [ \t]?\((?=\\{{0,7}}["']) )
    | (?P<space> [ \t]{{1,4}} )
    )
    (?P<gap> (?:{_SPACE}[|>][+-]?)? {_SPACE} (?:{_BREAK}[ \t>]{{0,40}}){{0,2}}
      (?:```[A-Za-z]{{0,12}}{_BREAK}{_SPACE})? )
    """.replace("[ \t]", r"[\x20\t]").replace("[ ]", r"\x20"),
    re.VERBOSE | re.IGNORECASE,
)

_WHOLE_SUFFIX = re.compile(_SUFFIX + r"\Z", re.IGNORECASE)

_NAME_BEFORE = re.compile(r"[A-Za-z0-9_.$-]*\Z")

_QUOTE = re.compile(r"""(?i:\b[brfu]{1,2}|@)?(\\{0,7})('''|\"\"\"|["'`“‘「])""")

_CLOSERS = {"“": "”", "‘": "’", "「": "」"}

# A bare value ends at space, at CJK text or punctuation, and at a delimiter with nothing behind it.
_BARE = re.compile(
    r"""(?:[^\s"'`<>,;&)}\]\\\u2e80-\u9fff\uac00-\ud7af\uff00-\uffef]
      | [,;&](?!\s|\Z|["'`]|[A-Za-z_][A-Za-z0-9_.\- ]{0,40}[=:])
      | ["'`)}\]](?=[A-Za-z0-9])
      | <(?=[A-Za-z0-9]) (?!/) | >(?=[A-Za-z0-9])
      | \\(?![nrt"'`u]|\\)
    )++""",
    re.VERBOSE,
)

_QUERY_VALUE = re.compile(r"""[^\s"'`<>&#)\]},\\\u2e80-\u9fff\uac00-\ud7af\uff00-\uffef]++""")

_LINE = re.compile(r"""[!?]{0,8}[ \t]{0,40}(?:\#[^\n]{0,200})?(?:\r|\n|\\+[nr]|```|\Z)""")

_IN_QUERY = re.compile(r"[?&](?:amp;)?[A-Za-z0-9_.%-]{0,40}\Z")

# Lines that give a value after a space: a Dockerfile, a Windows shell, a `.netrc`.
_LISTING = re.compile(r"(?i)(?:env|setx?|machine|default[ ]login)\b")

_ELEMENT = re.compile(r"[^<>\r\n]{1,512}+")

# What stands behind the last word of a clause.
_ENDS = frozenset(("", "\n", "\r", ".", ",", ";", "\\", '"', "'"))
_LONGEST = 4096

_LONG = 128
# `credentials: user:password`.
_PAIR = re.compile(r"[^\s:]{1,64}:\S{1,128}")

_COMPARES = frozenset(("==", "===", "!=", "!=="))

_DEFINES = re.compile(r"(?i)(?:define|env|set|add|put|password|with)\w*\(?[^(,\n]{0,40}\Z")

_TYPE_NAME = re.compile(r"[A-Z][A-Za-z0-9]*[a-z]{3,}[A-Z][A-Za-z0-9]*[a-z]")

# A token of text or of a list of results, which nobody has to keep to himself.
OTHER_TOKENS = re.compile(
    r"(?i)(?:(?:^|[_.-])(?:max|min|num|n|per|sep|cls|pad|eos|bos|unk|end|new|total|count|nft)"
    r"|page|next|prev|previous|continuation|sync|pagination|cursor|mask|stop|start|special|first|last"
    r"|input|output|prompt|completion|cached?|price|cost|design|erc20|erc721|skip|resume|change|delta"
    r"|watch|idempotency|public|image|media)[_.-]*$"
)

_OTHER_KEYS = re.compile(
    r"(?i)(?:cache|primary|foreign|sort|partition|row|index|lookup|group|registry|public|hot|dict|map|object"
    r"|dedup|dedupe|routing|composite|unique|i18n|translation|message|config|feature|storage|s3)_$"
)


# `api_keys: ["x", "y"]`, `API_KEYS=x,y`, and a list of lines: each is judged by itself.
_LIST = re.compile(
    rf"""(?x)
    (?: (?<=s) | s) \\{{0,7}}["'`]? {_SPACE} [:=] {_SPACE}
    (?P<items> \[ [^\[\]]{{1,2048}} \]
      | (?: (?:\r?\n|\\n) [ \t]{{0,40}} -[ \t] [^\r\n\\]{{1,256}} ){{1,32}}
      | [^\s,\[\]"']{{1,256}} (?: ,[ ]? [^\s,\[\]"']{{1,256}} ){{1,32}} )
    """,
    re.IGNORECASE,
)

_ITEM = re.compile(r"""[^\s,"'`\[\]\\]{6,512}""")

_PASSES = re.compile(
    r"(?i)(?:boarding|bus|train|rail|day|season|ski|lift|press|visitor|guest|backstage|hall|museum"
    r"|parking|mountain|travel|weekend|monthly|annual|first|second|next|last|forward)[ _-]\Z"
)
"""What a pass is that opens no account."""


@dataclass(frozen=True, slots=True)
class _Field:
    """A name, and what stands between it and its value."""

    text: str
    group: str
    word: str
    before: str
    start: int
    tail: re.Match[str]


@dataclass(frozen=True, slots=True)
class _Value:
    text: str
    start: int
    end: int
    quoted: bool


def lowered(text: str) -> str:
    """A text in lower case, every character where it was."""
    # The one character whose lower case is longer would shift every position behind it.
    return text.replace("\u0130", "I").lower()


def kind_of_name(name: str) -> str | None:
    """The kind of credential that a key of this name holds, or `None` for any other name.

    Args:
        name: A key of a mapping, such as `apiKey`, `DB_PASSWORD` or `Authorization`.
    """
    name = name.strip()[-128:]
    for core in _CORE.finditer(lowered(name)):
        group = _group(name, core)
        if group and _WHOLE_SUFFIX.match(name, core.end()):
            return None if _is_other(group, name[: core.start()]) else _KINDS[group]
    return None


def kind_of_item(name: str, said: str) -> str | None:
    """The kind of credential that a text is in a list of this name, or `None` for any other text.

    Args:
        name: A key of a mapping in the plural, such as `apiKeys` or `tokens`.
        said: One text of its list.
    """
    kind = kind_of_name(name.removesuffix("s").removesuffix("S"))
    group = next((group for group, named in _KINDS.items() if named == kind), None)
    return kind if group is not None and _is_listed(group, said) else None


_KINDS = {
    "password": "password",
    "key": "api-key",
    "token": "token",
    "secret": "secret",
    "authorization": "authorization",
    "cookie": "cookie",
}


def _is_other(group: str, before: str) -> bool:
    if group == "token":
        return (OTHER_TOKENS.search(before) or _OTHER_KEYS.search(before)) is not None
    return group == "key" and _OTHER_KEYS.search(before) is not None


def _group(text: str, core: re.Match[str]) -> str | None:
    """The group that a word belongs to where it stands, or `None` where it is part of another."""
    word, start = core[0], core.start()
    if text.rfind("[redacted:", max(0, start - 32), start) > text.rfind(
        "]", max(0, start - 32), start
    ):
        return None  # A marker's own kind is no name.
    left = text[start - 1 : start]
    if word in _NEED_A_BOUNDARY and left.isalpha() and left.isascii():
        camel = text[start].isupper() and left.islower()
        return _group_of(word) if camel else None
    if word == "pass" and _PASSES.search(text, max(0, start - 12), start):
        return None
    if word == "key":
        window = text[max(0, start - 24) : start].lower()
        if window[-1:] in ("_", "-", ".", " "):
            window = window[:-1]
        constant = text[start - 1 : start + 3] == "_KEY" and text[max(0, start - 2)].isalnum()
        if window.endswith(_KEYS):
            return "key"
        # Any other constant of that name is held to what a token is held to.
        return "token" if constant else None
    return _group_of(word)


@cache
def _group_of(word: str) -> str:
    return next(group for group, words in _WORDS.items() if re.fullmatch(words, word))


def mask_fields(text: str) -> str:
    """Mask every credential in `text` that is known by the name before it."""
    parts: list[str] = []
    kept = at = looked_at = 0
    for core in _CORE.finditer(lowered(text)):
        if core.start() < at or not (group := _group(text, core)):
            continue
        if core.start() >= looked_at and (several := _LIST.match(text, core.end())):
            looked_at = several.end()
            for item in _credentials_in(group, several):
                parts += text[kept : item.start()], marker(_KINDS[group])
                kept = at = item.end()
            if core.start() < at:
                continue
        tail = _TAIL.match(text, core.end())
        if not tail or (tail["space"] and not _may_be_argument(text, core.start(), tail.end())):
            continue
        before = _NAME_BEFORE.search(text, max(0, core.start() - 40), core.start())
        field = _Field(text, group, core[0], before[0] if before else "", core.start(), tail)
        value = _read_value(field)
        if value is None or _is_other(field.group, field.before):
            continue
        if _is_credential(field, value):
            parts += text[kept : value.start], marker(_KINDS[field.group])
            kept = at = value.end
        elif value.end - value.start > _LONG:
            # Looking into it again for every name inside it would read it thousands of times.
            at = value.end
        # A short one may be the next field's name: `token: password: …`.
    return "".join(parts) + text[kept:] if parts else text


def _credentials_in(group: str, several: re.Match[str]) -> Iterator[re.Match[str]]:
    """The credentials in a list of them, which is more often one of words or of numbers."""
    for item in _ITEM.finditer(several.string, *several.span("items")):
        if _is_listed(group, item[0]):
            yield item


def _is_listed(group: str, said: str) -> bool:
    if is_placeholder(said) or is_code(said) or MARKER.search(said):
        return False
    return is_tough(said) if group == "password" else is_opaque(said, 12)


def _may_be_argument(text: str, start: int, end: int) -> bool:
    """A cheap look at whether a space can stand for an equals sign, as it mostly does not."""
    following = text[end : end + 80].split(maxsplit=1)
    if following and any(c.isdigit() for c in following[0]):
        return True
    line = text[max(0, start - 120) : start].rpartition("\n")[2]
    return "--" in line or _LISTING.match(line.lstrip()) is not None


def _read_value(field: _Field) -> _Value | None:
    text, start, op = field.text, field.tail.end(), field.tail["op"]
    if opening := _QUOTE.match(text, start):
        end = _closing(text, opening)
        if end is not None:
            return _Value(text[opening.end() : end], opening.end(), end, quoted=True)
        start = opening.end()
    if field.tail["xml"]:
        element = _ELEMENT.match(text, start)
        return _Value(element[0], start, element.end(), quoted=False) if element else None
    query = op == "=" and _IN_QUERY.search(text, max(0, field.start - 48), field.start)
    bare = (_QUERY_VALUE if query else _BARE).match(text, start, start + _LONGEST)
    if bare is None:
        return None
    value = bare[0] if op == "=" else bare[0].rstrip(".,;:!?")
    return _Value(value, start, start + len(value), quoted=False)


def _closing(text: str, opening: re.Match[str]) -> int | None:
    """Where a quoted value ends: at the same quote behind as many backslashes, on the same line."""
    depth, quote = len(opening[1]), _CLOSERS.get(opening[2], opening[2])
    at = opening.end()
    limit = at + _LONGEST
    line = text.find("\n", at, limit)
    if line >= 0 and len(quote) == 1:
        limit = line
    while (found := text.find(quote, at, limit)) >= 0:
        slashes = found - len(text[opening.end() : found].rstrip("\\")) - opening.end()
        if slashes >= depth and (slashes - depth) % (2 * (depth + 1)) == 0:
            return found - depth
        if slashes < depth:
            return None
        at = found + len(quote)
    return None


def _is_credential(field: _Field, value: _Value) -> bool:  # noqa: PLR0911 - one for each form
    group, tail = field.group, field.tail
    said = value.text.strip()
    if not said or is_placeholder(said) or _is_talk(field, said):
        return False
    if MARKER.search(said):
        return MARKER.sub("", said).strip(" .,;:)") != ""
    if field.word.startswith("cred") and _PAIR.fullmatch(said):
        return is_tough(said.partition(":")[2]) and not is_code(said)
    if value.quoted:
        return _is_quoted_credential(field, said)
    if group in ("cookie", "authorization"):
        return is_opaque(said)
    if tail["space"]:
        return _is_argument(field, said)
    if tail["xml"]:
        return field.text.startswith("</", value.end) and (group == "password" or is_opaque(said))
    if tail["is"]:
        return _is_told(group, said)
    return _is_assigned(field, value, said)


def _is_talk(field: _Field, said: str) -> bool:
    """Whether this is `pass is`, as in `pass it is`, or a docstring behind `Credentials):`."""
    if field.tail["is"]:
        return field.word == "pass"
    return "\n" in said and PROSE.search(said) is not None


def _is_quoted_credential(field: _Field, said: str) -> bool:  # noqa: PLR0911 - one for each form
    group = field.group
    if field.tail["space"] and not field.before.startswith("--"):
        if group != "password":
            return is_opaque(said, 12)
        return field.word != "pass" and is_tough(said) and " " not in said
    if field.tail["call"] and not _DEFINES.search(
        field.text, max(0, field.start - 60), field.start
    ):
        good = is_opaque(said) or (group == "password" and is_tough(said))
        return good and not is_code(said)
    if " " in said:
        words = said.count(" ") + 1
        return group == "password" and not PROSE.search(said) and words > 1 and len(said) <= 128  # noqa: PLR2004 - longer ones are texts
    if group == "password":
        # In quotes "secret" is the password of many an example; bare it is a variable.
        return said.lower() == "secret" or (len(said) >= 3 and not is_name(said))  # noqa: PLR2004 - two are no password
    if group == "cookie":
        return "=" in said or is_opaque(said)
    if group == "authorization" and is_tough(said):
        return True
    if is_opaque(said, 6):
        return True
    return group != "token" and len(said) >= 8 and said.isalnum() and not is_name(said)  # noqa: PLR2004 - the usual least


def _is_argument(field: _Field, said: str) -> bool:
    """Judge `--password x`, `ENV TOKEN x`, and `api key x` without anything between."""
    group = field.group
    if field.tail["close"]:
        return False
    if field.before.startswith("--") and said in ("flag", "option", "argument", "parameter"):
        return False
    if field.before.startswith("--") and not said.startswith("-"):
        return not is_code(said) and (group == "password" or is_opaque(said, 6) or len(said) >= 16)  # noqa: PLR2004 - no word
    line = field.text[max(0, field.start - 120) : field.start].rpartition("\n")[2]
    if _LISTING.match(line.lstrip()):
        return group == "password" or is_opaque(said, 6)
    if group == "password":
        behind = field.tail.end() + len(said)
        ends = field.text[behind : behind + 1] in _ENDS
        return field.word != "pass" and is_tough(said) and (ends or is_opaque(said, 6))
    return is_opaque(said, 12) and not is_technical(said)


def _is_told(group: str, said: str) -> bool:
    """Judge `the password is x`, where x may be a plain word of the sentence."""
    if is_code(said):
        return False
    return is_tough(said) if group == "password" else is_opaque(said)


def _is_assigned(field: _Field, value: _Value, said: str) -> bool:  # noqa: PLR0911 - as above
    op, gap = field.tail["op"], field.tail["gap"]
    alone = _LINE.match(field.text, value.end) is not None
    if _is_constant(field) and alone:
        return _is_constants_value(field.group, said)
    if is_code(said) or (said[0] in "?+" and _opens_brace(field)):
        return False
    if (op in _COMPARES and not is_opaque(said)) or (op == "|" and is_technical(said)):
        return False
    if ("\n" in gap or "\\" in gap) and not (
        alone and ("```" in gap or is_tough(said) or gap.lstrip().startswith(("|", ">")))
    ):
        return False
    if field.group != "password":
        return _is_assigned_key(field, said)
    if op == "=" and not gap:
        return len(said) >= 3 and not is_name(said)  # noqa: PLR2004 - two are no password
    if is_tough(said) or (said.isdigit() and len(said) >= 6):  # noqa: PLR2004 - a shorter one is a figure
        return True
    if op in ("->", "→", "|") or not alone or said.isdigit():
        return False
    return len(said) >= 4 and not is_name(said)  # noqa: PLR2004 - shorter ones are words


def _opens_brace(field: _Field) -> bool:
    """Whether this is `${NAME:?…`, which tells what to say where there is none."""
    first = field.start - len(field.before)
    return field.text[max(0, first - 1) : first] == "{"


def _is_assigned_key(field: _Field, said: str) -> bool:
    if is_opaque(said):
        return True
    if is_technical(said) or len(said) < 6:  # noqa: PLR2004 - no key is shorter
        return False
    if field.before.startswith("-") or field.group == "key":
        named = _TYPE_NAME.fullmatch(said) is not None
        return has_letters_and_digits(said) and not named and field.tail["op"] in ("=", ":", "：")
    return False


def _is_constant(field: _Field) -> bool:
    """Whether this is a line of an environment file: `NAME=value`."""
    name = field.text[field.start : field.tail.end()].rstrip()
    return (
        name.endswith("=")
        and name.isupper()
        and " " not in field.tail[0]
        and field.before.upper() == field.before
    )


def _is_constants_value(group: str, said: str) -> bool:
    if is_placeholder(said) or CODE.fullmatch(said) or ENV_NAME.fullmatch(said) or is_opaque(said):
        return is_opaque(said)
    if group == "password":
        return len(said) >= 3 and not PATH.fullmatch(said)  # noqa: PLR2004 - two are no password
    if PATH.fullmatch(said) or is_technical(said):
        return False
    return len(said) >= 6 and (group != "token" or has_letters_and_digits(said))  # noqa: PLR2004 - no key is shorter
