"""Writes the table of settings into the configuration page, from the settings themselves."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from langchain_hindsight import settings

_PLACE = "<!-- settings -->"


def on_page_markdown(markdown: str, **_: Any) -> str:  # noqa: ANN401 - the signature is MkDocs'
    """Put the table where the page asks for it."""
    return markdown.replace(_PLACE, table()) if _PLACE in markdown else markdown


def table() -> str:
    """Every setting: its name, default, variable and what it does."""
    lines = ["| setting | default | variable | what it is |", "| --- | --- | --- | --- |"]
    for name, default, told in _rows(settings.HindsightSettings, ""):
        variable = f"HINDSIGHT_{name.replace('.', '__').upper()}"
        later = " *Read, not used yet.*" if _is_for_later(name) else ""
        lines.append(f"| `{name}` | `{default}` | `{variable}` | {told}{later} |")
    return "\n".join(lines)


def _rows(model: type[BaseModel], prefix: str) -> list[tuple[str, str, str]]:
    told = _docstrings(model)
    rows = []
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            rows += _rows(kind, f"{prefix}{name}.")
            continue
        default = field.get_default(call_default_factory=True)
        shown = str(list(default)) if isinstance(default, tuple) else str(default)
        rows.append((f"{prefix}{name}", shown, " ".join(told.get(name, "").split())))
    return rows


def _docstrings(model: type[BaseModel]) -> dict[str, str]:
    """The string behind each field, which Python itself throws away."""
    module = ast.parse(Path(inspect.getfile(model)).read_text(encoding="utf-8"))
    for node in module.body:
        if isinstance(node, ast.ClassDef) and node.name == model.__name__:
            return {
                field.target.id: text.value.value.replace("``", "`").replace("|", "\\|")
                for field, text in zip(node.body, node.body[1:], strict=False)
                if isinstance(field, ast.AnnAssign)
                and isinstance(field.target, ast.Name)
                and isinstance(text, ast.Expr)
                and isinstance(text.value, ast.Constant)
                and isinstance(text.value.value, str)
            }
    return {}


def _is_for_later(name: str) -> bool:
    return name.startswith("mental_models.") or name.endswith("_mission") or name == "use"
