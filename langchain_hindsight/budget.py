"""Which memories are worth their tokens: filtered, ranked, and fitted to a cap that holds exactly.

Tokens are counted as the Hindsight server counts them (``toktok``, ``o200k_base``), over the text
that reaches the model: a section's cost includes the whole fence, so that the block of both banks
never costs more than the sum of the two caps. Everything here is a function of its arguments.
"""

from __future__ import annotations

import math
import re
import threading
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

import Stemmer

from langchain_hindsight.fence import Line, Role, clean, contains_block, frame, line
from langchain_hindsight.recall_result import BEFORE_THIS

if TYPE_CHECKING:
    from langchain_hindsight.recall_result import RecalledMemory

_ENCODING = "o200k_base"
_TRIMMED = " …"
"""The mark behind a memory of which only the first sentences are shown."""
_SENTENCE_END = re.compile(
    r"(?<!\b\w)[.!?…]+[\"'”’)\]]*(?=\s)|[。！？｡]+[」』”’）]*|(?<=\S)(?=\n)"  # noqa: RUF001 - CJK
)

_WITH_BEFORE = 10
"""How many memories, the best ones, may be shown with what was said before them; measured."""
_SPEAKER = re.compile(r"^([^\n:]{1,80}): ", re.MULTILINE)
_FUSION = 10
"""Reciprocal-rank constant; measured, see the project's quality figures."""
_SATURATION, _LENGTH_WEIGHT = 1.2, 0.75
"""BM25's k1 and b, at their usual values."""
_WORD = re.compile(r"\w+")
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\U00020000-\U0003ffff]{1,}"
)
"""Scripts written without blanks between words; they are compared by pairs of characters."""
STOP_WORDS = frozenset(
    re.findall(
        r"\w+",
        """
        a about above after again all am an and any are as at be been before being below between
        both but by can could did do does doing don down during each few for from further had has
        have having he her here hers him his how i if in into is it its just let me more most my no
        nor not now of off on once one only or other our ours out over own said same she should so
        some such tell than that the their theirs them then there these they this those through to
        too under until up us very was we were what when where which while who whom why will with
        would you your yours d ll m re s t ve didn doesn isn wasn
        """,
    )
)

_REMEMBERED = 2048
"""So many texts are known from one turn to the next: what reading and counting them gave."""

_QUOTES = "\"'`´‘’“”«»"  # noqa: RUF001 - people type them all
_MARKS = f".,;:!?…{_QUOTES}"


@dataclass(frozen=True, slots=True)
class Fit:
    """What of a bank's memories is shown."""

    memories: tuple[RecalledMemory, ...] = ()
    """Best first; a trimmed one holds its shorter text."""
    tokens: int = 0
    """What the section costs, the whole fence and its heading included."""
    dropped: int = 0
    """How many did not fit."""


def count_tokens(text: str) -> int:
    """Count as the server does.

    Args:
        text: Any text that can be encoded.

    Returns:
        The number of ``o200k_base`` tokens.
    """
    return _count_anew(text)


def filter_memories(
    memories: Sequence[RecalledMemory], *, min_scores: Mapping[str, float], seen: set[str]
) -> tuple[list[RecalledMemory], dict[str, int]]:
    """Drop what is not worth a token, and make the rest fit to be shown.

    Args:
        memories: A bank's memories, best first: of two that say the same, the first stays.
        min_scores: Floors of scores by name. A score that the server did not give passes.
        seen: What was kept so far, across banks; added to.

    Returns:
        The memories that stay, with cleaned texts, and how many were dropped for which reason:
        ``blank``, ``recalled_block``, ``min_score``, ``duplicate``.
    """
    kept: list[RecalledMemory] = []
    dropped: Counter[str] = Counter()
    for memory in memories:
        text, is_block, key = _read(memory.text)
        reason = _unfit(memory, text, min_scores, is_block=is_block)
        if not reason and key in seen:
            reason = "duplicate"
        if reason:
            dropped[reason] += 1
            continue
        seen.add(key)
        kept.append(memory if text == memory.text else replace(memory, text=text))
    return kept, dict(dropped)


def rank(query: str, memories: Sequence[RecalledMemory]) -> list[RecalledMemory]:
    """Order a bank's memories, best first.

    Where the server reranked them, its order stands. Otherwise the rank by words in common with the
    query (BM25 over these memories and what was said right before each; English is stemmed and
    loses its stop words, scripts without blanks are compared by pairs of characters, other
    languages word by word) is fused with the rank by the server's semantic score, or with the
    server's own order where it gave none.

    Args:
        query: What was searched for.
        memories: The server's results, in its order.

    Returns:
        The same memories.
    """
    if any(memory.scores.get("reranker") is not None for memory in memories):
        return list(memories)
    lexical = _bm25(query, [f"{memory.text}\n{memory.context or ''}" for memory in memories])
    semantic = [memory.scores.get("semantic") for memory in memories]
    if all(score is None for score in semantic):
        semantic = [float(-place) for place in range(len(memories))]
    fused = [0.0] * len(memories)
    for scores in (lexical, semantic):
        for place, at in enumerate(_best_first(scores), start=1):
            fused[at] += 1 / (_FUSION + place)
    return [memories[at] for at in _best_first(fused)]


def fit(memories: Sequence[RecalledMemory], *, limit: int, role: Role) -> Fit:
    """Choose the memories of a section, best first, within its cap.

    One that does not fit is passed over for the next that does. Nothing is cut in the middle of a
    sentence: only where no memory fits whole is the best one trimmed, behind a sentence and with a
    mark. What room is left goes to what was said right before the best ones.

    Args:
        memories: A bank's memories, best first.
        limit: The cap in tokens, fence and heading included.
        role: Whose section it is.

    Returns:
        What fits. Its ``tokens`` are exact and never above the limit.
    """
    room = limit - _overhead(role)
    if room <= 0 or not memories:
        return Fit(dropped=len(memories))
    named = {""}
    chosen: list[tuple[RecalledMemory, Line]] = []
    left = room
    for memory in memories:
        # A word is a token or more, so that most of what cannot fit need not be counted.
        if len(memory.text.split()) > left:
            continue
        shown = line(memory)
        whole = _cost(shown) + (0 if shown.day in named else _count(f"{shown.day}\n"))
        if shown.bullet and whole <= left:
            left -= whole
            named.add(shown.day)
            chosen.append((memory, shown))
    if not chosen:
        tries = (_trimmed(memory, room) for memory in memories)
        trimmed = next(filter(None, tries), None)
        chosen = [(trimmed, line(trimmed))] if trimmed else []
    else:
        chosen = _with_what_was_before(chosen, left)
    tokens = _section_tokens(chosen, role)
    while tokens > limit:  # the costs add up exactly; a cap is a promise all the same
        chosen.pop()
        tokens = _section_tokens(chosen, role)
    return Fit(tuple(memory for memory, _ in chosen), tokens, len(memories) - len(chosen))


def _with_what_was_before(
    chosen: list[tuple[RecalledMemory, Line]], left: int
) -> list[tuple[RecalledMemory, Line]]:
    """The best of the chosen with the message before each, where there is room and it is not there.

    "Yes, the second" says little alone, and what is looked for may stand in what it replies to.
    """
    there = [memory.text for memory, _ in chosen]
    fuller: list[tuple[RecalledMemory, Line]] = []
    for memory, shown in chosen[:_WITH_BEFORE]:
        longer, more = (memory, shown), 0
        before = _said_before(memory)
        if before and not any(_same_start(before, text) for text in there):
            with_it = replace(memory, after=before)
            longer = (with_it, line(with_it))
            more = _cost(longer[1]) - _cost(shown)
            if more <= left:
                there.append(before)
            else:
                longer, more = (memory, shown), 0
        fuller.append(longer)
        left -= more
    return fuller + chosen[_WITH_BEFORE:]


def _said_before(memory: RecalledMemory) -> str | None:
    """The message right before one that was retained as it was said; None of any other memory."""
    head, _, said = (memory.context or "").partition(BEFORE_THIS)
    own, first = _SPEAKER.match(memory.text), _SPEAKER.match(said)
    if head or own is None or first is None:
        return None
    speakers = {"user", "assistant", own[1], first[1]}
    starts = [one.start() for one in _SPEAKER.finditer(said) if one[1] in speakers]
    return " ".join(clean(said[starts[-1] :]).split())


def _same_start(before: str, text: str) -> bool:
    return " ".join(text.split()).startswith(before.rstrip("…"))


def _cost(shown: Line) -> int:
    return _count(f"{shown.bullet}\n")


@lru_cache(_REMEMBERED)
def _count(text: str) -> int:
    return _count_anew(text)


def _count_anew(text: str) -> int:
    import toktok

    # One thread: at these sizes, starting more costs more than counting.
    (count,) = toktok.batch_count([text], _ENCODING, threads=1)
    return int(count)


@lru_cache(maxsize=3)
def _overhead(role: Role) -> int:
    """The tokens of a section without its bullets."""
    one = Line("- a")
    return _count(frame({role: [one]})) - _cost(one)


def _section_tokens(chosen: Sequence[tuple[RecalledMemory, Line]], role: Role) -> int:
    return count_tokens(frame({role: [shown for _, shown in chosen]})) if chosen else 0


def _trimmed(memory: RecalledMemory, room: int) -> RecalledMemory | None:
    """The memory's first sentences, as many as there is room for; None where none fits."""
    import toktok

    if day := line(memory).day:
        room -= _count(f"{day}\n")
    whole, size = clean(memory.text), room
    while size > 0:
        start, _ = toktok.truncate(whole, size, _ENCODING)
        # One character more shows whether a sentence ends with the last that there is room for.
        ends = [end.end() for end in _SENTENCE_END.finditer(whole, 0, len(start) + 1)]
        if not ends:
            return None
        shorter = replace(memory, text=clean(whole[: ends[-1]] + _TRIMMED))
        excess = count_tokens(f"{line(shorter).bullet}\n") - room
        if excess <= 0:
            return shorter
        size -= excess
    return None


@lru_cache(_REMEMBERED)
def _read(text: str) -> tuple[str, bool, str]:
    """A memory's text made fit to be shown, whether it is a block, and what it shares with others.

    The turns of a conversation recall much the same memories, so each text is read once.
    """
    cleaned = clean(text)
    return cleaned, contains_block(text), _sameness(cleaned)


def _unfit(
    memory: RecalledMemory, text: str, min_scores: Mapping[str, float], *, is_block: bool
) -> str | None:
    if not text:
        return "blank"
    if is_block:
        return "recalled_block"
    for name, floor in min_scores.items():
        score = memory.scores.get(name)
        if score is not None and score < floor:
            return "min_score"
    return None


def _sameness(text: str) -> str:
    """What two texts share that differ in case, blanks and the marks at the edges of words."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    words = (word.rstrip(_MARKS).lstrip(_QUOTES) for word in folded.split())
    return " ".join(filter(None, words)) or text


def _best_first(scores: Sequence[float | None]) -> list[int]:
    """The places of the scores that there are, highest first, equal ones as they came."""
    there = [(-score, at) for at, score in enumerate(scores) if score is not None]
    return [at for _, at in sorted(there)]


def _bm25(query: str, texts: Sequence[str]) -> list[float | None]:
    """How well each text answers the query by its words; None for no word in common."""
    documents = [_terms(text) for text in texts]
    wanted = sorted(set(_stems(_words(query))))
    counts = [{term: terms[term] for term in wanted if term in terms} for terms, _ in documents]
    holders = Counter(term for count in counts for term in count)
    weights = {
        term: math.log1p((len(texts) - holding + 0.5) / (holding + 0.5))
        for term, holding in holders.items()
    }
    usual = max(1.0, sum(length for _, length in documents) / max(1, len(documents)))
    scores: list[float | None] = []
    for count, (_, length) in zip(counts, documents, strict=True):
        damping = _SATURATION * (1 - _LENGTH_WEIGHT + _LENGTH_WEIGHT * length / usual)
        score = sum(
            weights[term] * times * (_SATURATION + 1) / (times + damping)
            for term, times in count.items()
        )
        scores.append(score or None)
    return scores


class _EnglishStemmer(threading.local):
    """Porter's stemmer; each thread has its own, as one may not be shared and remembers words."""

    def __init__(self) -> None:
        self.stem = Stemmer.Stemmer("english").stemWords


_STEMMER = _EnglishStemmer()


@lru_cache(_REMEMBERED)
def _terms(text: str) -> tuple[Mapping[str, int], int]:
    """How often a text holds which stem, and how many words it has, stop words included."""
    words = _words(text)
    return Counter(_stems(words)), len(words)


def _stems(words: Sequence[str]) -> list[str]:
    return _STEMMER.stem([word for word in words if word not in STOP_WORDS])  # type: ignore[no-any-return]


def _words(text: str) -> list[str]:
    words = _WORD.findall(text.casefold())
    if text.isascii() or not _UNSPACED.search(text):
        return words
    return [part for word in words for part in _split_unspaced(word)]


def _split_unspaced(word: str) -> list[str]:
    """A word as it is, or in pairs of characters where its script sets no blanks."""
    parts: list[str] = []
    for run in _UNSPACED.findall(word):
        parts += [run[at : at + 2] for at in range(max(1, len(run) - 1))]
    return [part for part in _UNSPACED.split(word) if part] + parts
