"""The command itself, which its sub-commands are joined to."""

from __future__ import annotations

import typer

from langchain_hindsight.cli.serve import serve

app = typer.Typer(
    name="langchain-hindsight",
    help="Dual-bank memory on a Hindsight server for LangChain and LangGraph agents.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
)


@app.callback()
def _root() -> None:
    """Keep `serve` a sub-command, also while it is the only one."""


app.command()(serve)


def main() -> None:
    """Run the command."""
    app()
