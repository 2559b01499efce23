"""`--json` and `--jsonl`: objects with a schema name, times in UTC, null for unknown values."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from dlsched.cli.output.times import utc_text

if TYPE_CHECKING:
    from dlsched.client.job_records import Job
    from dlsched.rpc.columns import Column


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
    from dlsched.client.job_records import Job  # noqa: PLC0415
    from dlsched.jobs.fields import FIELDS  # noqa: PLC0415

    own = {field.name for field in fields(Job)} - {"asked"}
    return tuple(r.name for r in FIELDS if r.kept != "no" and r.wire and r.name not in own)


def job_object(job: Job) -> dict[str, Any]:
    """A job as JSON has it; every field is there, null where it was not said or may not be seen."""
    found = object_of(job)
    del found["asked"]
    for name in _further():
        found[name] = _plain(name, job.asked.get(name))
    return found


class ByColumn:
    """Objects of which there are many, by column: the text of equal values is made once."""

    def __init__(self, count: int, columns: Mapping[str, Column]) -> None:
        """Take the columns of `count` objects by the names that their values have."""
        self._count = count
        self._columns = columns

    def texts(self) -> Iterator[str]:
        """Each of them as JSON."""
        from dlsched.rpc.columns import texts  # noqa: PLC0415  # only long lists need it

        pieces: list[str | Column] = []
        for name, column in self._columns.items():
            *values, unsaid = _texts(name, (*column.values, column.unsaid))
            pieces += ["," if pieces else "{", f"{json.dumps(name)}:"]
            pieces.append(column._replace(values=values, unsaid=unsaid))
        return texts([*pieces, "}"], self._count)


def _texts(name: str, values: Sequence[Any]) -> list[str]:
    """The JSON of each of some values of the same name."""
    plain = [_plain(name, value) for value in values]
    if any(isinstance(value, list | dict) for value in plain):
        return list(map(_compact, plain))
    lines = json.dumps(plain, ensure_ascii=False, separators=("\n", ":"), allow_nan=False)
    return lines[1:-1].split("\n")  # a text in JSON has no line break


def print_json(schema: str, **parts: Any) -> None:
    """Print one object; lists in it have one entry in each line."""
    head = {"schema": schema, "generated_at": utc_text(round(time.time(), 3))}
    write = sys.stdout.write
    write("{" + json.dumps(head)[1:-1])
    for key, value in parts.items():
        write(f",\n{json.dumps(key)}: ")
        if isinstance(value, str | Mapping) or not isinstance(value, Iterable | ByColumn):
            write(_compact(value))
            continue
        write("[")
        comma = "\n"
        for text in _texts_of(value):
            write(comma + text)
            comma = ",\n"
        write("]" if comma == "\n" else "\n]")
    write("}\n")


def print_json_lines(objects: Iterable[Mapping[str, Any]] | ByColumn) -> None:
    """Print objects, one in each line."""
    for text in _texts_of(objects):
        sys.stdout.write(text + "\n")


def _texts_of(objects: Iterable[Any] | ByColumn) -> Iterator[str]:
    return objects.texts() if isinstance(objects, ByColumn) else map(_compact, objects)


def _compact(value: Any) -> str:
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
