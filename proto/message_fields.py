"""The table of message fields that clients read messages by, from the generated descriptors.

python proto/message_fields.py --write     # brings it up to date; a test holds it
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dlsched.rpc.v1 import control_pb2

TABLE = Path(__file__).parent.parent / "dlsched" / "rpc" / "v1" / "control_fields.py"
HEAD = '''"""Generated from proto/dlsched/v1 by proto/message_fields.py: never edited by hand."""

# a field a line: its number, its name, its label if it has one, its type
'''


def table() -> str:
    """The text of the table: answers of methods, fields of messages, numbers of enumerations."""
    service = control_pb2.DESCRIPTOR.services_by_name["Control"]
    methods = [method for method in service.methods if not method.client_streaming]
    messages: dict[str, Any] = {}
    for method in methods:
        _gather(method.input_type, messages)
        _gather(method.output_type, messages)
    enumerations = {
        field.enum_type.name: field.enum_type
        for message in messages.values()
        for field in message.fields
        if field.enum_type is not None
    }
    return "".join(
        [
            HEAD,
            "MESSAGES = {\n",
            *(_entry(name, _lines(messages[name])) for name in sorted(messages)),
            "}\nANSWERS = {\n",
            *(f'    "{method.name}": "{method.output_type.name}",\n' for method in methods),
            "}\nNUMBERS = {\n",
            *(_enumeration(enumerations[name]) for name in sorted(enumerations)),
            "}\n",
        ]
    )


def _gather(message: Any, found: dict[str, Any]) -> None:
    if message.name not in found:
        found[message.name] = message
        for field in message.fields:
            if field.message_type is not None and not field.message_type.GetOptions().map_entry:
                _gather(field.message_type, found)


def _entry(name: str, lines: list[str]) -> str:
    inside = "".join(f"{line}\n" for line in lines)
    return f'    "{name}": """\n{inside}""",\n'


def _enumeration(kind: Any) -> str:
    numbers = "".join(f'        "{value.name}": {value.number},\n' for value in kind.values)
    return f'    "{kind.name}": {{\n{numbers}    }},\n'


def _lines(message: Any) -> list[str]:
    return [
        " ".join((str(number), message.fields_by_number[number].name, *_type(field)))
        for number, field in sorted(message.fields_by_number.items())
    ]


def _type(field: Any) -> Iterator[str]:
    entry = field.message_type
    if entry is not None and entry.GetOptions().map_entry:
        yield "map"
        for part in ("key", "value"):
            yield from _type(entry.fields_by_name[part])
        return
    if field.is_repeated:
        yield "repeated"
    elif field.has_presence and entry is None:
        yield "optional"
    if entry is not None:
        yield entry.name
        return
    names = (
        *("STRING", "BYTES", "BOOL", "DOUBLE", "INT32", "INT64", "ENUM"),
        "FIXED32",
        "SFIXED64",
    )
    yield {getattr(field, f"TYPE_{name}"): name.lower() for name in names}[field.type]
    if field.enum_type is not None:
        yield field.enum_type.name


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit(__doc__)
    TABLE.write_text(table())
