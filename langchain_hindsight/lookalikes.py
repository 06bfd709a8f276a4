"""Text as a reader sees it, and a tag's name that nothing in it can imitate.

`readable` drops what cannot be seen. `disarm` finds the tag's name in any disguise (case, spacing,
entities and other escapes, invisible and look-alike characters, one copy inside another, one half
at the end of a text and the other at the start of the next) and turns the angle brackets around it
into parentheses: the words stay, the tag is gone. An angle bracket that has nothing to do with the
name stays. Both are pure, idempotent and linear in the length of the text.
"""

# ruff: noqa: RUF001 - look-alike characters are what this module is about

from __future__ import annotations

import html
import re
import sys
import unicodedata
from collections.abc import Iterator
from functools import lru_cache

_LINE_BREAK = re.compile("\r\n|[\r\v\f\x1c\x1d\x1e\x85\u2028\u2029]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_UNSEEN = re.compile(
    "[\x00-\x08\x0e-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e"
    "\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0d\ufeff\uffa0\ufff0-\ufffb"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
"""Control characters, direction marks, and whatever Unicode says is to be ignored when shown."""
_JOINERS = "\u200c\u200d\ufe0e\ufe0f"
_JOINER = re.compile(f"[{_JOINERS}]")
_STRAY_JOINER = re.compile(
    # A joiner holds an emoji or a non-Latin word together; anywhere else it only hides.
    rf"(?:(?<![^\x00-\x7f\s{_JOINERS}])(?<![^\s{_JOINERS}]\ufe0f)[\u200c\u200d])"
    rf"|(?:[\u200c\u200d](?![^\x00-\x7f\s{_JOINERS}]))"
    rf"|(?:(?<![^\s{_JOINERS}])[\ufe0e\ufe0f])"
)

_OPENING = "<＜﹤≮˂ᐸ≺⋖≪⋘≤≦‹«〈〈⟨⟪❮❬❰《⦑⧼⪡◁◀⊲ᗕ︿︽ᚲ˱◂◃◄◅⏴⯇⮘⮜⦉⦓⩽⩿⪁⪃⪅⪇⪉⪍⪕⪝⪦⪨⪣⫷⫹⧀⩹≲≨⋦⋜"
_CLOSING = ">＞﹥≯˃ᐳ≻⋗≫⋙≥≧›»〉〉⟩⟫❯❭❱》⦒⧽⪢▷▶⊳ᗒ﹀︾˲▸▹►▻⏵⯈⮚⮞➢➣➤⦊⦔⩾⪀⪂⪄⪆⪈⪊⪎⪖⪞⪧⪩⫸⫺⧁⩺≳≩⋧⋝"
_SUSPECT = re.compile(f"[{_OPENING}{_CLOSING}&%\\\\]")
_ESCAPE = re.compile(
    r"(?:&|(?<!\\)\\++u0026)(?:(?:amp|\#0*38|\#x0*26);?)*+"
    r"(?P<entity>lt;?|gt;?|\#x[0-9a-f]+;?|\#[0-9]+;?|[a-z][a-z0-9]{1,30};)?"
    r"|%(?:25)*(?P<percent>[0-9a-f]{2})"
    r"|(?<!\\)\\++(?:u\{(?P<braces>[0-9a-f]{1,6})\}|(?:u|U0000)(?P<four>[0-9a-f]{4})"
    r"|x(?P<two>[0-9a-f]{2}))",
    re.IGNORECASE,
)
_LETTERS = {
    "h": "һհнΗᏂᎻℏħꜧⲏ",
    "i": "1lіιıӏ∣\u01c0\u05c0\u05d5\u05df\u0627\u07caᎥᏆꓲⲓ",
    "n": "ոռηпиΝꓠⲛ",
    "d": "ԁժᎠᗞᑯꓓ",
    "s": "5ѕƽտᏚꓢ",
    "g": "69ցԍᏀᏳꓖ",
    "t": "7тτᎢꓔ⊤ⲧ",
    "m": "мμΜᎷꓟⲙ",
    "e": "3еεҽєəэᎬꓰ℮ⲉ",
    "o": "0оοσօ\u05e1\u0647०๐໐၀〇ꓳⲟ",
    "r": "гᴦրᏒᖇꓣⲅ",
    "y": "уγүყυᎩꓬⲩ",
}
"""What passes for each letter, beside what Unicode itself decomposes to it or names after it."""
_LOOKS_LIKE = {char: letter for letter, chars in _LETTERS.items() for char in chars}
_NAMED_AFTER = re.compile(
    r"(?:LATIN|REGIONAL INDICATOR|SQUARED|CIRCLED)\b.*?\b(?:LETTER|CAPITAL|SCRIPT)"
    r"(?: [A-Z]{2,})*? ([A-Z])\b"
)
_BRACKETS = re.compile("[<>]")
_PAIRS = {"rn": "m", "ci": "d"}
"""Two letters that are read as one; ``l`` has become ``i`` by then."""

_SHORTEST_END = 3
"""Letters of the name's end that must stand before a bracket to be taken for its second half."""
_CLEAR_START = 5
"""Letters of the name's start that are taken for its first half even behind a blank."""


def readable(text: str) -> str:
    """Drop what cannot be seen, mend what cannot be encoded, and make every line break a newline.

    Args:
        text: Any text, lone surrogates included.

    Returns:
        The same words; joiners stay where they hold an emoji or a word together.
    """
    if text.isascii() and text.isprintable():
        return text
    if _SURROGATE.search(text):
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    text = _UNSEEN.sub("", _LINE_BREAK.sub("\n", text))
    return _STRAY_JOINER.sub("", text) if _JOINER.search(text) else text


def disarm(text: str, name: str) -> str:
    """Turn the angle brackets of a tag, in any disguise, into parentheses.

    Args:
        text: A text that `readable` has been through.
        name: The tag's name; only its letters count.

    Returns:
        The text, changed only where the name and a bracket meet.
    """
    letters = _letters_of(name)
    if not _SUSPECT.search(text) or not _may_hold(text, letters):
        return text
    pieces = list(_pieces(text))
    raws, folds = [raw for raw, _ in pieces], [fold for _, fold in pieces]
    marked = _around_names(folds, raws, letters)
    marked |= _open_end(folds, raws, letters) | _closed_start(folds, letters)
    return "".join(
        {"<": "(", ">": ")"}[fold] if at in marked else raw for at, (raw, fold) in enumerate(pieces)
    )


def folded(text: str) -> str:
    """A text of the same length, with the letters and brackets that its characters pass for.

    Args:
        text: Any text; what is ASCII already stays as it is.
    """
    return text if text.isascii() else text.translate(_ONE_FOR_ONE)


def _fold(code: int) -> str:
    """What a character passes for: letters, ``<``, ``>``, ``?`` for other words, or nothing."""
    char = chr(code)
    if char in _LOOKS_LIKE:
        return _LOOKS_LIKE[char]
    named = None if char.isascii() else _NAMED_AFTER.search(unicodedata.name(char, ""))
    if named:
        char = named[1].lower()
    folded = []
    for part in unicodedata.normalize("NFKD", char):
        lower = part.casefold()
        if part in _OPENING:
            folded.append("<")
        elif part in _CLOSING:
            folded.append(">")
        elif part in _LOOKS_LIKE or lower in _LOOKS_LIKE:
            folded.append(_LOOKS_LIKE.get(part) or _LOOKS_LIKE[lower])
        elif lower.isascii() and lower.isalpha():
            folded.append(lower)
        elif part.isalnum():
            folded.append("?")
    return "".join(folded)


class _Folds(dict[int, str]):
    """`_fold` in the shape that ``str.translate`` takes, remembered for as many as a text mixes."""

    _MOST = 8192

    def __missing__(self, code: int) -> str:
        fold = _fold(code)
        if len(self) < self._MOST:
            self[code] = fold
        return fold


class _OneForOne(_Folds):
    """Folds that change neither ASCII nor the length of a text, nor make letters of symbols."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        plain = unicodedata.normalize("NFKD", char)[0]
        fold = char if code < _FIRST_BEYOND_ASCII else _FURTHER.get(char) or _fold(code)
        if plain.isascii() and plain.isalpha():
            fold = plain
        elif len(fold) != 1 or fold == "?" or not (fold in "<>" or char.isalpha()):
            fold = char
        self[code] = fold
        return fold


_FIRST_BEYOND_ASCII = 128
_FURTHER = {"а": "a", "α": "a", "с": "c", "р": "p", "ρ": "p", "х": "x"}
"""What passes for letters that the tag's name does not have."""
_FOLDS = _Folds()
_ONE_FOR_ONE = _OneForOne()


def _unescaped(match: re.Match[str]) -> str:
    """What an escape stands for."""
    if entity := match["entity"]:
        return html.unescape(f"&{entity.lower().removesuffix(';')};")
    digits = match["percent"] or match["braces"] or match["four"] or match["two"]
    if not digits:
        return "&"
    code = int(digits, 16)
    return chr(code) if code <= sys.maxunicode else "?"


@lru_cache(maxsize=8)
def _letters_of(name: str) -> str:
    return name.translate(_FOLDS)


def _may_hold(text: str, letters: str) -> bool:
    """Whether the name, or a half of it at an end, is there at all; cheap, and never a false no."""
    if any(mark in text for mark in "&%\\"):
        text = _ESCAPE.sub(_unescaped, text)
    folded = text.translate(_FOLDS)
    plain = _BRACKETS.sub("", folded)
    for pair, letter in _PAIRS.items():
        plain = plain.replace(pair, letter)
    if letters in plain:
        return True
    tail = folded[folded.rfind("<") + 1 :] if "<" in folded else "?"
    head = folded[: folded.find(">")] if ">" in folded else "?"
    return tail in letters or (
        len(head) >= _SHORTEST_END and letters.endswith(head[-len(letters) :])
    )


def _pieces(text: str) -> Iterator[tuple[str, str]]:
    """Characters and escapes in order, each with what it passes for."""
    start = 0
    for match in _ESCAPE.finditer(text):
        for char in text[start : match.start()]:
            yield char, _FOLDS[ord(char)]
        yield match[0], _unescaped(match).translate(_FOLDS)
        start = match.end()
    for char in text[start:]:
        yield char, _FOLDS[ord(char)]


def _names(folds: list[str], letters: str) -> Iterator[tuple[int, int]]:
    """Where the name stands, as the places of its first and last letter.

    A name that was found is taken out, so that one copy wrapped around another is found as well.
    """
    stack: list[tuple[str, int]] = []
    size = len(letters)
    for at, fold in enumerate(folds):
        for letter in fold:
            if letter in "<>":
                continue
            pair = _PAIRS.get(stack[-1][0] + letter) if stack else None
            if pair:
                stack[-1] = (pair, stack[-1][1])
            else:
                stack.append((letter, at))
            if len(stack) >= size and "".join(one for one, _ in stack[-size:]) == letters:
                yield stack[-size][1], at
                del stack[-size:]


def _around_names(folds: list[str], raws: list[str], letters: str) -> set[int]:
    """The brackets before and behind each name."""
    marked: set[int] = set()
    searched = 0
    for first, last in _names(folds, letters):
        before = _brackets_before(folds, first)
        behind, end = _brackets_behind(folds, raws, last)
        marked.update(before, behind)
        if not before or behind or end < searched:
            continue
        # Attributes may stand between the name and the bracket that ends the tag.
        searched = next(
            (at for at in range(end, len(folds)) if folds[at] in {"<", ">"}), len(folds)
        )
        if searched < len(folds) and folds[searched] == ">":
            marked.add(searched)
    return marked


def _brackets_before(folds: list[str], first: int) -> list[int]:
    """The brackets from the farthest opening one on that no word parts from the name."""
    found: list[int] = []
    opened = 0
    for at in range(first - 1, -1, -1):
        if folds[at] in {"<", ">"}:
            found.append(at)
            opened = len(found) if folds[at] == "<" else opened
        elif folds[at]:
            break
    return found[:opened]


def _brackets_behind(folds: list[str], raws: list[str], last: int) -> tuple[list[int], int]:
    """The closing brackets up to the first blank or word, and where that is."""
    found = []
    for at in range(last + 1, len(folds)):
        if folds[at] == ">":
            found.append(at)
        elif folds[at] or raws[at].isspace():
            return found, at
    return found, len(folds)


def _open_end(folds: list[str], raws: list[str], letters: str) -> set[int]:
    """Opening brackets whose name is cut off by the end of the text."""
    marked: set[int] = set()
    behind, slash, blank = "", False, False
    for at in range(len(folds) - 1, -1, -1):
        fold = folds[at]
        if fold == "<":
            clear = slash or not blank or len(behind) >= _CLEAR_START
            if clear and letters.startswith(behind):
                marked.add(at)
        elif fold:
            behind, slash, blank = fold + behind, False, False
            if behind not in letters:
                break
        else:
            slash, blank = slash or raws[at] == "/", blank or raws[at].isspace()
    return marked


def _closed_start(folds: list[str], letters: str) -> set[int]:
    """Closing brackets whose name was begun before the start of the text."""
    marked: set[int] = set()
    before = ""
    for at, fold in enumerate(folds):
        if fold == ">":
            touching = at - 1 in marked or (at > 0 and folds[at - 1] not in {"", ">"})
            if touching and len(before) >= _SHORTEST_END and letters.endswith(before):
                marked.add(at)
        elif fold:
            before += fold
            if before not in letters:
                break
    return marked
