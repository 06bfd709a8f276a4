"""What happens around a fork, so that neither side breaks the other.

An event loop, an HTTP session or a database connection is shared with the parent after a fork.
Closing it, also by letting it be collected, breaks the parent; so the child keeps it alive
untouched and makes its own when it needs one. What must not even be inherited, such as a file with
locks that belong to one process, is put away before the fork.
"""

from __future__ import annotations

import os
import weakref

_renewed: weakref.WeakKeyDictionary[object, str] = weakref.WeakKeyDictionary()
_held: weakref.WeakKeyDictionary[object, tuple[str, str]] = weakref.WeakKeyDictionary()
_holding: list[tuple[object, str]] = []
_abandoned: list[object] = []


def on_fork_in_child(owner: object, method: str) -> None:
    """Have a method of an object called in every child forked while the object lives."""
    _renewed[owner] = method


def hold_for_fork(owner: object, before: str, in_parent: str) -> None:
    """Have methods of an object called before a fork, and after it in the parent.

    The child, which inherits what was held, is left to `on_fork_in_child`.
    """
    _held[owner] = (before, in_parent)


def abandon(*inherited: object) -> None:
    """Keep inherited objects alive, so that nothing closes them in this process.

    A list is emptied when the interpreter ends, so the reference count itself is raised where that
    can be done.
    """
    for one in inherited:
        if one is None:
            continue
        _abandoned.append(one)
        try:
            import ctypes

            ctypes.pythonapi.Py_IncRef(ctypes.py_object(one))
        except (ImportError, AttributeError):  # not CPython: the list has to do
            continue


def _hold_all() -> None:
    for owner, (before, in_parent) in list(_held.items()):
        getattr(owner, before)()
        _holding.append((owner, in_parent))


def _let_go_all() -> None:
    while _holding:
        owner, in_parent = _holding.pop()
        getattr(owner, in_parent)()


def _renew_all() -> None:
    _holding.clear()
    for owner, method in list(_renewed.items()):
        getattr(owner, method)()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(before=_hold_all, after_in_parent=_let_go_all, after_in_child=_renew_all)
