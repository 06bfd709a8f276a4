"""What a configuration comes to: each setting in force, where it comes from, and what cannot work.

For people and for ``langchain-hindsight config``: nothing of a key or a password is in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from langchain_hindsight.banks import BankPolicy
from langchain_hindsight.errors import BankResolutionError, ConfigurationError
from langchain_hindsight.project_identity import find_project
from langchain_hindsight.settings import PROFILES, EnvironmentKey, HindsightSettings, Inspection
from langchain_hindsight.settings_sources import HIDDEN, Fault, Origin, masked, settings_of

_DEFAULT = "default"
_SWITCHES = {
    "banks.project.enabled": "project",
    "banks.life.enabled": "life",
    "recall.enabled": "recall",
    "retain.enabled": "automatic_retain",
}


@dataclass(frozen=True, slots=True)
class Row:
    """One setting in force."""

    name: str
    value: Any
    """As JSON would hold it, credentials masked."""
    source: str
    note: str = ""
    origin: Origin | None = None
    """The place of it, where any source has it."""

    @property
    def is_set(self) -> bool:
        """Whether any source has it."""
        return self.origin is not None


def effective(settings: HindsightSettings, origins: Mapping[str, Origin]) -> list[Row]:
    """Every setting as it is in force, in the order of the tree."""
    return [_row(name, settings, origins) for name in settings_of(HindsightSettings)]


def value_at(settings: HindsightSettings, name: str) -> Any:  # noqa: ANN401 - any setting's value
    """The value of a setting by its dotted name."""
    value: Any = settings
    for part in name.split("."):
        value = getattr(value, part)
    return value


def what_cannot_work(settings: HindsightSettings, origins: Mapping[str, Origin]) -> list[Fault]:
    """What a memory of these settings would refuse, the banks aside that a program may name."""
    from langchain_hindsight.memory import DualBankMemory

    try:
        DualBankMemory(
            settings=settings,
            project_bank=settings.banks.project.bank_id or "named-by-the-program",
            life_bank="named-by-it-too" if settings.lacks_life_bank else None,
        )
    except ConfigurationError as error:
        named = [name for name in settings_of(HindsightSettings) if name in str(error)]
        name = max(named, key=len, default="settings")
        return [Fault(origins.get(name, Origin("argument", name)), "", str(error))]
    return []


def remarks(inspection: Inspection) -> Iterator[str]:
    """What is not wrong, and stands in the way if nothing more is said."""
    settings = inspection.settings
    if settings is None:
        return
    bank = settings.banks.project.bank_id
    if settings.switches.project and bank is None and settings.scope.mode == "domain-tagged":
        yield (
            "No Project Bank is named: a program must pass project_bank=..., or set "
            "banks.project.bank_id or HINDSIGHT_BANKS__PROJECT__BANK_ID."
        )
    if settings.lacks_life_bank:
        yield (
            "A Life Bank is asked for and none is named: a program must pass life_bank=..., or set "
            "banks.life.bank_id or HINDSIGHT_BANKS__LIFE__BANK_ID."
        )
    if isinstance(settings.api_key, EnvironmentKey) and not settings.api_key.read():
        yield f"The API key is to stand in {settings.api_key.name}, which is not set here."


def _row(name: str, settings: HindsightSettings, origins: Mapping[str, Origin]) -> Row:
    value = value_at(settings, name)
    origin = origins.get(name)
    if name in _SWITCHES:
        return _switch(name, settings, origin)
    if origin is not None and value is not None:
        return Row(name, _shown(name, value), str(origin), origin=origin)
    found = _derived(name, settings) or (_shown(name, value), _DEFAULT)
    return Row(name, *found)


def _switch(name: str, settings: HindsightSettings, origin: Origin | None) -> Row:
    """A switch: what it comes to, and whether a hand or the profile decided."""
    value = getattr(settings.switches, _SWITCHES[name])
    profile = getattr(PROFILES[settings.profile], _SWITCHES[name])
    by_hand = value_at(settings, name) if origin is not None else None
    note = ""
    if by_hand is not None and by_hand != value:
        what = "Life Bank is named" if name.startswith("banks.life") else "Project Bank takes part"
        note = f"set to {str(by_hand).lower()}, but no {what}"
    elif by_hand is not None and by_hand != profile:
        note = f"wins over profile {settings.profile!r}"
    if by_hand is not None:
        return Row(name, value, str(origin), note, origin)
    if name == "banks.life.enabled" and settings.banks.life.bank_id is None:
        return Row(name, value, "no Life Bank is named")
    if value != profile:
        named = name == "banks.life.enabled"
        return Row(name, value, "a Life Bank is named" if named else "no Project Bank takes part")
    return Row(name, value, f"profile {settings.profile!r}")


def _derived(name: str, settings: HindsightSettings) -> tuple[Any, str] | None:
    """The value that stands in for one that is not set, and where it comes from."""
    if name == "recall.life_max_tokens":
        return settings.recall.life_limit, "half of recall.max_tokens"
    if name == "outbox.url":
        from langchain_hindsight.outbox.place import outbox_url

        return outbox_url(settings.outbox).render_as_string(), "the platform's state folder"
    if name == "scope.project_id":
        return _project(settings)
    isolated = settings.scope.mode == "isolated-bank"
    if name == "banks.project.bank_id" and isolated and settings.switches.project:
        return _bank_of_the_project(settings)
    return None


def _project(settings: HindsightSettings) -> tuple[Any, str]:
    try:
        found = find_project(Path.cwd(), settings.scope.project_id_strategy)
    except OSError:
        return None, "the working directory is gone"
    return found.project_id, found.origin


def _bank_of_the_project(settings: HindsightSettings) -> tuple[Any, str]:
    source = "scope.project_id, by scope.mode 'isolated-bank'"
    try:
        policy = BankPolicy(settings, identify_project=lambda: str(_project(settings)[0]))
        return policy.project({}).bank_id, source
    except (BankResolutionError, ConfigurationError):  # it depends on who is asking
        return f"project-{settings.scope.project_id}", source


def _shown(name: str, value: Any) -> Any:  # noqa: ANN401 - any setting's value
    """A value as JSON would hold it, without credentials."""
    if isinstance(value, EnvironmentKey):
        return f"{HIDDEN}, in {value.name} ({'set' if value.read() else 'not set'})"
    if value is None:
        return None
    return "a function" if callable(value) else masked(name, value)
