"""Messages of clients beside protobuf's: the same bytes, both ways."""

from __future__ import annotations

import importlib.util
import math
import random
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.message import DecodeError

from dlsched.rpc import messages
from dlsched.rpc.v1 import control_pb2, run_pb2
from dlsched.rpc.v1.control_fields import ANSWERS, MESSAGES

ROOT = Path(__file__).parents[2]
VERBS = ("Submit", "Queue", "Show", "Act")
REQUESTS = ["SubmitRequest", "QueueRequest", "ShowRequest", "ActRequest"]
USED = [*REQUESTS, *(ANSWERS[method] for method in VERBS)]
EACH = range(150)  # seeds
VALUES: dict[str, list[Any]] = {
    "string": ["", "x", "ü", "\0\n", "€" * 50],
    "bytes": [b"", b"x", bytes(range(256))],
    "bool": [False, True],
    # not -0.0, which protobuf sends although it is equal to 0.0
    "double": [0.0, 1.0, -1.5, 1e300, 5e-324, math.inf],
    "int32": [0, 1, 127, 128, -1, 2**31 - 1, -(2**31)],
    "int64": [0, 1, 127, 128, -1, 2**31, 2**63 - 1, -(2**63)],
    "enum": [0, 1, 3],
    "fixed32": [0, 1, 2**32 - 1],
    "sfixed64": [0, 1, -1, 2**63 - 1, -(2**63)],
}


def fields_of(name: str, by: random.Random) -> dict[str, Any]:
    """Some fields of a message by name, those of messages in it likewise."""
    known = messages.message_class(name).fields_by_name

    def one(field: messages.Field) -> Any:
        return fields_of(field.message, by) if field.message else by.choice(VALUES[field.kind])

    def value(field: messages.Field) -> Any:
        if field.is_map:
            key, of_key = field.kind.split()
            return {by.choice(VALUES[key]): by.choice(VALUES[of_key])}  # their order is free
        return [one(field) for _ in range(by.randint(1, 2))] if field.is_repeated else one(field)

    return {each: value(known[each]) for each in by.sample(sorted(known), min(4, len(known)))}


def filled(message: Any, said: dict[str, Any]) -> Any:
    """Set fields of a message of either kind, in the ways in which clients do."""
    for name, value in said.items():
        field = messages.message_class(type(message).__name__).fields_by_name[name]
        if field.message and field.is_repeated:
            for each in value:
                filled(getattr(message, name).add(), each)
        elif field.is_map:
            for key, each in value.items():
                getattr(message, name)[key] = each
        elif field.message:
            filled(getattr(message, name), value)
        elif field.is_repeated:
            getattr(message, name).extend(value)
        else:
            setattr(message, name, value)
    return message


def read(message: Any) -> dict[str, Any]:
    """All that is set in a message of either kind, and the default of what is not."""
    known = messages.message_class(type(message).__name__).fields_by_name
    said = {field.name for field, _ in message.ListFields()}
    found: dict[str, Any] = {}
    for name, field in known.items():
        value = getattr(message, name)
        if field.is_map:
            found[name] = dict(value)
        elif field.message and field.is_repeated:
            found[name] = [read(each) for each in value]
        elif field.message:
            found[name] = read(value) if name in said else None
        else:
            found[name] = list(value) if field.is_repeated else value
        if field.has_presence:
            assert message.HasField(name) == (name in said)
    return found


@pytest.mark.parametrize("name", USED)
def test_bytes_are_those_of_protobuf_and_are_read_alike(name: str) -> None:
    ours, theirs = messages.message_class(name), getattr(control_pb2, name)
    for seed in EACH:
        said = fields_of(name, random.Random(seed))
        message = filled(ours(), said)
        raw = message.SerializeToString()
        assert raw == filled(theirs(), said).SerializeToString(deterministic=True)
        again = ours.FromString(raw)
        assert again == message
        assert read(again) == read(theirs.FromString(raw))
        copy = ours()
        copy.CopyFrom(message)
        assert copy == message


@pytest.mark.parametrize("name", USED)
def test_bytes_that_are_cut_off_are_refused_where_protobuf_refuses_them(name: str) -> None:
    ours, theirs = messages.message_class(name), getattr(control_pb2, name)
    for seed in EACH:
        by = random.Random(seed)
        raw = filled(theirs(), fields_of(name, by)).SerializeToString()
        raw = raw[: max(0, len(raw) - by.randint(0, 10))]
        try:
            expected = theirs.FromString(raw)
        except DecodeError:
            with pytest.raises(ValueError, match=r"cut off|does not end|decode"):
                ours.FromString(raw)
        else:
            assert read(ours.FromString(raw)) == read(expected)


def test_every_message_of_the_table_is_one_of_protobuf() -> None:
    for name in MESSAGES:
        theirs = getattr(control_pb2 if hasattr(control_pb2, name) else run_pb2, name)
        raw = theirs().SerializeToString()
        assert messages.message_class(name).FromString(raw).SerializeToString() == raw == b""


def test_a_message_that_was_only_read_is_not_set() -> None:
    detail = messages.message_class("JobDetail")()
    assert not detail.job.name
    assert not detail.HasField("job")
    assert detail.SerializeToString() == b""
    detail.job.name = "x"
    assert detail.HasField("job")


@pytest.mark.parametrize(
    ("message", "name", "value"),
    [
        ("JobRequest", "gpus", 2**31),
        ("JobRequest", "memory_bytes", -(2**63) - 1),
        ("JobColumn", "places", [-1]),
        ("JobColumn", "numbers", [2**63]),
    ],
)
def test_a_number_that_its_field_cannot_have_is_refused(
    message: str, name: str, value: Any
) -> None:
    request = messages.message_class(message)(**{name: value})
    with pytest.raises(ValueError, match="out of the bounds"):
        request.SerializeToString()


def test_large_answers_are_read_by_protobuf_and_small_ones_are_not() -> None:
    page = control_pb2.HistoryPage(jobs=[control_pb2.JobView(job=7, name="x")])
    small = messages.decoded("History", page.SerializeToString())
    assert isinstance(small, messages.Message)
    assert small.jobs[0].name == "x"
    page.jobs[0].name *= messages.LARGE
    assert messages.decoded("History", page.SerializeToString()) == page


def test_the_table_of_fields_is_current() -> None:
    path = ROOT / "proto" / "message_fields.py"
    spec = importlib.util.spec_from_file_location("message_fields", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.TABLE.read_text() == module.table()
