"""Messages of the Control service for clients: protobuf's attributes and bytes, without protobuf.

Loading protobuf and its descriptors costs four times what a Python process costs that does nothing,
and most calls send and receive a few hundred bytes. Classes are made when they are first named,
from the generated table of fields. They have what clients use of protobuf's classes, so that the
same code reads both. A client sets only one field of a `oneof`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

from dlsched.rpc.v1.control_fields import ANSWERS, MESSAGES, NUMBERS

if TYPE_CHECKING:  # what the classes are to a type checker
    from dlsched.rpc.v1.control_pb2 import *  # noqa: F403
    from dlsched.rpc.v1.run_pb2 import *  # noqa: F403

LARGE = 1 << 15  # bytes of a message from which protobuf is quicker, its start included
IN_COLUMNS = {"Queue"}  # methods whose large answers have few values, and long ones
_VARINT, _DOUBLE, _SIZED, _FLOAT = 0, 1, 2, 5  # wire types
_WIRES = {
    **dict.fromkeys(("bool", "int32", "int64", "enum"), _VARINT),
    **dict.fromkeys(("double", "sfixed64"), _DOUBLE),
    "fixed32": _FLOAT,
}
_WIDTHS = {_DOUBLE: 8, _FLOAT: 4}
_UNSAID: dict[str, Any] = {"string": "", "bytes": b"", "bool": False, "double": 0.0}
_FORMS = {"double": "d", "sfixed64": "q", "fixed32": "I"}  # of numbers of fixed size, by `struct`


def __getattr__(name: str) -> Any:
    """A message's class, or the number of a word of an enumeration."""
    if name in MESSAGES:
        return message_class(name)
    for numbers in NUMBERS.values():
        if name in numbers:
            return numbers[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@cache
def message_class(name: str) -> type[Message]:
    """The class of a message by its name in proto/dlsched/v1."""
    return _made(name, MESSAGES[name].split("\n")[1:-1])


def decoded(method: str, raw: bytes) -> Any:
    """A message of a method's answer; a large one by protobuf, whose attributes are the same."""
    name = ANSWERS[method]
    if len(raw) < LARGE or method in IN_COLUMNS:
        return message_class(name).FromString(raw)
    from dlsched.rpc.v1 import control_pb2  # noqa: PLC0415  # costs more than a small answer

    return getattr(control_pb2, name).FromString(raw)


def as_protobuf(message: Any) -> Any:
    """The same message of protobuf's class, which gRPC's stubs take."""
    if not isinstance(message, Message):
        return message
    from dlsched.rpc.v1 import control_pb2  # noqa: PLC0415

    return getattr(control_pb2, type(message).__name__).FromString(message.SerializeToString())


class Message:
    """A message; what is not set has its default value, and lists and messages are made when read.

    `__dict__` holds what is set, by name; defaults of single values are attributes of the class.
    """

    __slots__ = ("__dict__", "_is_set")
    fields_by_name: ClassVar[dict[str, Field]] = {}
    fields_by_number: ClassVar[dict[int, Field]] = {}

    def __init__(self, **given: Any) -> None:
        """Set some fields; None leaves one unset."""
        self._is_set = True  # also without a field; a message that was only read is not
        for name, value in given.items():
            if value is None:
                continue
            field = self.fields_by_name[name]
            if field.is_map:
                getattr(self, name).update(value)
            elif field.is_repeated:
                getattr(self, name).extend(value)
            else:
                self.__dict__[name] = value

    def __getattr__(self, name: str) -> Any:
        field = self.fields_by_name.get(name)
        if field is None:
            raise AttributeError(f"{type(self).__name__} has no field {name!r}")
        made = self.__dict__[name] = field.empty()
        return made

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.ListFields() == other.ListFields()

    __hash__ = None  # type: ignore[assignment]  # as protobuf's, which change

    def __repr__(self) -> str:
        said = ", ".join(f"{field.name}={value!r}" for field, value in self.ListFields())
        return f"{type(self).__name__}({said})"

    def _has_any(self) -> bool:
        """Was any field set, also to its default value?"""
        fields = self.fields_by_name
        return any(
            fields[name].is_single or fields[name].is_said(value)
            for name, value in self.__dict__.items()
        )

    # -- as protobuf names them -------------------------------------------------------------------

    def HasField(self, name: str) -> bool:  # noqa: N802
        """Whether a field is set; only of those that tell it from the default."""
        value = self.__dict__.get(name)
        return value is not None and self.fields_by_name[name].is_said(value)

    def ListFields(self) -> list[tuple[Field, Any]]:  # noqa: N802
        """The fields that are set, with their values, by number."""
        fields = self.fields_by_name
        said = [
            (field, value)
            for name, value in self.__dict__.items()
            if (field := fields[name]).is_said(value)
        ]
        said.sort(key=lambda pair: pair[0].number)
        return said

    def CopyFrom(self, other: Any) -> None:  # noqa: N802
        """Become a copy."""
        self._is_set = True
        self.__dict__.clear()
        for field, value in other.ListFields():
            self.__init__(**{field.name: _copied(value)})  # type: ignore[misc]

    def SerializeToString(self) -> bytes:  # noqa: N802
        """The message on the wire, its fields by number.

        Raises:
            ValueError: a number is out of its field's bounds, or a text cannot be sent.
        """
        out = bytearray()
        for field, value in self.ListFields():
            field.write(out, value)
        return bytes(out)

    @classmethod
    def FromString(cls, raw: bytes) -> Any:  # noqa: N802
        """The message that bytes hold; fields that this version does not know are left out.

        Raises:
            ValueError: they hold none.
        """
        made = cls()
        made.MergeFromString(raw)
        return made

    def MergeFromString(self, raw: bytes) -> None:  # noqa: N802
        """Add what bytes hold, as `FromString` reads them."""
        self._is_set = True
        at, end, fields = 0, len(raw), self.fields_by_number
        while at < end:
            tag, at = _read_varint(raw, at)
            wire = tag & 7
            value: Any
            if wire == _VARINT:
                value, at = _read_varint(raw, at)
            else:
                if wire == _SIZED:
                    size, at = _read_varint(raw, at)
                elif wire in _WIDTHS:
                    size = _WIDTHS[wire]
                else:
                    raise ValueError(f"{type(self).__name__}: a value of the unknown kind {wire}")
                value = raw[at : at + size]
                at += size
            if at > end:
                raise ValueError(f"{type(self).__name__}: cut off")
            field = fields.get(tag >> 3)
            if field is not None:
                field.read(self, wire, value)


class Field:
    """One field of a message, and how its value travels."""

    __slots__ = (
        *("is_map", "is_optional", "is_repeated", "kind", "message", "name", "number", "numbers"),
        "wire",
    )

    def __init__(self, line: str) -> None:
        """Read a line of the table: number, name, label, type."""
        number, self.name, *words = line.split()
        self.number = int(number)
        self.is_map, self.is_repeated, self.is_optional = (
            words[0] == label for label in ("map", "repeated", "optional")
        )
        self.kind = "enum" if words[-2:-1] == ["enum"] else words[-1]
        self.numbers = NUMBERS.get(words[-1], {})  # of the words of an enumeration
        self.message = ""  # the name of the class of its value, or of each of its values
        if self.is_map:
            self.kind = self.message = f"{words[1]} {words[2]}"
        elif self.kind in MESSAGES:
            self.message = self.kind
        self.wire = _WIRES.get(self.kind, _SIZED)

    @property
    def is_single(self) -> bool:
        """Is its value one text, one number or the like?"""
        return not self.message and not self.is_repeated

    @property
    def has_presence(self) -> bool:
        """Is it told whether the field was set, also to its default value?"""
        return self.is_optional or bool(self.message and not self.is_map and not self.is_repeated)

    def is_said(self, value: Any) -> bool:
        """Whether a value goes on the wire."""
        if isinstance(value, Message):
            return value._is_set or value._has_any()
        return self.has_presence or bool(value)

    def empty(self) -> Any:
        """The value of a field that was not set, in which more can be set."""
        if self.is_map:
            return {}
        if not self.is_repeated:
            made = message_class(self.message)()
            made._is_set = False
            return made
        return Messages(message_class(self.message)) if self.message else []

    def write(self, out: bytearray, value: Any) -> None:
        """Append what is said of the field."""
        if self.is_map:
            entry = _entry_class(self.kind)
            for key in sorted(value):
                body = bytearray()
                for field, each in zip(
                    entry.fields_by_name.values(), (key, value[key]), strict=True
                ):
                    field._append(body, each)
                self._append_sized(out, body)
        elif not self.is_repeated:
            self._append(out, value)
        elif self.wire != _SIZED:
            self._append_sized(out, b"".join(_pack(self.kind, each) for each in value))
        else:
            for each in value:
                self._append(out, each)

    def read(self, message: Message, wire: int, value: Any) -> None:
        """Enter a value of the wire into a message; a number, or the bytes of any other value."""
        if self.is_map:
            entry = _entry_class(self.kind).FromString(value)
            getattr(message, self.name)[entry.key] = entry.value
        elif self.message:
            found = getattr(message, self.name)
            (found.add() if self.is_repeated else found).MergeFromString(value)
        elif not self.is_repeated:
            if wire == self.wire:
                message.__dict__[self.name] = _unpack(self.kind, value)
        elif wire == self.wire:
            getattr(message, self.name).append(_unpack(self.kind, value))
        elif wire == _SIZED:
            getattr(message, self.name).extend(self._packed(value))

    def _packed(self, raw: bytes) -> Iterable[Any]:
        """The numbers that lie one behind the other."""
        if self.wire != _VARINT:
            count, rest = divmod(len(raw), _WIDTHS[self.wire])
            if rest:
                raise ValueError("cut off")
            return struct.unpack(f"<{count}{_FORMS[self.kind]}", raw)
        found, at = [], 0
        while at < len(raw):
            value, at = _read_varint(raw, at)
            found.append(_unpack(self.kind, value))
        return found

    def _append(self, out: bytearray, value: Any) -> None:
        packed = value.SerializeToString() if self.message else _pack(self.kind, value)
        if self.wire == _SIZED:
            self._append_sized(out, packed)
        else:
            out += _varint(self.number << 3 | self.wire)
            out += packed

    def _append_sized(self, out: bytearray, body: bytes | bytearray) -> None:
        out += _varint(self.number << 3 | _SIZED)
        out += _varint(len(body))
        out += body


class Messages(list[Any]):
    """The messages of a repeated field."""

    __slots__ = ("_kind",)

    def __init__(self, kind: type[Message]) -> None:
        """Begin empty."""
        super().__init__()
        self._kind = kind

    def add(self, **given: Any) -> Any:
        """Append a new message, and return it."""
        made = self._kind(**given)
        self.append(made)
        return made


@cache
def _entry_class(kinds: str) -> type[Message]:
    """The class of an entry of a mapping, by the kinds of its key and its value."""
    key, value = kinds.split()
    return _made("entry", [f"1 key {key}", f"2 value {value}"])


def _made(name: str, lines: list[str]) -> type[Message]:
    fields = [Field(line) for line in lines]
    unsaid = {field.name: _UNSAID.get(field.kind, 0) for field in fields if field.is_single}
    parts = {
        "fields_by_name": {field.name: field for field in fields},
        "fields_by_number": {field.number: field for field in fields},
    }
    return type(name, (Message,), {"__slots__": (), **unsaid, **parts})


def _copied(value: Any) -> Any:
    if isinstance(value, Message):
        made = type(value)()
        made.CopyFrom(value)
        return made
    return [_copied(each) for each in value] if isinstance(value, list) else value


def _pack(kind: str, value: Any) -> bytes:
    """A value that is no message, without its tag and its length."""
    match kind:
        case "string":
            return value.encode()  # type: ignore[no-any-return]
        case "bytes":
            return bytes(value)
        case "bool":
            return b"\1" if value else b"\0"
        case "double" | "fixed32" | "sfixed64":
            try:
                return struct.pack(f"<{_FORMS[kind]}", value)
            except struct.error:
                raise ValueError(f"{value} is out of the bounds of {kind}") from None
    bits = 63 if kind == "int64" else 31
    if not -1 << bits <= value < 1 << bits:
        raise ValueError(f"{value} is out of the bounds of {kind}")
    return _varint(value % (1 << 64))


def _unpack(kind: str, value: Any) -> Any:
    match kind:
        case "string":
            return value.decode()
        case "bytes":
            return value
        case "bool":
            return bool(value)
        case "double" | "fixed32" | "sfixed64":
            return struct.unpack(f"<{_FORMS[kind]}", value)[0]
    bits = 64 if kind == "int64" else 32
    return (value + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)


def _varint(value: int) -> bytes:
    if value < 128:
        return bytes((value,))
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _read_varint(raw: bytes, at: int) -> tuple[int, int]:
    """The number at a position, and the position behind it."""
    value, begin = 0, at
    for byte in raw[at : at + 10]:
        value |= (byte & 127) << 7 * (at - begin)
        at += 1
        if byte < 128:
            return value & (1 << 64) - 1, at
    raise ValueError(f"at byte {begin}: a number that does not end")
