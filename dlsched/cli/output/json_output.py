"""`--json` and `--jsonl`: objects with a schema name, times in UTC, null for unknown values."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from dlsched.cli.output.times import utc_text
from dlsched.jobs.fields import FIELDS

if TYPE_CHECKING:
    from dlsched.client.records import Job


# measured numbers, of which thousandths may be all there is: six digits are kept
_AS_THEY_ARE = {str, bool, int}
_MEASURED = {"loss", "metrics", "steps_s", "samples_s", "value"}


def object_of(value: Any, only: tuple[str, ...] | None = None) -> dict[str, Any]:
    """Return a dataclass as a JSON object; `at` and fields that end in `_at` are times."""
    names = only or _names_of(type(value))  # type: ignore[arg-type]  # classes are hashable
    return {name: _plain(name, getattr(value, name)) for name in names}


@cache
def _names_of(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


@cache
def _further() -> tuple[str, ...]:
    """The job fields that a record of a job has among those asked for only."""
    from dlsched.client.records import Job  # noqa: PLC0415

    own = {field.name for field in fields(Job)} - {"asked"}
    return tuple(r.name for r in FIELDS if r.kept != "no" and r.wire and r.name not in own)


def job_object(job: Job) -> dict[str, Any]:
    """A job as JSON has it; every field is there, null where it was not said or may not be seen."""
    found = object_of(job)
    del found["asked"]
    for name in _further():
        found[name] = _plain(name, job.asked.get(name))
    return found


def print_json(schema: str, **parts: Any) -> None:
    """Print one object; lists in it have one entry in each line."""
    import json  # noqa: PLC0415

    head = {"schema": schema, "generated_at": utc_text(round(time.time(), 3))}
    write = sys.stdout.write
    write("{" + json.dumps(head)[1:-1])
    for key, value in parts.items():
        write(f",\n{json.dumps(key)}: ")
        if isinstance(value, str | Mapping) or not isinstance(value, Iterable):
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
    """Print objects, one in each line."""
    for each in objects:
        sys.stdout.write(_compact(each) + "\n")


def _compact(value: Any) -> str:
    import json  # noqa: PLC0415

    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _plain(name: str, value: Any) -> Any:
    if value is None or value.__class__ in _AS_THEY_ARE:
        return value
    if isinstance(value, float):
        if name in _MEASURED:
            return float(f"{value:.6g}") if math.isfinite(value) else None
        is_time = name == "at" or name.endswith("_at")
        return utc_text(value) if is_time else _number(value)
    if is_dataclass(value):
        return object_of(value)
    if isinstance(value, Mapping):
        kept = name if name in _MEASURED else ""
        return {str(key): _plain(kept, each) for key, each in value.items()}
    return [_plain("", each) for each in value]


def _number(value: float) -> float | int | None:
    """Round to thousandths; JSON has neither NaN nor Infinity, so these are null."""
    if not math.isfinite(value):
        return None
    value = round(value, 3)
    return int(value) if value.is_integer() else value
