"""Configurations in older words, read as the tree of today.

The same design has been configured elsewhere, in camelCase, with milliseconds, and with other names
for the two banks. Whatever of it is understood here becomes a setting of today's tree; what is not
is listed, never guessed. Older words are read and never written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

Path = tuple[str, ...]

_SECTIONS: dict[Path, Path] = {
    ("hindsight",): (),
    ("banks", "user"): ("banks", "life"),
    ("banks", "global"): ("banks", "life"),
    ("banks", "coding"): ("banks", "project"),
    ("user_retain",): ("life_retain",),
    ("global_retain",): ("life_retain",),
}
"""Older tables; of two that mean the same, the one named first wins."""

_SETTINGS: dict[Path, Path] = {
    ("base_url",): ("url",),
    ("api_key_ref",): ("api_key",),
    ("agent_use",): ("use",),
    ("user_query_preamble",): ("recall", "life_query_preamble"),
    ("global_query_preamble",): ("recall", "life_query_preamble"),
    ("user_max_tokens",): ("recall", "life_max_tokens"),
    ("global_max_tokens",): ("recall", "life_max_tokens"),
    ("recall", "project_query_preamble"): ("recall", "query_preamble"),
    ("recall", "user_query_preamble"): ("recall", "life_query_preamble"),
    ("recall", "global_query_preamble"): ("recall", "life_query_preamble"),
    ("recall", "user_max_tokens"): ("recall", "life_max_tokens"),
    ("recall", "global_max_tokens"): ("recall", "life_max_tokens"),
    ("retain", "redact_secrets"): ("retain", "redact"),
    ("retain", "shutdown_flush_timeout_ms"): ("outbox", "shutdown_timeout_ms"),
    ("scope", "include_shared_observations"): ("scope", "include_shared"),
    ("scope", "user_scope_tags"): ("scope", "life_tags"),
    ("scope", "global_scope_tags"): ("scope", "life_tags"),
}
"""Older settings, by their name once their table is named as it is today."""

_WORDS: dict[str, dict[str, str]] = {
    "profile": {
        "project+global": "project+life",
        "project+user": "project+life",
        "global-only": "life-only",
        "user-only": "life-only",
    },
    "scope.project_id_strategy": {"remote": "git-remote", "basename": "folder"},
}
"""Older values."""

_DERIVED = {"repo": "git-remote", "cwd": "folder", "basename": "folder"}
"""How a bank of the project's own was named after it."""

ASKS_FOR_LIFE = (
    ("profile", "project+life"),
    ("profile", "life-only"),
    ("banks.life.enabled", True),
)
"""What asks for a Life Bank; elsewhere one that nobody named was left out without a word."""

_MEANS_SEVERAL = frozenset(("enabled", "banks.project.derive"))
_MODE = "life_retain.mode"
_ONLY_MODE = "explicit-only"
_AGES = {path: age for age, path in enumerate([*_SECTIONS, *_SETTINGS], start=2)}
_BLANK_IS_UNSET = frozenset(
    ("api_key", "url", "banks.project.bank_id", "banks.life.bank_id", "scope.project_id")
)


@dataclass(frozen=True, slots=True)
class Tree:
    """The names of today, dotted."""

    settings: frozenset[str]
    sections: frozenset[str]


@dataclass(frozen=True, slots=True)
class Entry:
    """One value under its name of today."""

    name: str
    value: Any
    written: str
    """The name as it stood there."""
    age: int = 0
    """0 for the name of today, 1 for camelCase, more for an older word."""


@dataclass(frozen=True, slots=True)
class Remark:
    """What a person should hear of, about what stands under a name."""

    written: str
    text: str


@dataclass(frozen=True, slots=True)
class Translation:
    """What one source holds, in the words of today."""

    entries: tuple[Entry, ...]
    remarks: tuple[Remark, ...]
    unknown: tuple[str, ...]
    """Names as written that mean nothing here."""


def translate(raw: Mapping[str, Any], tree: Tree, *, older: bool = False) -> Translation:
    """Read what one source holds.

    Args:
        raw: Nested tables, in names of today, in camelCase or in older words.
        tree: The names of today.
        older: Whether it was written for another program: nothing in it may be an error, so a null
            or a blank id is no setting, as it was there.
    """
    unknown: list[str] = []
    found = [
        one
        for one in _Walk(tree, unknown).table(raw)
        if not (older and (one.value is None or _is_blank(one)))
    ]
    remarks: list[Remark] = []
    chosen = _newest(found, remarks)
    chosen = _switched_off(_derived_bank(chosen, unknown), unknown)
    entries = [_in_words_of_today(one, remarks) for one in chosen.values()]
    return Translation(tuple(entries), tuple(remarks), tuple(unknown))


def snake_case(name: str) -> str:
    """``maxTokens`` as ``max_tokens``; a name with a hyphen is left alone."""
    if "-" in name:
        return name
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def nested(entries: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted names as nested tables."""
    tables: dict[str, Any] = {}
    for name in sorted(entries, key=lambda one: one.count(".")):
        *path, last = name.split(".")
        table = tables
        for part in path:
            table = table.setdefault(part, {})
            if not isinstance(table, dict):  # something else stands where a table should
                break
        else:
            table[last] = entries[name]
    return tables


@dataclass(frozen=True, slots=True)
class _Walk:
    """A walk over one source's tables, which gives every value its name of today."""

    tree: Tree
    unknown: list[str]

    def table(
        self, raw: Mapping[str, Any], path: Path = (), written: str = "", age: int = 0
    ) -> Iterator[Entry]:
        """Every value of a table and of those below it."""
        for key, value in raw.items():
            as_written = f"{written}.{key}" if written else str(key)
            snake = (*path, snake_case(str(key)))
            old = max(age, int(snake[-1] != key), _AGES.get(snake, 0))
            section = _SECTIONS.get(snake, snake)
            name = ".".join(section)
            if isinstance(value, Mapping) and (not section or name in self.tree.sections):
                yield from self.table(value, section, as_written, old)
            elif section == ("life_retain",) and snake != section:  # no table but the mode itself
                yield Entry(_MODE, value, as_written, old)
            else:
                yield from self.setting(snake, Entry("", value, as_written, old))

    def setting(self, path: Path, found: Entry) -> Iterator[Entry]:
        """One value; its name goes to those that mean nothing where it is none of today's."""
        name = ".".join(_SETTINGS.get(path, path))
        seconds = name.removesuffix("_ms")
        if path[-1] == "api_key_ref":
            found = replace(found, value=_reference(found.value))
        elif seconds != name and seconds in self.tree.settings:
            name = seconds
            found = replace(found, value=_in_seconds(found.value), age=max(found.age, 2))
        if name in self.tree.settings or name in self.tree.sections or name in _MEANS_SEVERAL:
            yield replace(found, name=name)
        else:
            self.unknown.append(found.written)


def _reference(value: object) -> object:
    """``env:NAME`` or ``NAME`` as a reference to a variable."""
    return (
        {"source": "env", "name": value.removeprefix("env:")} if isinstance(value, str) else value
    )


def _in_seconds(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return value
    try:
        return float(value) / 1000
    except ValueError:  # no number: it is said of the value as it stands
        return value


def _is_blank(entry: Entry) -> bool:
    value = entry.value
    return entry.name in _BLANK_IS_UNSET and isinstance(value, str) and not value.strip()


def _newest(found: list[Entry], remarks: list[Remark]) -> dict[str, Entry]:
    """One entry a name: the newest name's, and a remark where an older one was set too."""
    chosen: dict[str, Entry] = {}
    for one in sorted(found, key=_rank):
        kept = chosen.setdefault(one.name, one)
        # Elsewhere the project's preamble stood beside a common one, and went before it.
        if kept is not one and "project" not in snake_case(kept.written.rpartition(".")[2]):
            text = f"{kept.written} is set too and wins; remove {one.written}"
            remarks.append(Remark(one.written, text))
    return chosen


def _rank(entry: Entry) -> int:
    is_the_projects = snake_case(entry.written).endswith("project_query_preamble")
    return -1 if is_the_projects else entry.age


def _derived_bank(chosen: dict[str, Entry], unknown: list[str]) -> dict[str, Entry]:
    """``derive``: a bank of the project's own where no id is given, and nothing where one is."""
    derive = chosen.pop("banks.project.derive", None)
    if derive is None or derive.value == "manual" or "banks.project.bank_id" in chosen:
        return chosen
    strategy = _DERIVED.get(derive.value) if isinstance(derive.value, str) else None
    if strategy is None:
        unknown.append(derive.written)
        return chosen
    added = {
        "scope.mode": replace(derive, name="scope.mode", value="isolated-bank"),
        "scope.project_id_strategy": replace(
            derive, name="scope.project_id_strategy", value=strategy
        ),
    }
    return {**added, **chosen}


def _switched_off(chosen: dict[str, Entry], unknown: list[str]) -> dict[str, Entry]:
    """``enabled = false`` for the whole: nothing is recalled, nothing retained, no Life Bank."""
    enabled = chosen.pop("enabled", None)
    if enabled is not None and not isinstance(enabled.value, bool):
        unknown.append(enabled.written)
    elif enabled is not None and not enabled.value:
        for name in ("recall.enabled", "retain.enabled", "banks.life.enabled"):
            chosen[name] = replace(enabled, name=name)
    return chosen


def _in_words_of_today(entry: Entry, remarks: list[Remark]) -> Entry:
    """The entry with its value as it is written today."""
    if entry.name == _MODE and entry.value != _ONLY_MODE:
        text = (
            "automatic writes to the Life Bank are off; it is written to by an explicit call "
            f"alone. Set {_ONLY_MODE!r}, or remove it"
        )
        remarks.append(Remark(entry.written, text))
        return replace(entry, value=_ONLY_MODE)
    words = _WORDS.get(entry.name, {})
    if isinstance(entry.value, str) and entry.value in words:
        return replace(entry, value=words[entry.value])
    if entry.name == "recall.types" and entry.value == []:
        return replace(entry, value=None)
    return entry
