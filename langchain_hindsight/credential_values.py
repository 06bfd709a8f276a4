"""What a credential's value looks like, and what only resembles one: the judgment of a bare word.

Promises: pure functions of a value, none of which takes longer than in proportion to its length.
"""

from __future__ import annotations

import base64
import re
from itertools import pairwise

MARKER = re.compile(r"\[redacted:[a-z0-9-]+\]")

_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")

_SEGMENT = re.compile(r"[A-Za-z0-9]+")

_CAMEL_CASE = re.compile(r"[A-Z]?[a-z]+(?:[A-Z][a-z]+)*")

_NAMED_NUMBER = re.compile(
    r"[A-Za-z][a-z]+[0-9]{1,6}|[0-9]{1,6}[A-Za-z][a-z]+|[A-Z]+[0-9]{1,4}"
    r"|[A-Za-z]{2,}+[0-9]{1,5}(?:[A-Z][a-z]{2,}+){1,6}"
)

# Enough of a value to tell; the rest of a very long one is not looked at.
_LOOKED_AT = 512
# Fewer letters than these show no pattern.
_LETTERS_TO_TELL = 12

_TEMPLATE_WORDS = re.compile(
    r"(?i)(?:^|[^a-z])your(?:[^a-z]|$)|^your(?-i:[A-Z])|placeholder|redacted|goes[-_]?here|[-_]here$"
    r"|replace[-_]?(?:me|this|with)|insert[-_]|^example$|^(.)\1+$|x{6}|\*{3}|\.{3}"
)

_NO_CREDENTIAL = re.compile(
    r"""(?xi)
      (?:https?|file)://.*  # judged as a URL
    | \$\{.* | \$\(.* | \$[A-Za-z_]\w* | \{\{?.* | %[A-Za-z_(].* | %[sd] | <.* | \#\{.*  # templates
    | \#[0-9a-f]{3,8}  # a color
    | \d{1,3}[.:]\d{1,2}[a-z%]{1,3}  # a size, a time of day
    | @@?\w+@? | !\w+.* | \*[A-Za-z_]\w* | [*•·x.…_-]+ | \[.* | \(.* | &.* | \?+ | :\w+
    | (?:none|null|nil|undefined|true|false|yes|no|on|off|required|optional|str|string|bytes|
      char|text|number|int|integer|bool|boolean|object|any|auto|default|empty|blank|unset|
      missing|invalid|incorrect|wrong|expired|hidden|redacted|masked|changed|reset|value|input|
      field|here|the|a|an|in|of|for|and|or|not|is|are|must|new|self|this|await|async|return|
      lambda|if|else|process|env|config|args|settings|data|result|secretstr|todo|tbd|n/a|
      unknown|never|see|ok|set|stored|bearer|basic|digest|oauth|password|passwd|pwd|pass|pw|
      passphrase|passcode|credentials?|authorization|cookie|token|key|apikey|api_key|
      hash|hashed|encrypted|plain|plaintext|strong|weak|user|username|login|email)[;:,.]?
    | (?:max|min|len|count|limit|size|ttl|expires?)\b.*
    """
)

CODE = re.compile(
    r"""(?x)
      # A subscript or a call, which may go on behind the value, and an attribute.
      [A-Za-z_$][\w$]*(?:(?:\?\.|\.|::|->)[A-Za-z_$][\w$]*)*
        (?: \[.* | \((?: .*\)[\])};:,.?!]* | [^)]* ) )
    | [A-Za-z_$][\w$]*(?:(?:\?\.|\.|::|->)[A-Za-z_$][\w$]*)+
    """
)

_VARIABLE = re.compile(
    r"""(?x)
      (?:get|set|read|load|fetch|make|generate|create|hash|encrypt|decrypt|new|old|user|db|my|the|raw
      |plain|hashed)[_A-Z][A-Za-z_]*
    | [A-Za-z_]*(?i:password|passphrase|passwd|secret|token|_pass|api_?key|credential|auth
        |_key|_pw|_pwd)
      s?[A-Za-z_]{0,12}
    """
)

PATH = re.compile(r"(?:~|\.{1,2}|[A-Za-z]:)?(?:[/\\][\w.-]{1,32}){2,}[/\\]?")

_EMPTY_FORM = re.compile(r"<[^<>]*>|\$\{[^{}]*\}|\$[A-Za-z_]\w*|\{\{[^{}]*\}\}|[*•x.…_-]+")

ENV_NAME = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+")

PROSE = re.compile(
    r"(?i)(?:^|[\s])(?:the|a|an|your|is|are|was|must|should|can|cannot|may|will|for|of|to|or|and|not"
    r"|enter|if|with|this|that|in|on|be|at|has|please|used|by|from|new|current|confirm|forgot|reset"
    r"|change|required|invalid|incorrect|user|login|expired|wrong|missing|field|character|characters)(?=[\s.,:;!?]|$)"
)

_TECHNICAL = re.compile(
    r"(?i)(?:base\d+|sha-?\d+(?:sum)?|md5(?:sum)?|ecdsa\w*|ssh|oauth-?\d?|utf-?\d+|bcrypt|s?crypt|argon2\w*|pbkdf2\w*|[ehrp]s\d{3}"
    r"|x\.?509|rsa-?\d*|aes-?\d*|ed25519|http/?\d|oidc|saml\d?|ntlmv?\d?|v\d+|\d+-?\w{0,12}|\d+[.:]\d+[a-z]{0,3}"
    r"|[a-z]+\d?-(?:byte|bit|char|digit)s?)"
    r"(?:[-_.,/:][a-z0-9]*)*"
)


def marker(kind: str) -> str:
    """What stands in the place of a credential."""
    return f"[redacted:{kind}]"


def is_opaque(value: str, least: int = 8) -> bool:
    """Whether a value looks generated rather than named: letters and digits, mixed inside one word.

    `gpt-4-turbo`, `oauth2`, `user_profile_2024` and `someVariableName` are named.

    Args:
        value: ASCII text without spaces.
        least: The fewest characters that such a word may have.
    """
    if _UUID.search(value):
        return True
    mixed = 0
    for segment in _SEGMENT.findall(value[:_LOOKED_AT]):
        if is_mixed(segment, least):
            return True
        # A base64 token is cut up by its own punctuation, so short mixed pieces count together.
        if len(segment) >= 4 and is_mixed(segment, 4):  # noqa: PLR2004 - three could be "v2a"
            mixed += len(segment)
    return mixed >= max(least, _LETTERS_TO_TELL) and len(value) >= 2 * least


def is_mixed(segment: str, least: int) -> bool:
    """Whether one word without punctuation looks generated, at `least` so many characters long."""
    if len(segment) < least:
        return False
    digits = sum(c.isdigit() for c in segment)
    if digits == len(segment):
        return len(segment) >= 16  # noqa: PLR2004 - shorter ones are dates, times and ids
    if digits:
        return not _NAMED_NUMBER.fullmatch(segment)
    # Letters alone: words in camel case change case seldom, random letters at every other place.
    changes = sum(a.islower() and b.isupper() for a, b in pairwise(segment))
    often = changes * 6 >= len(segment)
    return often and len(segment) >= _LETTERS_TO_TELL and not _CAMEL_CASE.fullmatch(segment)


def is_generated(body: str) -> bool:
    """Whether what follows a service's prefix looks generated, asking less than `is_opaque`."""
    return is_opaque(body) or is_scrambled(body)


def is_scrambled(value: str) -> bool:
    """Whether a value changes between lower case, upper case and digits as chance would."""
    value = "".join(_SEGMENT.findall(value[:_LOOKED_AT]))
    kinds = [_case(char) for char in value]
    changes = sum(a != b for a, b in pairwise(kinds))
    often = changes * 4 >= len(kinds)
    return often and len(kinds) >= _LETTERS_TO_TELL and not _CAMEL_CASE.fullmatch(value)


def _case(char: str) -> str:
    return "digit" if char.isdigit() else "upper" if char.isupper() else "lower"


def has_letters_and_digits(value: str) -> bool:
    """Whether a value holds at least one letter and one digit."""
    return any(c.isdigit() for c in value) and any(c.isalpha() for c in value)


def is_tough(said: str) -> bool:
    """Whether a word is more likely a password than a word of a sentence."""
    if len(said) < 5 or is_technical(said):  # noqa: PLR2004 - shorter ones are figures
        return False
    if not said.strip("|-:=+"):  # the rule of a table
        return False
    if any(c in "!@#$%^&*+=~|?" for c in said.rstrip("!?*")):
        return True
    return any(c.isdigit() for c in said) and any(c.isalpha() for c in said)


def is_technical(said: str) -> bool:
    """Whether a value names an algorithm, an encoding or a size: `sha256`, `12-char`."""
    return _TECHNICAL.fullmatch(said) is not None and not is_scrambled(said)


def is_template(value: str) -> bool:
    """Whether a value only shows where a credential would go: `YOUR_API_KEY`, `xxxx`, `***`."""
    return _TEMPLATE_WORDS.search(value) is not None


def is_placeholder(said: str) -> bool:
    """Whether a value only shows where a credential would go, or says that there is none."""
    return _NO_CREDENTIAL.fullmatch(said) is not None or is_template(said)


def is_empty_form(said: str) -> bool:
    """Whether a value is plainly a form to fill in, whatever its name: `<key>`, `${KEY}`, `***`."""
    return _EMPTY_FORM.fullmatch(said) is not None or is_template(said)


def is_code(said: str) -> bool:
    """Whether a value is a path, a call, a subscript, an attribute or a variable."""
    if PATH.fullmatch(said) and not is_opaque(said):
        return True
    if ENV_NAME.fullmatch(said):
        return not is_opaque(said, 12)
    code = CODE.fullmatch(said) or _VARIABLE.fullmatch(said)
    return code is not None and not is_opaque(said, 12)


def is_name(said: str) -> bool:
    """Whether a value is a word that no credential is, or a name in code."""
    return _NO_CREDENTIAL.fullmatch(said) is not None or is_code(said)


def is_basic_credential(value: str) -> bool:
    """Whether a value is `user:password` in base64, as in `Authorization: Basic`."""
    try:
        decoded = base64.b64decode(value + "=" * (-len(value) % 4), validate=True)
    except ValueError:
        return False
    return b":" in decoded and decoded.isascii() and decoded.decode().isprintable()
