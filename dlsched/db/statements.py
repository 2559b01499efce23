"""What both databases say alike, for many rows at once."""

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
    """Insert rows, or set them where their primary key is there already."""
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
    """Insert one row, or set some columns where its primary key is there and a condition holds."""
    dialect = sqlite if connection.dialect.name == "sqlite" else postgresql
    keys = [column.name for column in table.primary_key]
    statement = dialect.insert(table)
    new = {name: statement.excluded[name] for name in only}
    connection.execute(
        statement.on_conflict_do_update(index_elements=keys, set_=new, where=where), row
    )


def add_unless_there(connection: Connection, table: Table, row: dict[str, Any]) -> bool:
    """Insert one row; false when its primary key is there already."""
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
    """The rows of a query whose column is one of many values, as mappings."""
    found: list[RowMapping] = []
    for some in chunks(values):
        found += connection.execute(query.where(column.in_(some))).mappings()
    return found
