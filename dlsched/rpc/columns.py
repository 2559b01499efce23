"""Jobs of a list by column: how the daemon packs them, and how clients read them.

A list of ten thousand jobs has the same few values again and again. A column has each of them once
and, for each job, the place of its own; ids and names, which differ, lie side by side. Neither side
makes an object for each job.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, repeat
from typing import TYPE_CHECKING, Any, NamedTuple

from dlsched.rpc.messages import Field, message_class

if TYPE_CHECKING:
    from dlsched.rpc.v1 import control_pb2


class Column(NamedTuple):
    """One value of each of some jobs.

    Attributes:
        values: each value once, or one for each job, or the one of all jobs.
        places: for each job the place of its value, from 1, or 0 where it has none; None: `values`
            has one for each job, or the one of all.
        unsaid: what a job has that has none.
    """

    values: Sequence[Any]
    places: Sequence[int] | None = None
    unsaid: Any = None

    @property
    def is_constant(self) -> bool:
        """Have all jobs the same value?"""
        return self.places is None and len(self.values) == 1

    def each(self, count: int) -> Sequence[Any]:
        """The values of all jobs, of which there are `count`."""
        if self.places is not None:
            known = (self.unsaid, *self.values)
            return [known[place] for place in self.places]
        return self.values if len(self.values) == count else [self.values[0]] * count

    def of(self, jobs: Sequence[int]) -> Column:
        """The column of some of the jobs, by their numbers from 0."""
        if self.is_constant:
            return self
        if self.places is None:
            return self._replace(values=[self.values[job] for job in jobs])
        return self._replace(places=[self.places[job] for job in jobs])


def column_of(values: Sequence[Hashable]) -> Column:
    """The column of some jobs' values, of which one is said; None: not said."""
    places: dict[Hashable, int] = dict.fromkeys(values, 0)
    if len(places) == 1 or (None not in places and 2 * len(places) > len(values)):
        return Column(values if len(places) > 1 else list(places))
    places.pop(None, None)
    distinct = list(places)
    places = {value: place for place, value in enumerate(distinct, 1)} | {None: 0}
    return Column(distinct, [places[value] for value in values])


def combined(columns: Sequence[Column], count: int, make: Callable[..., object]) -> Column:
    """The column of what is made of the values of several ones, once for values that are alike."""
    varying = [column for column in columns if not column.is_constant]
    if not varying:
        return Column([make(*(column.values[0] for column in columns))])
    if any(column.places is None for column in varying):
        return Column(list(map(make, *(column.each(count) for column in columns))))
    alike = list(zip(*(column.places or () for column in varying), strict=True))
    one_of = dict(zip(alike, range(count), strict=True))
    jobs = list(one_of.values())
    values = list(map(make, *(column.of(jobs).each(len(jobs)) for column in columns)))
    places = {kind: place for place, kind in enumerate(one_of, 1)}
    return Column(values, [places[kind] for kind in alike])


def texts(pieces: Iterable[str | Column], count: int) -> Iterator[str]:
    """A text for each job, of pieces one behind the other: its own ones of columns of texts."""
    form, varying = "", []
    for piece in pieces:
        if isinstance(piece, str):
            form += piece.replace("%", "%%")
        elif piece.is_constant:
            form += piece.values[0].replace("%", "%%")
        else:
            form += "%s"
            varying.append(piece.each(count))
    jobs = zip(*varying, strict=True) if varying else repeat((), count)
    return map(form.__mod__, jobs)


def joined(columns: Sequence[Column | None], counts: Sequence[int]) -> Column:
    """The column of the jobs of several pages; None: a page in which no job has a value."""
    said = [column for column in columns if column is not None]
    if len(said) == len(columns):
        if len(said) == 1:
            return said[0]
        first = said[0]
        if all(column.is_constant and column.values == first.values for column in said):
            return first
        if [len(column.values) for column in said if column.places is None] == list(counts):
            return first._replace(values=[value for column in said for value in column.values])
    values: list[object] = []
    places: list[int] = []
    for column, count in zip(columns, counts, strict=True):
        if column is None:
            places += [0] * count
            continue
        behind = len(values)
        values += column.values
        if column.places is not None:
            places += [place and place + behind for place in column.places]
        elif column.is_constant:
            places += [behind + 1] * count
        else:
            places += range(behind + 1, behind + 1 + count)
    return Column(values, places, said[0].unsaid)


def by_field(jobs: Sequence[Mapping[str, object]]) -> dict[str, list[object]]:
    """The values of some jobs by field; of each job they are given by name."""
    names: set[str] = set().union(*jobs)
    return {name: [job.get(name) for job in jobs] for name in names}


def spread(fields: Mapping[str, Sequence[object]]) -> dict[str, Column]:
    """The columns of some jobs' values by the names of a `JobView`'s fields; None: not set."""
    found = {}
    for name, field in message_class("JobView").fields_by_name.items():
        values = fields.get(name, ())
        if not values:
            continue
        first = values[0]
        if not field.message and values.count(first) == len(values):  # most are alike
            if first is not None and (first or field.has_presence):
                found[name] = Column([first])
            continue
        if not field.has_presence:
            values = [value or None for value in values]
        if values.count(None) < len(values):
            found[name] = column_of(values) if field.is_single else _column_of_parts(field, values)
    return found


def _column_of_parts(field: Field, values: Sequence[object]) -> Column:
    """The column of lists or messages, which cannot be looked up as they are."""
    keys = [None if value is None else _key(field, value) for value in values]
    known, column = dict(zip(keys, values, strict=True)), column_of(keys)
    return column._replace(values=[known[key] for key in column.values])


def _key(field: Field, value: Any) -> Hashable:
    """What two equal lists or messages have in common."""
    if not field.message:
        return tuple(value)
    if not field.is_repeated:
        return value.SerializeToString()  # type: ignore[no-any-return]
    return tuple(each.SerializeToString() for each in value)


def pack(count: int, fields: Mapping[str, Sequence[Any]], into: control_pb2.JobColumns) -> None:
    """Put the values of some jobs, by the names of a `JobView`'s fields, into a message."""
    into.count, known = count, message_class("JobView").fields_by_name
    for name, column in spread(fields).items():
        field = known[name]
        packed = into.columns.add(field=field.number, places=column.places or ())
        if not field.is_single:
            for value in column.values:
                packed.views.add(**{name: value})
        elif field.kind == "string":
            packed.text = "".join(column.values)
            packed.ends.extend(accumulate(map(len, column.values)))
        elif field.kind == "double":
            packed.reals.extend(column.values)
        else:
            packed.numbers.extend(map(int, column.values))


def unpacked(message: control_pb2.JobColumns) -> dict[str, Column]:
    """The columns of a message by the names of a `JobView`'s fields."""
    found, known = {}, message_class("JobView").fields_by_number
    for packed in message.columns:
        field = known.get(packed.field)  # None: of a newer daemon
        if field is not None:
            found[field.name] = Column(_values(packed, field), packed.places or None)
    return found


def _values(packed: control_pb2.JobColumn, field: Field) -> Sequence[object]:
    if not field.is_single:
        return [getattr(view, field.name) for view in packed.views]
    if field.kind == "string":
        text, ends = packed.text, packed.ends
        return [text[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]
    numbers: Sequence[object] = packed.reals if field.kind == "double" else packed.numbers
    return list(map(bool, numbers)) if field.kind == "bool" else numbers
