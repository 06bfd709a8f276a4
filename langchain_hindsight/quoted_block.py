r"""Finding a tagged block in a text that it was quoted into.

Whoever quotes a block quotes both its ends alike: wraps and prefixes its lines, marks them up, or
escapes them for HTML, JSON, Python or a URL. So the opening tag, with the statement behind it, is
found leniently, by its words alone; and the way in which it was quoted then says, strictly, what
the closing tag looks like. Text inside the block that was made to look like a closing tag in some
other way of quoting therefore does not close it. Promises: linear in the length of the text, and
no error, whatever the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_AMP = r"&(?:amp;)*+"
_PERCENT = r"%(?:25)*+"
_ESCAPE = (
    rf"{_AMP}\#?\w{{1,10}};|{_PERCENT}[0-9a-f]{{2}}|\\++(?:u[0-9a-f]{{4}}|x[0-9a-f]{{2}}|[nrt])?+"
)
_GAP = rf"(?:{_ESCAPE}|[\W\d_])*+"
"""What quoting puts between two words: anything but letters, and letters only as an escape."""
_MARK = r"[\x00-/:-@\[-`{-\x7f\s]"
"""What may stand in the closing tag: no more than `lookalikes.disarm` sees through."""
_LESS = rf"(?:\\*+<|{_AMP}(?:lt|\#0*+60|\#x0*+3c)\b;?|{_PERCENT}3c|\\++(?:u003c|x3c))"
_MORE = rf"(?:\\*+>|{_AMP}(?:gt|\#0*+62|\#x0*+3e)\b;?|{_PERCENT}3e|\\++(?:u003e|x3e))"
_SLASH = rf"(?:\\*+/|{_AMP}(?:sol|\#0*+47|\#x0*+2f);|{_PERCENT}2f|\\++(?:u002f|x2f))"

_BEFORE_NAME = re.compile(rf"(?P<marks>[*`_~]*+)(?P<less>{_LESS})\s*\Z", re.IGNORECASE)
_BREAK = re.compile(
    rf"(?P<token>\r?\n|\r|(?<!\\)(?:\\++r)?\\++n|(?:{_PERCENT}0d)?{_PERCENT}0a"
    rf"|{_AMP}\#(?:10|x0*+a);)(?P<prefix>{_GAP})",
    re.IGNORECASE,
)
_PLAIN_PREFIX = re.compile(r"^[ \t]*+(?:\d++[:.|)]?[ \t]++)?[ \t>#/|*+-]*\Z", re.MULTILINE)
_NUMBER = re.compile(r"(?:\\ )*\d+")
_BLANKS = {
    "\\": r"\\++[nrt]",
    "%": rf"{_PERCENT}(?:0[9ad]|20)",
    "&": rf"{_AMP}\#(?:9|10|13|32|x0*+(?:[9ad]|20));",
}
"""Blanks as each way of writing out a line break writes them, by its first character."""
_LONGEST_QUOTING = 96
"""Characters before a tag's name, or between two lines, that are looked at as quoting."""
_KNOWN_BY = 5
"""Words of the statement that tell a block: one cut off sooner holds no content yet."""


@dataclass(frozen=True, slots=True)
class _Opening:
    """Where a block starts, and how it was quoted, as patterns."""

    start: int
    inside: int
    close: re.Pattern[str]
    blanks: re.Pattern[str]
    marks: str


@dataclass(frozen=True, slots=True)
class BlockFinder:
    """Finds the blocks of one tag that open with one statement.

    Attributes:
        words: The words of the tag's name.
        opening: The tag's name, the end of the tag, and the statement.
    """

    words: tuple[str, ...]
    opening: re.Pattern[str]

    @classmethod
    def of(cls, tag: str, statement: str) -> BlockFinder:
        """Make the finder of a block.

        Args:
            tag: The tag's name.
            statement: What stands first in the block.
        """
        words = tuple(re.findall(r"[a-z]+", tag.lower()))
        said = re.findall(r"[a-z]+", statement.lower())
        known, more = said[:_KNOWN_BY], said[_KNOWN_BY:]
        rest = _GAP
        for word in reversed(more):
            rest = rf"{_GAP}(?:{word}{rest})?"
        name = _GAP.join([words[0], *words[1:]])
        pattern = (
            rf"(?P<name>{name})(?>[^<>]{{0,200}}?{_MORE})"
            rf"(?P<said>{_GAP}{_GAP.join(known)}(?P<known>){rest})"
        )
        return cls(words, re.compile(pattern, re.IGNORECASE))

    def find(self, text: str) -> Iterator[tuple[int, int]]:
        """Where each block stands, with its quoting, in order.

        Args:
            text: Any text.

        Yields:
            The start and the end of a block; one that is not closed reaches to the text's end.
        """
        if self.words[0] not in text.lower():
            return
        at = 0
        while opening := self._next_opening(text, at):
            close = opening.close.search(text, opening.inside)
            at = len(text) if close is None else close.end()
            if text.startswith(opening.marks, at):
                at += len(opening.marks)
            blanks = opening.blanks.match(text, at)
            at = blanks.end() if blanks else at
            yield opening.start, at

    def _next_opening(self, text: str, at: int) -> _Opening | None:
        for found in self.opening.finditer(text, at):
            floor = max(at, found.start() - _LONGEST_QUOTING)
            before = _BEFORE_NAME.search(text, floor, found.start())
            if before:
                return self._opened(text, found, before, floor)
        return None

    def _opened(
        self, text: str, found: re.Match[str], before: re.Match[str], floor: int
    ) -> _Opening:
        line = _BREAK.search(text, found.start("said"), found.end("said"))
        if line and len(line[0]) > _LONGEST_QUOTING:
            line = None
        prefix = _NUMBER.sub(r"[ ]*+\\d++", re.escape(line["prefix"])) if line else ""
        start = before.start()
        quoting = prefix and re.compile(rf"{prefix}\Z").search(text, floor, start)
        quoting = quoting or _PLAIN_PREFIX.search(text, floor, start)
        token = line["token"] if line else ""
        blank = _BLANKS.get(token[:1])
        return _Opening(
            start=quoting.start() if quoting else start,
            inside=found.start("known"),
            close=self._close(before["less"], found["name"], token, prefix),
            blanks=re.compile(rf"(?:\s|{blank})*+" if blank else r"\s*+", re.IGNORECASE),
            marks=before["marks"],
        )

    def _close(self, less: str, name: str, token: str, prefix: str) -> re.Pattern[str]:
        """The closing tag, given how the opening one and the first new line were quoted."""
        gaps = [rf"{_MARK}*+"]
        if token:
            # A line break written out once more was one in the content.
            written = (r"(?<!\\)" if token.startswith("\\") else "") + re.escape(token)
            gaps.append(rf"{_MARK}*?{written}{prefix}{_MARK}*+")
        names = "|".join(gap.join(self.words) for gap in gaps)
        if len(name) <= _LONGEST_QUOTING:
            names += f"|{re.escape(name)}"
        return re.compile(
            rf"{re.escape(less)}\s*+{_SLASH}\s*+(?:{names})(?:\s*+{_MORE})?", re.IGNORECASE
        )
