"""Converts between the protocol's frozen values and the generated messages, field by field.

The fields of a value and of its message have the same names; only sets that may be absent are
wrapped, and only enumerations are renamed. Values that do not fit are refused here, so no later
code validates them again.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Hashable
from enum import Enum
from functools import cache, partial
from operator import attrgetter
from typing import Any, TypeVar

from google.protobuf.message import Message

from dlsched.core.errors import BadInput
from dlsched.protocol import messages as plain
from dlsched.rpc.v1 import node_pb2, run_pb2

T = TypeVar("T")

WIRE: dict[type, type[Message]] = {
    plain.Term: run_pb2.Term,
    plain.RunKey: run_pb2.RunKey,
    plain.Share: run_pb2.Share,
    plain.Limits: run_pb2.Limits,
    plain.DesiredRun: run_pb2.DesiredRun,
    plain.HeldRun: run_pb2.HeldRun,
    plain.StepRecord: run_pb2.StepRecord,
    plain.ExitRecord: run_pb2.ExitRecord,
    plain.Health: node_pb2.Health,
    plain.Inventory: node_pb2.Inventory,
    plain.Sync: node_pb2.SyncRequest,
    plain.Lease: node_pb2.Lease,
    plain.Reply: node_pb2.Reply,
    plain.Nudge: node_pb2.NudgeRequest,
    plain.WitnessQuery: node_pb2.WitnessQuery,
    plain.WitnessAnswer: node_pb2.WitnessAnswer,
}
SETS: dict[tuple[type, str], type[Message]] = {
    (plain.Sync, "held"): node_pb2.HeldSet,
    (plain.Reply, "desired"): node_pb2.DesiredSet,
}
ENUMS: dict[type[Enum], Any] = {
    kind: getattr(run_pb2, kind.__name__)
    for kind in (
        plain.LaunchMode,
        plain.Fence,
        plain.SuspendLevel,
        plain.Want,
        plain.Phase,
        plain.StopReason,
        plain.ExitReason,
        plain.Told,
        plain.StartFault,
    )
}


def wire_name(value: Enum) -> str:
    """The name of an enumeration's value in the proto files: `STOP_REASON_TIME_LIMIT`."""
    kind = type(value).__name__
    prefix = "".join(f"_{c}" if c.isupper() else c.upper() for c in kind).lstrip("_")
    return f"{prefix}_{value.name}"


def to_wire(value: object) -> Message:
    """The generated message of a protocol value.

    A number or text that its field cannot hold, such as one that a job has made up, becomes the
    nearest one that it can: no run may make a message of its node impossible.
    """
    kind = type(value)
    message = WIRE[kind]()
    for name, default in _defaults(typing.cast(Hashable, kind)):
        said = getattr(value, name)
        if said is not default and said is not None:
            _set(message, name, said, kind)
    return message


@cache
def _defaults(kind: Hashable) -> tuple[tuple[str, object], ...]:
    """The fields of a value, each with the one object, if any, that leaves its field as it is."""
    owner = typing.cast(type, kind)
    wire, found = WIRE[owner].DESCRIPTOR.fields_by_name, []
    for field in dataclasses.fields(owner):
        there = wire[field.name]
        unsaid = None if there.has_presence else () if there.is_repeated else there.default_value
        found.append((field.name, unsaid))
    return tuple(found)


def _set(message: Message, name: str, value: Any, owner: type) -> None:
    if (owner, name) in SETS:
        target = getattr(message, name)
        target.SetInParent()
        target.runs.extend(to_wire(item) for item in value)
    elif isinstance(value, tuple | frozenset):
        items = sorted(value) if isinstance(value, frozenset) else value
        getattr(message, name).extend(
            to_wire(item) if type(item) in WIRE else item for item in items
        )
    elif isinstance(value, Enum):
        setattr(message, name, ENUMS[type(value)].Value(wire_name(value)))
    elif type(value) in WIRE:
        getattr(message, name).CopyFrom(to_wire(value))
    else:
        try:
            setattr(message, name, value)
        except ValueError:  # out of range, or not UTF-8
            setattr(message, name, _nearest(message.DESCRIPTOR.fields_by_name[name], value))


def _nearest(field: Any, value: Any) -> Any:
    """The value that a field can hold in place of one that it cannot."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    unsigned = field.type in (field.TYPE_UINT32, field.TYPE_UINT64)
    bits = 32 if field.cpp_type in (field.CPPTYPE_INT32, field.CPPTYPE_UINT32) else 64
    least, most = (0, 2**bits - 1) if unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return min(max(value, least), most)


def from_wire(kind: type[T], message: Message) -> T:
    """The protocol value of a generated message.

    Raises:
        BadInput: the value of an enumeration is missing, or unknown to this version.
    """
    readers = _readers(typing.cast(Hashable, kind))
    return kind(**{name: read(message) for name, read in readers})


Reader = Callable[[Any], Any]  # of one field of a message


@cache
def _readers(kind: Hashable) -> tuple[tuple[str, Reader], ...]:
    """What reads each field of a value from its message: how is looked for once, not each time."""
    owner = typing.cast(type, kind)
    hints = typing.get_type_hints(owner)
    names = [field.name for field in dataclasses.fields(owner)]
    return tuple((name, _reader(owner, name, hints[name])) for name in names)


def _bare(hint: object) -> tuple[object, bool]:
    """A type without its NewType and without None, and whether it contained None."""
    absent = False
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        kinds = [kind for kind in typing.get_args(hint) if kind is not type(None)]
        absent, hint = True, kinds[0]
    while isinstance(hint, typing.NewType):
        hint = hint.__supertype__
    return hint, absent


def _reader(owner: type, name: str, hint: object) -> Reader:
    kind, absent = _bare(hint)
    get: Reader = attrgetter(name)
    if typing.get_origin(kind) in (tuple, frozenset):
        if (owner, name) in SETS:
            return _if_present(name, _several(kind, attrgetter(f"{name}.runs")))
        return _several(kind, get)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _enumeration(kind, get, absent, f"{owner.__name__}.{name}")
    read = partial(_one, kind, get) if kind in WIRE else get
    return _if_present(name, read) if absent else read


def _one(kind: type, get: Reader, message: object) -> object:
    return from_wire(kind, get(message))


def _several(kind: Any, get: Reader) -> Reader:
    """Reads a tuple or frozenset."""
    origin = typing.get_origin(kind)
    item, _ = _bare(typing.get_args(kind)[0])
    if item in WIRE:
        return lambda message: origin(from_wire(item, each) for each in get(message))
    return lambda message: origin(get(message))


def _if_present(name: str, read: Reader) -> Reader:
    return lambda message: read(message) if message.HasField(name) else None


def _enumeration(kind: type[Enum], get: Reader, absent: bool, where: str) -> Reader:
    known: dict[int, Enum | None] = {ENUMS[kind].Value(wire_name(value)): value for value in kind}
    if absent:
        known[0] = None

    def read(message: Any) -> Enum | None:
        number = get(message)
        if number not in known:
            raise BadInput(f"{where} is {number}, which this version does not know")
        return known[number]

    return read
