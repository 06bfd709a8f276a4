"""Tells what a person wrote from what they pasted: logs, code, stack traces, JSON, tables, diffs.

The rarest words of a query decide what the server's keyword search finds, and each word of a paste
is rare, so that a question beside a pasted log finds nothing of what it asks for. Lines are judged
by their shape, which works in any language, and a paste is several such lines in a row or one long
one; a short quoted line stays. Time is linear in the text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_FENCED = re.compile(
    r"^[ \t]*(```|~~~)[^\n]*\n(.*?)(?:^[ \t]*\1[^\n]*$|\Z)", re.DOTALL | re.MULTILINE
)
_MACHINE_LINE = re.compile(
    r"\s*[\[(]?(?:\d{4}-\d\d-\d\d[T ]|\d\d:\d\d:\d\d|\d\d/\w{2,3}/\d{2,4}[: ])"
    r"|[^a-z]{0,60}\b(?:TRACE|DEBUG|INFO|NOTICE|WARN(?:ING)?|ERROR|CRITICAL|FATAL)\b"
    r"|[\w.$]*(?:Error|Exception|Warning)\b[^.?!]{0,40}:|Exception in thread"
    r"|\s+at\s|\s*File \"|Traceback|Caused by:|\s*\.\.\. \d+ more|\t| {4}"
    r"|(?:@@|\+\+\+|---|diff |index |[+>#$|])\s?\S"
    r"|\s*(?:SELECT|FROM|(?:LEFT |RIGHT |INNER |OUTER |CROSS )*JOIN|WHERE|AND|OR|GROUP BY|ORDER BY"
    r"|HAVING|LIMIT|INSERT|UPDATE|DELETE|CREATE|ALTER|VALUES|SET|WITH)\s.*[^.?!]$"
    r"|\s*(?:import|from|export|return|def|class|function|const|let|var|public|private|static|#include"
    r"|package|namespace|using|fn|func|elif|else|if|for|while|try|except|catch)\b.*[{}();:]\s*$"
    r"|.*[{};]\s*$|[\W\d_]*$"
)
_MARK = re.compile(r"[{}\[\]()<>=;|\\/_#@$%^&*+~\"`:]")
_DELIMITED = re.compile(r"[^\s,;\t|][,;\t|][^\s,;\t|]")
_CODE_WORD = re.compile(r"\w*(?:_\w|[a-z][A-Z]|\w\.[A-Za-z]\w|\w\(|\d[A-Za-z]|[A-Za-z]\d)\S*")
_SENTENCE_ENDS = frozenset(".!?…。！？؟")  # noqa: RUF001 - CJK
_MARKS_SHARE = 0.09
_CODE_SHARE = 0.4
_DIGITS_SHARE = 0.3
_RUN = 2
"""Lines in a row from which on they are a paste."""
_LONG_LINE = 200
"""Characters from which on a single line is one."""
_LONGEST_JUDGED = 2000


@dataclass(frozen=True, slots=True)
class Message:
    """A message, taken apart."""

    written: str
    """What is left without pastes."""
    pastes: tuple[tuple[str, ...], ...]
    """The lines of each, in order."""


def take_apart(text: str) -> Message:
    """Tell the words of a person from what they pasted.

    Args:
        text: A message.

    Returns:
        Both parts; fenced code is always a paste.
    """
    pastes: list[tuple[str, ...]] = []

    def fenced(match: re.Match[str]) -> str:
        pastes.append(tuple(match[2].split("\n")))
        return "\n"

    lines = _FENCED.sub(fenced, text).split("\n")
    machine = [_is_machine(line) for line in lines]
    _close_gaps(lines, machine)
    written: list[str] = []
    at = 0
    while at < len(lines):
        end = at
        while end < len(lines) and machine[end] == machine[at]:
            end += 1
        run = lines[at:end]
        worded = [line for line in run if line.strip()]
        is_paste = machine[at] and (
            len(worded) >= _RUN or any(len(line) > _LONG_LINE for line in worded)
        )
        if is_paste:
            pastes.append(tuple(run))
        else:
            written += run
        at = end
    return Message("\n".join(written), tuple(pastes))


def _close_gaps(lines: list[str], machine: list[bool]) -> None:
    """What stands between lines of a paste and is no sentence belongs to it, as do blank lines."""
    last = None
    for at, is_machine in enumerate(machine):
        if not is_machine:
            continue
        if last is not None and at - last > 1:
            between = lines[last + 1 : at]
            worded = [line for line in between if line.strip()]
            if len(worded) <= 1 and not any(_is_sentence(line) for line in worded):
                machine[last + 1 : at] = [True] * len(between)
        last = at


def _is_sentence(line: str) -> bool:
    """Whether a line says something in words and ends as a sentence does."""
    end = len(line)
    while end and not (line[end - 1].isalnum() or line[end - 1] == "_"):
        end -= 1
    if _SENTENCE_ENDS.isdisjoint(line[end:]):
        return False
    word = re.search(r"\w", line)
    return word is not None and any(char.isalpha() for char in line[word.end() : end])


def _is_machine(line: str) -> bool:
    line = line[:_LONGEST_JUDGED]
    if not line.strip():
        return False
    if _MACHINE_LINE.match(line):
        return True
    bare = line.strip()
    size = len(bare)
    if len(_MARK.findall(bare)) > max(2, size * _MARKS_SHARE):
        return True
    if sum(map(str.isdigit, bare)) > size * _DIGITS_SHARE:
        return True
    words = bare.split()
    if len(_DELIMITED.findall(bare)) >= max(2, len(words)):
        return True
    return sum(bool(_CODE_WORD.match(word)) for word in words) > len(words) * _CODE_SHARE
