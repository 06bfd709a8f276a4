"""What to search memory for: the person's own words, and as much of the talk before as helps.

Only text that a person or the model wrote takes part: no recalled blocks, tool traffic, reasoning
or images. A query stays within its characters and below the server's cap of 500 tokens; of a long
paste the head and the tail are kept, code and logs giving way first, so that the question survives
wherever it stands. The work is done from the end of the thread and does not grow with its length.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from langchain_hindsight.budget import count_tokens
from langchain_hindsight.fence import INJECTED_KEY, strip_recalled
from langchain_hindsight.lookalikes import readable

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage, HumanMessage

MAX_QUERY_TOKENS = 400
"""Most tokens of a query. The server refuses more than 500; what is left is for a preamble."""

_NO_WORDS = "the message has no words to search for"
_NO_PERSON = "there is no message from a person to search for"

_TEXT_BLOCKS = frozenset({"text", "input_text", "output_text"})
_TOOL_BLOCKS = frozenset({"tool_result", "function_call_output", "function_response"})
_LOOK_BACK = 200
"""Most messages that are looked at for what was said before."""

_READ_FACTOR = 24
"""How many times the cap is read at each end of a longer text, before code and logs give way."""
_CODE = re.compile(
    r"^[ \t]*(```|~~~)[^\n]*\n(.*?)(?:^[ \t]*\1[^\n]*$|\Z)", re.DOTALL | re.MULTILINE
)
_LOG_LINE = re.compile(
    r"\s*[\[(]?(?:\d{4}-\d\d-\d\d|\d\d:\d\d:\d\d|\d\d/\w{2,3}/\d{2,4})"
    r"|[^a-z]{0,60}\b(?:TRACE|DEBUG|INFO|NOTICE|WARN(?:ING)?|ERROR|CRITICAL|FATAL)\b"
    r"|\s+at\s|\s*File \"|Traceback|Caused by:|\s{4}|\t|[+>#$|]\s"
    r"|.*[{};]\s*$|[\W\d_]*$"
)
_BULK_LINES = 4
"""Lines of a log or of code in a row that give way."""
_PROSE_WORDS = 3
"""Words beside code and logs from which on those give way."""
_LINE_CHARS = 160
"""What is kept of a line of code or log."""
_CUT = " … "

_HELPED_BY_CONTEXT = ((4, 1.0), (8, 0.5), (12, 0.25))
"""Up to how many words a message takes how much of the room for what was said before it."""
_POINTING = re.compile(
    r"\b(?:it|its|that|this|these|those|they|them|their|he|him|his|she|her|there|then|one|ones"
    r"|other|another|former|latter|same|first|second|third|last|previous|above|instead|too|also"
    r"|else|again|more)\b",
    re.IGNORECASE,
)
_CONTEXT_CHARS = 480
"""Most characters of what was said before, however large the cap."""
_SAID_CHARS = 200
"""Most characters of one earlier message."""
_WORD = re.compile(r"[^\W_]+")
_UNSPACED_CHARS_A_WORD = 2


@dataclass(frozen=True, slots=True)
class Query:
    """What to search for, or why there is nothing to."""

    text: str = ""
    reason: str | None = None
    """Why no request is made; None where ``text`` holds a query."""


def compose_query(
    query_or_messages: str | BaseMessage | Sequence[Any],
    *,
    context_turns: int,
    max_query_chars: int,
) -> Query:
    """Make the query of a recall.

    Args:
        query_or_messages: A query, or a thread in any form that LangChain takes for messages.
        context_turns: How many turns before the person's message may join it. The shorter the
            message and the more it points at something, the more of them is used.
        max_query_chars: Most characters of the query.

    Returns:
        The query. Where the person's message has no words, there is none, whatever was said before.
    """
    if isinstance(query_or_messages, str):
        asked = strip_recalled(query_or_messages)
        earlier: Iterator[BaseMessage] = iter(())
    else:
        earlier = _backwards(query_or_messages)
        message = next(filter(_is_from_person, earlier), None)
        if message is None:
            return Query(reason=_NO_PERSON)
        asked = message_text(message)
    text = _shortened(asked, max_query_chars, MAX_QUERY_TOKENS)
    if not _has_words(text):
        # The few words that there are may stand amid so much else that they were cut.
        text = _shortened(_from_first_word(readable(asked)), max_query_chars, MAX_QUERY_TOKENS)
    if not _has_words(text):
        return Query(reason=_NO_WORDS)
    room = min(_context_room(text), max_query_chars - len(text) - 1)
    said = _said_before(earlier, context_turns, room)
    if said:
        said = _shortened(said, room, MAX_QUERY_TOKENS - _cost(text) - 1)
    return Query(f"{said}\n{text}" if _has_words(said) else text)


def turn_message(messages: Sequence[Any]) -> HumanMessage | None:
    """Find the message with which a person began the present turn.

    Args:
        messages: The thread, in any form that LangChain takes for messages.

    Returns:
        The last human message that a person wrote, which excludes tool results, summaries made by
        a middleware and injected memory; None where there is none.
    """
    return next(filter(_is_from_person, _backwards(messages)), None)  # type: ignore[return-value]  # told by its type


def message_text(message: BaseMessage) -> str:
    """Read what a message says, as its author wrote it.

    Args:
        message: Any message.

    Returns:
        Its text parts in order, without recalled blocks; images, reasoning and tool parts are
        left out.
    """
    content = message.content
    parts = [content] if isinstance(content, str) else [_part_text(part) for part in content]
    said = (strip_recalled(part) for part in parts if part)
    return "\n".join(part for part in said if part.strip())


def _part_text(part: str | dict[Any, Any]) -> str:
    if isinstance(part, str):
        return part
    text = part.get("text") if part.get("type") in _TEXT_BLOCKS else None
    return text if isinstance(text, str) else ""


def _backwards(messages: BaseMessage | Sequence[Any]) -> Iterator[BaseMessage]:
    """The messages from the last to the first, converted only as far as they are looked at."""
    from langchain_core.messages import BaseMessage, convert_to_messages

    if isinstance(messages, BaseMessage):
        yield messages
        return
    for message in reversed(messages):
        yield message if isinstance(message, BaseMessage) else convert_to_messages([message])[0]


def _is_from_person(message: BaseMessage) -> bool:
    if message.type != "human" or message.additional_kwargs.get("lc_source") == "summarization":
        return False
    if INJECTED_KEY in message.additional_kwargs and not message_text(message).strip():
        # An image beside the block is the person's all the same.
        return not isinstance(message.content, str) and any(
            isinstance(part, dict) and part.get("type") not in _TEXT_BLOCKS
            for part in message.content
        )
    return not _is_tool_result(message)


def _is_tool_result(message: BaseMessage) -> bool:
    content = message.content
    return (
        isinstance(content, list)
        and bool(content)
        and all(isinstance(part, dict) and part.get("type") in _TOOL_BLOCKS for part in content)
    )


def _has_words(text: str) -> bool:
    return any(map(str.isalnum, text))


def _context_room(text: str) -> int:
    """How many characters of what was said before would help a message to be understood."""
    words = _WORD.findall(text)
    count = sum(
        1 if word.isascii() else max(1, len(word) // _UNSPACED_CHARS_A_WORD) for word in words
    )
    if _POINTING.search(text):
        count //= 2
    share = next((share for most, share in _HELPED_BY_CONTEXT if count <= most), 0.0)
    return int(_CONTEXT_CHARS * share)


def _said_before(earlier: Iterator[BaseMessage], turns: int, room: int) -> str:
    """What person and model said in the turns before, the nearest of it that there is room for."""
    said: list[str] = []
    for message in itertools.islice(earlier, _LOOK_BACK):
        if turns <= 0 or room <= 0:
            break
        from_person = _is_from_person(message)
        # A model's words beside a tool call announce the call and say little else.
        if from_person or (message.type == "ai" and not getattr(message, "tool_calls", None)):
            text = _shortened(message_text(message), min(room, _SAID_CHARS), MAX_QUERY_TOKENS)
            if _has_words(text):
                said.append(text)
                room -= len(text) + 1
        turns -= from_person
    return "\n".join(reversed(said))


def _shortened(text: str, chars: int, tokens: int) -> str:
    """A text within both caps, its head and tail kept, code and logs giving way first."""
    if chars <= 0 or tokens <= 0:
        return ""
    reach = _READ_FACTOR * (chars + _LINE_CHARS)
    if len(text) > 2 * reach:
        text = f"{text[:reach]}\n{_CUT.strip()}\n{text[-reach:]}"
    text = _tidied(_without_bulk(readable(text)))
    shown = _ends(text, chars)
    while shown and (count := _cost(shown, within=tokens)) > tokens:
        chars = min(len(shown) - 1, len(shown) * tokens // count)
        shown = _ends(text, chars)
    return shown


def _cost(text: str, *, within: int = MAX_QUERY_TOKENS // 2) -> int:
    """At least what a text costs in tokens, and exactly that where its bytes alone are too many.

    A token is a byte or more. Counting loads a vocabulary, once a process, for which a short
    question need not wait.
    """
    size = len(text.encode())
    return size if size <= within else count_tokens(text)


def _tidied(text: str) -> str:
    lines = (" ".join(line.split()) for line in text.split("\n"))
    return "\n".join(line for line in lines if line)


def _without_bulk(text: str) -> str:
    """The text with the middle of each code block and each run of log lines left out.

    A message that is little else keeps all of it: then that is what it is about.
    """
    prose = 0
    kept: list[str] = []
    lines = _CODE.sub(_shortened_code, text).split("\n")
    for is_log, run in itertools.groupby(lines, lambda line: bool(_LOG_LINE.match(line))):
        group = list(run)
        if is_log and len(group) >= _BULK_LINES:
            kept += _first_and_last(group)
        else:
            kept += group
            prose += 0 if is_log else sum(len(_WORD.findall(line)) for line in group)
    return "\n".join(kept) if prose >= _PROSE_WORDS else text


def _shortened_code(match: re.Match[str]) -> str:
    lines = match[2].strip("\n").split("\n")
    shown = _first_and_last(lines) if len(lines) >= _BULK_LINES else lines
    # Indented, it is no prose.
    return "\n".join(f"\t{line}" for line in shown)


def _first_and_last(lines: list[str]) -> list[str]:
    """A run's first line and its last one that says something, where an error has its message."""
    worded = [line.strip()[:_LINE_CHARS] for line in lines if _has_words(line)]
    return [worded[0], worded[-1]] if len(worded) > 1 else worded


def _ends(text: str, chars: int) -> str:
    """Head and tail of a text that is too long, cut between words where there are any."""
    if len(text) <= chars:
        return text
    if chars <= 0:
        return ""
    head = (chars - len(_CUT)) * 2 // 5
    tail = chars - len(_CUT) - head
    if head <= 0:
        return _from_first_word(text)[:chars].strip()
    before, behind = text[:head], text[-tail:]
    before = before.rsplit(None, 1)[0] if len(before.split()) > 1 else before
    behind = behind.split(None, 1)[1] if len(behind.split()) > 1 else behind
    cut = f"{before.strip()}{_CUT}{behind.strip()}"
    return cut if _has_words(cut) else _from_first_word(text)[:chars].strip()


def _from_first_word(text: str) -> str:
    first = next((at for at, char in enumerate(text) if char.isalnum()), len(text))
    return text[first:]
