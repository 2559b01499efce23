"""Job fields on the wire: from the table's values to a `JobRequest`'s or `JobView`'s, and back.

The messages are a client's or protobuf's: both have the same attributes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dlsched.jobs.field import Field, Value
from dlsched.jobs.fields import FIELDS
from dlsched.rpc import messages

if TYPE_CHECKING:
    from dlsched.rpc.v1 import control_pb2

SENT = tuple(row for row in FIELDS if row.wire and row.form != "own")
_WIRE = messages.message_class("JobRequest").fields_by_name
_NUMBERS: dict[str, dict[str, int]] = {  # of enumerations, by their words
    row.name: {
        word: next(n for name, n in _WIRE[row.wire].numbers.items() if name.endswith(suffix))
        for word in row.choices
        for suffix in (f"_{word.upper().replace('-', '_')}",)
    }
    for row in SENT
    if row.form == "choice"
}
_WORDS = {
    name: {number: word for word, number in words.items()} for name, words in _NUMBERS.items()
}
_FLAG_NUMBERS = {
    "keep_on_broken_dependency": _WIRE["broken_dependency"].numbers["BROKEN_KEEP"]
}  # flags that are enumerations
_MAY_LACK = {row.name for row in SENT if _WIRE[row.wire].has_presence}
_BY_NAME = {row.name: row for row in SENT}
_FALSE_IS_UNSAID = {  # fields of which "no", 0 and empty are what a message has without them
    row.name for row in SENT if row.name not in _MAY_LACK and not row.inverted and not row.choices
}


def put_fields(message: control_pb2.JobRequest, values: Mapping[str, Value]) -> None:
    """Set fields of a request by their names; None and rows that are not sent are left out."""
    for name, given in values.items():
        if given is None or (not given and name in _FALSE_IS_UNSAID) or name not in _BY_NAME:
            continue
        row = _BY_NAME[name]
        value: Any = given
        if row.form in ("names", "hosts"):
            getattr(message, row.wire).extend(value)
        elif row.name in _FLAG_NUMBERS:
            setattr(message, row.wire, _FLAG_NUMBERS[row.name] if value else 0)
        elif row.form == "flag":
            setattr(message, row.wire, value != row.inverted)
        else:
            setattr(message, row.wire, _NUMBERS[row.name][value] if row.choices else value)


def get_field(message: control_pb2.JobRequest, row: Field) -> Value:
    """The value of one field; None where it is not said.

    A choice that this version does not know is its number as a text.
    """
    if row.name in _MAY_LACK and not message.HasField(row.wire):
        return None
    value: Any = getattr(message, row.wire)
    if row.form in ("names", "hosts"):
        return tuple(value)
    if row.name in _FLAG_NUMBERS:
        return bool(value == _FLAG_NUMBERS[row.name])
    if row.form == "flag":
        return bool(value) != row.inverted
    if row.choices:
        return _WORDS[row.name].get(value, str(value)) if value else None
    plain: Value = value
    return plain


_UNSAID = {row.name: get_field(messages.JobRequest(), row) for row in SENT}
_BY_WIRE = {row.wire: row for row in SENT}


def get_fields(message: control_pb2.JobRequest) -> dict[str, Value]:
    """The values of all fields by their names."""
    return _UNSAID | said_fields(message)


def said_fields(message: control_pb2.JobRequest) -> dict[str, Value]:
    """The values of the few fields that are said, by their names."""
    rows = [_BY_WIRE.get(said.name) for said, _ in message.ListFields()]
    return {row.name: get_field(message, row) for row in rows if row is not None}
