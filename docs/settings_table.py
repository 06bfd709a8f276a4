"""Writes the tables of settings into the configuration page, from the settings themselves.

A hook of MkDocs. Names, types, defaults and descriptions come from `HindsightSettings`, so the page
cannot say what the code does not.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_origin

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from langchain_hindsight import settings

NOT_USED_YET: frozenset[str] = frozenset()
"""Settings that are read and checked, and that no code acts on so far."""

_PLACE = "<!-- settings -->"
_TOP = "Server and profile"
_HEAD = "| setting, and its variable | type, and default | what it is |\n| --- | --- | --- |"
_UNITS = "seconds|tokens|characters|bytes|entries|turns"
_TYPES: dict[object, str] = {
    bool: "`true` or `false`",
    float: "number",
    int: "whole number",
    SecretStr | settings.EnvironmentKey | None: "text, kept secret, or its variable",
    str: "text",
}


@dataclass(frozen=True, slots=True)
class Setting:
    """One leaf of the tree."""

    name: str
    field: FieldInfo
    description: str

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return f"HINDSIGHT_{self.name.replace('.', '__').upper()}"

    @property
    def kind(self) -> str:
        """What may stand there, in words."""
        return _kind(self.field.annotation)

    @property
    def unit(self) -> str:
        """What a number counts; blank for what is no number."""
        if self.kind not in {_TYPES[int], _TYPES[float]}:
            return ""
        found = re.search(rf"\bin ({_UNITS})\b", self.description)
        found = found or re.search(rf"\b({_UNITS})\b", self.description)
        return found[1] if found else ""

    @property
    def default(self) -> str:
        """The default as it would be written in TOML."""
        value = self.field.get_default(call_default_factory=True)
        if value is None:
            return "none"
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        return f"`{json.dumps(value)}`"

    def row(self) -> str:
        """Its row in a table."""
        told = self.description + (" *Read, not used yet.*" if self.name in NOT_USED_YET else "")
        kind = ", ".join(filter(None, [self.kind, self.unit]))
        name = f"`{self.name}`{_small(f'`{self.variable}`')}"
        return f"| {name} | {kind}{_small(f'default: {self.default}')} | {told} |"


def on_page_markdown(markdown: str, **_: Any) -> str:  # noqa: ANN401 - the signature is MkDocs'
    """Put the tables where the page asks for them."""
    return markdown.replace(_PLACE, tables()) if _PLACE in markdown else markdown


def tables() -> str:
    """Every setting, in a table for each section of the tree."""
    rows: dict[str, list[str]] = {}
    for one in every_setting():
        rows.setdefault(one.name.rpartition(".")[0], []).append(one.row())
    parts = [
        "\n".join([f"### {f'`{section}`' if section else _TOP}", "", _HEAD, *found])
        for section, found in rows.items()
    ]
    return "\n\n".join(parts)


def every_setting(
    model: type[BaseModel] = settings.HindsightSettings, prefix: str = ""
) -> Iterator[Setting]:
    """The leaves of the tree, those of a model ahead of those below it."""
    below = []
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            below.append((kind, f"{prefix}{name}."))
        else:
            told = _docstrings(model).get(name, "")
            yield Setting(f"{prefix}{name}", field, told)
    for kind, path in below:
        yield from every_setting(kind, path)


@cache
def _docstrings(model: type[BaseModel]) -> dict[str, str]:
    """The string behind each field, which Python itself throws away."""
    module = ast.parse(Path(inspect.getfile(model)).read_text(encoding="utf-8"))
    found: dict[str, str] = {}
    for node in module.body:
        if not (isinstance(node, ast.ClassDef) and node.name == model.__name__):
            continue
        for field, text in zip(node.body, node.body[1:], strict=False):
            match field, text:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str(told))),
                ):
                    found[name] = " ".join(told.replace("``", "`").replace("|", "\\|").split())
    return found


def _small(text: str) -> str:
    return f'<span class="setting-note">{text}</span>'


def _kind(annotation: Any) -> str:  # noqa: ANN401 - any type of the tree
    if annotation in _TYPES:
        return _TYPES[annotation]
    arguments = get_args(annotation)
    origin = get_origin(annotation)
    if any(get_origin(one) is Callable for one in arguments):
        return "text, template or function"
    if origin is tuple:
        return f"list of {_kind(arguments[0])}"
    if origin is dict:
        return f"table of {_kind(arguments[0])} to {_kind(arguments[1])}"
    if NoneType in arguments:
        return _kind(next(one for one in arguments if one is not NoneType))
    return ", ".join(f"`{one}`" for one in arguments)
