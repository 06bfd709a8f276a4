"""``langchain-hindsight bank``: the selected banks, looked at and looked after.

Listing all banks and deleting one stay with Hindsight's own control plane.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Literal, TypeVar

import typer

from langchain_hindsight.errors import BankResolutionError, HindsightError
from langchain_hindsight.managed_bank import BankLook, ManagedBank

T = TypeVar("T")
Role = Literal["project", "life"]

BankOption = Annotated[Role, typer.Option("--bank", help="Which bank.")]
CallerOption = Annotated[
    list[str] | None,
    typer.Option(
        "--caller",
        metavar="NAME=VALUE",
        help="A value that a bank's template names, such as user_id=anna. Repeat for more.",
        show_default=False,
    ),
]

bank = typer.Typer(help="Look at the configured banks and after them.", no_args_is_help=True)
models = typer.Typer(help="The bank's mental models.", no_args_is_help=True)
bank.add_typer(models, name="models")


def manage(role: Role, work: Callable[[ManagedBank], Awaitable[T]], caller: list[str] | None) -> T:
    """Do something with a bank, as the configuration and the caller choose it."""
    from langchain_hindsight.memory import DualBankMemory

    with told(), DualBankMemory() as memory:
        values = dict(_pair(one) for one in caller or ())
        return memory.manage(role, work, {"configurable": values})


@contextmanager
def told() -> Iterator[None]:
    """Say what failed in a line, and end with 1."""
    try:
        yield
    except BankResolutionError as error:
        typer.echo(f"Error: {error} Here, --caller NAME=VALUE gives a value.", err=True)
        raise typer.Exit(1) from None
    except HindsightError as error:
        typer.echo(f"Error: {error}", err=True)
        raise typer.Exit(1) from None


@bank.command()
def show(
    *,
    role: Annotated[
        Role | None, typer.Option("--bank", help="Which bank; both unless given.")
    ] = None,
    caller: CallerOption = None,
) -> None:
    """Say whether the configured banks exist, and how they are set up. Ends with 1 if one does not.

    Where one does not exist, the ids of banks that look like it are shown: a misspelt one is seen.
    """
    from langchain_hindsight.memory import DualBankMemory

    with told():
        memory = DualBankMemory()
    takes_part = {"project": memory.settings.switches.project, "life": memory.has_life}
    chosen: list[Role] = [one for one in ("project", "life") if takes_part[one]]
    every = True
    for one in (role,) if role else chosen:
        look = manage(one, lambda managed: managed.look(), caller)
        typer.echo(_described(look))
        every = every and look.exists
    if not every:
        raise typer.Exit(1)


@bank.command()
def missions(
    *,
    role: BankOption = "project",
    word: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=TEXT",
            help="Replace a mission: retain_mission, observations_mission or reflect_mission.",
            show_default=False,
        ),
    ] = None,
    caller: CallerOption = None,
) -> None:
    """Print the bank's missions, or replace some of them."""
    with told():
        wording = dict(_pair(one) for one in word or ())
    if wording:
        manage(role, lambda managed: managed.set_missions(wording), caller)
    found = manage(role, lambda managed: managed.missions(), caller)
    if found is None:
        typer.echo(
            "The bank does not exist yet; it is created when it is first retained to.", err=True
        )
        raise typer.Exit(1)
    for name, mission in found.items():
        typer.echo(f"{name}: {mission}")


@models.command("list")
def list_models(*, role: BankOption = "project", caller: CallerOption = None) -> None:
    """Print the mental models: id, name, when each was made, and what it says."""
    found = manage(role, lambda managed: managed.models(), caller)
    if not found:
        typer.echo("The bank has no mental models.", err=True)
    for one in found:
        made = f"{one.refreshed_at:%Y-%m-%d %H:%M} UTC" if one.refreshed_at else "not made yet"
        typer.echo(f"{one.id}  {one.name}  ({made})")
        typer.echo(f"  {one.content or one.question}")


@models.command()
def create(
    name: str, question: str, *, role: BankOption = "project", caller: CallerOption = None
) -> None:
    """Have Hindsight keep the answer to a question up to date."""
    typer.echo(manage(role, lambda managed: managed.create_model(name, question), caller))


@models.command()
def refresh(model: str, *, role: BankOption = "project", caller: CallerOption = None) -> None:
    """Have a mental model made anew."""
    manage(role, lambda managed: managed.refresh_model(model), caller)


@models.command()
def delete(model: str, *, role: BankOption = "project", caller: CallerOption = None) -> None:
    """Delete a mental model; memories stay."""
    manage(role, lambda managed: managed.delete_model(model), caller)


def _described(look: BankLook) -> str:
    lines = [f"{look.role}: {look.bank_id} " + ("exists" if look.exists else "does not exist yet")]
    if look.tag is not None:
        lines.append(f"  tag: {look.tag}")
    if look.near:
        lines.append(f"  Misspelt? There is: {', '.join(look.near)}")
    lines += [f"  {name}: {mission}" for name, mission in look.missions.items()]
    return "\n".join(lines)


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        msg = f"{text!r} is no NAME=VALUE."
        raise HindsightError(msg)
    return name.strip(), value
