"""What shares a request: pure functions from waiting entries to items and their operation.

Entries are messages; whether they go out one by one or as turns is decided here. Items that belong
to one document never share a request, and a request's operation id follows from its members alone,
so that the same members again are the same operation.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal
from uuid import UUID, uuid5

NAMESPACE = UUID("3d4a9a0e-0b43-5c0c-9d7a-0c1d5a0d2f11")

Unit = Literal["message", "turn"]


@dataclass(frozen=True, slots=True)
class Entry:
    """A message or note that waits."""

    id: int
    thread: int | None
    seq: int
    parent: int | None
    starts_turn: bool
    document: str
    regrouped: bool
    """Whether its document was settled once, so that it goes out in that document again."""
    revision: int
    fingerprint: str
    payload: dict[str, Any]
    created: float


@dataclass(frozen=True, slots=True)
class Item:
    """One item of a request, and the entries that it is made of."""

    document: str
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Batch:
    """A request, as recorded."""

    operation_id: str
    bank_id: str
    items: tuple[Item, ...]
    failures: int = 0
    """How often the server failed over it."""

    @property
    def entries(self) -> int:
        """How many entries it carries."""
        return sum(len(item.entries) for item in self.items)

    @property
    def newest(self) -> float:
        """When its youngest entry was written, in seconds of the epoch."""
        return max(entry.created for item in self.items for entry in item.entries)

    @property
    def role(self) -> str:
        """In which role its entries were written: ``project`` or ``life``."""
        return _role(self.items[0].entries[0])

    def request(self) -> list[dict[str, Any]]:
        """Its items as Hindsight takes them."""
        return [_request_item(item) for item in self.items]


def plan(entries: Sequence[Entry], *, unit: Unit, limit: int, busy: Collection[str]) -> list[Item]:
    """Which entries go out together, and in which documents.

    What was written in one role never shares a request with what was written in the other.

    Args:
        entries: What waits, oldest first; one more than ``limit`` tells that there is more.
        unit: Whether a turn's messages share an item.
        limit: Most entries of a request. A turn that it would cut is left for the next one.
        busy: Documents of requests that are not settled yet; theirs has to wait.
    """
    groups = _grouped(entries, unit)
    if len(entries) > limit and len(groups) > 1 and not entries[-1].regrouped:
        groups = [group for group in groups if entries[-1] not in group]
    items: list[Item] = []
    seen = set(busy)
    room = limit
    for group in groups:
        whole = group if group[0].regrouped else group[:limit]
        document = whole[0].document
        if document in seen or (items and _role(whole[0]) != _role(items[0].entries[0])):
            continue
        if len(whole) > room and items:
            break
        seen.add(document)
        room -= len(whole)
        items.append(Item(document, tuple(whole)))
    return items


def operation_id(home: str, bank_id: str, items: Iterable[Item]) -> str:
    """A UUID that names a request by where it goes and by its members.

    Args:
        home: The address under which the bank was first known.
        bank_id: The bank.
        items: What the request holds.
    """
    members = [
        [item.document, *([entry.fingerprint, entry.revision] for entry in item.entries)]
        for item in items
    ]
    return str(uuid5(NAMESPACE, json.dumps([home, bank_id, members])))


def _role(entry: Entry) -> str:
    """The role of an entry; earlier versions wrote it down in its tags alone."""
    role = entry.payload.get("role")
    if role is None:
        of_project = any(str(tag).startswith("project:") for tag in entry.payload["tags"])
        return "project" if of_project else "life"
    return str(role)


def _grouped(entries: Sequence[Entry], unit: Unit) -> list[list[Entry]]:
    groups: list[list[Entry]] = []
    regrouped: dict[str, list[Entry]] = {}
    open_turns: dict[int, list[Entry]] = {}
    for entry in entries:
        if entry.regrouped:
            group = regrouped.setdefault(entry.document, [])
            if not group:
                groups.append(group)
            group.append(entry)
            continue
        turn = None if entry.thread is None else open_turns.get(entry.thread)
        joins = unit == "turn" and not entry.starts_turn
        if joins and turn is not None and turn[-1].seq == entry.parent:
            turn.append(entry)
            continue
        group = [entry]
        groups.append(group)
        if entry.thread is not None:
            open_turns[entry.thread] = group
    return groups


def _request_item(item: Item) -> dict[str, Any]:
    payloads = [entry.payload for entry in item.entries]
    first = payloads[0]
    built = {
        "content": "\n\n".join(one["content"] for one in payloads),
        "timestamp": datetime.fromisoformat(first["said_at"]),
        "context": first["context"],
        "document_id": item.document,
        "metadata": _joined([one["metadata"] for one in payloads]),
        "tags": first["tags"],
    }
    if first["scopes"]:
        built["observation_scopes"] = first["scopes"]
    return built


def check(payload: Any) -> None:  # noqa: ANN401 - what stands in a file
    """See that a payload can become part of a request.

    Raises:
        ValueError: If it holds something else than what was written.
        TypeError: The same.
        KeyError: If something is missing.
    """
    datetime.fromisoformat(payload["said_at"])
    texts = [payload["content"], *payload["metadata"].values(), *payload["tags"]]
    texts += [tag for scope in payload["scopes"] or () for tag in scope]
    if not all(isinstance(text, str) for text in [*texts, payload["context"] or ""]):
        raise TypeError


def _joined(several: Sequence[dict[str, str]]) -> dict[str, str]:
    """Metadata of a turn: the different values of its messages, in order."""
    keys = dict.fromkeys(key for one in several for key in one)
    return {key: ",".join(dict.fromkeys(one[key] for one in several if key in one)) for key in keys}
