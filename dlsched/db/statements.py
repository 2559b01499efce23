"""Statements that work in both databases, for many rows at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Connection, RowMapping, Select, Table, insert
from sqlalchemy.dialects import postgresql, sqlite

T = TypeVar("T")
MANY = 500  # values in one IN


def chunks(values: Iterable[T], size: int = MANY) -> Iterator[list[T]]:
    """Values in lists of bounded length."""
    rest = iter(values)
    while found := list(islice(rest, size)):
        yield found


def add(connection: Connection, table: Table, rows: Sequence[dict[str, Any]]) -> None:
    """Insert rows that have the same columns."""
    if rows:
        connection.execute(insert(table), rows)


def put(connection: Connection, table: Table, rows: Sequence[dict[str, Any]]) -> None:
    """Insert rows, or replace those with the same primary key."""
    if not rows:
        return
    dialect = sqlite if connection.dialect.name == "sqlite" else postgresql
    statement = dialect.insert(table)
    keys = [column.name for column in table.primary_key]
    new = {name: statement.excluded[name] for name in rows[0] if name not in keys}
    if new:
        connection.execute(statement.on_conflict_do_update(index_elements=keys, set_=new), rows)
    else:
        connection.execute(statement.on_conflict_do_nothing(index_elements=keys), rows)


def put_where(
    connection: Connection,
    table: Table,
    row: dict[str, Any],
    *,
    only: Sequence[str],
    where: ColumnElement[bool],
) -> None:
    """Insert one row, or update some of its columns if it exists.

    Args:
        connection: to write to.
        table: the table.
        row: all columns of the new row.
        only: the columns to update.
        where: a condition on the existing row; without it the row is left as it is.
    """
    dialect = sqlite if connection.dialect.name == "sqlite" else postgresql
    keys = [column.name for column in table.primary_key]
    statement = dialect.insert(table)
    new = {name: statement.excluded[name] for name in only}
    connection.execute(
        statement.on_conflict_do_update(index_elements=keys, set_=new, where=where), row
    )


def add_unless_there(connection: Connection, table: Table, row: dict[str, Any]) -> bool:
    """Insert one row; false when its primary key exists already."""
    dialect = sqlite if connection.dialect.name == "sqlite" else postgresql
    keys = [column.name for column in table.primary_key]
    statement = dialect.insert(table).on_conflict_do_nothing(index_elements=keys)
    made = connection.execute(statement.returning(table.c[keys[0]]), row)
    return made.first() is not None


def rows_in(
    connection: Connection,
    query: Select[Any],
    column: ColumnElement[Any],
    values: Iterable[Any],
) -> list[RowMapping]:
    """The rows of a query in which a column has one of many values.

    Args:
        connection: to read from.
        query: the query without that condition.
        column: the column.
        values: the values; they may be more than one statement can hold.
    """
    found: list[RowMapping] = []
    for some in chunks(values):
        found += connection.execute(query.where(column.in_(some))).mappings()
    return found
