"""`--json` and `--jsonl`: objects with a schema name, times in UTC, null for what is not known."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from dlsched.cli.moments import utc_text

__all__ = ["object_of", "print_json", "print_json_lines"]


def object_of(value: Any, only: tuple[str, ...] | None = None) -> dict[str, Any]:
    """A dataclass as JSON has it; fields that end in `_at` and `at` are times."""
    names = only or tuple(field.name for field in fields(value))
    return {name: _plain(name, getattr(value, name)) for name in names}


def print_json(schema: str, **parts: Any) -> None:
    """One object; lists in it have one entry a line."""
    import json  # noqa: PLC0415

    head = {"schema": schema, "generated_at": utc_text(round(time.time(), 3))}
    write = sys.stdout.write
    write("{" + json.dumps(head)[1:-1])
    for key, value in parts.items():
        write(f",\n{json.dumps(key)}: ")
        if isinstance(value, Mapping) or not isinstance(value, Iterable):
            write(_compact(value))
            continue
        write("[")
        comma = "\n"
        for each in value:
            write(comma + _compact(each))
            comma = ",\n"
        write("]" if comma == "\n" else "\n]")
    write("}\n")


def print_json_lines(objects: Iterable[Mapping[str, Any]]) -> None:
    """One object a line."""
    for each in objects:
        sys.stdout.write(_compact(each) + "\n")


def _compact(value: Any) -> str:
    import json  # noqa: PLC0415

    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _plain(name: str, value: Any) -> Any:
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        is_time = name == "at" or name.endswith("_at")
        return utc_text(value) if is_time else _number(value)
    if is_dataclass(value):
        return object_of(value)
    if isinstance(value, Mapping):
        return {str(key): _plain("", each) for key, each in value.items()}
    return [_plain("", each) for each in value]


def _number(value: float) -> float | int | None:
    """In thousandths, whole ones without a point; JSON knows neither NaN nor Infinity."""
    if not math.isfinite(value):
        return None
    value = round(value, 3)
    return int(value) if value.is_integer() else value
