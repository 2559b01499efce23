"""Options from KEY=VALUE texts: kinds, ranges, and messages that say what would be right."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import pytest

from dlsched.core.errors import BadInput
from dlsched.core.options import NoOptions, accepts, describe, option, parse_options, show_value
from dlsched.policies.registry import STAGES, find, names


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One option of each kind."""

    flag: bool = option(False, "a claim")
    count: int = option(3, "a whole number", low=1, high=9)
    size: float = option(1.5, "a number", low=0.0)
    word: str = option("x", "a text")
    kind: Literal["red", "blue"] = option("red", "one of two")
    limits: tuple[float, ...] = option((1.0, 2.0), "numbers", low=0.0, ascending=True)
    names: tuple[str, ...] = option((), "words")
    maybe: float | None = option(None, "a number or none", high=10.0)
    most: float = option(math.inf, "at most ten", high=10.0)


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("flag", "true", True),
        ("flag", "YES", True),
        ("flag", "on", True),
        ("flag", "1", True),
        ("flag", "off", False),
        ("flag", "0", False),
        ("flag", True, True),
        ("count", "5", 5),
        ("count", " 5 ", 5),
        ("count", 5, 5),
        ("size", "0.25", 0.25),
        ("size", "1e3", 1000.0),
        ("size", "inf", math.inf),
        ("size", 2, 2.0),
        ("word", "hello world", "hello world"),
        ("kind", "blue", "blue"),
        ("limits", "3250,7200", (3250.0, 7200.0)),
        ("limits", "1, 2 ,3", (1.0, 2.0, 3.0)),
        ("limits", "", ()),
        ("limits", (4.0, 5.0), (4.0, 5.0)),
        ("names", "las,fifo", ("las", "fifo")),
        ("maybe", "none", None),
        ("maybe", "None", None),
        ("maybe", "2.5", 2.5),
        ("maybe", None, None),
    ],
)
def test_a_value_of_each_kind_is_read(key: str, text: object, value: object) -> None:
    parsed = getattr(parse_options(Example, {key: text}, owner="x"), key)
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(
    ("key", "text", "message"),
    [
        ("flag", "maybe", "option x.flag must be true or false, not 'maybe'"),
        ("count", "five", "option x.count must be a whole number, not 'five'"),
        ("count", "1.5", "option x.count must be a whole number, not '1.5'"),
        ("count", "1_0", "option x.count must be a whole number, not '1_0'"),
        ("count", "", "option x.count must be a whole number, not ''"),
        ("count", "0", "option x.count must be from 1 to 9, not 0"),
        ("count", "10", "option x.count must be from 1 to 9, not 10"),
        ("size", "nan", "option x.size must be a number, not 'nan'"),
        ("size", "1_0.5", "option x.size must be a number, not '1_0.5'"),
        ("size", "-1", "option x.size must be at least 0, not -1"),
        ("kind", "green", "option x.kind must be one of red, blue, not 'green'"),
        ("limits", "1,two", "option x.limits must be a number, not 'two'"),
        ("limits", "1,-2", "option x.limits must be at least 0, not -2"),
        ("limits", "5,3", "option x.limits must be ascending, not 5,3"),
        ("maybe", "11", "option x.maybe must be at most 10, not 11"),
        ("most", "11", "option x.most must be at most 10, not 11"),
        ("speed", "1", "option 'speed' is not known to x; its options: flag, count, size, word"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_in_one_line(
    key: str, text: str, message: str
) -> None:
    with pytest.raises(BadInput) as error:
        parse_options(Example, {key: text}, owner="x")
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


def test_a_part_without_options_says_so() -> None:
    with pytest.raises(BadInput, match="its options: none"):
        parse_options(NoOptions, {"a": "1"}, owner="x")


def test_what_a_part_accepts_can_be_asked() -> None:
    assert accepts(Example, "kind", "blue")
    assert not accepts(Example, "kind", "green")
    assert not accepts(Example, "no-such", "1")


def test_options_describe_themselves() -> None:
    by_name = {doc.name: doc for doc in describe(Example)}
    assert list(by_name)[:3] == ["flag", "count", "size"]
    assert (by_name["flag"].kind, by_name["flag"].default) == ("true|false", "false")
    assert by_name["kind"].kind == "red|blue"
    assert by_name["limits"].default == "1,2"
    assert (by_name["maybe"].kind, by_name["maybe"].default) == ("number|none", "none")
    assert by_name["size"].doc == "a number"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"),
        (1.0, "1"),
        (1.5, "1.5"),
        (math.inf, "inf"),
        ((1.0, 2.5), "1,2.5"),
        (None, "none"),
    ],
)
def test_a_value_is_shown_as_one_would_type_it(value: object, text: str) -> None:
    assert show_value(value) == text


PARTS = [(stage, name) for stage in STAGES for name in names(stage)]


@pytest.mark.parametrize(("stage", "name"), PARTS)
def test_every_part_documents_its_options_and_takes_its_own_defaults(stage: str, name: str) -> None:
    part: Any = find(stage, name)
    assert part.name == name
    assert part.summary
    docs = describe(part.Options)
    assert all(doc.doc for doc in docs)
    shown = {doc.name: doc.default for doc in docs}
    assert parse_options(part.Options, shown, owner=name) == part.Options()
