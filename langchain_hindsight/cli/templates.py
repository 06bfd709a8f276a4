"""``langchain-hindsight templates``: what a bank starts from, shown and applied."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from langchain_hindsight.cli.bank import BankOption, CallerOption, manage, told
from langchain_hindsight.errors import HindsightError
from langchain_hindsight.managed_bank import NO_LLM
from langchain_hindsight.templates import TEMPLATES, Template

templates = typer.Typer(help="Starter templates: missions and mental models.", no_args_is_help=True)


@templates.command("list")
def list_templates() -> None:
    """Print the bundled templates."""
    for one in TEMPLATES.values():
        typer.echo(f"{one.name:<22}{one.about}")


@templates.command()
def show(name: str) -> None:
    """Print a template as Hindsight imports it."""
    template = _named(name)
    typer.echo(json.dumps(template.manifest(template.missions, tag=None), indent=2))


@templates.command()
def apply(
    name: str,
    *,
    role: BankOption,
    write: Annotated[bool, typer.Option("--write", help="Apply it; else only show it.")] = False,
    missions_only: Annotated[
        bool, typer.Option("--missions-only", help="Leave the mental models out.")
    ] = False,
    caller: CallerOption = None,
) -> None:
    """Show what a template changes in the configured bank; with --write, change it."""
    template = _named(name)
    with told():
        if not name.startswith(role):
            msg = f"{name} is no template for the {role} bank."
            raise HindsightError(msg)
    models = not missions_only
    plan = manage(role, lambda managed: managed.plan(template, models=models), caller)
    typer.echo(f"{plan.bank_id} ({'exists' if plan.exists else 'is created'})")
    for mission, (before, after) in plan.missions.items():
        typer.echo(f"- {mission}: {before or 'none'}\n+ {mission}: {after}")
    for model in plan.models:
        typer.echo(f"+ mental model: {model}")
    if plan.exists and not plan.missions and not plan.models:
        typer.echo("There is nothing to change.")
        return
    if plan.problem:
        hint = " Nothing was applied; --missions-only applies the rest." * (plan.problem == NO_LLM)
        typer.echo(f"Error: {plan.problem}{hint}", err=True)
        raise typer.Exit(1)
    if not write:
        typer.echo("Nothing was changed; --write applies it.")
        return
    manage(role, lambda managed: managed.apply(template, models=models), caller)
    typer.echo("Applied.")


def _named(name: str) -> Template:
    if name not in TEMPLATES:
        typer.echo(f"Error: no template {name!r}; there are {', '.join(TEMPLATES)}.", err=True)
        raise typer.Exit(1)
    return TEMPLATES[name]
