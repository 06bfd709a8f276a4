r"""Finding a tagged block in a text that it was quoted into, however it was quoted.

Whoever quotes a block wraps and prefixes its lines, marks them up, or escapes them for HTML, JSON,
Python or a URL, often several of these in turn. None of that changes the letters. So a tag is known
by its letters, with an opening bracket of any form before them, and a block is a tag with the
statement behind it, up to the next tag. What a memory could hold that would pass for a tag, in
whatever way it is quoted later, `defuse` takes out before the block is made: one pattern decides
both, so that the two cannot disagree. Promises: linear in the length of the text, and no error,
whatever the text.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

from langchain_hindsight.lookalikes import folded

_CUT = r"(?:\s[^a-z0-9&%\\]{0,24}+)?+"
"""A line break, with the prefix of the next line, that cuts an escape in two."""
_HEX = rf"[0-9a-f]{_CUT}[0-9a-f]"
_PERCENT = rf"%{_CUT}(?:2{_CUT}5{_CUT})*+"
_SEMICOLON, _HASH = rf"(?:;|{_PERCENT}3{_CUT}b)", rf"(?:\#|{_PERCENT}2{_CUT}3)"
_AMP = rf"(?:&|{_PERCENT}2{_CUT}6)(?:amp{_SEMICOLON})*+"
_BACKSLASHES = rf"(?:\\|{_PERCENT}5{_CUT}c)++"
_BACKSLASHED = (
    rf"(?:\\|{_PERCENT}5{_CUT}c)*+{_CUT}"
    rf"(?:U(?:{_CUT}[0-9a-f]){{8}}|u(?:{_CUT}[0-9a-f]){{4}}|x{_CUT}{_HEX}|[nrt])?+"
)
_NAMED = rf"(?:amp{_SEMICOLON})*+{_HASH}?+\w{{1,10}}{_SEMICOLON}"
_ESCAPE = (
    # Every branch begins with a character, to which `re` skips; it does not skip to a repetition.
    rf"\\{_BACKSLASHED}|{_PERCENT}5{_CUT}c{_BACKSLASHED}"
    rf"|&{_NAMED}|{_PERCENT}2{_CUT}6{_NAMED}|{_PERCENT}{_HEX}"
)
_GAP = rf"(?:[^a-z\\%&]++|{_ESCAPE}|[^a-z])*+"
"""What quoting puts between two letters: no letter but those of an escape."""


def _bracket(char: str, name: str, ten: str, hexa: str) -> str:
    """A bracket however it is written; a line break, with its prefix, may cut an escape in two."""
    gap, near = r"[^a-z&%;\\-]{0,24}+", r"[^a-z0-9&%#;\\-]{0,24}+"

    def cut(escape: str) -> str:
        return near.join(escape)

    percent = rf"%(?:{near}{cut('25')})*+{near}"
    amp = rf"(?:&|{percent}{cut('26')})"
    semicolon = rf"(?:;|{percent}{cut('3b')})"
    number = rf"(?:\#|{percent}{cut('23')})(?:{near}x)?+(?:{near}0)*+{near}"
    return (
        rf"(?:{char}|{percent}{cut(hexa)}"
        rf"|{amp}(?:{gap}a{gap}m{gap}p(?:{near}{semicolon})?+)*+"
        rf"(?:{gap}{gap.join(name)}|{near}{number}(?:{cut(ten)}|{cut(hexa)}))"
        rf"(?:{semicolon}|(?![a-z0-9]))"
        rf"|(?:(?<![\\c])|(?<!5c)(?<=c))(?:\\|{percent}{cut('5c')})++{near}"
        rf"(?:u{near}{cut('00' + hexa)}|x{near}{cut(hexa)}))"
    )


_LESS = _bracket("<", "lt", "60", "3c")
_MORE = _bracket(">", "gt", "62", "3e")
_NEXT = rf"(?:{_PERCENT}[89ab][0-9a-f])"
_REST = _PERCENT.removeprefix("%")
_BEYOND_ASCII = (
    # `re` skips to a character, and not to a place that is known by what stands before it.
    rf"[\\%&](?:"
    rf"(?:(?<=\\)(?<!\\\\)(?<!5c\\)|(?<=%)(?<!\\%)(?<!5c%){_REST}5{_CUT}c)(?:{_BACKSLASHES})?+u"
    rf"(?P<four>d[89ab][0-9a-f]{{2}}{_BACKSLASHES}ud[c-f][0-9a-f]{{2}}|[0-9a-f]{{4}})"
    rf"|(?<=%)(?P<bytes>{_REST}(?:[cd][0-9a-f]{_NEXT}|e[0-9a-f]{_NEXT}{{2}}|f[0-7]{_NEXT}{{3}}))"
    rf"|(?:(?<=&)|(?<=%){_REST}2{_CUT}6)(?:amp{_SEMICOLON})*+"
    rf"\#(?:x0*+(?P<hexa>[0-9a-f]{{2,6}})|0*+(?P<ten>[0-9]{{3,7}}));)"
)
"""An escape of a character beyond ASCII, which may be one that passes for a letter."""
_WORDS = rf"[^a-z\\%&]++|{_ESCAPE}|[^a-z]|(?P<letters>[a-z]++)"
_QUOTING = rf"(?:{_LESS}|{_ESCAPE}|[^a-z])++"
"""A run without letters but for those of brackets and other escapes."""
_BEFORE_NAME = rf"(?s:.*)(?P<less>{_LESS}){_GAP}\Z"
_SLASH = rf"(?:/|{_PERCENT}2f|\\(?:u00|x)2f|{_AMP}(?:sol|\#47|\#x2f);)\Z"
_OPENED = rf"{_MORE}(?:{_GAP}[a-z]){{0,3}}{_GAP}\Z"
"""The end of a tag, with no more words behind it than an escape that was cut in two leaves."""
_CLOSED = rf"(?:{_ESCAPE}|[^a-z]){{0,32}}?{_MORE}"
_MARKS = r"[*`_~]*+(?=\\*\Z)"
_PREFIX = r"(?m:^)[ \t]*+(?:\d++[:.|)]?[ \t]++)?(?:[ \t>#/|*+-]|[^\x00-\x7f\w])*+\Z"
"""What is put before every line of a quotation."""
_BLANKS = (
    (r"\\++n", r"\\++[nrt]"),
    (rf"{_PERCENT}0a", rf"{_PERCENT}(?:0[9ad]|20)"),
    (rf"{_AMP}\#(?:10|x0*+a);", rf"{_AMP}\#(?:9|10|13|32|x0*+(?:[9ad]|20));"),
)
"""The ways of writing out a line break, and the blanks that each writes."""
_BEGINS_ESCAPE = re.compile(r"[&%\\]")
_SUSPECT = re.compile(r"[<&%\\]")
_NO_LETTERS = bytes(code for code in range(128) if not chr(code).isalpha())
_AS_LETTERS = bytes(range(256)).lower().replace(b"l", b"i")
_LONGEST_QUOTING = 96
"""Characters before a tag's name that are looked at as quoting."""
_FARTHEST = 400
"""Characters before a tag's name in which a memory may have a bracket: quoting may drop blanks."""
_LONGEST_ATTRIBUTES = 400
"""Characters between a tag's name and the statement."""
_LONGEST_STATEMENT = 600
"""Characters of a statement, with its quoting, that are looked at."""
_KNOWN_BY = 5
"""Words of the statement that tell a block: one cut off sooner holds no content yet."""


@dataclass(frozen=True, slots=True)
class _Tag:
    start: int
    end: int
    """Where its name ends: attributes and the bracket that closes it come later."""
    closes: bool


@dataclass(frozen=True, slots=True)
class BlockFinder:
    """Finds the blocks of one tag that open with one statement.

    Attributes:
        name: The tag's name.
        known: The beginning of the statement.
        headed: The end of the statement with each heading.
        statement: The statement.
        last_words: Its end.
    """

    name: bytes
    known: bytes
    headed: tuple[bytes, ...]
    statement: bytes
    last_words: bytes

    @classmethod
    def of(cls, tag: str, statement: str, headings: tuple[str, ...]) -> BlockFinder:
        """Make the finder of a block.

        Args:
            tag: The tag's name.
            statement: What stands first in the block.
            headings: What may stand behind it.
        """
        words = statement.split()
        last_words = _letters_of("".join(words[-_KNOWN_BY:]))
        return cls(
            name=_letters_of(tag),
            known=_letters_of("".join(words[:_KNOWN_BY])),
            headed=tuple(last_words + _letters_of(heading) for heading in headings),
            statement=_letters_of(statement),
            last_words=last_words,
        )

    def find(self, text: str) -> Iterator[tuple[int, int]]:
        """Where each block stands, with its quoting, in order.

        One whose beginning is cut off is known by the rest of the statement and a heading.

        Args:
            text: Any text.

        Yields:
            The start and the end of a block; one that is not closed reaches to the text's end.
        """
        shown = _folded(text)
        letters = _letters_of(shown)
        if not any(map(letters.__contains__, (self.known, *self.headed))):
            return
        spelled = _Spelled.of(shown)
        anchors = sorted(
            (start, end, words is not self.known)
            for words in (self.known, *self.headed)
            for start, end in spelled.find(words)
        )
        tags = _tags(shown, spelled.find(self.name))
        ends = [tag.end for tag in tags]
        openings: list[tuple[int, int]] = []
        for said, inside, cut in anchors:
            place = bisect_right(ends, said)
            start = _opening(shown, tags[place - 1], said) if place else None
            if start is None and cut:
                start = self._cut_opening(shown, said)
            if start is not None:
                openings.append((start, inside))
        yield from _blocks(shown, openings, tags, self._goes_on)

    def _goes_on(self, behind: bytes) -> bool:
        """Whether a block without an end goes on behind its first words, or was cut off there."""
        headings = (one.removeprefix(self.last_words) for one in self.headed)
        rest = self.statement.removeprefix(self.known)
        return rest.startswith(behind) or any(heading in behind for heading in headings)

    def defuse(self, text: str) -> str:
        """Make parentheses of the brackets that would pass for a tag's, however it was quoted.

        Args:
            text: A text that is to stand inside a block, with another behind it.
        """
        # A letter beyond ASCII is one of the name's, or an escape and so none, as it is quoted.
        for view in (str, _folded):
            shown = view(text)
            if _SUSPECT.search(shown):
                for bracket in sorted(self._brackets(shown), reverse=True):
                    text = f"{text[: bracket[0]]}({text[bracket[1] :]}"
        return text

    def _brackets(self, text: str) -> set[tuple[int, int]]:
        """The brackets before a name, or before what may be the beginning of one."""
        runs: list[tuple[int, int]] = []
        tail = text[max(0, len(text) - _FARTHEST) :]
        if len(_letters_of(tail[_last_suspect(tail) :])) < len(self.name) + len("u003c"):
            runs += (
                run.span()
                for run in _compiled(_QUOTING).finditer(text, len(text) - len(tail))
                if self.name.startswith(_letters_of(text[run.end() :]))
            )
        if self.name in _letters_of(text):
            floor = 0
            for start, end in _Spelled.of(text).find(self.name):
                run = _compiled(rf"{_QUOTING}\Z").search(text, max(floor, start - _FARTHEST), start)
                runs += [run.span()] if run else []
                floor = end
        return {one.span() for run in runs for one in _compiled(_LESS).finditer(text, *run)}

    def _cut_opening(self, text: str, said: int) -> int:
        """Where what is left of the statement starts, given where its last words do."""
        start = said
        left = self.statement.removesuffix(self.last_words)
        for at in range(said - 1, max(-1, said - _LONGEST_STATEMENT), -1):
            if not left:
                break
            if _letters_of(text[at]) == left[-1:]:
                left = left[:-1]
                start = start if text[at - 1 : at].isalpha() else at
            elif text[at].isalpha():
                break
        return start


@dataclass(frozen=True, slots=True)
class _Spelled:
    """The letters of a text, and where each stands."""

    letters: bytes
    places: array[int]

    @classmethod
    def of(cls, text: str) -> _Spelled:
        places = array("L")
        for word in _compiled(_WORDS).finditer(text):
            if word["letters"]:
                places.extend(range(*word.span()))
        return cls(_letters_of(text), places)

    def find(self, words: bytes) -> Iterator[tuple[int, int]]:
        """Where each copy of some words starts and ends, whatever quoting put between letters."""
        at = self.letters.find(words)
        while at >= 0:
            end = at + len(words)
            yield self.places[at], self.places[end - 1] + 1
            at = self.letters.find(words, end)


def _tags(text: str, names: Iterator[tuple[int, int]]) -> list[_Tag]:
    tags: list[_Tag] = []
    floor = 0
    for start, end in names:
        window = max(floor, start - _LONGEST_QUOTING)
        before = _compiled(_BEFORE_NAME).match(text[window:start])
        if before:
            closes = _compiled(_SLASH).search(before[0], before.end("less")) is not None
            tags.append(_Tag(window + before.start("less"), end, closes))
        floor = end
    return tags


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """A pattern, when it is first needed: most texts hold no block, and these are large."""
    return re.compile(pattern, re.IGNORECASE)


def _last_suspect(text: str) -> int:
    return max(map(text.rfind, "<&%\\"), default=-1) if text else -1


def _folded(text: str) -> str:
    """A text of the same length in which letters are ASCII, those of escapes included."""
    if _BEGINS_ESCAPE.search(text):
        text = _compiled(_BEYOND_ASCII).sub(_unescaped, text)
    return folded(text)


def _letters_of(text: str) -> bytes:
    """The letters of a text without those of escapes, ``l`` as ``i``: quick to look through."""
    if _BEGINS_ESCAPE.search(text):
        text = _compiled(_ESCAPE).sub("", text)
    return text.encode("ascii", "ignore").translate(_AS_LETTERS, _NO_LETTERS)


def _unescaped(match: re.Match[str]) -> str:
    try:
        if four := match["four"]:
            units = bytes.fromhex("".join(re.findall("[0-9a-f]{4}", four, re.IGNORECASE)))
            char = units.decode("utf-16-be")
        elif match["bytes"]:
            char = bytes.fromhex(re.sub(r"%(?:25)*|\s.*?(?=[%\w])", "", match[0])).decode()
        else:
            char = chr(int(match["hexa"] or match["ten"], 16 if match["hexa"] else 10))
    except (ValueError, OverflowError):
        return match[0]
    return match[0] if char.isascii() else char.ljust(len(match[0]), "\0")


def _opening(text: str, tag: _Tag, said: int) -> int | None:
    """Where a block starts, if nothing but the rest of its tag stands before the statement.

    Or what stands before each line of it: the time and the name that a log puts there.
    """
    if tag.closes or said - tag.end > _LONGEST_ATTRIBUTES:
        return None
    if _compiled(_OPENED).search(text[tag.end : said]):
        return tag.start
    closed = _compiled(_CLOSED).match(text, tag.end, said)
    before = _letters_of(text[max(0, tag.start - _LONGEST_QUOTING) : tag.start])
    if closed and before.endswith(_letters_of(text[closed.end() : said])):
        return tag.start
    return None


def _blocks(
    text: str, openings: list[tuple[int, int]], tags: list[_Tag], goes_on: Callable[[bytes], bool]
) -> Iterator[tuple[int, int]]:
    starts = [tag.start for tag in tags]
    opened = {start for start, _ in openings}
    at = 0
    for start, inside in openings:
        if inside <= at:
            continue
        place = bisect_left(starts, inside)
        end = len(text)
        if place < len(tags):
            end = starts[place] if starts[place] in opened else _end(text, start, tags[place])
        elif not goes_on(_letters_of(text[inside:])):
            continue  # somebody mentions how a block begins
        yield max(at, _with_quoting(text, start)), end
        at = end


def _with_quoting(text: str, start: int) -> int:
    """The start of a block with its marks and the prefix of its line."""
    floor = max(0, start - _LONGEST_QUOTING)
    marks = _compiled(_MARKS).search(text, floor, start)
    start = marks.start() if marks else start
    prefix = _compiled(_PREFIX).search(text, floor, start)
    return prefix.start() if prefix else start


def _end(text: str, start: int, closing: _Tag) -> int:
    """The end of a block with its marks and the blanks behind it."""
    closed = _compiled(_CLOSED).match(text, closing.end)
    end = closed.end() if closed else closing.end
    marks = _compiled(_MARKS).search(text, max(0, start - _LONGEST_QUOTING), start)
    if marks and text.startswith(marks[0], end):
        end += len(marks[0])
    quoted = text[start : start + _LONGEST_ATTRIBUTES]
    blank = next((blank for line, blank in _BLANKS if _compiled(line).search(quoted)), r"\s")
    behind = _compiled(rf"(?:\s|{blank})*+").match(text, end)
    return behind.end() if behind else end
