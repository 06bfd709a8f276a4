"""The conversations that recall is judged by: written by hand, one file each, with marked evidence.

A file holds the messages, each on a line that begins with ``h: `` (the person) or ``a: `` (the
model), then ``---`` and the questions: ``? `` begins one, and each ``= `` below it is a piece of
text out of the one message that holds (a part of) the answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

FOLDER = Path(__file__).parent / "conversations"
_HELD_OUT_EACH = 3
_SPEAKERS: dict[str, type[BaseMessage]] = {"h": HumanMessage, "a": AIMessage}


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked later, in a thread of its own."""

    text: str
    evidence: tuple[str, ...]
    """Each a part of a different message."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """One thread, and what is asked about it."""

    name: str
    messages: tuple[BaseMessage, ...]
    questions: tuple[Question, ...]
    held_out: bool
    """Whether it took no part in choosing any default."""

    @property
    def kind(self) -> str:
        """``coding`` or ``personal``, and where it is not English its language behind it."""
        return self.name.split("_", 1)[0]


def read_all() -> list[Conversation]:
    """Read every conversation, in the order of their names.

    Raises:
        ValueError: If a line is none of the above, or evidence is not in exactly one message.
    """
    kinds: dict[str, int] = {}
    found = []
    for path in sorted(FOLDER.glob("*.txt")):
        kind = path.stem.split("_", 1)[0]
        kinds[kind] = kinds.get(kind, 0) + 1
        found.append(_read(path, held_out=kinds[kind] % _HELD_OUT_EACH == 0))
    return found


def _read(path: Path, *, held_out: bool) -> Conversation:
    said, _, asked = path.read_text(encoding="utf-8").partition("\n---\n")
    messages = []
    for at, line in enumerate(said.splitlines()):
        speaker, separator, text = line.partition(": ")
        if not separator or speaker not in _SPEAKERS:
            msg = f"{path.name}: {line!r} begins with neither 'h: ' nor 'a: '"
            raise ValueError(msg)
        messages.append(_SPEAKERS[speaker](text, id=f"{path.stem}-{at}"))
    questions = tuple(_questions(asked.splitlines(), path.name))
    for piece in (piece for question in questions for piece in question.evidence):
        holders = sum(piece in str(message.content) for message in messages)
        if holders != 1:
            msg = f"{path.name}: {piece!r} is in {holders} messages, not in one"
            raise ValueError(msg)
    return Conversation(path.stem, tuple(messages), questions, held_out)


def _questions(lines: list[str], name: str) -> Iterator[Question]:
    for at, line in enumerate(lines):
        if line.startswith("? "):
            below = lines[at + 1 :]
            end = next((n for n, one in enumerate(below) if not one.startswith("= ")), len(below))
            yield Question(line[2:], tuple(one[2:] for one in below[:end]))
        elif not line.startswith("= "):
            msg = f"{name}: {line!r} begins with neither '? ' nor '= '"
            raise ValueError(msg)
