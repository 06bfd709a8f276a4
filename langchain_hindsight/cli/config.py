"""``langchain-hindsight config``: what is configured, where, and whether it can work."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from langchain_hindsight.cli.config_migrate import migrate

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from langchain_hindsight.settings_report import Row
    from langchain_hindsight.settings_sources import ConfigFile, Fault, Origin

_WIDE = 160
"""Columns of what goes to a pipe, so that paths stay whole."""

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]

config = typer.Typer(
    help="What is configured, where each value comes from, and what is wrong.",
    no_args_is_help=True,
)


@config.command()
def show(
    *,
    only_set: Annotated[
        bool, typer.Option("--set", help="Leave out what stands at its default.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Print every setting in force and where it comes from; credentials are masked."""
    from langchain_hindsight.settings import HindsightSettings
    from langchain_hindsight.settings_report import effective

    found = HindsightSettings.inspect()
    if found.settings is None:
        if as_json:
            _print_json({"faults": [_fault_data(one) for one in found.faults]})
        else:
            _print_faults(found.faults, stderr=True)
        raise typer.Exit(1)
    rows = [
        row
        for row in effective(found.settings, found.reading.origins)
        if row.is_set or not only_set
    ]
    if as_json:
        _print_json({row.name: _as_data(row) for row in rows})
    else:
        console = _console()
        for row in _sections(rows, console):
            console.print(row)
    _print_faults(found.faults, stderr=True)


@config.command()
def check(*, as_json: AsJson = False) -> None:
    """Say what is wrong and where; the exit code is 1 where anything is.

    Nothing is sent to the server.
    """
    from langchain_hindsight.settings import HindsightSettings
    from langchain_hindsight.settings_report import remarks, what_cannot_work

    found = HindsightSettings.inspect()
    faults = list(found.faults)
    if found.settings is not None:
        faults += what_cannot_work(found.settings, found.reading.origins)
    notes = list(remarks(found))
    if as_json:
        _print_json({"faults": [_fault_data(one) for one in faults], "notes": notes})
    else:
        _print_faults(faults)
        console = _console()
        for note in notes:
            console.print(f"[yellow]note[/] {_plain(note)}", highlight=False)
        if not faults:
            console.print("[green]Nothing is wrong.[/]")
    raise typer.Exit(1 if faults else 0)


@config.command()
def path(*, as_json: AsJson = False) -> None:
    """Print the files that are looked at, the highest first, and which of them are there."""
    from langchain_hindsight.settings_sources import config_files

    files = config_files()
    if as_json:
        _print_json(
            [{"path": str(one.path), "of": one.role, "exists": one.exists} for one in files]
        )
        return
    table = _table("file", "", "")
    for one in files:
        there = "[green]is there[/]" if one.exists else "[dim]is not there[/]"
        table.add_row(_plain(_name(one)), one.role, there)
    console = _console()
    console.print(table)
    console.print("[dim]A variable HINDSIGHT_* goes before all of them.[/]", highlight=False)


config.command()(migrate)


def _sections(rows: Iterable[Row], console: Console) -> Iterable[Table]:
    """A table for each section, its columns as wide as those of the others."""
    by_section: dict[str, list[Row]] = {}
    for row in rows:
        by_section.setdefault(row.name.rpartition(".")[0], []).append(row)
    width = max((len(row.name) for rows in by_section.values() for row in rows), default=0)
    for found in by_section.values():
        table = _table("", "", "")
        table.columns[0].width = width
        table.columns[1].width = max(16, (console.width - width) * 2 // 5)
        for row in found:
            source = _short(row.origin) if row.origin else row.source
            source += f" ({row.note})" if row.note else ""
            style = "" if row.is_set else "dim"
            shown = json.dumps(row.value, ensure_ascii=False) if row.value is not None else "none"
            name = f"[bold]{row.name}[/]" if row.is_set else row.name
            table.add_row(name, _plain(shown), _plain(source), style=style)
        table.add_row()
        yield table


def _as_data(row: Row) -> dict[str, Any]:
    data = {"value": row.value, "source": row.source}
    return data | {"note": row.note} if row.note else data


def _fault_data(fault: Fault) -> dict[str, Any]:
    origin = fault.origin
    return {
        "file": None if origin.file is None else str(origin.file),
        "key": origin.key,
        "found": fault.found,
        "expected": fault.expected,
        "error": fault.is_error,
    }


def _print_faults(faults: Iterable[Fault], *, stderr: bool = False) -> None:
    faults = list(faults)
    if not faults:
        return
    console = _console(stderr=stderr)
    table = _table("", "where", "found", "expected")
    for one in faults:
        kind = "[red]error[/]" if one.is_error else "[yellow]warning[/]"
        table.add_row(kind, _plain(_short(one.origin)), _plain(one.found), _plain(one.expected))
    console.print(table)


def _short(origin: Origin) -> str:
    """An origin, its file as seen from here where that is shorter."""
    if origin.file is None:
        return str(origin)
    try:
        near = os.path.relpath(origin.file)
    except (OSError, ValueError):  # no working directory, or another drive
        near = str(origin.file)
    file = min(near, str(origin.file), key=len)
    return f"{file}: {origin.key}" if origin.key else file


def _name(file: ConfigFile) -> str:
    return f"{file.path} [{'.'.join(file.table)}]" if file.table else str(file.path)


def _table(*headers: str) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, show_header=any(headers), header_style="dim")
    for header in headers:
        table.add_column(header, overflow="fold")
    return table


def _console(*, stderr: bool = False) -> Console:
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    is_terminal = stream is not None and stream.isatty()  # None where it was closed
    return Console(width=None if is_terminal else _WIDE, stderr=stderr)


def _plain(text: str) -> str:
    from rich.markup import escape

    from langchain_hindsight.settings_sources import printable

    return escape(printable(text))


def _print_json(data: object) -> None:
    typer.echo(json.dumps(data, indent=2))
