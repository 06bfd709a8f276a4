"""Masking of credentials before anything is written to the outbox.

Promises: what looks like a credential is replaced by `[redacted:kind]`, in free text and in nested
values alike; masking twice changes nothing; ordinary words stay; the time taken grows linearly with
the text, whatever it holds. It is a net, not a proof: a password that is a plain word in a sentence
cannot be told from the sentence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from langchain_hindsight.credential_fields import kind_of_item, kind_of_name, mask_fields
from langchain_hindsight.credential_places import mask_places
from langchain_hindsight.credential_tokens import mask_tokens
from langchain_hindsight.credential_values import MARKER, is_empty_form, marker

_MOST_PASSES = 4
_DEEPEST = 200
_HEADER_NAMES = frozenset(
    ("authorization", "proxy-authorization", "cookie", "set-cookie", "x-api-key", "x-auth-token")
)
_NAME_KEYS = frozenset(("name", "key", "variable", "parameterkey"))
_VALUE_KEYS = frozenset(("value", "val", "parametervalue"))


def redact(text: str) -> str:
    """Mask every credential in a text.

    Args:
        text: Free text, code, configuration, a transcript or JSON.

    Returns:
        The text with `[redacted:kind]` in the place of each credential, and otherwise unchanged.
    """
    for _ in range(_MOST_PASSES):
        masked = mask_fields(mask_places(mask_tokens(text)))
        if masked == text:
            break
        # A mask can be the boundary that the next credential was waiting for.
        text = masked
    return text


def redact_value(value: Any) -> Any:  # noqa: ANN401 - metadata and tool arguments hold any JSON
    """Mask every credential in a value of JSON's shape, its keys included.

    Under a key that names a credential (`password`, `apiKey`, `Authorization`, `cookie`), every
    text and number is masked whole, whatever it looks like.

    Args:
        value: A text, or mappings, lists and tuples of them. Anything else is returned as it is.

    Returns:
        A new value of the same shape; the one passed is not changed.
    """
    return _redacted(value, None, 0)


def _redacted(value: Any, kind: str | None, depth: int) -> Any:  # noqa: ANN401 - as above
    if isinstance(value, str):
        return _redacted_text(value, kind)
    if depth > _DEEPEST:
        return marker("too-deep") if isinstance(value, Mapping | list | tuple) else value
    if isinstance(value, Mapping):
        return _redacted_mapping(value, kind, depth)
    if isinstance(value, list | tuple | set | frozenset):
        return _redacted_items(value, kind, depth)
    if kind is not None and isinstance(value, int | float | bytes) and not isinstance(value, bool):
        return marker(kind)
    return value


def _redacted_items(value: Any, kind: str | None, depth: int) -> Any:  # noqa: ANN401 - as above
    if kind is None and isinstance(value, list | tuple) and _is_header(value):
        kinds = [None, kind_of_name(value[0])]
    else:
        kinds = [kind] * len(value)
    items = [_redacted(item, k, depth + 1) for item, k in zip(value, kinds, strict=True)]
    # A named tuple takes its items one by one.
    return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)


def _redacted_text(value: str, kind: str | None) -> str:
    if kind is None:
        return redact(value)
    said = value.strip()
    if not said or MARKER.fullmatch(said) or is_empty_form(said):
        return value
    return marker(kind)


def _redacted_mapping(value: Mapping[Any, Any], kind: str | None, depth: int) -> dict[Any, Any]:
    named = _kind_of_entry(value)
    masked: dict[Any, Any] = {}
    for key, item in value.items():
        inner = kind
        if isinstance(key, str):
            inner = kind or (named if key.lower() in _VALUE_KEYS else kind_of_name(key))
            if isinstance(item, Mapping) and _is_schema(item):
                inner = None
        safe = redact(key) if isinstance(key, str) else key
        given = item if inner or not isinstance(item, list | tuple) else _without_listed(key, item)
        masked[_unused(masked, safe)] = _redacted(given, inner, depth + 1)
    return masked


def _without_listed(name: object, items: Sequence[Any]) -> Sequence[Any]:
    """A list with what its name calls credentials masked: `api_keys`, and `auth` of two."""
    if not isinstance(name, str):
        return items
    if name.lower() == "auth" and len(items) == 2 and isinstance(items[1], str):  # noqa: PLR2004 - a user's name and password
        return [items[0], _redacted_text(items[1], "password")]
    kinds = [kind_of_item(name, item) if isinstance(item, str) else None for item in items]
    if not any(kinds):
        return items
    return [item if kind is None else marker(kind) for item, kind in zip(items, kinds, strict=True)]


def _kind_of_entry(value: Mapping[Any, Any]) -> str | None:
    """The kind of `{"name": "DB_PASSWORD", "value": …}`, as headers and variables are listed."""
    for key, name in value.items():
        if isinstance(key, str) and key.lower() in _NAME_KEYS and isinstance(name, str):
            return kind_of_name(name)
    return None


def _is_header(pair: Sequence[object]) -> bool:
    name = pair[0] if len(pair) == 2 else None  # noqa: PLR2004 - a name and its value
    return isinstance(name, str) and name.lower() in _HEADER_NAMES


def _is_schema(value: Mapping[Any, Any]) -> bool:
    if "value" in value:  # a variable with its type, and no description of one
        return False
    return value.get("type") in ("string", "object", "array", "number", "integer", "boolean")


def _unused(masked: Mapping[Any, Any], key: Any) -> Any:  # noqa: ANN401 - a key of any kind
    """Keep entries apart whose keys were different credentials."""
    number, free = 2, key
    while free in masked:
        free = f"{key}#{number}"
        number += 1
    return free
