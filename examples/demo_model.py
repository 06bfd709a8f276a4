"""`DemoModel`, a chat model without a language model, so that the examples run with no key.

It is deterministic and knows English word forms alone. It answers a question by quoting the line
that shares most words with it, from the memory block it is given, from notes in the system prompt
and from what the person said in this conversation; where none does, it says so. Asked to remember
something about the person, it calls ``hindsight_retain_life``. It makes nothing up, and understands
nothing: use a real model for anything but a look at the memory around it.
"""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from langchain_core.language_models import BaseChatModel
from langchain_core.language_models.chat_models import generate_from_stream
from langchain_core.messages import (
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.utils.function_calling import convert_to_openai_tool

from langchain_hindsight import fence

if TYPE_CHECKING:
    from langchain_core.callbacks import CallbackManagerForLLMRun
    from langchain_core.language_models import LanguageModelInput
    from langchain_core.messages import AIMessage
    from langchain_core.runnables import Runnable
    from langchain_core.tools import BaseTool

DESCRIPTION = "demo model: no language model, answers from the memory block it is given"

LIFE_TOOL = "hindsight_retain_life"

_NOTHING = "I find nothing about that, neither in memory nor in this conversation."
_GREETING = f"Hello. I am the {DESCRIPTION}. Tell me something, and ask me about it another day."

_ENOUGH = 1 / 3
"""Share of the question's words that a line must hold to be an answer."""
_AS_GOOD = 0.75
"""Share of the best line's score that a line of another source must reach to be quoted too."""
_MOST_QUOTED = 3

_REMEMBER = re.compile(
    r"^(?:and |also |so |now )?(?:please |(?:can|could|will|would) you (?:please )?)?"
    r"(?:remember|keep in mind|note)\b(?P<that>,? that|:)?[ ,]*(?P<what>.+)$",
    re.IGNORECASE | re.DOTALL,
)
_FIRST_PERSON = re.compile(r"\b(?:i|i'm|i've|me|my|mine|myself)\b", re.IGNORECASE)
_ASKING = re.compile(
    r"^(?:and |so |but )?(?:who|whom|whose|what|what's|which|when|where|why|how|is|are|was|were|am|"
    r"do|does|did|can|could|will|would|should|shall|has|have|had|may|tell me|remind me)\b",
    re.IGNORECASE,
)
_SPEAKER = re.compile(r"^(?:\S+ \()?(?P<role>user|assistant|tool)\)?: ", re.IGNORECASE)
_SAID = re.compile(r'^The user said: "(?P<what>.*)"$', re.DOTALL)
_BULLET = re.compile(r"^- (.+)$", re.MULTILINE)
_WORD = re.compile(r"[^\W_]+(?:['\u2019][^\W_]+)*")
_STOP_WORDS = frozenset(
    _WORD.findall(
        "a about after again all also am an and any are as at be because been before but by "
        "can could did do does for from had has have he hello her hey hi him his how i i'm "
        "i've if in into is it its just know let like may me mine more my myself no not now "
        "of on one or our ours please remember remind say she should so some tell than thank "
        "thanks that the their them then there these they this those to too up us use very "
        "was we were what what's when where which who whom whose why will with would yes you "
        "your yours"
    )
)


class DemoModel(BaseChatModel):
    """A small deterministic chat model that quotes what it is given; it streams and calls tools."""

    pause: float = 0.0
    """Seconds between two words, so that a person sees it stream."""

    @property
    def _llm_type(self) -> str:
        return "demo"

    def bind_tools(
        self,
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool],
        **kwargs: Any,  # noqa: ANN401 - the signature is LangChain's
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Offer it tools; it knows what to do with ``hindsight_retain_life`` alone."""
        return self.bind(tools=[convert_to_openai_tool(tool) for tool in tools], **kwargs)

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,  # noqa: ARG002 - the signature is LangChain's
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,  # noqa: ANN401 - the signature is LangChain's
    ) -> Iterator[ChatGenerationChunk]:
        names = {tool["function"]["name"] for tool in kwargs.get("tools", ())}
        answer = respond(messages, may_write_life=LIFE_TOOL in names)
        for number, message in enumerate(_chunks(answer)):
            if number and self.pause:
                time.sleep(self.pause)
            chunk = ChatGenerationChunk(message=message)
            if run_manager:
                run_manager.on_llm_new_token(message.text, chunk=chunk)
            yield chunk

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,  # noqa: ANN401 - the signature is LangChain's
    ) -> ChatResult:
        return generate_from_stream(self._stream(messages, stop, run_manager, **kwargs))


@dataclass(frozen=True, slots=True)
class Answer:
    """What the model says, or else what it wants the life tool to remember."""

    text: str = ""
    remember: str | None = None


@dataclass(frozen=True, slots=True)
class _Line:
    """Something it may quote, and how well that answers the question."""

    source: str
    text: str
    score: float = 0.0


def respond(messages: Sequence[BaseMessage], *, may_write_life: bool) -> Answer:
    """Decide what to answer to a conversation.

    Args:
        messages: What the model was sent, memory block and tool results included.
        may_write_life: Whether it was offered the life tool.
    """
    if messages and isinstance(messages[-1], ToolMessage):
        return Answer(f"I asked for that to be remembered about you. {messages[-1].text}")
    said = [text for text in map(_spoken, messages) if text]
    asked = said.pop() if said else ""
    request = _REMEMBER.match(asked)
    if request and (request["that"] or not _is_question(request["what"])):
        return _remembered(request["what"].strip(), may_write_life=may_write_life)
    words = _words(asked)
    if not words and not _is_question(asked):
        return Answer(_GREETING)
    found = _best(_lines(messages, said), words, asked)
    if _is_question(asked):
        return Answer(" ".join(f'{one.source}: "{one.text}"' for one in found) or _NOTHING)
    related = [one for one in found if one.score < 1]
    return Answer(" ".join(["Noted.", *(f'{one.source}: "{one.text}"' for one in related[:1])]))


def _remembered(what: str, *, may_write_life: bool) -> Answer:
    if not _FIRST_PERSON.search(what):
        return Answer("Noted, for this project: that is not about you yourself.")
    if not may_write_life:
        return Answer("I was given no Life Bank, so I can note that for this project alone.")
    # The person's own words, marked as such: rewriting them is for a model that understands them.
    return Answer(remember=f'The user said: "{what}"')


def _chunks(answer: Answer) -> Iterator[AIMessageChunk]:
    if answer.remember is None:
        for token in re.findall(r"\S+\s*", answer.text):
            yield AIMessageChunk(content=token)
        return
    call = {
        "name": LIFE_TOOL,
        "args": json.dumps({"content": answer.remember}),
        "id": f"call_{uuid.uuid4().hex}",
        "index": 0,
        "type": "tool_call_chunk",
    }
    yield AIMessageChunk(content="", tool_call_chunks=[call])


def _spoken(message: BaseMessage) -> str:
    """What the person said, without the memory block."""
    return fence.strip_recalled(message.text).strip() if isinstance(message, HumanMessage) else ""


def _lines(messages: Sequence[BaseMessage], said: Sequence[str]) -> Iterator[_Line]:
    """All that may be quoted: of memory the best comes first, of the conversation the latest."""
    blocks = [one.text for one in messages if fence.contains_block(one.text)]
    memory = fence.parse(blocks[-1]) if blocks else fence.Parsed()
    for text in memory.life:
        yield _Line("About you I know", _quotable(text))
    for text in memory.project:
        yield _Line("This project's memory says", _quotable(text))
    for text in (one.text for one in messages if isinstance(one, SystemMessage)):
        for note in _BULLET.findall(fence.strip_recalled(text)):
            yield _Line("The notes say", _quotable(note))
    for text in reversed(said):
        yield _Line("You said", _quotable(text))


def _quotable(text: str) -> str:
    """A memory as it is quoted: without who said it, and blank where it answers nothing."""
    speaker = _SPEAKER.match(text)
    if speaker and speaker["role"].lower() != "user":
        return ""
    text = text[speaker.end() :] if speaker else text
    noted = _SAID.match(text)
    text = " ".join((noted["what"] if noted else text).split())
    return "" if _is_question(text) else text


def _best(lines: Iterator[_Line], words: frozenset[str], asked: str) -> list[_Line]:
    """The best line of each source that is good enough; what says the same is quoted once."""
    best: dict[str, _Line] = {}
    for line in lines:
        if not line.text or line.text == asked:
            continue
        score = len(words & _words(line.text)) / len(words) if words else _ENOUGH
        if score >= _ENOUGH and (line.source not in best or score > best[line.source].score):
            best[line.source] = replace(line, score=score)
    top = max((line.score for line in best.values()), default=0.0)
    chosen: list[_Line] = []
    for line in best.values():
        known = any(_words(one.text) <= _words(line.text) for one in chosen)
        if line.score >= _AS_GOOD * top and not known:
            chosen.append(line)
    return chosen[:_MOST_QUOTED]


def _is_question(text: str) -> bool:
    return text.rstrip().endswith("?") or _ASKING.match(text.lstrip()) is not None


def _words(text: str) -> frozenset[str]:
    """What a text is about: its words but for the common ones, without their endings."""
    found = (word.lower().replace("\u2019", "'") for word in _WORD.findall(text))
    return frozenset(_stem(word) for word in found if word not in _STOP_WORDS)


def _stem(word: str) -> str:
    word = word.removesuffix("'s")
    for ending, instead in (("ies", "y"), ("ing", ""), ("ed", ""), ("es", ""), ("s", "")):
        if word.endswith(ending) and len(word) - len(ending) >= 3:  # noqa: PLR2004 - a stem
            word = word[: -len(ending)] + instead
            break
    return word[:-1] if word.endswith("e") and len(word) > 3 else word  # noqa: PLR2004 - a stem
