"""What a forked child does with what it inherited: nothing, for ever.

An event loop, an HTTP session or a database connection is shared with the parent after a fork.
Closing it, also by letting it be collected, breaks the parent; so the child keeps it alive
untouched and makes its own when it needs one.
"""

from __future__ import annotations

import os
import weakref

_renewed: weakref.WeakKeyDictionary[object, str] = weakref.WeakKeyDictionary()
_abandoned: list[object] = []


def on_fork_in_child(owner: object, method: str) -> None:
    """Have a method of an object called in every child forked while the object lives."""
    _renewed[owner] = method


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


def _renew_all() -> None:
    for owner, method in list(_renewed.items()):
        getattr(owner, method)()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_renew_all)
