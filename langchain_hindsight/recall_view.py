"""How a recall shows itself to a person: a bar a bank, used of limit, the memories under it.

Remembered text may have come from anyone, so all of it is escaped here, and control characters and
marks that turn the direction of text are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING

from langchain_hindsight.fence import clean

if TYPE_CHECKING:
    from rich.console import RenderableType

    from langchain_hindsight.recall_result import BankRecall, RecalledMemory, RecallResult

_COLOR = {"project": "#2f6f9f", "life": "#9f5f2f"}
_BAR_COLUMNS = 24
_ROLE_COLUMNS = 8


def as_html(result: RecallResult) -> str:
    """The view for notebooks, in colors that hold on light and dark pages."""
    parts = [_bank_as_html(role, bank) for role, bank in result.banks.items()]
    if not parts:
        parts = [f"<em>{escape(_nothing(result))}</em>"]
    return f'<div style="font-family:sans-serif;max-width:48em">{"".join(parts)}</div>'


def as_rich(result: RecallResult) -> Iterator[RenderableType]:
    """The view for terminals, part by part."""
    from rich.text import Text

    if not result.banks:
        yield Text(_nothing(result), style="dim")
    for role, bank in result.banks.items():
        yield from _bank_as_rich(role, bank)


def _bank_as_html(role: str, bank: BankRecall) -> str:
    share = min(100.0, 100.0 * bank.tokens / bank.limit) if bank.limit else 0.0
    items = "".join(
        f'<li><span style="opacity:.6">{escape(_label(memory))}</span>'
        f"{escape(clean(memory.text))}"
        f'<span style="opacity:.6">{escape(_after(memory))}</span></li>'
        for memory in bank.memories
    )
    if bank.error is not None:
        items += f'<li style="color:#c0392b">{escape(clean(str(bank.error)))}</li>'
    left_out = _left_out(bank)
    if left_out:
        items += f'<li style="opacity:.6;list-style:none">{escape(left_out)}</li>'
    return (
        f'<div style="margin:.6em 0"><b>{escape(role.capitalize())}</b> '
        f"<code>{escape(_name(bank))}</code> "
        f'<span style="opacity:.7">{bank.tokens} of {bank.limit} tokens, '
        f"{bank.elapsed_ms:.0f} ms</span>"
        '<div style="background:rgba(128,128,128,.25);border-radius:3px;height:8px;'
        'margin:.2em 0">'
        f'<div style="background:{_COLOR[role]};border-radius:3px;height:8px;'
        f'width:{share:.1f}%"></div></div>'
        f'<ul style="margin:.3em 0 .3em 1.2em;padding:0">{items}</ul></div>'
    )


def _bank_as_rich(role: str, bank: BankRecall) -> Iterator[RenderableType]:
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    head = Table.grid(padding=(0, 1))
    head.add_row(
        Text(f"{role.capitalize():<{_ROLE_COLUMNS}}", style="bold"),
        ProgressBar(
            total=max(bank.limit, 1),
            completed=bank.tokens,
            width=_BAR_COLUMNS,
            complete_style=_COLOR[role],
            finished_style=_COLOR[role],
        ),
        Text(f"{bank.tokens} of {bank.limit} tokens", style="dim"),
        Text(_name(bank), style="dim"),
    )
    yield head
    body = Table.grid(padding=(0, 1, 0, 0))
    for memory in bank.memories:
        words = Text(_label(memory), style="dim").append(clean(memory.text), style="not dim")
        words.append(_after(memory))
        body.add_row(" " * _ROLE_COLUMNS, "-", words)
    if bank.error is not None:
        body.add_row(" " * _ROLE_COLUMNS, "!", Text(clean(str(bank.error)), style="red"))
    if left_out := _left_out(bank):
        body.add_row(" " * _ROLE_COLUMNS, "", Text(left_out, style="dim"))
    yield body


def _label(memory: RecalledMemory) -> str:
    """What stands ahead of a memory's words: its day, and what it is where that tells something."""
    day = f"{memory.date:%Y-%m-%d} " if memory.date else ""
    return f"{day}observation " if memory.type == "observation" else day


def _after(memory: RecalledMemory) -> str:
    """What stands behind a memory's words: what was said before it, where it was shown too."""
    return f" (after {clean(memory.after)})" if memory.after else ""


def _left_out(bank: BankRecall) -> str:
    counts = [f"{count} {reason.replace('_', ' ')}" for reason, count in bank.dropped.items()]
    return clean(f"left out: {', '.join(counts)}") if counts else ""


def _name(bank: BankRecall) -> str:
    return clean(bank.bank_id or "no bank")


def _nothing(result: RecallResult) -> str:
    return result.reason or "No bank took part."
