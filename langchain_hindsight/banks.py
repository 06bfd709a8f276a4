"""Which banks take part in a call: types and pure rules.

A `ProjectBank` can be retained to automatically; a `LifeBank` cannot, and nothing takes one where a
Project Bank is meant. A bank that depends on who is asking is resolved on every call; where a value
is missing or blank there is no bank, never a default one, and two different callers never meet in
one bank.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from string import Formatter
from typing import Any
from uuid import UUID

from langchain_hindsight.errors import (
    BankResolutionError,
    ConfigurationError,
    LifeBankDisabledError,
)
from langchain_hindsight.settings import BankTemplate, HindsightSettings

MAX_ID_BYTES = 192
"""Longest bank id that Hindsight takes, in UTF-8 bytes (measured on 1.1.0)."""

_HASH_DIGITS = 32
_DERIVED = re.compile(rf"~[0-9a-f]{{{_HASH_DIGITS}}}$")
_PLAIN = re.compile(r"[A-Za-z0-9_]+")
_DOUBLED = re.compile(r"\{\{\s*\w+\s*\}\}")


@dataclass(frozen=True, slots=True)
class ProjectBank:
    """The bank that holds what happens in the work, and this project's tag in it."""

    bank_id: str
    project_id: str

    @property
    def tag(self) -> str:
        """The tag that holds this project apart from others in the bank."""
        return f"project:{self.project_id}"


@dataclass(frozen=True, slots=True)
class LifeBank:
    """The bank that holds what is true of the person; written to only by an explicit call."""

    bank_id: str
    tags: tuple[str, ...] = ()


class BankPolicy:
    """Resolves both banks for a caller.

    Args:
        settings: The whole configuration.
        identify_project: Gives the project id where none is pinned; asked once, when first needed.

    Raises:
        ConfigurationError: If a template or a literal id can never work, or the Project Bank is
            shared by projects (``domain-tagged``) and has no id, or a Life Bank is asked for that
            has none, or both take part and are one bank.
    """

    def __init__(self, settings: HindsightSettings, *, identify_project: Callable[[], str]) -> None:
        """Check what can be checked without a caller."""
        self._settings = settings
        self._scope = settings.scope
        self._switches = settings.switches
        self._project = settings.banks.project.bank_id
        self._life = settings.banks.life.bank_id
        self._identify_project = identify_project
        self._found_project: str | None = None
        if self._switches.project and self._project is None and self._scope.mode != "isolated-bank":
            msg = (
                "No Project Bank is named. Pass project_bank=..., or set "
                "HINDSIGHT_BANKS__PROJECT__BANK_ID or banks.project.bank_id in .hindsight.toml; "
                "scope.mode = 'isolated-bank' derives one from the project instead, and "
                "profile = 'life-only' does without."
            )
            raise ConfigurationError(msg)
        if settings.lacks_life_bank:
            msg = (
                "A Life Bank is asked for (by profile or banks.life.enabled) and none is named. "
                "Pass life_bank=..., or set HINDSIGHT_BANKS__LIFE__BANK_ID or banks.life.bank_id; "
                "profile = 'project-only' does without."
            )
            raise ConfigurationError(msg)
        _check(self._project, "banks.project.bank_id", bank=True)
        _check(self._life, "banks.life.bank_id", bank=True)
        _check(self._scope.project_id, "scope.project_id", bank=False)
        both = self._switches.project and self._switches.life
        if both and _is_fixed(self._project) and self._project == self._life:
            msg = (
                f"banks.life.bank_id = {self._life!r} is the Project Bank's id too, and nothing "
                "automatic may be written to a Life Bank; name another bank."
            )
            raise ConfigurationError(msg)

    @property
    def has_life(self) -> bool:
        """Whether a Life Bank is configured and switched on."""
        return self._switches.life

    def look_up_project(self) -> str:
        """The project id where none is pinned; reads files once."""
        if self._found_project is None:
            self._found_project = self._identify_project()
        return self._found_project

    @property
    def needs_look_up(self) -> bool:
        """Whether resolving would read files."""
        return self._scope.project_id is None and self._found_project is None

    def project(self, values: Mapping[str, Any]) -> ProjectBank:
        """The Project Bank for a caller's values.

        Raises:
            BankResolutionError: If a value that the id or the tag needs is missing or blank.
        """
        if self._scope.project_id is None:
            project_id = self.look_up_project()
        else:
            project_id = _resolve(self._scope.project_id, values, "scope.project_id", bank=False)
        if self._project is None:
            bank_id = _safe(f"project-{project_id}", ("{project_id}", project_id), [project_id])
        else:
            bank_id = _resolve(self._project, values, "banks.project.bank_id", bank=True)
        if not _is_fixed(self._project) and self._may_be_a_life(bank_id):
            bank_id = _hashed(bank_id, ("project", bank_id))
        return ProjectBank(bank_id, project_id)

    def life(self, values: Mapping[str, Any]) -> LifeBank:
        """The Life Bank for a caller's values.

        Raises:
            LifeBankDisabledError: If there is no Life Bank.
            BankResolutionError: If a value that the id needs is missing or blank.
        """
        if not self._switches.life or self._life is None:
            msg = (
                "There is no Life Bank. Name one with life_bank=... or banks.life.bank_id, "
                "and choose a profile with a Life Bank, such as 'project+life'."
            )
            raise LifeBankDisabledError(msg)
        bank_id = _resolve(self._life, values, "banks.life.bank_id", bank=True)
        if not _is_fixed(self._life) and self._may_be_a_project(bank_id):
            bank_id = _hashed(bank_id, ("life", bank_id))
        return LifeBank(bank_id, self._scope.life_tags)

    def _may_be_a_life(self, bank_id: str) -> bool:
        return not callable(self._project) and may_be_life(self._settings, bank_id)

    def _may_be_a_project(self, bank_id: str) -> bool:
        """Whether a Life Bank's id that values made could be a Project Bank that cannot give way.

        That is one fixed by its name; and any, where a function makes the Life Bank's id, so that
        nobody can tell which ids those are.
        """
        if not self._switches.project or callable(self._project):
            return False
        template = self._project or "project-{project_id}"
        if callable(self._life):
            return _could_make(template, bank_id)
        return _is_fixed(self._project) and _could_make(template, bank_id)


def may_be_life(settings: HindsightSettings, bank_id: str) -> bool:
    """Whether an id could be somebody's Life Bank, so that nothing automatic may be written there.

    No caller's values may make a Project Bank's id that is another caller's Life Bank: the
    project's id gives way, so that a person's Life Bank is the same beside whatever Project Bank.
    A Project Bank that is fixed by its name keeps it, and the Life Bank of that name gives way. Of
    ids that a function makes nothing is known.
    """
    life, project = settings.banks.life.bank_id, settings.banks.project.bank_id
    if not isinstance(life, str) or not _could_make(life, bank_id):
        return False
    return _is_fixed(life) or not (_is_fixed(project) and _could_make(str(project), bank_id))


def _is_fixed(template: BankTemplate | None) -> bool:
    """Whether it is one id, whoever is asking."""
    return isinstance(template, str) and not _names(template, "bank_id")


def _could_make(template: str, bank_id: str) -> bool:
    """Whether some caller's values make that id of the template."""
    shape = "".join(
        re.escape(literal) + (".+" if name is not None else "")
        for literal, name, _, _ in Formatter().parse(template)
    )
    return re.fullmatch(shape, bank_id, re.DOTALL) is not None


def project_tag_groups(bank: ProjectBank, settings: HindsightSettings) -> list[dict[str, Any]]:
    """The strict filter that holds recall to one project, as Hindsight's ``tag_groups``."""
    own = {"tags": [bank.tag, *settings.scope.legacy_tags], "match": "any_strict"}
    if settings.scope.include_shared:
        return [{"or": [own, {"tags": [], "match": "exact"}]}]
    return [own]


def life_tag_groups(bank: LifeBank) -> list[dict[str, Any]] | None:
    """The filter of the Life Bank: none, unless tags narrow it."""
    return [{"tags": list(bank.tags), "match": "any_strict"}] if bank.tags else None


def _check(template: BankTemplate | None, field: str, *, bank: bool) -> None:
    """Refuse at once what no caller could make work."""
    if template is None or callable(template):
        return
    if _names(template, field):
        return
    literal = template.format()
    fault = _fault(literal) if bank else _tag_fault(literal)
    if fault:
        msg = f"{field} = {literal[:80]!r} cannot be used: {fault}."
        raise ConfigurationError(msg)


def _names(template: str, field: str) -> list[str]:
    """The placeholders of a template, in order.

    Raises:
        ConfigurationError: If it holds anything but plain ``{name}`` fields. A field in doubled
            braces would be one id for everybody, so it is none either.
    """
    if _DOUBLED.search(template):
        msg = (
            f"{field} doubles its braces, which then stand for themselves; write plain fields "
            "such as {user_id}. An id that has braces may come from a function."
        )
        raise ConfigurationError(msg)
    try:
        parts = list(Formatter().parse(template))
    except ValueError as error:
        msg = f"{field} is no valid template ({error}); write plain fields such as {{user_id}}."
        raise ConfigurationError(msg) from None
    names = [name for _, name, _, _ in parts if name is not None]
    if any(spec or conversion for _, _, spec, conversion in parts) or not all(
        name.isidentifier() for name in names
    ):
        msg = f"{field} may hold only plain fields such as {{user_id}}, without format or index."
        raise ConfigurationError(msg)
    return names


def _resolve(template: BankTemplate, values: Mapping[str, Any], field: str, *, bank: bool) -> str:
    if callable(template):
        try:
            value = _scalar(template(values))
        except Exception as error:  # what a missing value makes of the user's own function
            msg = f"{field}: the function failed for this caller, so there is no bank."
            raise BankResolutionError(msg) from error
        if value is None:
            msg = (
                f"{field}: the function gave no usable value for this caller, so there is no bank."
            )
            raise BankResolutionError(msg)
        if not bank:
            return _safe_tag(value, ("{}", value))
        return _safe(value, ("{}", value), [value])
    names = _names(template, field)
    if not names:
        return template.format()
    found: dict[str, str] = {}
    for name in dict.fromkeys(names):
        value = _scalar(values.get(name))
        if value is None:
            msg = (
                f"{field} needs {{{name}}}, and this call has no usable value for it, so there is "
                f'no bank. Pass it in config["configurable"]["{name}"] or the runtime context.'
            )
            raise BankResolutionError(msg)
        found[name] = value
    rendered = template.format(**found)
    key = (template, *found.values())
    if len(found) > 1 and not _unambiguous(template, found):
        return _hashed(rendered, key)
    if not bank:
        return _safe_tag(rendered, key)
    return _safe(rendered, key, found.values())


def _scalar(value: object) -> str | None:
    """A value as text; None where it names nobody."""
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, bool) or not isinstance(value, str | int | UUID):
        return None
    try:
        text = str(value)
    except ValueError:  # a number of thousands of digits
        return None
    return text if text.strip() else None


def _unambiguous(template: str, found: Mapping[str, str]) -> bool:
    """Whether different values always give different ids: they cannot hold what separates them."""
    before = [literal for literal, name, _, _ in Formatter().parse(template) if name is not None]
    return all(_PLAIN.fullmatch(value) for value in found.values()) and all(
        re.search(r"[^A-Za-z0-9_]", literal) for literal in before[1:]
    )


def _safe(rendered: str, key: tuple[str, ...], values: Iterable[str]) -> str:
    """The id as it is where that can be used and imitates no derived one, else a derived one."""
    padded = any(value != value.strip() for value in values)
    if padded or _DERIVED.search(rendered) or _fault(rendered):
        return _hashed(rendered, key)
    return rendered


def _safe_tag(rendered: str, key: tuple[str, ...]) -> str:
    """The same for a project id, which may hold more; blanks around it stay in the tag."""
    is_plain = not _DERIVED.search(rendered) and not _tag_fault(rendered)
    return rendered if is_plain else _hashed(rendered, key)


def _hashed(rendered: str, key: tuple[str, ...]) -> str:
    """A readable beginning and a hash of all that the id stands for."""
    encoded = json.dumps(key).encode()
    digest = hashlib.sha256(encoded).hexdigest()[:_HASH_DIGITS]
    plain = re.sub(r"[^\w.:@-]+", "-", rendered).strip("-.") or "bank"
    room = MAX_ID_BYTES - _HASH_DIGITS - 1
    shown = plain.encode("utf-8", "ignore")[:room].decode("utf-8", "ignore")
    return f"{shown}~{digest}"


def _tag_fault(project_id: str) -> str | None:
    """Why a project id cannot be a tag: the server would drop characters, or not take it."""
    if not project_id.strip():
        return "it is blank"
    if not project_id.isprintable():
        return "it holds a control or invisible character"
    if len(project_id.encode()) > MAX_ID_BYTES:
        return f"it is longer than {MAX_ID_BYTES} UTF-8 bytes"
    return None


def _fault(bank_id: str) -> str | None:
    """Why Hindsight would not take an id (measured on 1.1.0), or None."""
    if fault := _tag_fault(bank_id):
        return fault
    if "/" in bank_id:
        return "it holds a '/'"
    if bank_id in {".", ".."}:
        return "it is a path of dots"
    return None
