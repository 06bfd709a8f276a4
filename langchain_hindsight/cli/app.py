"""The command itself, which its sub-commands are joined to."""

from __future__ import annotations

import io
import sys
from typing import Annotated

import typer

from langchain_hindsight._version import __version__
from langchain_hindsight.cli.bank import bank
from langchain_hindsight.cli.config import config
from langchain_hindsight.cli.outbox import app as outbox
from langchain_hindsight.cli.serve import serve
from langchain_hindsight.cli.templates import templates

app = typer.Typer(
    name="langchain-hindsight",
    help="Dual-bank memory on a Hindsight server for LangChain and LangGraph agents.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
)


def _print_version(asked: bool) -> None:  # noqa: FBT001 - the signature is typer's
    if asked:
        typer.echo(f"langchain-hindsight {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Take what stands before a sub-command."""


app.command()(serve)
app.add_typer(config, name="config")
app.add_typer(bank, name="bank")
app.add_typer(templates, name="templates")
app.add_typer(outbox, name="outbox")


def main() -> None:
    """Run the command; what a terminal has no letters for is written as an escape."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    app()
