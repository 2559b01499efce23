"""An immutable mapping: a changed copy costs little at any size, and older versions stay valid.

A shared base is overlaid by the few entries that have changed since. When the overlay has grown
to about the square root of the base, both are merged into a new base. Iteration is in insertion
order, as in a dict.

Invariant: base and overlay are never changed once a table has been handed out.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, Iterator, Mapping, ValuesView
from typing import Any, Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")
_GONE: Any = object()  # in an overlay: the entry of the base is deleted
_ABSENT: Any = object()  # not in the overlay: the base decides
_SMALL = 24  # an overlay up to here is never merged


class Table(Mapping[K, V], Generic[K, V]):
    """An immutable mapping with cheap `having` and `without`."""

    __slots__ = ("_base", "_count", "_over")

    def __init__(self, entries: Mapping[K, V] | Iterable[tuple[K, V]] = ()) -> None:
        self._base: dict[K, V] = dict(entries)
        self._over: dict[Any, Any] = {}
        self._count = len(self._base)

    def __getitem__(self, key: K) -> V:
        found: Any = self._over.get(key, _ABSENT)
        if found is _ABSENT:
            return self._base[key]
        if found is _GONE:
            raise KeyError(key)
        value: V = found
        return value

    def get(self, key: K, default: Any = None) -> Any:
        """The value of a key or the default, as of a dict; quicker than the base class's."""
        found: Any = self._over.get(key, _ABSENT)
        if found is _ABSENT:
            return self._base.get(key, default)
        return default if found is _GONE else found

    def __contains__(self, key: object) -> bool:
        found = self._over.get(key, _ABSENT)
        return key in self._base if found is _ABSENT else found is not _GONE

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[K]:
        if not self._over:
            return iter(self._base)
        return self._walk()

    def _walk(self) -> Iterator[K]:
        base, over = self._base, self._over
        for key in base:
            if over.get(key) is not _GONE:
                yield key
        for key, value in over.items():
            if value is not _GONE and key not in base:
                yield key

    def values(self) -> ValuesView[V]:
        """The values in order, read without a look-up for each."""
        return self._base.values() if not self._over else _Values(self)

    def items(self) -> ItemsView[K, V]:
        """The entries in order, read without a look-up for each."""
        return self._base.items() if not self._over else _Items(self)

    def entries(self) -> Iterator[tuple[K, V]]:
        """The entries in order."""
        base, over = self._base, self._over
        for key, value in base.items():
            found = over.get(key, value)
            if found is not _GONE:
                yield key, found
        for key, value in over.items():
            if value is not _GONE and key not in base:
                yield key, value

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Mapping) and dict(self.items()) == dict(other.items())

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Table({dict(self.items())!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (dict(self.items()),))

    def having(self, key: K, value: V) -> Table[K, V]:
        """The same table with one entry set."""
        return self.having_all(((key, value),))

    def having_all(self, entries: Iterable[tuple[K, V]]) -> Table[K, V]:
        """The same table with some entries set."""
        over = dict(self._over)
        count = self._count
        for key, value in entries:
            count += key not in self if key not in over else over[key] is _GONE
            over[key] = value
        return self._made(over, count)

    def without(self, keys: Iterable[K]) -> Table[K, V]:
        """The same table without some keys, present or not."""
        over = dict(self._over)
        count = self._count
        for key in keys:
            if over.get(key) is _GONE or (key not in over and key not in self._base):
                continue
            count -= 1
            over[key] = _GONE
        return self._made(over, count)

    def _made(self, over: dict[K, V], count: int) -> Table[K, V]:
        table: Table[K, V] = Table.__new__(Table)
        table._count = count
        if len(over) > _SMALL and len(over) * len(over) > 4 * len(self._base):
            merged = {**self._base, **over}
            if count < len(merged):
                merged = {key: value for key, value in merged.items() if value is not _GONE}
            table._base, table._over = merged, {}
        else:
            table._base, table._over = self._base, over
        return table


class _Values(ValuesView[V]):
    _mapping: Table[Any, V]

    def __iter__(self) -> Iterator[V]:
        return (value for _, value in self._mapping.entries())


class _Items(ItemsView[K, V]):
    _mapping: Table[K, V]

    def __iter__(self) -> Iterator[tuple[K, V]]:
        return self._mapping.entries()


def table_of(mapping: Mapping[K, V]) -> Table[K, V]:
    """A mapping as a `Table`; a `Table` is returned as it is."""
    return mapping if isinstance(mapping, Table) else Table(mapping)


def having(table: Mapping[K, V], key: K, value: V) -> Mapping[K, V]:
    """The same table with one entry set; cheap for a `Table`, a copy for a small dict."""
    return table.having(key, value) if isinstance(table, Table) else {**table, key: value}
