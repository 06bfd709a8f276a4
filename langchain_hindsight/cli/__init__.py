"""The command ``langchain-hindsight``: one module a sub-command, none of which holds policy."""

from langchain_hindsight.cli.app import app, main

__all__ = ["app", "main"]
