"""Scripts for the chatbot: what is typed, and what the answers must hold.

A line is typed as it stands. ``expect: TEXT`` says what the answer before it must contain, whatever
its case and spacing. ``# …`` is a comment. ``--- new session ---`` begins another session, which
runs in a process of its own, so that nothing but Hindsight carries anything over.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

_EXPECT = "expect:"


class ScriptError(Exception):
    """A script cannot be read; the message says why."""


@dataclass(frozen=True, slots=True)
class Step:
    """A line to type, and what its answer must contain."""

    line: str
    expected: tuple[str, ...] = ()

    def missing(self, answer: str) -> tuple[str, ...]:
        """What an answer lacks."""
        found = _normal(answer)
        return tuple(text for text in self.expected if _normal(text) not in found)


def read_script(path: Path) -> list[list[Step]]:
    """Read the sessions of a script.

    Raises:
        ScriptError: If it cannot be read, types nothing, or expects something of no answer.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        msg = f"The script {path} cannot be read: {error}"
        raise ScriptError(msg) from error
    sessions: list[list[Step]] = [[]]
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if line.startswith("---"):
            sessions.append([])
        elif line.lower().startswith(_EXPECT):
            if not sessions[-1]:
                msg = f"{path}, line {number}: there is no answer yet to expect anything of."
                raise ScriptError(msg)
            step = sessions[-1][-1]
            wanted = line[len(_EXPECT) :].strip()
            sessions[-1][-1] = Step(step.line, (*step.expected, wanted))
        elif line and not line.startswith("#"):
            sessions[-1].append(Step(line))
    played = [session for session in sessions if session]
    if not played:
        msg = f"The script {path} types nothing."
        raise ScriptError(msg)
    return played


def _normal(text: str) -> str:
    return " ".join(text.casefold().split())
