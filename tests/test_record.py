"""Records are what `dataclasses` would have made of the same class."""

from __future__ import annotations

import dataclasses
import pickle
from typing import Any

import pytest

from dlsched.client import records
from dlsched.record import Record, field, field_names


class Point(Record, kw_only=False):
    x: int
    y: int = 2
    seen: dict[str, int] = field(default_factory=dict)
    secret: str = field(default="", repr=False, metadata={"said": 7})


class Named(Point):
    name: str


@dataclasses.dataclass(frozen=True)
class PlainPoint:
    x: int
    y: int = 2
    seen: dict[str, int] = dataclasses.field(default_factory=dict)
    secret: str = dataclasses.field(default="", repr=False, metadata={"said": 7})


def test_a_record_is_as_a_dataclass():
    ours, theirs = Point(1, secret="s"), PlainPoint(1, secret="s")
    assert repr(ours) == repr(theirs).replace("PlainPoint", "Point")
    assert dataclasses.asdict(ours) == dataclasses.asdict(theirs)
    assert dataclasses.is_dataclass(Point)
    assert dataclasses.is_dataclass(ours)
    for mine, his in zip(dataclasses.fields(Point), dataclasses.fields(PlainPoint), strict=True):
        for part in ("name", "type", "default", "default_factory", "repr", "metadata"):
            assert getattr(mine, part) == getattr(his, part)


def test_records_are_equal_by_class_and_fields():
    assert Point(1) == Point(x=1, y=2)
    assert Point(1) != Point(2)
    assert Point(1) != PlainPoint(1)
    assert Point(1) != Named(1, name="")
    rungs = {records.Rung(rung=1, step=2), records.Rung(rung=1, step=2)}
    assert len(rungs) == 1


def test_each_record_has_its_own_made_default():
    first, second = Point(1), Point(1)
    first.seen["a"] = 1
    assert not second.seen


def test_a_subclass_has_the_fields_of_its_base_first():
    named = Named(1, name="n")
    assert field_names(Named) == ("x", "y", "seen", "secret", "name")
    assert (named.x, named.y, named.name) == (1, 2, "n")
    assert [each.name for each in dataclasses.fields(named)] == list(field_names(Named))


def test_a_record_does_not_change():
    point = Point(1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        point.x = 2  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        del point.x
    assert dataclasses.replace(point, y=5) == Point(1, 5)
    assert pickle.loads(pickle.dumps(point)) == point


@pytest.mark.parametrize(
    ("values", "given"), [((), {}), ((1,), {"z": 3}), ((1, 2, {}, "", 5), {}), ((), {"y": 1})]
)
def test_missing_and_unknown_fields_are_refused(values: Any, given: Any):
    with pytest.raises(TypeError, match="Point"):
        Point(*values, **given)
