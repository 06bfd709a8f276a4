"""Where settings come from: every source, highest first, and the place of each value in it.

A value keeps its origin, so that an error names the file and the key, or the variable, and
``langchain-hindsight config show`` says where a setting was found. Files are read, nothing else:
no network, no program.
"""

from __future__ import annotations

import difflib
import errno
import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin

from platformdirs import user_config_path
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, EnvSettingsSource

from langchain_hindsight.older_settings import ASKS_FOR_LIFE, Entry, Tree, nested, translate
from langchain_hindsight.project_identity import is_repository

NAMED_FILE = "HINDSIGHT_CONFIG_FILE"
"""The variable that names one more file, ahead of the project's and the user's."""

_SHOWN = 200
_DEEPEST = 32
_TABLE = ("tool", "langchain-hindsight")
_CLIENT_VARIABLES = ("HINDSIGHT_API_URL", "HINDSIGHT_BASE_URL")
_OTHERS_VARIABLES = ("HINDSIGHT_API_", "HINDSIGHT_BASE_URL", "HINDSIGHT_CP_", "HINDSIGHT_EMBED_")
_SECRET = frozenset(("api_key",))
_MAY_BE_SECRET = re.compile(
    r"api_?k|key(?!w)|token(?!s)|secret|pass|auth|bearer|credential", re.IGNORECASE
)
_USER = re.compile(r"(?P<scheme>^\s*[\w+.-]+://)(?P<user>[^/?#]+)(?=@)")
_UNSET = object()
HIDDEN = "**********"
"""What stands for a key."""
MASK = "***"
"""What stands for a password inside a URL."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The place of a value: a keyword argument, a variable, or a file and a key in it."""

    kind: Literal["argument", "variable", "file"]
    key: str
    """The name as it stands there."""
    file: Path | None = None

    def __str__(self) -> str:
        """As a person would say it."""
        key = printable(self.key)
        if self.kind == "file":
            return f"{printable(str(self.file))}: {key}" if key else printable(str(self.file))
        return f"argument {key}" if self.kind == "argument" else key


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that is wrong, or that a person should hear of, and where."""

    origin: Origin
    found: str
    expected: str
    is_error: bool = True

    def __str__(self) -> str:
        """In one line."""
        found = f" = {self.found}" if self.found else ""
        return f"{self.origin}{found}: {self.expected}"


@dataclass(frozen=True, slots=True)
class Reading:
    """What was found: each setting's value by its dotted name, and its place."""

    found: Mapping[str, Any]
    origins: Mapping[str, Origin]
    faults: tuple[Fault, ...]

    @property
    def values(self) -> dict[str, Any]:
        """The values as the tree takes them."""
        return nested(self.found)


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """A file that is looked at."""

    role: str
    path: Path
    exists: bool
    table: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Layer:
    """What one source holds, as it stands there."""

    kind: Literal["argument", "variable", "file"]
    raw: Mapping[str, Any]
    file: ConfigFile | None = None
    is_older: bool = False
    """Whether it is of elsewhere: only those are JSON."""

    def origin(self, written: str) -> Origin:
        if self.kind == "variable":
            return Origin("variable", _variable(written))
        if self.file is None:
            return Origin("argument", written)
        return Origin("file", ".".join(filter(None, [*self.file.table, written])), self.file.path)


@dataclass(slots=True)
class _Merged:
    """The values so far, the highest source's first."""

    values: dict[str, Any] = field(default_factory=dict)
    origins: dict[str, Origin] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    older: set[str] = field(default_factory=set)
    """Names of those that are of elsewhere."""


def read(model: type[BaseSettings], arguments: Mapping[str, Any]) -> Reading:
    """Read all sources.

    Args:
        model: The whole tree.
        arguments: Keyword arguments, which are the highest source.
    """
    merged = _Merged()
    layers = [
        _Layer("argument", _plain(arguments)),
        _Layer("variable", _Variables(model)()),
        *_client_layer(),
        *_file_layers(config_files(), merged.faults),
    ]
    merged.faults.extend(_mistyped_variables(model))
    return _together(layers, model, merged)


def read_file(model: type[BaseModel], path: Path) -> Reading:
    """Read one file alone."""
    merged = _Merged()
    file = ConfigFile("named", path, exists=True)
    return _together(_file_layers([file], merged.faults), model, merged)


def _together(layers: Iterable[_Layer], model: type[BaseModel], merged: _Merged) -> Reading:
    for layer in layers:
        _add(layer, model, merged)
    _leave_out_a_life_bank_that_is_none(merged)
    found = {name: value for name, value in merged.values.items() if value is not _UNSET}
    origins = {name: merged.origins[name] for name in found}
    return Reading(found, origins, tuple(merged.faults))


def config_files() -> list[ConfigFile]:
    """The files that are looked at, highest first, whether they exist or not."""
    named = os.environ.get(NAMED_FILE, "").strip()
    files = []
    if named:
        path = _named_path(named)
        files.append(ConfigFile(f"named by {NAMED_FILE}", path, _is_file(path)))
    for name, table in ((".hindsight.toml", ()), ("pyproject.toml", _TABLE)):
        found = _project_file(name)
        if found is not None:
            files.append(ConfigFile("of the project", *found, table))
    user = user_config_path("langchain-hindsight") / "config.toml"
    return [*files, ConfigFile("of the user", user, _is_file(user))]


def _named_path(named: str) -> Path:
    try:
        path = Path(named).expanduser()
    except RuntimeError:  # the home of somebody unknown
        path = Path(named)
    # What is no file's name may be what a file should hold, keys included.
    is_name = _is_file(path) or not re.search(r'[{"=\n]', named)
    return path if is_name else Path(HIDDEN)


def _is_file(path: Path) -> bool:
    """Whether a file is there; one in a place that may not be looked into is not."""
    try:
        return path.is_file()
    except OSError:
        return False


def explain(error: ValidationError, model: type[BaseModel], reading: Reading) -> list[Fault]:
    """What pydantic found wrong, by the place of each value."""
    found: dict[str, Fault] = {}
    for one in error.errors(include_url=False, include_context=False):
        name = _setting_of([str(part) for part in one["loc"]], reading.origins)
        origin = reading.origins.get(name, Origin("argument", name or "settings"))
        expected = _expected(name, one["msg"])
        if name in found and expected not in found[name].expected:
            expected = f"{found[name].expected}, or {expected}"
        is_one = name in settings_of(model)  # what stands for a whole table may hold anything
        value = shown(name, one["input"]) if is_one else f"a {type(one['input']).__name__}"
        found[name] = Fault(origin, value, expected)
    return list(found.values())


def printable(text: str) -> str:
    """A text of a file's, without a character that a terminal would obey."""
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)


def shown(name: str, value: object) -> str:
    """A setting's value in an error, without credentials."""
    return repr(masked(name, value))[:_SHOWN]


def masked(name: str, value: Any) -> Any:  # noqa: ANN401 - any setting's value
    """A setting's value without credentials, as JSON would hold it.

    Args:
        name: The setting's name; any other, of what is left out, counts by its last word.
        value: Its value.
    """
    from langchain_hindsight.redaction import redact_value  # see _redacted

    if _is_reference(value):
        return value
    if name in _SECRET:
        return HIDDEN
    last = name.rpartition(".")[2]
    (safe,) = redact_value({last: _without_texts_of_keys(last, value)}).values()
    return safe


def _without_texts_of_keys(name: str, value: Any) -> Any:  # noqa: ANN401 - any setting's value
    """Nested values without the texts under a name that may be a key's, also a misspelt one."""
    if isinstance(value, Mapping):
        return {key: _without_texts_of_keys(str(key), one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_without_texts_of_keys(name, one) for one in value]
    if not isinstance(value, str):
        return value
    return HIDDEN if _MAY_BE_SECRET.search(name) else _without_user(value)


def _is_reference(value: object) -> bool:
    """Whether a key is said to stand in a variable: no part of that is secret."""
    if not isinstance(value, Mapping) or set(value) != {"source", "name"}:
        return False
    return value["source"] == "env" and str(value["name"]).isidentifier()


def masked_url(url: str) -> str:
    """A URL without the credentials in it, and otherwise as it was."""
    return _redacted(_without_user(url))


def _without_user(url: str) -> str:
    return _USER.sub(_masked_user, url, count=1)


def _redacted(text: str) -> str:
    from langchain_hindsight.redaction import redact  # its patterns take a while to compile

    return redact(text)


def _masked_user(found: re.Match[str]) -> str:
    name, has_password, _ = found["user"].partition(":")
    if has_password:
        return f"{found['scheme']}{name}:{MASK}"
    # With a web server, a name alone is a token.
    return f"{found['scheme']}{MASK if found['scheme'].startswith('http') else name}"


def is_masked(url: object) -> bool:
    """Whether credentials were taken out of a URL."""
    return isinstance(url, str) and (MASK in url or "[redacted:" in url)


@cache
def settings_of(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """The settings of a tree under their dotted names, in its order."""
    return dict(_leaves(model, ""))


def options_of(annotation: Any) -> tuple[str, ...]:  # noqa: ANN401 - any type of the tree
    """What a choice, or each item of a list of choices, may be; empty for anything else."""
    if get_origin(annotation) is Literal:
        return get_args(annotation)
    arguments = [one for one in get_args(annotation) if one not in {NoneType, ...}]
    is_list = get_origin(annotation) is tuple
    if len(arguments) == 1 and (is_list or NoneType in get_args(annotation)):
        return options_of(arguments[0])
    return ()


def _is_list(annotation: Any) -> bool:  # noqa: ANN401 - any type of the tree
    return get_origin(annotation) is tuple or any(map(_is_list, get_args(annotation)))


def _leaves(model: type[BaseModel], prefix: str) -> Iterator[tuple[str, FieldInfo]]:
    for name, one in model.model_fields.items():
        section = one.annotation
        if isinstance(section, type) and issubclass(section, BaseModel):
            yield from _leaves(section, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", one


@cache
def _tree(model: type[BaseModel]) -> Tree:
    settings = frozenset(settings_of(model))
    sections = {
        name.rsplit(".", depth)[0] for name in settings for depth in range(1, name.count(".") + 1)
    }
    return Tree(settings, frozenset(sections))


def _add(layer: _Layer, model: type[BaseModel], merged: _Merged) -> None:
    """What a layer holds, where no higher one has it."""
    tree = _tree(model)
    found = translate(layer.raw, tree, older=layer.is_older)
    for remark in found.remarks:
        merged.faults.append(Fault(layer.origin(remark.written), "", remark.text, is_error=False))
    for written in found.unknown:
        merged.faults.append(_unknown(layer, written, model))
    for entry in found.entries:
        if entry.name not in merged.values:
            origin = layer.origin(entry.written)
            merged.values[entry.name] = _checked(entry, origin, model, merged.faults)
            merged.origins[entry.name] = origin
            if layer.is_older:
                merged.older.add(entry.name)


def _leave_out_a_life_bank_that_is_none(merged: _Merged) -> None:
    """What a configuration of elsewhere says of a Life Bank that no source names.

    What asked for it alone still leaves the Project Bank out: then no bank takes part.
    """
    if merged.values.get("banks.life.bank_id") is not None:
        return
    for name, asked in ASKS_FOR_LIFE:
        if name not in merged.older or merged.values[name] != asked:
            continue
        origin = merged.origins[name]
        text = (
            "no Life Bank is named, so there is none unless a program passes life_bank=...; "
            "set banks.life.bank_id"
        )
        merged.faults.append(Fault(origin, "", text, is_error=False))
        merged.values[name] = _UNSET
        if asked == "life-only" and "banks.project.enabled" not in merged.values:
            merged.values["banks.project.enabled"] = False
            merged.origins["banks.project.enabled"] = origin


def _checked(entry: Entry, origin: Origin, model: type[BaseModel], faults: list[Fault]) -> Any:  # noqa: ANN401 - any value
    """The value; nothing, in whatever source, where it is a choice that nobody knows."""
    one = settings_of(model).get(entry.name)
    options = () if one is None else options_of(one.annotation)
    if isinstance(entry.value, str) and one is not None and _is_list(one.annotation):
        return entry.value  # no choice, but of the wrong type
    given = entry.value if isinstance(entry.value, list | tuple) else [entry.value]
    if not options or all(not isinstance(item, str) or item in options for item in given):
        return entry.value
    default = one.get_default() if one is not None else None
    expected = (
        f"expected {', '.join(options)}; "
        f"{'the default' if default is None else repr(default)} is used until you correct it"
    )
    faults.append(Fault(origin, shown(entry.name, entry.value), expected, is_error=False))
    return _UNSET


def _unknown(layer: _Layer, written: str, model: type[BaseModel]) -> Fault:
    nearest = _nearest(written, [*settings_of(model), *sorted(_tree(model).sections)])
    hint = f"did you mean {nearest}?" if nearest else "remove it"
    if layer.is_older:
        text = f"not understood, so left out; {hint}"
        return Fault(layer.origin(written), "", text, is_error=False)
    return Fault(layer.origin(written), "", f"there is no such setting; {hint}")


def _nearest(written: str, names: list[str]) -> str | None:
    """The known name whose last part an unknown one's is most like, of the same table if any."""
    table, _, last = written.lower().rpartition(".")
    by_last: dict[str, str] = {}
    for name in sorted(names, key=lambda one: one.rpartition(".")[0] != table):
        by_last.setdefault(name.rpartition(".")[2], name)
    return next((by_last[one] for one in difflib.get_close_matches(last, by_last, 1, 0.75)), None)


class _Variables(EnvSettingsSource):
    """Environment variables; what is no JSON where a list or table is due is told like the rest."""

    def decode_complex_value(self, field_name: str, field: FieldInfo, value: Any) -> Any:  # noqa: ANN401 - the signature is pydantic's
        try:
            found = super().decode_complex_value(field_name, field, value)
        except (ValueError, RecursionError):
            return value
        return value if _is_too_deep(found) else found


def _client_layer() -> Iterable[_Layer]:
    """The variables by which other Hindsight clients know the server."""
    for name in _CLIENT_VARIABLES:
        if os.environ.get(name):
            yield _Layer("variable", {"url": os.environ[name]}, None)
            return


def _variable(written: str) -> str:
    """The variable that holds a setting: its own, one of a table above or below, or a client's."""
    present = {name.upper() for name, value in os.environ.items() if value}
    parts = written.upper().split(".")
    for length in range(len(parts), 0, -1):
        name = "HINDSIGHT_" + "__".join(parts[:length])
        if name in present:
            return name
    below = "HINDSIGHT_" + "__".join((*parts, ""))
    found = [name for name in sorted(present) if name.startswith(below)]
    if written == "url":
        found += [name for name in _CLIENT_VARIABLES if os.environ.get(name)]
    return found[0] if found else written


def _mistyped_variables(model: type[BaseModel]) -> Iterator[Fault]:
    """Variables that are nearly ours; what is somebody else's is theirs, so none is an error."""
    sections = {f"{name.upper()}__" for name in model.model_fields}
    known = [f"HINDSIGHT_{name.replace('.', '__').upper()}" for name in settings_of(model)]
    for name in map(str.upper, os.environ):
        is_theirs = name.startswith(_OTHERS_VARIABLES) or not name.startswith("HINDSIGHT_")
        is_read = name.removeprefix("HINDSIGHT_").startswith(tuple(sections))
        if is_theirs or is_read or name in known or name == NAMED_FILE:
            continue
        for nearest in difflib.get_close_matches(name, known, 1, 0.85):
            text = f"there is no such setting; did you mean {nearest}?"
            yield Fault(Origin("variable", name), "", text, is_error=False)


def _project_file(name: str) -> tuple[Path, bool] | None:
    """The nearest file of that name from the working directory up to the repository's root."""
    try:
        here = Path.cwd()
    except OSError:  # the working directory is gone
        return None
    for folder in (here, *here.parents):
        if _is_file(folder / name):
            return folder / name, True
        if is_repository(folder):
            break
    return here / name, False


def _file_layers(files: Iterable[ConfigFile], faults: list[Fault]) -> Iterator[_Layer]:
    for file in files:
        if not file.exists and not file.role.startswith("named"):
            continue
        try:
            raw, is_json = parsed_file(file.path)
        except (OSError, ValueError, RecursionError) as error:
            by = f" ({file.role})" if NAMED_FILE in file.role else ""
            faults.append(Fault(Origin("file", "", file.path), "", f"{_unreadable(error)}{by}"))
            continue
        for name in file.table:
            raw = raw.get(name, {}) if isinstance(raw, Mapping) else {}
        if isinstance(raw, Mapping):
            yield _Layer("file", raw, file, is_older=is_json)
        else:
            text = "expected a table of settings"
            faults.append(Fault(Origin("file", ".".join(file.table), file.path), "", text))


def parsed_file(path: Path) -> tuple[Any, bool]:
    """What a file holds, as it stands there, and whether it is JSON, whatever its name.

    Raises:
        OSError: If it cannot be read.
        ValueError: If it is no TOML, or no JSON, of which comments may be a part.
        RecursionError: If it is nested deeper than anything that is configured.
    """
    if path.is_fifo():
        raise OSError(errno.ESPIPE, "it is a pipe, which is read once and may never end")
    text = path.read_text(encoding="utf-8-sig")
    # No TOML begins with a brace or a slash.
    is_json = named_as_json(path) or text.lstrip().startswith(("{", "//", "/*"))
    if is_json:
        import jsonc

        found = jsonc.loads(text)
    else:
        found = tomllib.loads(text)
    if _is_too_deep(found):
        raise RecursionError
    return found, is_json


def _is_too_deep(value: Any, room: int = _DEEPEST) -> bool:  # noqa: ANN401 - whatever a source holds
    inner = value.values() if isinstance(value, dict) else value
    if not isinstance(value, dict | list):
        return False
    return room == 0 or any(_is_too_deep(one, room - 1) for one in inner)


def named_as_json(path: Path) -> bool:
    """Whether a file's name says that it is JSON."""
    return path.suffix.lower() in {".json", ".jsonc"}


def _unreadable(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"it cannot be read ({error.strerror or type(error).__name__})"
    if isinstance(error, RecursionError):
        return f"it is nested more than {_DEEPEST} deep"
    if isinstance(error, UnicodeDecodeError):
        return "it is no UTF-8 text"
    kind = "TOML" if isinstance(error, tomllib.TOMLDecodeError) else "JSON"
    return f"it is no {kind}: {_redacted(str(error))}"


def _plain(given: Any) -> Any:  # noqa: ANN401 - any value
    """Sections that were given as models, as tables of what was set in them."""
    if isinstance(given, BaseModel):
        return {name: _plain(getattr(given, name)) for name in given.model_fields_set}
    if isinstance(given, Mapping):
        return {name: _plain(value) for name, value in given.items()}
    return given


def _setting_of(location: list[str], origins: Mapping[str, Origin]) -> str:
    """The setting that a location of pydantic's lies in."""
    for length in range(len(location), 0, -1):
        name = ".".join(location[:length])
        if name in origins:
            return name
    return location[0] if location else ""


def _expected(name: str, message: str) -> str:
    if name in _SECRET:
        return 'expected a text, or { source = "env", name = "VARIABLE" }'
    text = message.replace("Input should be", "expected", 1)
    text = text.replace("a valid tuple", 'a list such as ["a", "b"]')
    return text[:1].lower() + text[1:]
