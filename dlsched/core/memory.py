"""What a part remembers between decisions, declared on its class.

    class Mine(SchedulingPolicy[NoOptions]):
        _wait: Floats = memory(0.0)             # a number for every row
        _until: dict[int, float] = by_row()     # a value for some rows
        _owners: set[int] = rows(set)           # some rows
        _rounds: int = kept(0)                  # one value, or an object that remembers itself

An attribute begins with the value that its line says. The base class stores and restores all of
them, and where the table is packed gives what is kept by row its new rows. A class that must do
more overrides `recall`, or one of the methods and calls the base class's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cached_property
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np

from dlsched.core.arrays import Rows, carried

V = TypeVar("V")


class Memory(Protocol):
    """Something that a part keeps by row between decisions; see `Remembering`."""

    def state_dict(self) -> dict[str, Any]:
        """Its content, as plain values and arrays."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state_dict`, which may hold more."""
        ...

    def renumber(self, old: Rows) -> None:
        """Follow a table that was packed."""
        ...


class Packed:
    """A table that was packed.

    Attributes:
        old: of each new row its old number, -1 for none.
        finished_gone: so many of the oldest rows of `ctx.finished` are no longer in it.
    """

    def __init__(self, old: Rows, finished_gone: int) -> None:
        self.old, self.finished_gone = old, finished_gone

    @cached_property
    def place(self) -> dict[int, int]:
        """The new row of each old one that is still there."""
        return {before: row for row, before in enumerate(self.old.tolist()) if before >= 0}

    def rows(self, before: Iterable[int]) -> Rows:
        """The new rows of some old ones, in their order, without those that are gone."""
        asked = np.fromiter(before, np.int64)
        stays = np.flatnonzero(self.old >= 0)
        new = np.full(max(self.old.max(initial=-1), asked.max(initial=-1)) + 1, -1)
        new[self.old[stays]] = stays
        return new[asked][new[asked] >= 0]


@dataclass(eq=False, slots=True, kw_only=True)
class Declared:
    """What a line of a class says of an attribute, whose value itself lies in the instance.

    Attributes:
        fresh: makes the first value.
        load: makes a value of what `store` gave.
        store: makes plain values and arrays of a value, which do not change with it.
        follow: the value after the table was packed.
        key: its name in a stored state; that of the attribute unless it is given.
        is_stored: it is in a stored state; else it begins anew after a restart.
        optional: a state of an older release may lack it.
        fill: of a column, the value of a new row.
    """

    fresh: Callable[[], Any]
    load: Callable[[Any], Any]
    store: Callable[[Any], Any]
    follow: Callable[[Any, Packed], Any]
    key: str = ""
    is_stored: bool = True
    optional: bool = False
    fill: float | None = None
    name: str = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name, self.key = name, self.key or name.lstrip("_")

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        if instance is None:
            return self
        return vars(instance).setdefault(self.name, self.fresh())


class Remembering:
    """Something that declares what it remembers: a part of a round, or what a part is made of.

    Attributes:
        memories: further objects, whose content is stored beside its own.
    """

    memories: tuple[Memory | Remembering, ...] = ()
    declared: ClassVar[tuple[Declared, ...]] = ()
    _columns: ClassVar[tuple[Declared, ...]] = ()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        lines: dict[str, Any] = {
            name: line for base in cls.__mro__[::-1] for name, line in vars(base).items()
        }
        cls.declared = tuple(line for line in lines.values() if isinstance(line, Declared))
        cls._columns = tuple(line for line in cls.declared if line.fill is not None)

    def recall(self) -> None:
        """Set what follows from what is remembered: it was restored, or has other rows now."""

    def reach(self, count: int) -> None:
        """Let every memory column have a value for so many rows."""
        for line in self._columns:
            if len(column := getattr(self, line.name)) < count:
                fresh = np.full(count - len(column), line.fill, column.dtype)
                setattr(self, line.name, np.concatenate([column, fresh]))

    def state_dict(self) -> dict[str, Any]:
        """Everything that decides future answers, as plain values and arrays."""
        state = {key: kept for each in self.memories for key, kept in each.state_dict().items()}
        lines = [line for line in self.declared if line.is_stored]
        return state | {line.key: line.store(getattr(self, line.name)) for line in lines}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state_dict`, which may hold more.

        Raises:
            KeyError: it is of a part that remembers other things.
        """
        for each in self.memories:
            each.load_state_dict(state)
        for line in self.declared:
            inner = getattr(self, line.name)
            if not line.is_stored or (line.optional and line.key not in state):
                setattr(self, line.name, line.fresh())
            elif isinstance(inner, Remembering):
                inner.load_state_dict(state[line.key])
            else:
                setattr(self, line.name, line.load(state[line.key]))
        self.recall()

    def renumber(self, old: Rows, finished_gone: int) -> None:
        """The table was packed: carry over what is kept by row.

        A world that goes on for ever drops ended rows from its table now and then, between two
        decisions. A part whose state speaks of rows must follow. `old` has the old number of each
        new row, -1 for none; `finished_gone` of the oldest rows of `ctx.finished` are no longer in
        it.
        """
        for each in self.memories:
            if isinstance(each, Remembering):
                each.renumber(old, finished_gone)
            else:
                each.renumber(old)
        packed = Packed(old, finished_gone)
        for line in self.declared:
            value = getattr(self, line.name)
            if isinstance(value, Remembering):
                value.renumber(old, finished_gone)
            setattr(self, line.name, line.follow(value, packed))
        self.recall()


def memory(fresh: float, dtype: Any = None) -> Any:
    """A memory column: an array with a value for every row, `fresh` for a row that is new.

    It is as long as `reach` has made it. Its type is that of `fresh` unless one is given.
    """
    kind = np.dtype(type(fresh) if dtype is None else dtype)
    return Declared(
        fresh=lambda: np.full(0, fresh, kind),
        load=lambda stored: np.array(stored, kind),
        store=plain,
        follow=lambda column, packed: carried(column, packed.old, fresh),
        fill=fresh,
    )


def kept(
    fresh: Any,
    load: Callable[[Any], Any] | None = None,
    *,
    store: Callable[[Any], Any] | None = None,
    follow: Callable[[Any, Packed], Any] | None = None,
    **more: Any,
) -> Any:
    """A value, which is not by row unless it says how to `follow` a packed table.

    Args:
        fresh: the first value, or what makes it: `list`, `dict`, a class that is `Remembering`.
        load: makes a value of what `store` gave; the type of the first value unless it is given.
        store: makes plain values of it, if `plain` does not.
        follow: the value with other rows.
        more: `key`, `is_stored`, `optional` of `Declared`.
    """
    made = fresh if callable(fresh) else type(fresh)
    return Declared(
        fresh=fresh if callable(fresh) else lambda: fresh,
        load=load or (plain if fresh is None else made),
        store=store or plain,
        follow=follow or (lambda value, packed: value),
        **more,
    )


def by_row(made: Callable[..., Any] | None = None, **more: Any) -> Any:
    """A dictionary with a value for some rows.

    Args:
        made: makes a value of its parts: a type of numbers, a dataclass, a function with as many
            arguments as a value has parts. Without it a value is a single number or text.
        more: `key`, `is_stored`, `optional` of `Declared`.
    """
    return Declared(
        fresh=dict,
        load=lambda stored: {
            int(row): made(*parts) if made else parts[0] for row, *parts in _lines(stored)
        },
        store=lambda value: [[row, *_parts(plain(each))] for row, each in value.items()],
        follow=moved,
        **more,
    )


def lists_by_row(**more: Any) -> Any:
    """A dictionary with a list of tuples for some rows; `more` as in `by_row`."""

    def load(stored: Iterable[Any]) -> dict[int, list[tuple[Any, ...]]]:
        found: dict[int, list[tuple[Any, ...]]] = {}
        for row, *parts in stored:
            found.setdefault(int(row), []).append(tuple(parts))
        return found

    return Declared(
        fresh=dict,
        load=load,
        store=lambda value: [[row, *each] for row, some in value.items() for each in some],
        follow=moved,
        **more,
    )


def moved(value: Mapping[int, V], packed: Packed) -> dict[int, V]:
    """A dictionary by row with the new rows, without those that are gone."""
    return {packed.place[row]: each for row, each in value.items() if row in packed.place}


def together(*parts: Any) -> tuple[Any, ...]:
    """A value of several parts, as a tuple."""
    return parts


def rows(kind: Callable[[list[int]], Any], **more: Any) -> Any:
    """Some rows, as a `list` or `in_array` in their order, or as a `set`; `more` as in `by_row`."""
    return Declared(
        fresh=lambda: kind([]),
        load=lambda stored: kind([int(row) for row in stored]),
        store=lambda some: [int(row) for row in plain(some)],
        follow=lambda some, packed: kind(packed.rows(some).tolist()),
        **more,
    )


def in_array(some: list[int]) -> Rows:
    """Rows as an array."""
    return np.array(some, np.int64)


def finished_seen() -> Any:
    """How many of `ctx.finished` were looked at; fewer when the oldest of them are dropped."""
    return kept(0, follow=lambda count, packed: max(count - packed.finished_gone, 0))


def plain(value: Any) -> Any:
    """Plain values and arrays that do not change with a value; dataclasses become lists."""
    if isinstance(value, Remembering):
        return value.state_dict()
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, Mapping):
        return {key: plain(each) for key, each in value.items()}
    if is_dataclass(value):
        value = [getattr(value, each.name) for each in fields(value)]
    if isinstance(value, set | frozenset):
        value = sorted(value)
    return [plain(each) for each in value] if isinstance(value, list | tuple) else value


def _parts(value: Any) -> Iterable[Any]:
    if isinstance(value, np.ndarray):
        value = (value.tolist(),)
    return value if isinstance(value, list | tuple) else (value,)


def _lines(stored: Any) -> Iterable[Any]:
    """Rows with their values; older releases had a mapping here and there."""
    if isinstance(stored, Mapping):
        return [[row, *_parts(value)] for row, value in stored.items()]
    return stored  # type: ignore[no-any-return]
