"""``langchain-hindsight outbox``: see what waits to be delivered, and settle what cannot be.

What an entry holds is shown only to a person who asks with ``--content``. Looking creates nothing.
Exit codes: 0 when it was done, 1 when it could not be (a flush: when something is left), 2 for a
command line that makes no sense.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from enum import StrEnum
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, ParamSpec, TypeVar

import typer

from langchain_hindsight.errors import HindsightError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from langchain_hindsight.outbox.look import Listed
    from langchain_hindsight.outbox.store import Store
    from langchain_hindsight.retain import Retainer
    from langchain_hindsight.settings import HindsightSettings

P = ParamSpec("P")
T = TypeVar("T")

_SLICE = 0.3
"""How often the progress of a flush is shown, in seconds."""

app = typer.Typer(
    help="See what waits for Hindsight, deliver it, and settle what cannot be delivered.",
    no_args_is_help=True,
)


class State(StrEnum):
    """Where an entry stands."""

    WAITING = "waiting"
    IN_FLIGHT = "in-flight"
    DEAD = "dead"


_STORED_AS = {State.WAITING: "waiting", State.IN_FLIGHT: "batched", State.DEAD: "dead"}

Place = Annotated[
    str | None,
    typer.Option(
        "--outbox-url",
        help="The outbox, as an SQLAlchemy URL; else the configuration's.",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
WithContent = Annotated[
    bool, typer.Option("--content", help="Show what the entries hold (credentials are masked).")
]
Ids = Annotated[list[int] | None, typer.Argument(help="Dead letters, by id.", show_default=False)]
Every = Annotated[bool, typer.Option("--all", help="Every dead letter of the outbox.")]


def _plainly(command: Callable[P, T]) -> Callable[P, T]:
    """Say in a sentence what made a command fail."""

    @wraps(command)
    def run(*args: P.args, **named: P.kwargs) -> T:
        from sqlalchemy import exc

        try:
            return command(*args, **named)
        except HindsightError as error:
            _fail(str(error))
        except (exc.SQLAlchemyError, OSError) as error:
            _fail(f"The outbox cannot be used: {getattr(error, 'orig', None) or error}")

    return run


def _fail(reason: str) -> NoReturn:
    typer.secho(f"Error: {reason}", err=True, fg=typer.colors.RED)
    raise typer.Exit(1)


@app.command()
@_plainly
def status(*, outbox_url: Place = None, as_json: AsJson = False) -> None:
    """How many entries wait, are under way, were delivered or are dead."""
    with _delivering(outbox_url) as retainer:
        found = retainer.status()
    if as_json:
        _print_json(asdict(found))
        return
    from langchain_hindsight.outbox.address import server_in

    table = _grid()
    table.add_row("outbox", _escaped(found.place))
    table.add_row("server", _escaped(server_in(found.address)))
    table.add_row("waiting", str(found.waiting) + _since(found.oldest_age))
    table.add_row("in flight", str(found.in_flight))
    table.add_row("delivered", str(found.delivered))
    table.add_row("dead letters", _loud(found.dead))
    if found.paused:
        table.add_row("paused", f"[red]{', '.join(found.paused)}[/red] (the key was refused)")
    if found.last_error:
        table.add_row("last error", f"[yellow]{_escaped(found.last_error)}[/yellow]")
    for address, count in found.other_servers.items():
        table.add_row("elsewhere", f"{count} for {_named(address, found.address)}")
    _console().print(table)
    if found.dead:
        _hint(
            "langchain-hindsight outbox list --state dead shows them, retry or drop settles them."
        )
    if found.other_servers:
        _hint("langchain-hindsight outbox readdress gives them to this server and key.")


@app.command(name="list")
@_plainly
def list_entries(
    *,
    state: Annotated[
        State | None, typer.Option(help="Only entries that stand there.", show_default=False)
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="The most to show, oldest first.")] = 100,
    content: WithContent = False,
    outbox_url: Place = None,
    as_json: AsJson = False,
) -> None:
    """The entries that wait, are under way or are dead, of every server."""
    states = list(_STORED_AS.values()) if state is None else [_STORED_AS[state]]
    with _store(outbox_url) as store:
        found = store.list_entries(states, limit) if store.exists() else []
        words = {one.id: store.content(one.id) for one in found} if content else {}
    if as_json:
        _print_json([_entry_json(one) | _content_json(words, one.id) for one in found])
        return
    if not found:
        typer.echo(f"There is no {state} entry." if state else "Nothing waits.")
        return
    _console().print(_table(found, words))


@app.command()
@_plainly
def show(
    entry: Annotated[int, typer.Argument(help="The entry's id.", show_default=False)],
    *,
    content: WithContent = False,
    outbox_url: Place = None,
    as_json: AsJson = False,
) -> None:
    """One entry: whose it is, where it stands, and why."""
    with _store(outbox_url) as store:
        found = store.entry(entry) if store.exists() else None
        if found is None:
            _fail(f"There is no entry {entry} in the outbox.")
        words = {found.id: store.content(found.id)} if content else {}
    if as_json:
        _print_json(_entry_json(found) | _content_json(words, found.id))
        return
    table = _grid()
    for name, value in _entry_json(found).items():
        if value is not None:
            table.add_row(name.replace("_", " "), _escaped(str(value)))
    _console().print(table)
    if content:
        _console().print(_escaped(words[found.id] or "(delivered: it is no longer here)"))


@app.command()
@_plainly
def flush(
    *,
    timeout: Annotated[float, typer.Option(min=0, help="How long at most, in seconds.")] = 60.0,
    outbox_url: Place = None,
    as_json: AsJson = False,
) -> None:
    """Deliver what is due, and wait until Hindsight has it."""
    with _delivering(outbox_url) as retainer:
        report = _flush(retainer, timeout, quiet=as_json)
    if as_json:
        _print_json(report)
    else:
        _say_flushed(report)
    if report["waiting"] or report["dead"]:
        raise typer.Exit(1)


@app.command()
@_plainly
def retry(
    ids: Ids = None, *, every: Every = False, outbox_url: Place = None, as_json: AsJson = False
) -> None:
    """Let dead letters wait for delivery again, with the others of their documents."""
    _settle(ids, every, outbox_url, as_json, lambda store, which: store.retry(which), "retried")


@app.command()
@_plainly
def drop(
    ids: Ids = None, *, every: Every = False, outbox_url: Place = None, as_json: AsJson = False
) -> None:
    """Give up dead letters for good, with the others of their documents."""
    _settle(ids, every, outbox_url, as_json, lambda store, which: store.drop(which), "dropped")


@app.command()
@_plainly
def readdress(
    source: Annotated[
        str, typer.Argument(help="The address that `status` shows; a URL alone is its every key.")
    ],
    target: Annotated[
        str | None,
        typer.Argument(help="Another server's URL; else this server and key.", show_default=False),
    ] = None,
    *,
    outbox_url: Place = None,
    as_json: AsJson = False,
) -> None:
    """Give entries that wait for another server, or another key, to this one.

    Only you can know that both lead to the same memory: what waits is then stored there.
    """
    from langchain_hindsight.outbox.address import moved, server_in, server_of

    with _delivering(outbox_url) as retainer:
        mine = retainer.status().address
    count = 0
    with _store(outbox_url) as store:
        server, _, key = source.partition("#")
        wanted = server_of(server) + (f"#{key}" if key else "")
        matching = [
            address
            for address in (store.addresses() if store.exists() else [])
            if wanted in {address, server_in(address)}
        ]
        for address in matching:
            to = mine if target is None else moved(address, server_of(target))
            if to != address:
                count += store.readdress(address, to)
    if not matching:
        _fail(f"Nothing in the outbox is for {source}.")
    _done({"readdressed": count}, as_json)


def _settle(  # noqa: PLR0917 - one per option of a command
    ids: Sequence[int] | None,
    every: bool,  # noqa: FBT001
    outbox_url: str | None,
    as_json: bool,  # noqa: FBT001
    work: Callable[[Store, Sequence[int] | None], int],
    done: str,
) -> None:
    if bool(ids) == every:
        msg = "Name dead letters by id, or say --all."
        raise typer.BadParameter(msg)
    with _store(outbox_url) as store:
        dead = set() if not store.exists() else store.dead_among(ids)
        missing = [one for one in ids or () if one not in dead]
        if missing:
            _fail(f"There is no dead letter {', '.join(map(str, missing))}; nothing was done.")
        count = work(store, ids) if dead else 0
    _done({done: count}, as_json)


def _flush(retainer: Retainer, timeout: float, *, quiet: bool) -> dict[str, Any]:
    """Flush in slices, so that progress can be shown."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    deadline = time.monotonic() + timeout
    before = retainer.status()
    total = before.waiting + before.in_flight
    delivered = dead = 0
    columns = (
        TextColumn("Delivering"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("[yellow]{task.fields[note]}"),
    )
    with Progress(*columns, console=_console(err=True), disable=quiet or not total) as progress:
        bar = progress.add_task("", total=total, note="")
        while True:
            remaining = deadline - time.monotonic()
            report = retainer.flush(max(0.0, min(_SLICE, remaining)))
            delivered += report.delivered
            dead += report.dead
            now = retainer.status()
            being_stored = f"{now.in_flight} under way" if now.in_flight else ""
            settled = delivered + dead
            progress.update(
                bar,
                completed=settled,
                total=max(total, settled + report.waiting),
                note=_escaped(now.last_error or being_stored),
            )
            if not report.timed_out or remaining <= 0:
                break
    after = retainer.status()
    return {
        "delivered": delivered,
        "waiting": report.waiting,
        "dead": dead,
        "timed_out": report.timed_out,
        "elsewhere": report.elsewhere,
        "paused": list(after.paused),
        "last_error": after.last_error if report.waiting else None,
    }


def _say_flushed(report: dict[str, Any]) -> None:
    """What became of a flush, in as many lines as there is something to say."""
    console = _console()
    console.print(f"[green]{report['delivered']} delivered[/green], {report['waiting']} waiting.")
    if report["last_error"]:
        console.print(f"[yellow]{_escaped(report['last_error'])}[/yellow]")
    if report["dead"]:
        console.print(f"[red]{report['dead']} became dead letters.[/red]")
        _hint("langchain-hindsight outbox list --state dead shows them.")
    if report["elsewhere"]:
        console.print(f"{report['elsewhere']} wait for another server or key, and were left alone.")
        _hint("langchain-hindsight outbox status names them.")


def _table(found: Sequence[Listed], words: dict[int, str | None]) -> Table:
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("id", justify="right")
    table.add_column("state")
    table.add_column("bank", overflow="fold")
    table.add_column("server", overflow="fold")
    table.add_column("waits", justify="right", no_wrap=True)
    table.add_column("bytes", justify="right")
    table.add_column("why", overflow="fold")
    if words:
        table.add_column("content", overflow="fold")
    for one in found:
        row = (
            str(one.id),
            f"[red]{one.state}[/red]" if one.state == State.DEAD else one.state,
            _escaped(one.bank_id),
            _escaped(one.address),
            _span(time.time() - one.created),
            str(one.size),
            _escaped(one.error or ""),
        )
        table.add_row(*row, *([_escaped(words[one.id] or "")] if words else []))
    return table


def _grid() -> Table:
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    return table


def _console(*, err: bool = False) -> Console:
    from rich.console import Console

    return Console(stderr=err, highlight=False)


def _escaped(text: str) -> str:
    from rich.markup import escape

    return escape(text)


def _hint(text: str) -> None:
    _console(err=True).print(f"[dim]{text}[/dim]")


def _done(what: dict[str, int], as_json: bool) -> None:  # noqa: FBT001
    if as_json:
        _print_json(what)
        return
    for done, count in what.items():
        typer.echo(f"{count} {'entry' if count == 1 else 'entries'} {done}.")


def _print_json(value: object) -> None:
    typer.echo(json.dumps(value, indent=2, default=str))


def _entry_json(one: Listed) -> dict[str, Any]:
    return asdict(one) | {"created": datetime.fromtimestamp(one.created, UTC).isoformat()}


def _content_json(words: dict[int, str | None], entry: int) -> dict[str, Any]:
    return {"content": words[entry]} if words else {}


def _named(address: str, mine: str) -> str:
    """An address for a person, who sees why it is another."""
    from langchain_hindsight.outbox.address import server_in

    why = " (the same server, another key)" if server_in(address) == server_in(mine) else ""
    return _escaped(address) + why


def _loud(count: int) -> str:
    return f"[red]{count}[/red]" if count else "0"


def _since(age: float | None) -> str:
    return "" if age is None else f", the oldest for {_span(age)}"


def _span(seconds: float) -> str:
    """A time span in its largest unit."""
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


def _settings(outbox_url: str | None) -> HindsightSettings:
    from langchain_hindsight.settings import HindsightSettings

    settings = HindsightSettings()
    if outbox_url is None:
        return settings
    outbox = settings.outbox.model_copy(update={"url": outbox_url})
    return settings.model_copy(update={"outbox": outbox})


@contextmanager
def _delivering(outbox_url: str | None) -> Iterator[Retainer]:
    """The outbox with its delivery, which is started only by a flush."""
    from langchain_hindsight.gateway import Gateway
    from langchain_hindsight.memory import key_provider
    from langchain_hindsight.retain import Retainer

    settings = _settings(outbox_url)
    gateway = Gateway(settings.url, key_provider(None, settings), settings.timeout)
    retainer = Retainer(gateway, settings)
    try:
        yield retainer
    finally:
        retainer.stop(0)
        if gateway.loop.is_open:
            gateway.loop.run(gateway.aclose())
            gateway.loop.close()


@contextmanager
def _store(outbox_url: str | None) -> Iterator[Store]:
    from langchain_hindsight.outbox.store import Store

    store = Store(_settings(outbox_url).outbox)
    try:
        yield store
    finally:
        store.close()
