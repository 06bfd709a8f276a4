"""``langchain-hindsight config migrate``: an older configuration written anew, in TOML."""

from __future__ import annotations

import json
import os
import shutil
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

if TYPE_CHECKING:
    from langchain_hindsight.settings_sources import Reading

_NAME = ".hindsight.toml"
_OWNER_ALONE = 0o600
_EVERYBODY = 0o666  # and the system's own mask


@dataclass(frozen=True, slots=True)
class Change:
    """What becomes of one value: the lines of a diff, with ``-``, ``+`` or a blank ahead."""

    before: str | None
    after: str | None

    def lines(self) -> Iterator[tuple[Literal["-", "+", " "], str]]:
        """Its lines; one where nothing changes."""
        if self.before == self.after and self.after is not None:
            yield " ", self.after
            return
        if self.before is not None:
            yield "-", self.before
        if self.after is not None:
            yield "+", self.after


def migrate(
    file: Annotated[
        Path, typer.Argument(help="The older configuration: JSON, JSONC or TOML.", dir_okay=False)
    ],
    *,
    to: Annotated[
        Path | None,
        typer.Option(help=f"Where to write; {_NAME} beside FILE unless given.", dir_okay=False),
    ] = None,
    write: Annotated[bool, typer.Option("--write", help="Write it; FILE is kept.")] = False,
) -> None:
    """Show what an older configuration becomes, and write it with --write."""
    from langchain_hindsight.settings import HindsightSettings
    from langchain_hindsight.settings_sources import NAMED_FILE, printable, read_file

    reading = read_file(HindsightSettings, file)
    found = HindsightSettings.inspect(reading)
    if found.settings is None:
        for one in found.faults:
            typer.secho(f"{'error' if one.is_error else 'warning'}: {one}", fg="red", err=True)
        typer.secho("Nothing was written.", err=True)
        raise typer.Exit(1)
    target = to or file.with_name(_NAME)
    for change in changes(reading, file):
        for sign, line in change.lines():
            color = {"-": "red", "+": "green"}.get(sign)
            typer.secho(f"{sign} {printable(line)}", fg=color)
    for one in reading.faults:
        typer.secho(f"{printable(one.origin.key)}: {one.expected}", fg="yellow", err=True)
    if not write:
        typer.echo(f"Nothing was written. With --write it goes to {target}.")
        return
    try:
        kept = write_toml(reading, file, target)
    except (OSError, ValueError) as error:
        typer.secho(f"Nothing was written: {error}", fg="red", err=True)
        raise typer.Exit(1) from None
    typer.echo(f"Written to {target}; the original is kept as {kept}.")
    if os.environ.get(NAMED_FILE):
        typer.echo(f"{NAMED_FILE} still names {os.environ[NAMED_FILE]}; unset it.")


def changes(reading: Reading, file: Path) -> Iterator[Change]:
    """What becomes of each value of a file, in the order of the tree, and then what is left out."""
    from langchain_hindsight.settings import HindsightSettings
    from langchain_hindsight.settings_sources import parsed_file, settings_of

    before = dict(_nodes(parsed_file(file)[0]))
    used: set[str] = set()
    for name in settings_of(HindsightSettings):
        if name in reading.found:
            written = reading.origins[name].key
            old = _line(written, name, before.get(written)) if written not in used else None
            used.add(written)
            yield Change(old, _line(name, name, reading.found[name]))
    for one in reading.faults:
        written = one.origin.key
        if written in before and written not in used:
            used.add(written)
            yield Change(_line(written, "", before[written]), None)


def write_toml(reading: Reading, file: Path, target: Path) -> Path:
    """Write what was read as TOML, whole or not at all.

    Returns:
        Where the original is kept.

    Raises:
        ValueError: If another file is in the way, the target is named as JSON, or a value cannot
            be written.
        OSError: If the disk does not take it.
    """
    from langchain_hindsight.settings_sources import named_as_json

    if named_as_json(target):
        msg = f"{target} would be read as JSON, and TOML is written; name another with --to."
        raise ValueError(msg)
    is_same = target.exists() and target.samefile(file)
    if target.exists() and not is_same:
        msg = f"{target} exists; name another with --to."
        raise ValueError(msg)
    content = _toml(reading, file)
    kept = file
    if is_same:
        kept = _free_name(file)
        shutil.copy2(file, kept)
    mode = _OWNER_ALONE if _has_credentials(reading) else _EVERYBODY
    _replace(target, content, mode)
    return kept


def _toml(reading: Reading, file: Path) -> bytes:
    import tomli_w

    from langchain_hindsight.older_settings import nested
    from langchain_hindsight.settings import HindsightSettings
    from langchain_hindsight.settings_sources import settings_of

    ordered = {
        name: reading.found[name]
        for name in settings_of(HindsightSettings)
        if reading.found.get(name) is not None
    }
    values = nested(ordered)
    text = tomli_w.dumps(values)
    if tomllib.loads(text) != values:
        msg = f"{file} holds a value that TOML cannot."
        raise ValueError(msg)
    return f"# Written from {file.name} by langchain-hindsight config migrate.\n\n{text}".encode()


def _has_credentials(reading: Reading) -> bool:
    from langchain_hindsight.settings_sources import masked

    return any(masked(name, value) != value for name, value in reading.found.items())


def _free_name(file: Path) -> Path:
    """A name beside a file that nothing has."""
    number = 1
    while (free := file.with_name(f"{file.name}.before-{number}")).exists():
        number += 1
    return free


def _replace(target: Path, content: bytes, mode: int) -> None:
    """Write a file whole: never half of it under its name."""
    draft = target.with_name(f"{target.name}.{os.getpid()}.draft")
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(content)
        draft.replace(target)
    except OSError:
        draft.unlink(missing_ok=True)
        raise


def _nodes(raw: Any, written: str = "") -> Iterator[tuple[str, Any]]:  # noqa: ANN401 - JSON
    """Every value of nested tables, and the tables themselves, under their dotted names."""
    if isinstance(raw, Mapping):
        for key, value in raw.items():
            name = f"{written}.{key}" if written else str(key)
            yield name, value
            yield from _nodes(value, name)


def _line(written: str, name: str, value: object) -> str:
    from langchain_hindsight.settings_sources import masked

    return f"{written} = {json.dumps(masked(name or written, value), ensure_ascii=False)}"
