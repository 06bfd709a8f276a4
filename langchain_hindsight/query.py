"""What to search memory for: the person's own words, and as much of the talk before as helps.

Only text that a person or the model wrote takes part: no recalled blocks, tool traffic, reasoning
or images, and no pasted logs or code beside a question. Of a long message its questions are kept
and what they point at, or else its first and its last sentence, so that a question survives
wherever it stands: the server looks for sixteen words of a query, and for the meaning of the whole.
A query stays within its characters and below the server's cap of 500 tokens. The work is done from
the end of the thread and does not grow with its length.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from langchain_hindsight.budget import STOP_WORDS, count_tokens
from langchain_hindsight.fence import INJECTED_KEY, strip_recalled
from langchain_hindsight.lookalikes import readable
from langchain_hindsight.pasted import Message, take_apart

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage, HumanMessage

MAX_QUERY_TOKENS = 400
"""Most tokens of a query. The server refuses more than 500; what is left is for a preamble."""

_NO_WORDS = "the message has no words to search for"
_NO_PERSON = "there is no message from a person to search for"

_TEXT_BLOCKS = frozenset({"text", "input_text", "output_text"})
_TOOL_BLOCKS = frozenset({"tool_result", "function_call_output", "function_response"})
_WORD = re.compile(r"[^\W_]+")
_LOOK_BACK = 200
"""Most messages that are looked at for what was said before."""

_READ_CHARS = 32_000
"""What is read at each end of a longer text."""
_PROSE_WORDS = 3
"""Words beside a paste from which on it gives way to them."""
_FOCUS_CHARS = 240
"""Characters of a message from which on its questions stand for it."""
_LONG_CHARS = 600
"""Characters from which on its first and last sentence do, where it asks nothing."""
_MOST_QUESTIONS = 3
"""Of more of them the first and the last ones are kept."""
_CONTENT_WORDS = 2
"""Words that say something, from which on questions stand for a message alone."""
_NAMING_WORDS = 4
"""Words that say something, from which on a question that points at something names it too."""
_COURTESIES = frozenset(
    _WORD.findall(
        """
        advance advice advise anybody anyone appreciate back check checking clue clues got guess
        hand happen hear hello help hey hi idea ideas know knows look looking lot make makes
        maybe mean means mind need okay ok opinion perhaps please possible quick quickly really
        reckon right say sense share somebody someone sorry suggestion suggestions sure take
        taking thank thanks think thinking thought thoughts time today tomorrow tonight
        understand understood want wanted wondering wrong
        """
    )
)
"""Words of asking itself: "could anyone please have a look?" says nothing of what is asked."""
_QUOTED_WORDS = 8
"""Most words of an error message that help a question with too few words of its own."""
_BETWEEN_SENTENCES = re.compile(r"(?<=[.!?…؟])\s+|(?<=[。！？])|\n+")  # noqa: RUF001 - CJK
_QUESTION_MARKS = frozenset("?？؟\u037e")  # noqa: RUF001 - those of other scripts
_FAILURE = re.compile(r"error|exception|fail|fatal|denied|refused|panic", re.IGNORECASE)
_CUT = " … "

_HELPED_BY_CONTEXT = ((4, 1.0), (8, 0.5), (12, 0.25))
"""Up to how many words a message takes how much of the room for what was said before it."""
_POINTING_NEED, _NAMING_NEED = 2, 6
"""What a word that says something counts for, in a message that points at something or not."""
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
_LETTERS = re.compile(r"[^\W\d_]{2,}")
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
    words, content = _count(_WORD.findall(text)), _content_words(text)
    if content < words:  # by its stop words it is English, and tells what it says by itself
        words = content * (_POINTING_NEED if _POINTING.search(text) else _NAMING_NEED)
    share = next((share for most, share in _HELPED_BY_CONTEXT if words <= most), 0.0)
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
    """What a text is about, within both caps: the head and the tail of what is still too long."""
    if chars <= 0 or tokens <= 0:
        return ""
    if len(text) > 2 * _READ_CHARS:
        text = f"{text[:_READ_CHARS]}\n{_CUT.strip()}\n{text[-_READ_CHARS:]}"
    text = _asked(readable(text))
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


def _asked(text: str) -> str:
    """What a message is about: what was written rather than pasted, and of much of it the gist.

    A message that is little else than a paste keeps all of it. A question with few words of its
    own, such as "what does this mean?", takes along what the paste says went wrong.
    """
    message = take_apart(text)
    written = _tidied(message.written)
    if message.pastes and _count(_WORD.findall(written)) < _PROSE_WORDS:
        return _tidied(text)
    gist = _gist(written)
    if message.pastes and _content_words(gist) < _CONTENT_WORDS:
        gist = f"{_failure(message)}\n{gist}".strip()
    return gist


def _gist(text: str) -> str:
    """A short text as it is; of a long one its questions, and what they need to be understood."""
    if len(text) <= _FOCUS_CHARS:
        return text
    sentences = [one for one in _BETWEEN_SENTENCES.split(text) if any(map(str.isalpha, one))]
    if not sentences:
        return text
    asking = [at for at, one in enumerate(sentences) if _is_question(one)]
    asking = asking[:1] + asking[1:][1 - _MOST_QUESTIONS :]
    # What a question points at mostly stands before it.
    kept = {*asking, *(at - 1 for at in asking if at and _points_away(sentences[at]))}
    if _content_words("\n".join(sentences[at] for at in asking)) < _CONTENT_WORDS:
        if len(text) <= _LONG_CHARS:
            return text
        kept |= {0, len(sentences) - 1}
    return "\n".join(sentences[at] for at in sorted(kept))


def _is_question(sentence: str) -> bool:
    """Whether a question mark stands behind a sentence's last word."""
    behind = itertools.takewhile(lambda char: not char.isalnum(), reversed(sentence))
    return not _QUESTION_MARKS.isdisjoint(behind)


def _points_away(question: str) -> bool:
    """Whether a question does not say by itself what it is about."""
    return bool(_POINTING.search(question)) and _content_words(question) < _NAMING_WORDS


def _failure(message: Message) -> str:
    """The words of the last line in which a paste says what went wrong."""
    lines = [line for paste in message.pastes for line in paste if _FAILURE.search(line)]
    return " ".join(_LETTERS.findall(lines[-1])[-_QUOTED_WORDS:]) if lines else ""


def _content_words(text: str) -> int:
    """How many words say something; of languages other than English all do."""
    words = _WORD.findall(text.casefold())
    return _count(word for word in words if word not in STOP_WORDS and word not in _COURTESIES)


def _count(words: Iterable[str]) -> int:
    """How many words there are; scripts without blanks are counted by characters."""
    return sum(
        1 if word.isascii() else max(1, len(word) // _UNSPACED_CHARS_A_WORD) for word in words
    )


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
