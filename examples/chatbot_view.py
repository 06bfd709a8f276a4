"""What the chatbot shows: streamed answers, a folded line about memory, tables and notes.

Text of a model or a memory is shown as text: no markup, no terminal control codes. It fits a
narrow window, and reads as well in a pipe.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from rich.status import Status

    from langchain_hindsight import BankRecall, RecallResult

_WIDE = 76
"""Columns from which the memory line has room for units."""
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_PARTS = re.compile(r"\n|[^\S\n]+|\S+")


class View:
    """A terminal, a pipe or a file that the chatbot writes to."""

    def __init__(self) -> None:
        """Write to standard output; what its encoding lacks is shown as a question mark."""
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="replace")
        self.console = Console(highlight=False, soft_wrap=not sys.stdout.isatty())

    @property
    def watched(self) -> bool:
        """Whether a person looks on."""
        return self.console.is_terminal

    def say(self, text: str, style: str = "") -> str:
        """Show a text as it is, and give it back."""
        self.console.print(Text(plain(text), style=style))
        return text

    def note(self, text: str) -> str:
        """Show something on the side, and give it back."""
        return self.say(text, "dim")

    def warn(self, text: str) -> str:
        """Show what went wrong, and give it back."""
        return self.say(text, "yellow")

    def rule(self, title: str) -> None:
        """Begin a part."""
        self.console.print()
        self.console.print(Text(f"--- {title} ---", style="bold"))

    def rows(self, rows: Mapping[str, str]) -> str:
        """Show names and values, and give them back as text."""
        told = "\n".join(f"{name}  {value}" for name, value in rows.items())
        if not self.watched:  # a table would break lines where nothing needs them broken
            return self.say(told)
        table = Table.grid(padding=(0, 2))
        table.add_column(style="dim", no_wrap=True)
        table.add_column(overflow="fold")
        for name, value in rows.items():
            table.add_row(Text(name), Text(plain(value)))
        self.console.print(table)
        return told

    @contextlib.contextmanager
    def waiting(self, text: str) -> Iterator[Status]:
        """A spinner while something takes its time; a line where nobody looks on."""
        if text and not self.watched:
            self.note(text)
        spinner = "dots" if self.console.encoding.startswith("utf") else "line"
        with self.console.status(Text(text, style="dim"), spinner=spinner) as status:
            yield status

    def recalled(self, result: RecallResult) -> None:
        """Fold a turn's recall into one line."""
        self.note(memory_line(result, wide=self.console.width >= _WIDE or not self.watched))
        for role, bank in result.banks.items():
            if bank.error is not None:
                self.warn(f"The {role} bank took no part: {bank.error}")

    def answer(self) -> Answer:
        """An answer to be streamed."""
        return Answer(self.console, self.console.width if self.watched else None)


class Answer:
    """A streamed answer, broken between words where it would run out of the window."""

    def __init__(self, console: Console, width: int | None) -> None:
        """Begin at the left; ``width`` None breaks no line."""
        self.text = ""
        self._console = console
        self._width = width
        self._column = 0
        self._held = ""

    def add(self, piece: str) -> None:
        """Show a piece, but for its last word, which may not be whole."""
        self.text += piece
        whole, self._held = _whole(self._held + plain(piece))
        self._show(whole)

    def end(self) -> None:
        """Show what is left and go to the next line."""
        self._show(self._held)
        self._held = ""
        if self._column:
            self._console.print()
            self._column = 0

    def _show(self, text: str) -> None:
        for part in _PARTS.findall(text):
            if part == "\n":
                self._console.print()
                self._column = 0
                continue
            size = cell_len(part)
            if self._width and self._column and self._column + size > self._width:
                self._console.print()
                self._column = 0
                if part.isspace():
                    continue
            self._console.print(Text(part), end="", soft_wrap=True)
            self._column += size


def memory_line(result: RecallResult, *, wide: bool) -> str:
    """What was recalled from each bank, the tokens used of each limit, and how long it took."""
    if not result.banks:
        return f"memory  {result.reason or 'off'}"
    if result.reason:
        return f"memory  nothing was asked: {result.reason}"
    slowest = max(bank.elapsed_ms for bank in result.banks.values())
    banks = [_bank(role, one, wide=wide) for role, one in result.banks.items()]
    return "memory  " + ("   " if wide else "  ").join([*banks, f"{slowest:.0f} ms"])


def plain(text: str) -> str:
    """A text without codes that would move the cursor or color the screen."""
    return _CONTROL.sub("", text)


def _bank(role: str, bank: BankRecall, *, wide: bool) -> str:
    if bank.error is not None:
        return f"{role} failed"
    unit = " tok" if wide else ""
    return f"{role} {len(bank.memories)} \u00b7 {bank.tokens}/{bank.limit}{unit}"


def _whole(text: str) -> tuple[str, str]:
    """A text up to its last word, and that word."""
    last = re.search(r"\S+\Z", text)
    return (text[: last.start()], last.group()) if last else (text, "")
