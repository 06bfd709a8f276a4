"""What is kept of a conversation: pure functions from messages to lines.

Kept is what people and the assistant said, which tools were called with what, and tool errors. Not
kept are system messages, tool results that were not asked for, reasoning, images and files (a
marker stands in their place), whatever Hindsight's own tools took or returned, and every recalled
block, also where a model quotes it, and every memory that a tool's result gives without the fence.
Nothing here masks or cuts except `content` and `shortened`,
which are applied to what is written down.
"""

from __future__ import annotations

import hashlib
import json
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Literal

from langchain_hindsight.fence import INJECTED_KEY, strip_recalled
from langchain_hindsight.recalled_texts import documents_in, without

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage

Role = Literal["human", "ai", "tool"]

OWN_TOOLS = "hindsight_"
"""How the names of Hindsight's own tools begin."""

CONTEXT_MESSAGES = 2
"""How many earlier messages are another's context; measured, see the documentation on quality."""

_ROLES: Mapping[str, Role] = {
    "human": "human",
    "HumanMessageChunk": "human",
    "user": "human",
    "ai": "ai",
    "AIMessageChunk": "ai",
    "assistant": "ai",
    "tool": "tool",
    "ToolMessageChunk": "tool",
    "function": "tool",
}
_SPEAKERS: Mapping[Role, str] = {"human": "user", "ai": "assistant", "tool": "tool"}
_SPOKEN_BLOCKS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}
_MARKERS = ("image", "audio", "video", "file")
_FILE_BLOCKS = {"document", "media", "text-plain"}
_TIME_KEYS = ("timestamp", "created_at", "sent_at")
_PLAIN_ID = re.compile(
    r"(?:[a-z_]{1,12}-{1,2})?[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?:-\d+)?"
)
"""Ids as LangChain makes them, which hold no credential."""
_IDS = 4_096
_DEEPEST = 40
"""Levels of a tool's arguments that are kept."""
_ERROR_CHARS = 500
_MASK_MARGIN = 16_384
_EPOCH = (1e9, 1e10)
_YEARS = (2, 9998)
"""The first and the last year stand for "unknown" in many programs; the server refuses them."""
_CUT_OFF = "[the answer was cut off here]"


@dataclass(frozen=True, slots=True)
class Line:
    """What is kept of one message, not yet masked or cut."""

    role: Role
    said: str
    """The text parts, in order; blank for a message that only calls tools."""
    calls: tuple[tuple[str, Any], ...] = ()
    """Names and arguments of the tools that it calls."""
    name: str | None = None
    """Who spoke, where the message says so; the tool's name for what a tool returned."""
    message_id: str | None = None
    fingerprint: str = ""
    """Equal for messages that would be kept alike, whatever their ids."""

    @property
    def starts_turn(self) -> bool:
        """Whether a person speaks."""
        return self.role == "human"

    @property
    def is_speech(self) -> bool:
        """Whether a person or the assistant says something, rather than only using tools."""
        return self.role != "tool" and bool(self.said)

    @property
    def speaker(self) -> str:
        """Who speaks, so that several people and several agents stay apart."""
        role = _SPEAKERS[self.role]
        return f"{self.name} ({role})" if self.name else role


@dataclass(frozen=True, slots=True)
class _Turn:
    """The positions between two messages of people, and the tool calls there by their ids."""

    start: int = 0
    end: int = 0
    calls: Mapping[str, list[tuple[int, str]]] = field(default_factory=dict)


class Transcript:
    """The lines of a list of messages, each made only when asked for.

    Args:
        messages: The conversation, or its new part.
        roles: Whose messages are kept.
        tools: Names of tools whose results are kept.
        recalled: Gives what was recalled lately; asked once, when a tool's result is kept.
        mask: Whether credentials in ids are masked. What is said is masked by `content`.
    """

    def __init__(
        self,
        messages: Sequence[BaseMessage],
        *,
        roles: Sequence[str],
        tools: Sequence[str],
        recalled: Callable[[], Iterable[str]] = tuple,
        mask: bool = False,
    ) -> None:
        """Look at nothing yet."""
        self._messages = messages
        self._roles = frozenset(roles)
        self._tools = frozenset(tools)
        self._recalled = cache(lambda: tuple(recalled()))
        self._mask = mask
        self._ids: dict[int, str | None] = {}
        self._lines: dict[int, Line | None] = {}
        self._turn = _Turn()

    def __len__(self) -> int:
        """How many messages there are."""
        return len(self._messages)

    def message_id(self, index: int) -> str | None:
        """The id of a message, if it has one."""
        if index not in self._ids:
            self._ids[index] = _id(self._messages[index], mask=self._mask)
        return self._ids[index]

    def line(self, index: int) -> Line | None:
        """What is kept of a message; None where that is nothing."""
        if index not in self._lines:
            self._lines[index] = self._keep(index)
        return self._lines[index]

    def said_at(self, index: int) -> datetime | None:
        """When a message says that it was said, if it does so with a time zone."""
        message = self._messages[index]
        for source in (message.additional_kwargs, message.response_metadata):
            for key in _TIME_KEYS:
                if (found := _aware(source.get(key))) is not None:
                    return found
        return None

    def speech(self, end: int) -> Iterator[tuple[int, Line]]:
        """What is kept of what was said before a position, the last first."""
        for index in range(end - 1, -1, -1):
            line = self.line(index)
            if line is not None and self.is_kept(line):
                yield index, line

    def is_kept(self, line: Line) -> bool:
        """Whether somebody says something whose words are kept."""
        return line.is_speech and line.role in self._roles

    def newest_turn(self) -> int:
        """Where the last message of a person stands, or else the last that anybody said."""
        last = None
        for index in range(len(self._messages) - 1, -1, -1):
            line = self.line(index)
            if line is None:
                continue
            if line.starts_turn:
                return index
            if last is None and line.is_speech:
                last = index
        return last or 0

    def may_keep(self, index: int) -> bool:
        """Whether there is something to keep of a message, and its role is kept."""
        line = self.line(index)
        return line is not None and (not line.is_speech or line.role in self._roles)

    def starts_turn(self, index: int) -> bool:
        """Whether a person speaks at a position."""
        line = self.line(index)
        return line is not None and line.starts_turn

    def every(self, start: int) -> list[int]:
        """The positions, from one on, of all that could ever be kept."""
        return [at for at in range(start, len(self._messages)) if self.line(at) is not None]

    def settled(self, start: int) -> list[int]:
        """The positions, from one on, of what can be kept now.

        Tool traffic waits for the answer that it leads to. Where the next turn begins without one,
        errors and results are kept and the calls are not.
        """
        kept: list[int] = []
        pending: list[int] = []
        for index in range(start, len(self._messages)):
            line = self.line(index)
            if line is None:
                continue
            if not line.is_speech:
                pending.append(index)
                continue
            if line.starts_turn:
                pending = [one for one in pending if not self._only_calls(one)]
            kept += pending
            pending = []
            if line.role in self._roles:
                kept.append(index)
        return kept

    def _only_calls(self, index: int) -> bool:
        line = self.line(index)
        return line is not None and line.role == "ai"

    def _keep(self, index: int) -> Line | None:
        message = self._messages[index]
        role = _role(message)
        if role is None or _made_by_framework(message, role):
            return None
        if role == "tool":
            return self._keep_tool(message, index)
        said = _said(message.content)
        if role == "ai":
            said = _without_thinking(said)
            if said and _is_cut_off(message):
                said = f"{said} {_CUT_OFF}"
        calls = _calls(message) if role == "ai" and "ai" in self._roles else ()
        if not said and not calls:
            return None
        return _line(self.message_id(index), role, said, calls, message.name)

    def _keep_tool(self, message: BaseMessage, index: int) -> Line | None:
        name = clean(message.name) if message.name else self._called(message, index)
        if name and name.startswith(OWN_TOOLS):
            return None
        failed = getattr(message, "status", None) == "error"
        if not (failed or name in self._tools or "tool" in self._roles):
            return None
        documents, nothing_else = documents_in(getattr(message, "artifact", None))
        if nothing_else:
            return None
        returned = _said(message.content)
        said = without(returned, self._recalled(), certain=documents) if returned else ""
        if not said:
            return None
        if failed:
            returned, said = (shortened(f"Error: {one}", _ERROR_CHARS) for one in (returned, said))
        # Known by what the tool returned: that stays the same when the recall is long forgotten.
        return replace(_line(self.message_id(index), "tool", returned, (), name), said=said)

    def _called(self, message: BaseMessage, index: int) -> str | None:
        """The name of the tool that a result without a name answers."""
        if not self._turn.start <= index < self._turn.end:
            self._turn = self._turn_around(index)
        made = self._turn.calls.get(str(getattr(message, "tool_call_id", None)), [])
        last = bisect_left(made, (index, "")) - 1
        return made[last][1] if last >= 0 else None

    def _turn_around(self, index: int) -> _Turn:
        """The turn that a message belongs to, with the calls in it, looked through once."""
        start = end = index
        while start > 0 and _role(self._messages[start - 1]) != "human":
            start -= 1
        while end < len(self._messages) and _role(self._messages[end]) != "human":
            end += 1
        calls: dict[str, list[tuple[int, str]]] = {}
        for place in range(start, end):
            for call in getattr(self._messages[place], "tool_calls", None) or ():
                calls.setdefault(str(call.get("id")), []).append((place, clean(str(call["name"]))))
        return _Turn(start, end, calls)


def content(line: Line, *, mask: bool, max_chars: int) -> tuple[str, int]:
    """A line as it is written down: the speaker, what was said and which tools were called.

    Args:
        line: What was kept.
        mask: Whether credentials are masked.
        max_chars: Longest text kept, in characters.

    Returns:
        The text, and how many characters were cut.
    """
    from langchain_hindsight.redaction import redact, redact_value  # slow to compile

    said = line.said[: max_chars + _MASK_MARGIN]
    parts = [redact(said) if mask else said] if said else []
    for name, arguments in line.calls:
        # A block may stand in an argument's lines, each a text of its own.
        shown = strip_recalled(_json(redact_value(arguments) if mask else arguments))
        called = f"{redact(name)}({redact(shown)})" if mask else f"{name}({shown})"
        parts.append(f"[called {called}]")
    text, lost = _cut(clean("\n".join(parts)), max_chars, unread=len(line.said) - len(said))
    speaker = redact(line.speaker) if mask and line.name else line.speaker
    return f"{speaker}: {text}", lost


def note_content(text: str, *, mask: bool, max_chars: int) -> tuple[str, int]:
    """A note as it is written down, and how many characters were cut; as `content`."""
    from langchain_hindsight.redaction import redact  # slow to compile

    read = text[: max_chars + _MASK_MARGIN]
    return _cut(redact(read) if mask else read, max_chars, unread=len(text) - len(read))


def _cut(text: str, max_chars: int, *, unread: int) -> tuple[str, int]:
    lost = max(0, len(text) - max_chars) + unread
    return (f"{text[:max_chars]} [cut: {lost} more characters]" if lost else text), lost


def shortened(text: str, limit: int) -> str:
    """A text, or its beginning with an ellipsis."""
    return text if len(text) <= limit else f"{text[: limit - 1].rstrip()}…"


def clean(text: str) -> str:
    """A text that JSON and PostgreSQL can hold: no NUL, no half of a surrogate pair."""
    if text.isascii():
        return text.replace("\0", "")
    return text.replace("\0", "").encode("utf-8", "replace").decode("utf-8")


def _role(message: BaseMessage) -> Role | None:
    kind = message.type
    return _ROLES.get(str(getattr(message, "role", "")) if kind == "chat" else kind)


def _made_by_framework(message: BaseMessage, role: Role) -> bool:
    """Whether a message says of itself that nobody said it."""
    extra = message.additional_kwargs
    if role == "human" and extra.get("lc_source"):
        return True
    return bool(extra.get(INJECTED_KEY)) and not _said(message.content)


def _line(
    message_id: str | None,
    role: Role,
    said: str,
    calls: tuple[tuple[str, Any], ...],
    name: str | None,
) -> Line:
    name = clean(name) if name else None
    parts = (role, name or "", said, _json(calls) if calls else "", "")
    words = "\0".join(parts).encode("utf-8", "surrogatepass")
    return Line(
        role=role,
        said=said,
        calls=calls,
        name=name,
        message_id=message_id,
        fingerprint=hashlib.blake2b(words, digest_size=16).hexdigest(),
    )


def _id(message: BaseMessage, *, mask: bool) -> str | None:
    """A message's id as a database may hold it, and still different from every other."""
    return _shown_id(message.id, mask) if message.id else None


@lru_cache(_IDS)  # a message is looked at again with each of the next few turns
def _shown_id(given: str, mask: bool) -> str:  # noqa: FBT001 - half of the cache's key
    shown = clean(given)
    if mask and not _PLAIN_ID.fullmatch(shown):
        from langchain_hindsight.redaction import redact  # slow to compile

        shown = redact(shown)
    if shown == given:
        return shown
    raw = given.encode("utf-8", "surrogatepass")
    return f"{shown}-{hashlib.blake2b(raw, digest_size=8).hexdigest()}"


def _said(raw: object) -> str:
    """The text parts of a content, in order, without recalled blocks."""
    if isinstance(raw, str):
        return clean(strip_recalled(raw).strip())
    if not isinstance(raw, Sequence):
        return ""
    parts = [_block_text(block) for block in raw]
    return clean(strip_recalled("\n".join(part for part in parts if part)).strip())


def _block_text(block: object) -> str:
    if isinstance(block, str):
        return block
    if not isinstance(block, Mapping):
        return ""
    kind = str(block.get("type", ""))
    if kind in _SPOKEN_BLOCKS:
        text = block.get(_SPOKEN_BLOCKS[kind])
        return text if isinstance(text, str) else ""
    if kind in _FILE_BLOCKS:
        return "[file]"
    plain = kind.removeprefix("input_").removesuffix("_url")
    return f"[{plain}]" if plain in _MARKERS else ""


def _without_thinking(said: str) -> str:
    """What follows the reasoning that some servers leave in the text."""
    if not said.startswith("<think>"):
        return said
    return said.partition("</think>")[2].strip()


def _is_cut_off(message: BaseMessage) -> bool:
    """Whether a streamed answer says nowhere that it came to its end."""
    if message.type != "AIMessageChunk" or getattr(message, "chunk_position", None) == "last":
        return False
    ends = ("finish_reason", "stop_reason", "done_reason", "done")
    return not any(message.response_metadata.get(key) for key in ends)


def _calls(message: BaseMessage) -> tuple[tuple[str, Any], ...]:
    """Names and arguments, but for Hindsight's own tools: what those took is stored already."""
    return tuple(
        (clean(str(call["name"])), _stripped(call.get("args")))
        for call in getattr(message, "tool_calls", None) or ()
        if not str(call["name"]).startswith(OWN_TOOLS)
    )


def _stripped(value: object, within: tuple[int, ...] = ()) -> Any:  # noqa: ANN401 - plain JSON
    """A tool's arguments as plain JSON, whatever they are, without recalled blocks."""
    if isinstance(value, str):
        return strip_recalled(value)
    if value is None or isinstance(value, bool | int | float):
        return value
    if not isinstance(value, Mapping | list | tuple):
        return _shown(value)
    if id(value) in within or len(within) >= _DEEPEST:
        return "[cut]"
    within = (*within, id(value))
    if isinstance(value, Mapping):
        return {_shown(key): _stripped(one, within) for key, one in value.items()}
    return [_stripped(one, within) for one in value]


def _shown(value: object) -> str:
    try:
        return strip_recalled(str(value))
    except Exception:  # noqa: BLE001 - an argument's own text may raise anything
        return f"[{type(value).__name__}]"


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _aware(stamp: object) -> datetime | None:
    if isinstance(stamp, int | float) and _EPOCH[0] <= stamp < _EPOCH[1]:
        return datetime.fromtimestamp(stamp, UTC)
    if isinstance(stamp, str):
        try:
            stamp = datetime.fromisoformat(stamp)
        except ValueError:
            return None
    if not isinstance(stamp, datetime) or stamp.tzinfo is None:
        return None
    return stamp if _YEARS[0] <= stamp.year <= _YEARS[1] else None
