"""Private keys in PEM and PuTTY form: whole, on one line, quoted, in JSON, in base64, or cut off.

Promises: a key is found by its data and not by talk of one; linear time.
"""

from __future__ import annotations

import base64
import re

from langchain_hindsight.credential_values import marker

_GAP = r"(?:[ +]|%20)"
_LABEL = rf"(?:[A-Z0-9]{{1,12}}{_GAP}){{0,3}}PRIVATE{_GAP}KEY{_GAP}?(?:BLOCK)?-{{4,5}}"
_BEGIN = re.compile(rf"-{{4,5}} ?BEGIN{_GAP}{_LABEL}|PuTTY-User-Key-File-[0-9]:")
_END = re.compile(rf"-{{4,5}} ?END{_GAP}{_LABEL}|Private-MAC: ?[0-9a-f]{{1,64}}")
_KEY_DATA = re.compile(r"[A-Za-z0-9+/=]{16,}+")
_REST_OF_KEY = re.compile(
    r"""(?x)
    (?: (?: [\s>|,"'`-] | \\+[nr"] | %0[AD] ){1,64}+
        (?: (?:Proc-Type|DEK-Info|Version|Comment|Encryption|Public-Lines|Private-Lines
              |Key-Derivation|Argon2-\w{1,12}):[ ]?[^\r\n\\]{0,80}+
          | [A-Za-z0-9+/=]{16,}+
          | [A-Za-z0-9+/]{0,15}+={1,2}
          | (?=[A-Za-z]{0,15}[0-9+/])[A-Za-z0-9+/]{1,15}+(?=["'`\s\\]|\Z)  # the short last line
        )
    )*+"""
)

# The same read backwards from an end: a short last line or two, then whole ones.
_LINES_BEFORE = re.compile(
    r"""(?x)
    (?: [\s>|] | [nr]\\+ | A0% )*+
    (?: [A-Za-z0-9+/=]{1,15}+ (?: [\s>|] | [nr]\\+ | A0% )++ ){0,2}
    (?: [A-Za-z0-9+/=]{16,}+ (?: [\s>|] | [nr]\\+ | A0% )*+ )+"""
)

# A whole PEM in base64, as Kubernetes keeps it: `-----BEGIN `.
_IN_BASE64 = re.compile(r"LS0tLS1CRUdJTi[A-Za-z0-9+/=]{40,}+")
_LABEL_IN_BASE64 = 52  # four signs are three bytes

SIGNS_OF_A_KEY = ("-----", "---- BEGIN", "PuTTY-User-Key", "LS0tLS1CRUdJTi")
"""What stands in every text that holds one."""

# What a cut-off key may have left before its end: enough for RSA with 8,192 bits.
_LONGEST_REST = 8_192


def mask_private_keys(text: str) -> str:
    """Mask every private key in `text`, from its first line to its last."""
    if "LS0tLS1CRUdJTi" in text:
        text = _IN_BASE64.sub(_masked_base64, text)
    parts: list[str] = []
    kept = at = 0
    end = _END.search(text)
    while begin := _BEGIN.search(text, at):
        at = begin.end()
        if end and end.start() < at:
            # One look for an end serves every beginning before it, which keeps this linear.
            end = _END.search(text, at)
        stop = _end_of_key(text, at, end)
        if stop is None:
            continue
        parts += text[kept : begin.start()], marker("private-key")
        kept = at = stop
    return _mask_headless_keys("".join(parts) + text[kept:] if parts else text)


def _masked_base64(match: re.Match[str]) -> str:
    """A key's marker; a certificate, which begins alike, as it was."""
    first = base64.b64decode(match[0][:_LABEL_IN_BASE64])
    return marker("private-key") if b"PRIVATE KEY" in first else match[0]


def _end_of_key(text: str, start: int, end: re.Match[str] | None) -> int | None:
    """Where the key that begins before `start` stops, or `None` where there is only talk of one."""
    rest = _REST_OF_KEY.match(text, start)
    stop = rest.end() if rest else start
    if end is not None and _BEGIN.search(text, stop, end.start()) is None:
        # What is between need not be tidy, as long as it is mostly data.
        length = sum(len(run) for run in _KEY_DATA.findall(text, start, end.start()))
        if length * 2 >= len(text[start : end.start()].strip()) > 0:
            return end.end()
    return stop if _KEY_DATA.search(text, start, stop) else None


def _mask_headless_keys(text: str) -> str:
    """Mask what stands before an end whose beginning was cut off."""
    parts: list[str] = []
    kept = 0
    for end in _END.finditer(text):
        before = text[max(kept, end.start() - _LONGEST_REST) : end.start()][::-1]
        data = _LINES_BEFORE.match(before)
        if data is None:
            continue
        parts += text[kept : end.start() - data.end()], marker("private-key")
        kept = end.end()
    return "".join(parts) + text[kept:] if parts else text
