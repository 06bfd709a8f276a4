"""What was recalled lately, so that it is known when it comes back without its fence.

A tool over a retriever gives memories to the model as bare text, and its result may be kept. Texts
are known by their words, which no separator, indentation, wrapping or JSON changes.
Promises: bounded; each bank's texts are taken out of its own callers' results alone, so that
nobody learns from what is kept what another has recalled.
"""

from __future__ import annotations

import re
import threading
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from cachetools import LRUCache

from langchain_hindsight.fork import on_fork_in_child

if TYPE_CHECKING:
    from langchain_hindsight.banks import LifeBank, ProjectBank

_BANKS = 512
_TEXTS = 256
"""Most texts that are known of one bank, the latest."""
_TELLING = 16
"""Characters from which on a text is known wherever it stands; a shorter one fills its line."""
_ROLES = ("project", "life")
_SPELLING = re.compile(
    r"(?<!\\)\\++(?:[ux](?P<code>(?<=u)[0-9a-fA-F]{4}|(?<=x)[0-9a-fA-F]{2})"
    r"|[bfnrtv]|U[0-9a-fA-F]{8})|(?P<word>[^\W_\U00010000-\U0010ffff]+)"
)
"""An escaped letter, another escape, or a word. JSON escapes what is beyond 16 bits in two."""
_NO_WORD = " "
_SENTENCE_END = re.compile(r"[.!?…]+")
_BETWEEN_LINES = re.compile(r"[\n\"']|\\[nr]")


class RecalledTexts:
    """The texts that each bank gave lately, in this process."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self._renew()
        on_fork_in_child(self, "_renew")

    def _renew(self) -> None:
        self._lock = threading.Lock()
        self._texts: LRUCache[ProjectBank | LifeBank, dict[str, None]] = LRUCache(_BANKS)

    def note(self, bank: ProjectBank | LifeBank, texts: Iterable[str]) -> None:
        """Know some texts as what a bank gave."""
        with self._lock:
            known = self._texts.setdefault(bank, {})
            for text in texts:
                known.pop(text, None)
                known[text] = None
            for stale in list(islice(known, max(0, len(known) - _TEXTS))):
                del known[stale]

    def of(self, banks: Iterable[ProjectBank | LifeBank]) -> list[str]:
        """What is known of some banks."""
        with self._lock:
            return [text for bank in banks for text in self._texts.get(bank, ())]


def documents_in(artifact: object) -> tuple[list[str], bool]:
    """The recalled texts among the documents that a tool's result carries.

    Args:
        artifact: What a tool message carries beside its content.

    Returns:
        The texts, and whether the artifact holds nothing else.
    """
    if not isinstance(artifact, Sequence) or isinstance(artifact, str | bytes):
        return [], False
    texts = [text for one in artifact if (text := _recalled_text(one)) is not None]
    return texts, bool(texts) and len(texts) == len(artifact)


def without(text: str, recalled: Iterable[str], *, certain: Iterable[str] = ()) -> str:
    """A text without what was recalled, however it was laid out.

    Args:
        text: What a tool returned.
        recalled: What may stand in it.
        certain: What is known to stand in it, so that also its shortest words are taken out.

    Returns:
        The text as it was if nothing recalled stands in it, else what is left; ``""`` where that
        is no word.
    """
    spelled = _Spelled.of(text)
    sure = {_Spelled.of(one).words for one in certain}
    known = sure | {_Spelled.of(one).words for one in recalled}
    spans = sorted(
        span
        for words in known - {_NO_WORD}
        for span in spelled.find(words, anywhere=words in sure or len(words) >= _TELLING)
    )
    if not spans:
        return text
    kept: list[str] = []
    at = 0
    for start, end in spans:
        kept.append(text[at:start])
        at = max(at, end)
    left = "".join([*kept, text[at:]]).strip()
    return "" if _Spelled.of(left).words == _NO_WORD else left


@dataclass(frozen=True, slots=True)
class _Spelled:
    """The words of a text with one blank before and behind each, and where each letter stands."""

    text: str
    words: str
    starts: array[int]
    ends: array[int]

    @classmethod
    def of(cls, text: str) -> _Spelled:
        words = [_NO_WORD]
        starts, ends = array("L", [0]), array("L", [0])
        for part in _SPELLING.finditer(text):
            code = part["code"]
            said = part["word"] or (chr(int(code, 16)) if code else "")
            if not said.isalnum():
                continue
            if len(words) > 1 and (part.start() != ends[-1] or _hides_a_backslash(part)):
                words.append(" ")
                starts.append(ends[-1])
                ends.append(part.start())
            words.append(said)
            if code:
                starts.append(part.start())
                ends.append(part.end())
            else:
                starts.extend(range(part.start(), part.end()))
                ends.extend(range(part.start() + 1, part.end() + 1))
        if len(words) > 1:
            words.append(" ")
            starts.append(ends[-1])
            ends.append(len(text))
        return cls(text, "".join(words), starts, ends)

    def find(self, words: str, *, anywhere: bool) -> Iterator[tuple[int, int]]:
        """Where some words stand.

        Args:
            words: The words, with a blank before and behind.
            anywhere: Whether they may stand amid others on a line.
        """
        at = self.words.find(words)
        while at >= 0:
            last = at + len(words) - 1
            if anywhere or (self._parts_lines(at) and self._parts_lines(last)):
                yield self.starts[at + 1], _behind_sentence(self.text, self.ends[last - 1])
            at = self.words.find(words, last)

    def _parts_lines(self, at: int) -> bool:
        """Whether a blank between words stands for the end of a line, or of the text."""
        if at in {0, len(self.words) - 1}:
            return True
        return _BETWEEN_LINES.search(self.text, self.starts[at], self.ends[at]) is not None


def _hides_a_backslash(part: re.Match[str]) -> bool:
    """Whether an escaped letter follows on a backslash of the text, which parts two words.

    Each time that JSON is put into JSON doubles the one backslash of an escape; any other number of
    them holds some of the text's own.
    """
    slashes = len(part[0]) - len(part[0].lstrip("\\"))
    return bool(slashes & (slashes - 1))


def _behind_sentence(text: str, end: int) -> int:
    marks = _SENTENCE_END.match(text, end)
    return marks.end() if marks else end


def _recalled_text(document: Any) -> str | None:  # noqa: ANN401 - whatever a tool gave
    """The text of a document of ours, also where a checkpoint or a client made it plain JSON."""
    if isinstance(document, Mapping):
        inner = document.get("kwargs")
        plain = inner if isinstance(inner, Mapping) else document
        text, metadata = plain.get("page_content"), plain.get("metadata")
    else:
        text = getattr(document, "page_content", None)
        metadata = getattr(document, "metadata", None)
    if not isinstance(text, str) or not isinstance(metadata, Mapping):
        return None
    return text if metadata.get("bank") in _ROLES and "bank_id" in metadata else None
