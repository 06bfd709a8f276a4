"""Statements that are compiled once: an agent waits for what is written down of its turns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, CursorResult, Dialect
from sqlalchemy.sql.dml import UpdateBase

_Values = Mapping[str, Any]


class Prepared:
    """A statement whose values go to the driver as they are.

    Finding what was compiled and converting the values takes SQLAlchemy longer than SQLite needs to
    carry it out.

    Args:
        statement: What is to be done. Its values are bound by names, and of types that every driver
            takes; no column's default is filled in.
    """

    def __init__(self, statement: UpdateBase) -> None:
        """Compile nothing yet: how depends on the database."""
        self._statement = statement
        self._compiled: dict[str, tuple[str, Callable[[_Values], Any]]] = {}

    def run(self, connection: Connection, values: _Values) -> CursorResult[Any]:
        """Do it once."""
        text, bind = self._compiled_for(connection.dialect)
        return connection.exec_driver_sql(text, bind(values))

    def run_each(self, connection: Connection, values: Sequence[_Values]) -> None:
        """Do it for each of several values."""
        text, bind = self._compiled_for(connection.dialect)
        connection.exec_driver_sql(text, [bind(one) for one in values])

    def _compiled_for(self, dialect: Dialect) -> tuple[str, Callable[[_Values], Any]]:
        found = self._compiled.get(dialect.name)
        if found is None:
            compiled: Any = self._statement.compile(dialect=dialect)
            constants = {name: one for name, one in compiled.params.items() if one is not None}
            bind = _binder(constants, compiled.positiontup)
            found = self._compiled[dialect.name] = (compiled.string, bind)
        return found


def _binder(constants: _Values, order: Sequence[str] | None) -> Callable[[_Values], Any]:
    """What makes of values what the driver takes: a tuple in an order, or names without one."""
    if order is None:
        return lambda values: {**constants, **values}

    def in_order(values: _Values) -> tuple[Any, ...]:
        given = {**constants, **values}
        return tuple([given[name] for name in order])

    return in_order
