"""Credentials known by what stands before them: a field's name, a header, a flag, a URL's user.

Promises: only the value is masked, the name stays; code that merely handles a credential
(`os.environ["API_KEY"]`, `password: str`) and prose about one stay as they are; linear time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from langchain_hindsight.credential_tokens import (
    MARKER,
    is_basic_credential,
    is_opaque,
    is_scrambled,
    is_template,
    marker,
)

# Words that end the name of a credential, in lower case, and the kind of credential they name.
_WORDS = {
    "password": r"pass(?:words?|wds?|phrases?|codes?|worts?)?|pwd|pswd|psw|pw|kennwort|contrase(?:ñ|n)a|senha"
    r"|mot de passe|identified by|requirepass|парол[ья]|密码|密碼|口令|パスワード|비밀번호",
    "key": r"key",
    "token": r"token|jwt|github_pat|gitlab_pat|azure_pat|devops_pat|access_pat",
    "secret": r"secret|credential|凭证|凭据|密钥|秘钥|令牌|shared_?access_?signature|sig|_auth"
    r"|sessionid|sessid|connect\.sid|csrftoken",
    "authorization": r"authorization",
    "cookie": r"cookie",
}
# No groups and a letter at the start of every branch: `re` then skips quickly to a possible start.
_CORE = re.compile("|".join(_WORDS.values()))
# Those that are parts of other words: `compass`, `design`.
_NEED_A_BOUNDARY = frozenset(("pass", "pw", "jwt", "sig", "_auth", "sessionid", "cookie"))
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
          :?{_SPACE}{_TYPES}{_SPACE}=(?!=) | => | := | ={{1,3}}(?![=>]) | !={{1,2}} | ->
        | :(?![:/=]) | ： | ＝
      ) \*{{0,2}}
    | (?P<is> [ \t]{{1,4}} (?:is|was|to|are|es|est|ist|=)[ \t:]{{1,4}} | [ \t]{{0,4}}(?:为|是|は|は、)[ \t:：]{{0,4}} )
    | (?P<xml> > ) (?! [ \t]*< )
    | (?P<call> [ \t]? , (?=[ \t]?\\{{0,7}}["']) | [ \t]?\((?=\\{{0,7}}["']) )
    | (?P<entry> ,? (?:[ \t]|{_BREAK}){{1,40}} \\{{0,7}}["']? value \\{{0,7}}["']? {_SPACE} [:=] )
    | (?P<space> [ \t]{{1,4}} )
    )
    (?P<gap> (?:{_SPACE}[|>][+-]?)? {_SPACE} (?:{_BREAK}[ \t>]{{0,40}}){{0,2}} (?:```[A-Za-z]{{0,12}}{_BREAK}{_SPACE})? )
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
_LINE = re.compile(r"""[ \t]{0,40}(?:\#[^\n]{0,200})?(?:\r|\n|\\+[nr]|```|\Z)""")
_IN_QUERY = re.compile(r"[?&](?:amp;)?[A-Za-z0-9_.%-]{0,40}\Z")
# Lines that give a value after a space: a Dockerfile, a Windows shell, a `.netrc`.
_LISTING = re.compile(r"(?i)(?:env|setx?|machine)\b")
_ELEMENT = re.compile(r"[^<>\r\n]{1,512}+")
_LONGEST = 4096
_LONG = 128
_DEFINES = re.compile(r"(?i)(?:define|env|set|add|put|password|with)\w*\(?[^(,\n]{0,40}\Z")

_NO_CREDENTIAL = re.compile(
    r"""(?xi)
      (?:https?|file)://.*                                        # judged as a URL
    | \$\{.* | \$\(.* | \$[A-Za-z_]\w* | \{\{?.* | %[A-Za-z_(].* | %[sd] | <.* | \#\{.* | @@?\w+@? | !\w+.* | \*[A-Za-z_]\w*
    | [*•·x.…_-]+ | \[.* | \(.* | &.* | \?+ | :\w+
    | (?:none|null|nil|undefined|true|false|yes|no|on|off|required|optional|str|string|bytes|char|text|number
      |int|integer|bool|boolean|object|any|auto|default|empty|blank|unset|missing|invalid|incorrect|wrong|expired
      |hidden|redacted|masked|changed|reset|value|input|field|here|the|a|an|in|of|for|and|or|not|is|are|must|new
      |self|this|await|async|return|lambda|if|else|process|env|config|args|settings|data|result|secretstr
      |todo|tbd|n/a|unknown|never|see|ok|set|stored|bearer|basic|digest|oauth|password|passwd|pwd|pass|pw|secret
      |passphrase|passcode|credentials?|authorization|cookie|token|key|apikey|api_key|hash|hashed|encrypted|plain|plaintext|strong|weak|user|username|login|email)[;:,.]?
    | (?:max|min|len|count|limit|size|ttl|expires?)\b.*
    """
)
_CODE = re.compile(
    r"""(?x)
      [A-Za-z_$][\w$]*(?:(?:\?\.|\.|::|->)[A-Za-z_$][\w$]*)*(?:\[.*|\((?:.*\)[\])};:,.?!]*|[^)]*))  # a call, a subscript
    | [A-Za-z_$][\w$]*(?:(?:\?\.|\.|::|->)[A-Za-z_$][\w$]*)+                       # an attribute
    | (?:get|set|read|load|fetch|make|generate|create|hash|encrypt|decrypt|new|old|user|db|my|the|raw|plain|hashed)
      [_A-Z]\w*                                                                    # a variable
    | \w*(?i:password|passphrase|passwd|secret|token|_pass|api_?key|credential|_key|_pw|_pwd)s?\w{0,12}
    """
)
_PATH = re.compile(r"(?:~|\.{1,2}|[A-Za-z]:)?(?:[/\\][\w.-]{1,32}){2,}[/\\]?")
_ENV_NAME = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+")
_PROSE = re.compile(
    r"(?i)(?:^|[\s])(?:the|a|an|your|is|are|was|must|should|can|cannot|may|will|for|of|to|or|and|not|enter|if|with"
    r"|this|that|in|on|be|at|has|please|used|by|from|new|current|confirm|forgot|reset|change|required|invalid"
    r"|incorrect|user|login|expired|wrong|missing|field|character|characters)(?=[\s.,:;!?]|$)"
)
_TECHNICAL = re.compile(
    r"(?i)(?:base\d+|sha-?\d+|md5|oauth-?\d?|utf-?\d+|bcrypt|s?crypt|argon2\w*|pbkdf2\w*|[ehrp]s\d{3}|x\.?509|rsa-?\d*"
    r"|aes-?\d*|ed25519|http/?\d|oidc|saml\d?|ntlmv?\d?|v\d+|\d+-?\w{0,12}|[a-z]+\d?-(?:byte|bit|char|digit)s?)"
    r"(?:[-_.,/:][a-z0-9]*)*"
)
# A token of text or of a list of results, which nobody has to keep to himself.
_OTHER_TOKENS = re.compile(
    r"(?i)(?:(?:^|[_.-])(?:max|min|num|n|per|sep|cls|pad|eos|bos|unk|end|new|total|count|nft)"
    r"|page|next|prev|previous|continuation|sync|pagination|cursor|mask|stop|start|special|first|last"
    r"|input|output|prompt|completion|cached?|price|cost|design|erc20|erc721|skip|resume|change|delta"
    r"|watch|idempotency|public|image|media)[_.-]*$"
)
_OTHER_KEYS = re.compile(
    r"(?i)(?:cache|primary|foreign|sort|partition|row|index|lookup|group|registry|public|hot|dict|map|object"
    r"|dedup|dedupe|routing|row|composite|unique|test|i18n|translation|message|config|feature|storage|s3)_?$"
)


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


def mask_fields(text: str) -> str:
    """Mask every credential in `text` that is known by what stands before it."""
    if "://" in text:
        text = _mask_urls(text)
    lowered = _lowered(text)
    if "authorization" in lowered or "bearer" in lowered or "basic " in lowered:
        text = _HEADER.sub(_masked_header, text)
        text = _BEARER.sub(_masked_bearer, text)
    if "cookie" in lowered:
        text = _COOKIE.sub(_masked_cookie, text)
    if "=" in text and ("?" in text or "&" in text):
        text = _QUERY.sub(_masked_query, text)
    if " -" in text and _COMMANDS.search(text):
        text = _mask_commands(text)
    return _mask_named(text)


def _lowered(text: str) -> str:
    # The one character whose lower case is longer would shift every position behind it.
    return text.replace("\u0130", "I").lower()


def kind_of_name(name: str) -> str | None:
    """The kind of credential that a key of this name holds, or `None` for any other name.

    Args:
        name: A key of a mapping, such as `apiKey`, `DB_PASSWORD` or `Authorization`.
    """
    name = name.strip()[-128:]
    for core in _CORE.finditer(_lowered(name)):
        group = _group(name, core)
        if group and _WHOLE_SUFFIX.match(name, core.end()):
            return None if _is_other(group, name[: core.start()]) else _KINDS[group]
    return None


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
        return _OTHER_TOKENS.search(before) is not None
    return group == "key" and _OTHER_KEYS.search(before) is not None


def _group(text: str, core: re.Match[str]) -> str | None:
    """The group that a word belongs to where it stands, or `None` where it is part of another."""
    word, start = core[0], core.start()
    left = text[start - 1 : start]
    if word in _NEED_A_BOUNDARY and left.isalpha() and left.isascii():
        camel = text[start].isupper() and left.islower()
        return _group_of(word) if camel else None
    if word == "key":
        window = text[max(0, start - 24) : start].lower()
        if window[-1:] in ("_", "-", ".", " "):
            window = window[:-1]
        constant = text[start - 1 : start + 3] == "_KEY" and text[max(0, start - 2)].isalnum()
        return "key" if constant or window.endswith(_KEYS) else None
    return _group_of(word)


@cache
def _group_of(word: str) -> str:
    return next(group for group, words in _WORDS.items() if re.fullmatch(words, word))


def _mask_named(text: str) -> str:
    parts, kept, at = [], 0, 0
    for core in _CORE.finditer(_lowered(text)):
        if core.start() < at or not (group := _group(text, core)):
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
            # Looking into it again for every name inside it would take its length squared.
            at = value.end
        # A short one may be the next field's name: `token: password: …`.
    return "".join(parts) + text[kept:] if parts else text


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


def _is_credential(field: _Field, value: _Value) -> bool:
    group, tail = field.group, field.tail
    said = value.text.strip()
    if not said or MARKER.fullmatch(said) or is_placeholder(said):
        return False
    if MARKER.search(said):
        return not MARKER.match(said) or MARKER.sub("", said).strip(" .,;:)") != ""
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


def _is_quoted_credential(field: _Field, said: str) -> bool:
    group = field.group
    if field.tail["space"] and not field.before.startswith("--"):
        return group == "password" and field.word != "pass" and _is_tough(said) and " " not in said
    if field.tail["call"] and not _DEFINES.search(field.text, max(0, field.start - 60), field.start):
        return is_opaque(said) or (group == "password" and _is_tough(said))
    if " " in said:
        words = said.count(" ") + 1
        return group == "password" and not _PROSE.search(said) and words > 1 and len(said) <= 128  # noqa: PLR2004 - longer ones are texts
    if group == "password":
        return len(said) >= 3 and not _is_name(said)  # noqa: PLR2004 - two are no password
    if group == "cookie":
        return "=" in said or is_opaque(said)
    if group == "authorization" and _is_tough(said):
        return True
    if is_opaque(said, 6):
        return True
    return group != "token" and len(said) >= 8 and said.isalnum() and not _is_name(said)  # noqa: PLR2004 - the usual least


def _is_argument(field: _Field, said: str) -> bool:
    """Judge `--password x`, `ENV TOKEN x`, and `api key x` without anything between."""
    group = field.group
    if field.tail["close"]:
        return False
    if field.before.startswith("--") and not said.startswith("-"):
        return not _is_code(said) and (group == "password" or is_opaque(said, 6) or len(said) >= 16)  # noqa: PLR2004 - no word
    line = field.text[max(0, field.start - 120) : field.start].rpartition("\n")[2]
    if _LISTING.match(line.lstrip()):
        return group == "password" or is_opaque(said, 6)
    if group == "password":
        return _is_tough(said) and is_opaque(said, 6)
    return is_opaque(said, 12) and not _is_technical(said)


def _is_told(group: str, said: str) -> bool:
    """Judge `the password is x`, where x may be a plain word of the sentence."""
    if _is_code(said):
        return False
    return _is_tough(said) if group == "password" else is_opaque(said)


def _is_assigned(field: _Field, value: _Value, said: str) -> bool:
    group, op, gap = field.group, field.tail["op"], field.tail["gap"]
    if _is_code(said):
        return False
    alone = _LINE.match(field.text, value.end) is not None
    if "\n" in gap or "\\" in gap:
        fenced = "```" in gap
        if not (alone and (fenced or _is_tough(said) or gap.lstrip().startswith(("|", ">")))):
            return False
    if group != "password":
        return is_opaque(said, 8) or (
            group in ("secret", "key")
            and alone
            and op == "="
            and " " not in field.tail[0]
            and len(said) >= 8  # noqa: PLR2004 - the usual least
            and said.isalnum()
            and not _is_name(said)
        )
    if op == "=" and not gap:
        return len(said) >= 3 and not _is_name(said)  # noqa: PLR2004 - two are no password
    if _is_tough(said):
        return True
    return op != "->" and alone and len(said) >= 4 and not _is_name(said) and not said.isdigit() or (said.isdigit() and len(said) >= 6)  # noqa: PLR2004 - a figure


def _is_tough(said: str) -> bool:
    """Whether a word is more likely a password than a word of a sentence."""
    if len(said) < 5 or _is_technical(said):  # noqa: PLR2004 - shorter ones are figures
        return False
    if any(c in "!@#$%^&*+=~|?" for c in said.rstrip("!?*")):
        return True
    return any(c.isdigit() for c in said) and any(c.isalpha() for c in said)


def _is_technical(said: str) -> bool:
    return _TECHNICAL.fullmatch(said) is not None and not is_scrambled(said)


def _is_name(said: str) -> bool:
    return _NO_CREDENTIAL.fullmatch(said) is not None or _is_code(said)


def _is_code(said: str) -> bool:
    if _PATH.fullmatch(said) and not is_opaque(said):
        return True
    if _ENV_NAME.fullmatch(said):
        return not is_opaque(said, 12)
    return _CODE.fullmatch(said) is not None and not is_opaque(said, 12)


def is_placeholder(said: str) -> bool:
    """Whether a value only shows where a credential would go, or says that there is none."""
    return _NO_CREDENTIAL.fullmatch(said) is not None or is_template(said)


_HEADER = re.compile(
    r"""(?ix)
    (?P<name> authorization \\{0,7}["']?\]? [\x20\t]{0,8} (?:[:=,]|=>) [\x20\t]{0,8} (?:[fb]?\\{0,7}["'])? )
    (?P<scheme> (?:bearer|basic|token|digest|apikey|api-key|ssws|key|jwt|negotiate|oauth|bot|aws4-hmac-sha256|
      genie-?key|splunk|sharedkey|pve(?:api)?token)[\x20\t=]{1,8} )?
    (?P<value> [^\s"'`<>\\,;)}\]\u2e80-\u9fff\uff00-\uffef]++ (?:,\s?[\w-]{1,24}=[^\s"'`\\,]{1,512}){0,12} )
    """
)
_BEARER = re.compile(
    r"(?i)(?P<name>(?<![A-Za-z])(?:bearer|basic)(?:[ \t]{1,8}|%20|\+))(?P<value>[A-Za-z0-9._~+/=%-]{8,})"
)
_COOKIE = re.compile(
    r"""(?ix)
    (?P<name> (?<![A-Za-z])(?:set-)?cookies? \\{0,7}["']?\]? [\x20\t]{0,8} (?:[:=,]|=>)? [\x20\t]{0,8}(?:[fb]?\\{0,7}["'])? )
    (?P<value> [\w.$!%^*|~-]{1,64}= [^\s"'\\;]{1,4096}+ (?:;[\x20]?[^;\r\n"'\\]{1,4096}+){0,64} )
    """
)
_QUERY = re.compile(
    r"""(?ix)
    (?P<name> [?&](?:amp;)?[\w.%\[\]-]{0,40}?
      (?:token|key|secret|password|passwd|pwd|pass|signature|sig|auth|authorization|code|session|sid|jwt|credential|ticket|assertion|saml(?:request|response)) = )
    (?P<value> [^\s"'`<>&\#)\]}\\\u2e80-\u9fff\uff00-\uffef]++ )
    """
)
_PORT = r"""(?![0-9]{1,5}(?:[/?\#,\s"'`]|\Z))"""
_URL_USER = (
    re.compile(
        r"""(?x)(?:(?<=http)|(?<=https)):// (?P<user> [^\s/?\#@:"'`<>\\|]{0,256} )"""
        rf"""(?: : (?P<value> {_PORT} [^\s"'`>\\/?\#]{{1,256}} ) )? @ (?=[A-Za-z0-9\[$\{{<%_-])"""
    ),
    # A database's URL may hold unescaped what it should have escaped.
    re.compile(
        r"""(?x)(?<!http)(?<!https):// (?P<user> [^\s/?\#@:"'`<>\\|]{0,256} )"""
        rf"""(?: : (?P<value> {_PORT} [^\s"'`>\\]{{1,256}} ) )? @ (?=[A-Za-z0-9\[$\{{<%_-])"""
    ),
)
_COMMANDS = re.compile(
    r"""(?x)(?<![A-Za-z0-9_.-])(?P<command>
      mysql|mysqldump|mysqladmin|mysqlimport|mariadb(?:-dump)?|sshpass|docker|podman|redis-cli|curl|mongo(?:sh|dump|restore)?
      |sqlcmd|bcp|ldapsearch|twine|helm|cf|az|7z|zip|unzip|smbclient|wget|http|htpasswd|skopeo|buildah|oc|nmcli|xfreerdp|psexec|winrm)
      (?:\.exe)?(?=[\x20\t])"""
)
_FLAGS = {
    "glued": re.compile(r"""[ \t]-p(?P<q>["']?)(?P<value>[^\s"'\\]{2,256})"""),
    "-p": re.compile(r"""[ \t]-[pP][ \t]?(?P<q>\\?["']?)(?P<value>[^\s"'\\-][^\s"'\\]{2,256})"""),
    "-a": re.compile(r"""[ \t]-a[ \t](?P<q>\\?["']?)(?P<value>[^\s"'\\-][^\s"'\\]{2,256})"""),
    "-w": re.compile(r"""[ \t]-w[ \t]?(?P<q>\\?["']?)(?P<value>[^\s"'\\-][^\s"'\\]{2,256})"""),
    "-u": re.compile(
        r"""[ \t](?:-[a-zA-Z]{0,6}u|--user|--proxy-user|-a|--auth)[ \t=]{0,2}(?P<q>\\?["']?)[^\s:"'\\-][^\s:"'\\]{0,128}:(?P<value>[^\s"'\\]{1,256})"""
    ),
    "-U": re.compile(r"""[ \t]-U[ \t]?(?P<q>\\?["']?)[^\s%"']{1,128}%(?P<value>[^\s"'\\]{1,256})"""),
}
_FLAG_OF = {
    "mysql": "glued", "mysqldump": "glued", "mysqladmin": "glued", "mysqlimport": "glued",
    "mariadb": "glued", "mariadb-dump": "glued", "7z": "glued", "redis-cli": "-a", "curl": "-u",
    "wget": "-u", "http": "-u", "ldapsearch": "-w", "smbclient": "-U",
}  # fmt: skip
_NEEDS_LOGIN = frozenset(("docker", "podman", "helm", "cf", "az", "skopeo", "buildah", "oc"))


def _masked_header(match: re.Match[str]) -> str:
    value = match["value"]
    scheme = match["scheme"] or ""
    if MARKER.search(value) or is_placeholder(value) or _is_code(value):
        return match[0]
    if not (is_opaque(value, 6) or len(value) >= 24 or is_basic_credential(value)):  # noqa: PLR2004 - no word is
        return match[0]
    if not scheme and not is_opaque(value, 8):
        return match[0]
    return f"{match['name']}{scheme}{marker('authorization')}"


def _masked_bearer(match: re.Match[str]) -> str:
    value = match["value"].rstrip(".")
    basic = match["name"].lower().startswith("basic")
    good = is_basic_credential(value) if basic else is_opaque(value, 8)
    if not good or is_template(value) or _is_code(value) or _is_technical(value):
        return match[0]
    return f"{match['name']}{marker('authorization')}{match['value'][len(value) :]}"


def _masked_cookie(match: re.Match[str]) -> str:
    value = match["value"]
    first = value.partition("=")[2].partition(";")[0]
    if MARKER.fullmatch(value) or is_placeholder(first) or _is_code(first):
        return match[0]
    if not (is_opaque(value, 6) or ";" in value or len(first) >= 12):  # noqa: PLR2004 - no word is
        return match[0]
    return f"{match['name']}{marker('cookie')}"


def _masked_query(match: re.Match[str]) -> str:
    name, value = match["name"].lower(), match["value"].rstrip(".,;")
    password = "pass" in name or "pwd" in name
    plain = name.strip("?&=") in ("key", "code", "session", "sid", "ticket", "auth")
    if MARKER.search(value) or is_placeholder(value) or _is_code(value):
        return match[0]
    if _OTHER_TOKENS.search(name[: name.find("token")].strip("?&")) if "token" in name else False:
        return match[0]
    if not (password or is_opaque(value, 12 if plain else 8)):
        return match[0]
    kind = "password" if password else "token"
    return f"{match['name']}{marker(kind)}{match['value'][len(value) :]}"


def _mask_urls(text: str) -> str:
    for pattern in _URL_USER:
        text = pattern.sub(_masked_user, text)
    return text


def _masked_user(match: re.Match[str]) -> str:
    user, value = match["user"], match["value"]
    if value is None:
        if not is_opaque(user, 12) or is_template(user):
            return match[0]
        return f"://{marker('url-password')}@"
    if MARKER.search(value) or _is_url_template(value):
        return match[0]
    if is_opaque(user, 20) and not MARKER.search(user):
        user = marker("url-password")
    return f"://{user}:{marker('url-password')}@"


def _is_url_template(value: str) -> bool:
    return value[0] in "$<{%[*" and not value.isalnum() and re.match(r"[$<{%\[*][\w{(<\[*]*", value) is not None and (
        value[-1] in "}>])%*" or value[0] == "$"
    )


def _mask_commands(text: str) -> str:
    parts, kept, at = [], 0, 0
    while command := _COMMANDS.search(text, at):
        at = command.end()
        line = re.compile(r"[^|;&\n]{0,400}").match(text, at)
        stop = line.end() if line else at
        name = command["command"]
        if name in _NEEDS_LOGIN and "login" not in text[at:stop]:
            continue
        flag = _FLAGS[_FLAG_OF.get(name, "-p")].search(text, at, stop)
        if flag is None or is_placeholder(flag["value"]) or MARKER.search(flag["value"]):
            continue
        parts += text[kept : flag.start("value")], marker("password")
        kept = at = flag.end("value")
    return "".join(parts) + text[kept:] if parts else text
