from __future__ import annotations

import pytest
from sqlalchemy import bindparam, create_engine, insert, select, update

from langchain_hindsight.outbox.enqueue import _WRITTEN
from langchain_hindsight.outbox.prepared import Prepared
from langchain_hindsight.outbox.schema import entries, metadata, usage

RAISE = Prepared(
    update(usage)
    .where(usage.c.entries + bindparam("more") <= bindparam("cap"))
    .values(entries=usage.c.entries + bindparam("more"), bytes=usage.c.bytes + 7)
)


@pytest.fixture
def connection():
    engine = create_engine("sqlite://")
    metadata.create_all(engine)
    with engine.begin() as connection:
        connection.execute(insert(usage).values(id=1, entries=1, bytes=0))
        yield connection
    engine.dispose()


def counted(connection):
    return tuple(connection.execute(select(usage.c.entries, usage.c.bytes)).one())


def test_names_that_come_twice_and_constants_find_their_places(connection):
    assert RAISE.run(connection, {"cap": 10, "more": 3}).rowcount == 1
    assert counted(connection) == (4, 7)
    assert RAISE.run(connection, {"more": 7, "cap": 10}).rowcount == 0
    assert counted(connection) == (4, 7)


def test_one_statement_does_for_each_of_several_values(connection):
    RAISE.run_each(connection, [{"cap": 10, "more": 1}, {"cap": 10, "more": 2}])
    assert counted(connection) == (4, 14)


def test_a_name_without_a_value_is_an_error_and_no_null(connection):
    with pytest.raises(KeyError):
        RAISE.run(connection, {"cap": 10})


def test_what_is_written_of_an_entry_is_all_that_no_database_fills_in():
    needed = {column.name for column in entries.columns if not column.nullable}
    assert needed - {"id"} <= set(_WRITTEN)
