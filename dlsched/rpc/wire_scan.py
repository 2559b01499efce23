"""A look at the bytes of a protobuf message before they are decoded.

A decoder makes an object of every element: two bytes of a message can cost it 600 bytes of memory.
This scan makes none. It follows the lengths of the wire format, counts the elements of each field
over the whole message, and stops at the first count that is beyond its bound.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from dlsched.core.errors import BadInput

VARINT_BYTES = 10  # the longest
WIDTHS = {1: 8, 5: 4}  # bytes of a value, by its wire type
CONTINUED = bytes(range(128, 256))  # the bytes of a number but its last
Bound = Callable[[str], int]  # the most elements of a repeated field, by `Message.field`


class _Field:
    """What the scan has to know of one field."""

    __slots__ = ("is_text", "message", "name", "repeated", "width")

    def __init__(self, descriptor: FieldDescriptor) -> None:
        kind, d = descriptor.type, descriptor
        self.name = f"{d.containing_type.name}.{d.name}"
        self.repeated = bool(d.is_repeated)
        self.message = d.message_type if kind == d.TYPE_MESSAGE else None
        self.is_text = kind == d.TYPE_STRING
        # bytes of a number; 1: it has a varying length; 0: it is no number, and never packed
        self.width = 1
        if kind in (d.TYPE_DOUBLE, d.TYPE_FIXED64, d.TYPE_SFIXED64):
            self.width = 8
        elif kind in (d.TYPE_FLOAT, d.TYPE_FIXED32, d.TYPE_SFIXED32):
            self.width = 4
        elif kind in (d.TYPE_MESSAGE, d.TYPE_GROUP, d.TYPE_STRING, d.TYPE_BYTES):
            self.width = 0


@cache
def _fields(descriptor: Descriptor) -> dict[int, _Field]:
    """The fields of a message by number."""
    return {number: _Field(each) for number, each in descriptor.fields_by_number.items()}


def scan(raw: bytes, descriptor: Descriptor, most: Bound, most_fields: int) -> None:
    """Check that a message is well formed and that no field has more elements than it may.

    Args:
        raw: the message.
        descriptor: of its type.
        most: the bound of a repeated field, over the whole message.
        most_fields: values of any field, over the whole message.

    Raises:
        BadInput: one line with the field and the bound, or with what is malformed and where.
    """
    _Scan(raw, descriptor.name, most, most_fields).message(descriptor, 0, len(raw))


class _Scan:
    """One scan; its counts are over the whole message."""

    def __init__(self, raw: bytes, name: str, most: Bound, most_fields: int) -> None:
        self._raw = raw
        self._name = name
        self._most = most
        self._left: dict[str, int] = {}
        self._fields_left = most_fields
        self._most_fields = most_fields

    def message(self, descriptor: Descriptor, at: int, end: int) -> None:
        """Scan the message that lies between two positions."""
        raw, known = self._raw, _fields(descriptor)
        while at < end:
            begin = at
            self._fields_left -= 1
            if self._fields_left < 0:
                raise BadInput(f"{self._name}: more than {self._most_fields} values")
            tag = raw[at]
            at += 1
            if tag > 127:
                tag, at = self._varint(begin, end)
            number, wire = tag >> 3, tag & 7
            if number == 0 or tag >> 32:
                raise self._malformed(begin, f"no field has the number {number}")
            field = known.get(number)
            if wire == 2:
                at = self._sized(field, begin, at, end)
                continue
            if wire == 0:
                at = at + 1 if at < end and raw[at] < 128 else self._varint(at, end)[1]
            elif wire in WIDTHS:
                at += WIDTHS[wire]
            else:
                raise self._malformed(begin, f"a value of the unknown kind {wire}")
            if at > end:
                raise self._malformed(begin, "a value that is cut off")
            if field is not None and field.repeated:
                self._count(field, 1)

    def _sized(self, field: _Field | None, begin: int, at: int, end: int) -> int:
        """Scan a value with a length, whose tag lies at `begin`; returns the position behind it."""
        if at < end and self._raw[at] < 128:  # nearly every length
            size, at = self._raw[at], at + 1
        else:
            size, at = self._varint(at, end)
        behind = at + size
        if behind > end:
            raise self._malformed(begin, f"a length of {size} bytes, and {end - at} follow")
        if field is None:
            return behind
        if field.repeated:
            self._count(field, self._packed(field, at, behind) if field.width else 1)
        if field.message is not None:
            self.message(field.message, at, behind)
        elif field.is_text and not self._raw[at:behind].isascii():
            try:
                str(memoryview(self._raw)[at:behind], "utf-8")
            except UnicodeDecodeError as error:
                raise self._malformed(at + error.start, f"{field.name} is not UTF-8") from None
        return behind

    def _packed(self, field: _Field, at: int, end: int) -> int:
        """How many numbers lie between two positions."""
        if field.width > 1:
            return (end - at) // field.width
        return len(self._raw[at:end].translate(None, CONTINUED))

    def _count(self, field: _Field, more: int) -> None:
        left = self._left.get(field.name)
        left = (self._most(field.name) if left is None else left) - more
        if left < 0:
            raise BadInput(f"{field.name}: more than {self._most(field.name)} in one call")
        self._left[field.name] = left

    def _varint(self, at: int, end: int) -> tuple[int, int]:
        """The number at a position, and the position behind it."""
        value, begin = 0, at
        for place in range(VARINT_BYTES):
            if at >= end:
                break
            byte = self._raw[at]
            at += 1
            value |= (byte & 127) << (7 * place)
            if byte < 128:
                return value, at
        raise self._malformed(begin, "a number that does not end")

    def _malformed(self, at: int, what: str) -> BadInput:
        return BadInput(f"not a {self._name}: at byte {at}: {what}")
