"""Credentials known by where they stand: a URL, a header, a cookie, a query, a command's flag.

Promises: only the credential is masked; its scheme, user and host stay; linear time.

Most texts hold none, and are seen to hold none by plain substrings. Where one stands, the patterns
that stay within a line look at its line alone, and the others begin with a letter in both cases,
which `re` skips to: it does not skip where case is ignored or where a pattern begins by looking
behind.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from langchain_hindsight.credential_fields import OTHER_TOKENS, kind_of_name, lowered
from langchain_hindsight.credential_values import (
    CODE,
    MARKER,
    PROSE,
    has_letters_and_digits,
    is_basic_credential,
    is_code,
    is_name,
    is_opaque,
    is_placeholder,
    is_technical,
    is_template,
    is_tough,
    marker,
)

# What documentation writes where a token would stand.
_GENERIC = re.compile(
    r"(?i)(?:(?:my|your|the|access|api|auth|id|jwt|bearer|some|user|session)[-_ ]?)*"
    r"(?:token|key|jwt|secret|authentication|authorization|scheme|auth|credentials?|tokens)"
)

_HEADER = re.compile(
    r"""(?x)
    (?P<name> [Aa](?i:uthorization \\{0,7}["']?\]? [\x20\t]{0,8} (?:[:=,]|=>) [\x20\t]{0,8}
      (?:[fb]?\\{0,7}["'])? ) )
    (?i: (?P<scheme> (?:bearer|basic|token|digest|apikey|api-key|ssws|key|jwt|negotiate|oauth|bot
      |aws4-hmac-sha256|genie-?key|splunk|sharedkey|pve(?:api)?token)[\x20\t=]{1,8} )?
    (?P<value> (?:[a-z]{1,24}=\\?"[^"\r\n\\]{0,512}\\?"(?:,[ ]?)?){1,16}
      | [^\s"'`<>\\,;)}\]\u2e80-\u9fff\uff00-\uffef]++
        (?:,\s?[\w-]{1,24}=[^\s"'`\\,]{1,512}){0,12} ) )
    """
)

_BEARER = re.compile(
    r"(?a)(?P<name>[Bb](?<![A-Za-z].)(?i:earer|asic)(?:[ \t]{1,8}|%20|\+))"
    r"(?P<value>[A-Za-z0-9._~+/=%-]{8,})"
)

# Where code passes a user's name and password side by side.
_LOGIN = re.compile(
    r"""(?ix)
    (?P<name>
      (?: (?<![A-Za-z])auth[\x20]?=[\x20]?\( | [a-z]{1,24}auth\( | \.(?:auth|login)\( )
      [\x20]? \\{0,7}["'][^"'\r\n\\]{1,64}\\{0,7}["'],[\x20]? \\{0,7}["']
    | ["'](?:-u|--user)\\{0,7}["'],[\x20]? \\{0,7}["'][^"':\s\\]{1,64}: )
    (?P<value> [^"'\r\n\\]{3,128} ) (?P<quote> \\{0,7}["'] )
    """
)

_COOKIE = re.compile(
    r"""(?ix)
    (?P<name> (?<![A-Za-z])(?:set-)?cookies? \\{0,7}["']?\]? [\x20\t]{0,8} (?:[:=,]|=>)?
      [\x20\t]{0,8} (?:[fb]?\\{0,7}["'])? )
    (?P<value> [\w.$!%^*|~-]{1,64}= [^\s"'\\;]{1,4096}+ (?:;[\x20]?[^;\r\n"'\\]{1,4096}+){0,64} )
    """
)

_QUERY = re.compile(
    r"""(?ix)
    (?P<name> [?&](?:amp;)?[\w.%\[\]-]{0,40}?
      (?:token|key|secret|password|passwd|pwd|pass|signature|sig|auth|authorization
        |code|session|sid|jwt|credential|ticket|assertion|saml(?:request|response)) = )
    (?P<value> [^\s"'`<>&\#)\]}\\\u2e80-\u9fff\uff00-\uffef]++ )
    """
)

# Places that no name marks, or not with a sign that stands for "is".
_ARGUMENT = re.compile(
    r"""(?imx)
    (?P<name>
      (?<![\w-]) (?: vault[ ]login[ ] | gh[ ]secret[ ]set[ ][\w-]{1,64}[ ](?:--body|-b)[ =]["']?
        | curl[ ][^|;&\r\n]{0,200}?(?:-b|--cookie)[ ]["']?[\w.-]{1,64}= )
      | :thin:[\w.-]{1,64}/
      | ^[\w.-]{1,64}:[0-9]{2,5}:[\w*-]{1,64}:[\w.-]{1,64}:
      | "auth\\{0,7}"[ ]?:[ ]?\\{0,7}"
      | (?:key|token|secret|password)[ ]{0,4}=[ ]{0,4}
        (?: [\w.]{1,64}[ ](?:\|\||\?\?|or)[ ] | new[ ]String\( )["']
      | (?:api_?key|token|secret|password)%3D
      | (?:one-time|verification|security|login|2fa|otp)[ ](?:code|password|pin)(?:[ ]is|:)[ ]
      | (?:key|token|secret|password)[ ](?:you|we|i|they)[ ][a-z]{1,12}(?:[ ][a-z]{1,12}){0,2},[ ] )
    (?P<value> [^\s"'`@;,%<>&]{4,512} )
    """
)

_CREDENTIALS = ("key", "token", "secret", "password")
_ELSE = ("|| '", '|| "', "?? '", '?? "', " or '", ' or "')
_PROMISES = tuple(f"{it} {who} " for it in _CREDENTIALS for who in ("you", "we", "i", "they"))
_CODES = (" code", " password", " pin")
# One of the words stands in every such place, and one of those before them is never far.
_ARGUMENT_WORDS: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (("",), ("vault login ", "gh secret set ", " -b ", " --cookie ", ":thin:", '"auth')),
    (_CREDENTIALS, ("%3d", "new string(", *_ELSE, *_PROMISES)),
    (_CODES, ("one-time ", "verification ", "security ", "2fa ", "otp ", "login code", "login p")),
)
_USER_FLAGS = ("-u", "--user")
_LOGIN_WORDS = (
    "auth=",
    "auth =",
    "auth(",
    "login(",
    *(f"{q}{u}" for q in "\"'" for u in _USER_FLAGS),
)
_COLUMNS = re.compile(r":[0-9]{2,5}:[\w*-]{1,64}:")

# A value that stands before its name, as in a list of variables whose keys are in another order.
_VALUE_FIRST = re.compile(
    r"""(?x)
    (?P<name> [Vv](?i:(?<![a-z].)al(?:ue)? \\{0,7}["']? [\x20\t]{0,8} [:=] [\x20\t]{0,8}
      \\{0,7}["']? ) )
    (?i: (?P<value> [^\s"'<>,;\\]{3,256} )
    (?P<rest> \\{0,7}["']? ,? (?:\s|\\n){0,40} (?:type=["'][a-z]{1,16}["']\s)?
      \\{0,7}["']? (?:name|key) \\{0,7}["']? [\x20\t]{0,8} [:=] [\x20\t]{0,8} \\{0,7}["']?
      (?P<of> [\w.-]{1,64} ) ) )
    """
)

_PORT = r"""(?![0-9]{1,5}(?:[/?\#,\s"'`]|\Z))"""

_EXPLICIT = re.compile(
    r"(?:access_?token|api[_-]?key|auth_?token|secret|[?&;](?:token|sig|signature)|-signature)=$"
)

_URL_USER = (
    re.compile(
        r"""(?x)://(?:(?<=http://)|(?<=https://)) (?P<user> [^\s/?\#@:"'`<>\\|]{0,256} )"""
        rf"""(?: : (?P<value> {_PORT} [^\s"'`>\\/?\#]{{1,256}} ) )? @ (?=[A-Za-z0-9\[$\{{<%_-])"""
    ),
    # A database's URL may hold unescaped what it should have escaped.
    re.compile(
        r"""(?x)://(?<!http://)(?<!https://) (?P<user> [^\s/?\#@:"'`<>\\|]{0,256} )"""
        rf"""(?: : (?P<value> {_PORT} [^\s"'`>\\]{{1,256}} ) )? @ (?=[A-Za-z0-9\[$\{{<%_-])"""
    ),
)

_PATTERN_WORDS = frozenset(("password", "pass", "passwd", "pwd"))
"""What documentation writes where a URL's password would stand."""

_COMMANDS = re.compile(
    r"""(?x)(?<![A-Za-z0-9_.-])(?P<command>
      mysql|mysqldump|mysqladmin|mysqlimport|mariadb(?:-dump)?|sshpass|docker|podman|redis-cli|curl|mongo(?:sh|dump|restore)?
      |sqlcmd|bcp|ldapsearch|twine|helm|cf|az|7z|zip|unzip|smbclient|wget|http|htpasswd|skopeo|buildah|oc|nmcli|xfreerdp|psexec|winrm)
      (?:\.exe)?(?=[\x20\t])"""
)

# Up to the next command, over what is quoted and over the end of a line that goes on.
_REST_OF_COMMAND = re.compile(
    r"""(?x) (?: \\\r?\n | "[^"\r\n]{0,200}+" | '[^'\r\n]{0,200}+' | [^|;&\n] ){0,400}+"""
)

_FLAGS = {
    "glued": re.compile(r"""[ \t\n]-p(?P<q>["']?)(?P<value>[^\s"'\\]{2,256})"""),
    "-p": re.compile(r"""[ \t\n]-[pP][ \t]?(?P<q>\\?["']?)(?P<value>[^\s"'\\-][^\s"'\\]{2,256})"""),
    "-P": re.compile(r"""[ \t\n]-P[ \t]?(?P<q>\\?["']?)(?P<value>[^\s"'\\-][^\s"'\\]{2,256})"""),
    "-a": re.compile(r"""[ \t\n]-a[ \t](?P<q>\\?["']?)(?P<value>[^\s"'\\-][^\s"'\\]{2,256})"""),
    "-w": re.compile(r"""[ \t\n]-w[ \t]?(?P<q>\\?["']?)(?P<value>[^\s"'\\-][^\s"'\\]{2,256})"""),
    "-u": re.compile(
        r"""[ \t\n](?:-[a-zA-Z]{0,6}u|--user|--proxy-user|-a|--auth)[ \t=]{0,2}"""
        r"""(?P<q>\\?["']?)[^\s:"'\\-][^\s:"'\\]{0,128}:(?P<value>[^\s"'\\]{1,256})"""
    ),
    "-U": re.compile(
        r"""[ \t\n]-U[ \t]?(?P<q>\\?["']?)[^\s%"']{1,128}%(?P<value>[^\s"'\\]{1,256})"""
    ),
}

_ANY_FLAG = re.compile(r"[ \t\n]-(?:[pPawU]|[A-Za-z]{0,6}u|-(?:user|proxy-user|auth))")

_FLAG_OF = {
    "mysql": "glued", "mysqldump": "glued", "mysqladmin": "glued", "mysqlimport": "glued",
    "mariadb": "glued", "mariadb-dump": "glued", "7z": "glued", "redis-cli": "-a", "curl": "-u",
    "wget": "-u", "http": "-u", "ldapsearch": "-w", "smbclient": "-U", "zip": "-P", "unzip": "-P",
}  # fmt: skip

_NEEDS_LOGIN = frozenset(("docker", "podman", "helm", "cf", "az", "skopeo", "buildah", "oc"))


def _masked_header(match: re.Match[str]) -> str:
    value = match["value"]
    scheme = match["scheme"] or ""
    if (
        MARKER.search(value)
        or is_placeholder(value)
        or (CODE.fullmatch(value) and not is_opaque(value, 12))
    ):
        return match[0]
    if scheme:
        good = len(value) >= 6 and (has_letters_and_digits(value) or _ends_there(match))  # noqa: PLR2004 - no token is shorter
    else:
        good = is_opaque(value)
    if not good or _GENERIC.fullmatch(value):
        return match[0]
    return f"{match['name']}{scheme}{marker('authorization')}"


def _masked_login(match: re.Match[str]) -> str:
    value = match["value"]
    if MARKER.search(value) or is_placeholder(value) or is_name(value) or PROSE.search(value):
        return match[0]
    return f"{match['name']}{marker('password')}{match['quote']}"


def _ends_there(match: re.Match[str]) -> bool:
    return match.string[match.end() : match.end() + 1] in ("", "\n", "\r", '"', "'", "`", "\\")


def _masked_bearer(match: re.Match[str]) -> str:
    value = match["value"].rstrip(".")
    basic = match["name"].lower().startswith("basic")
    good = is_basic_credential(value) if basic else is_opaque(value, 8)
    if not good or is_template(value) or is_code(value) or is_technical(value):
        return match[0]
    return f"{match['name']}{marker('authorization')}{match['value'][len(value) :]}"


def _masked_cookie(match: re.Match[str]) -> str:
    value = match["value"]
    first = value.partition("=")[2].partition(";")[0]
    if MARKER.fullmatch(value) or is_placeholder(first) or is_code(first):
        return match[0]
    told = match["name"].rstrip(" \"'\\")[-1:] in (":", "=", ">", ",")
    long = ";" in value or len(first) >= 12  # noqa: PLR2004 - longer than a word
    if not (long or is_opaque(value, 6) or (told and has_letters_and_digits(first))):
        return match[0]
    return f"{match['name']}{marker('cookie')}"


def _masked_query(match: re.Match[str]) -> str:
    name, value = match["name"].lower(), match["value"].rstrip(".,;")
    password = "pass" in name or "pwd" in name
    plain = name.strip("?&=") in ("key", "code", "session", "sid", "ticket", "auth")
    if MARKER.search(value) or is_placeholder(value) or is_code(value):
        return match[0]
    if OTHER_TOKENS.search(name[: name.find("token")].strip("?&")) if "token" in name else False:
        return match[0]
    explicit = _EXPLICIT.search(name) is not None and len(value) >= 6 and not is_name(value)  # noqa: PLR2004 - no token is shorter
    if not (password or explicit or is_opaque(value, 12 if plain else 8)):
        return match[0]
    kind = "password" if password else "token"
    return f"{match['name']}{marker(kind)}{match['value'][len(value) :]}"


def _masked_argument(match: re.Match[str]) -> str:
    value = match["value"].rstrip(".!?")
    figures = value.isdigit() and match["name"][-1] == " "
    if MARKER.search(value) or is_name(value) or not (figures or is_tough(value)):
        return match[0]
    return f"{match['name']}{marker('secret')}{match['value'][len(value) :]}"


def _masked_value_first(match: re.Match[str]) -> str:
    kind, value = kind_of_name(match["of"]), match["value"]
    if kind is None or MARKER.search(value) or is_name(value) or not is_tough(value):
        return match[0]
    return f"{match['name']}{marker(kind)}{match['rest']}"


def _mask_urls(text: str) -> str:
    for pattern in _URL_USER:
        text = pattern.sub(_masked_user, text)
    return text


def _masked_user(match: re.Match[str]) -> str:
    user, value = match["user"], match["value"]
    if user.endswith("[redacted") or (value is None and "[redacted:" in match[0]):
        return match[0]
    if value is None:
        if not is_opaque(user, 12) or is_template(user):
            return match[0]
        return f"://{marker('url-password')}@"
    if MARKER.search(value) or _is_url_template(value) or value.lower() in _PATTERN_WORDS:
        return match[0]
    if is_opaque(user, 20) and not MARKER.search(user):
        user = marker("url-password")
    return f"://{user}:{marker('url-password')}@"


def _is_url_template(value: str) -> bool:
    return (
        value[0] in "$<{%[*"
        and not value.isalnum()
        and re.match(r"[$<{%\[*][\w{(<\[*]*", value) is not None
        and (value[-1] in "}>])%*" or value[0] == "$")
    )


def _mask_commands(text: str) -> str:
    parts: list[str] = []
    kept = at = 0
    while command := _COMMANDS.search(text, at):
        at = command.end()
        line = _REST_OF_COMMAND.match(text, at)
        stop = line.end() if line else at
        name = command["command"]
        if name in _NEEDS_LOGIN and "login" not in text[at:stop]:
            continue
        flag = _FLAGS[_FLAG_OF.get(name, "-p")].search(text, at, stop)
        if flag is None or is_placeholder(flag["value"]) or "[redacted:" in flag[0]:
            continue
        parts += text[kept : flag.start("value")], marker("password")
        kept = at = flag.end("value")
    return "".join(parts) + text[kept:] if parts else text


def _mask_lines(
    text: str,
    words: Iterable[str],
    pattern: re.Pattern[str],
    replace: Callable[[re.Match[str]], str],
) -> str:
    """Replace in the lines alone that hold one of the words: for patterns that stay within one."""
    low = lowered(text)
    parts: list[str] = []
    kept = 0
    for start in sorted({start for word in words for start in _lines_with(low, word)}):
        end = text.find("\n", start)
        end = len(text) if end < 0 else end
        parts += text[kept:start], pattern.sub(replace, text[start:end])
        kept = end
    return "".join(parts) + text[kept:] if parts else text


def _lines_with(text: str, word: str) -> Iterator[int]:
    """Where each line with a word starts."""
    line = 0
    while (found := text.find(word, line)) >= 0:
        yield text.rfind("\n", line, found) + 1 or line
        line = text.find("\n", found) + 1
        if not line:
            return


def mask_places(text: str) -> str:
    """Mask every credential in `text` that is known by where it stands."""
    if "://" in text:
        text = _mask_urls(text)
    low = lowered(text)
    if "authorization" in low or "bearer" in low or "basic " in low:
        text = _HEADER.sub(_masked_header, text)
        text = _BEARER.sub(_masked_bearer, text)
    if "auth" in low or "login(" in low or "-u" in low:
        text = _mask_lines(text, _LOGIN_WORDS, _LOGIN, _masked_login)
    if "cookie" in low:
        text = _mask_lines(text, ("cookie",), _COOKIE, _masked_cookie)
    if "=" in text and ("?" in text or "&" in text):
        text = _QUERY.sub(_masked_query, text)
    if _COLUMNS.search(text):
        text = _ARGUMENT.sub(_masked_argument, text)
    elif words := _argument_words(low):
        text = _mask_lines(text, words, _ARGUMENT, _masked_argument)
    if "val" in low and ("name" in low or "key" in low):
        text = _VALUE_FIRST.sub(_masked_value_first, text)
    if "-" in text and _ANY_FLAG.search(text):
        text = _mask_commands(text)
    return text


def _argument_words(low: str) -> list[str]:
    """The words in a text that may mark a place which no name marks."""
    return [
        word
        for beside, words in _ARGUMENT_WORDS
        if any(one in low for one in beside)
        for word in words
        if word in low
    ]
