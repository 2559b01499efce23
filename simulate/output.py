"""The files of a replay: `--jobs-out` (CSV, one row a job) and `--summary-out` (JSON).

A file appears whole or not at all. Numbers: a whole one has no point, another one is written as its
shortest exact text, an unknown one is empty (CSV) or null (JSON). The same results give the same
bytes, also packed.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from dlsched.core.errors import BadInput, DlschedError
from simulate.results import JobOutcomes, ReplayResult

__all__ = [
    "JOB_COLUMNS",
    "appearing_whole",
    "cell",
    "check_writable",
    "job_columns",
    "quoted",
    "summary_text",
    "write_jobs",
]

JOB_COLUMNS = (
    "job_id",
    "user",
    "vc",
    "num_gpus",
    "submit_time",
    "first_start_time",
    "finish_time",
    "jct",
    "queueing_delay",
    "gpu_seconds",
    "starts",
    "preemptions",
    "migrations",
    "resizes",
    "lost_seconds",
    "status",
)
BLOCK_ROWS = 65_536
# Beyond, not every integer has a float.
EXACT_INTEGERS = 2.0**53


@contextmanager
def appearing_whole(path: Path) -> Iterator[Path]:
    """Lend a temporary name beside `path`; the file takes its own name when all went well.

    A link keeps pointing where it did. What is no file but a device or a pipe is written as it is:
    it must never be replaced.
    """
    if _is_special(path):
        yield path
        return
    target, part = _names_of(path)
    try:
        yield part
        os.replace(part, target)
    finally:
        with suppress(OSError):  # whatever is wrong with the name has been said already
            part.unlink()


def check_writable(path: Path) -> None:
    """Make sure, before hours of work, that a file can be written.

    Raises:
        BadInput: its folder is missing or cannot be written, or it is a folder itself.
    """
    if os.path.isdir(path):  # unlike Path's, no error for a name that cannot be
        raise BadInput(f"{path}: a folder; name a file")
    if _is_special(path):
        if not os.access(path, os.W_OK):
            raise BadInput(f"{path}: cannot be written")
        return
    target, part = _names_of(path)
    if not os.path.isdir(target.parent):
        raise BadInput(f"{path}: the folder {target.parent} does not exist")
    try:
        part.open("wb").close()
        part.unlink()
    except OSError as error:
        raise BadInput(f"{path}: cannot be written ({error.strerror or error})") from None


def _is_special(path: Path) -> bool:
    """Is there a device or a pipe, such as /dev/null?"""
    return os.path.exists(path) and not os.path.isfile(path)


def _names_of(path: Path) -> tuple[Path, Path]:
    """The file that a name stands for, and the temporary one beside it."""
    target = Path(os.path.realpath(path))
    return target, target.with_name(f".{target.name}.{os.getpid()}.part")


def write_jobs(
    results: Sequence[ReplayResult], target: str | Path | IO[bytes], *, tagged: Sequence[str] = ()
) -> None:
    """Write the jobs of some runs as one table.

    Args:
        results: the runs, in order.
        target: a path, packed when it ends in .gz, or an open binary file.
        tagged: leading columns that tell the runs apart: keys of the summary ("policy", "load",
            "seed", "trace", …).

    Raises:
        DlschedError: the file cannot be written.
    """
    if not isinstance(target, str | Path):
        _write_table(results, target, tagged)
        return
    path = Path(target)
    try:
        with appearing_whole(path) as part, part.open("wb") as raw:
            if path.name.endswith(".gz"):
                # neither the name nor the time of writing belongs into the bytes
                with gzip.GzipFile("", "wb", compresslevel=6, fileobj=raw, mtime=0) as packed:
                    _write_table(results, packed, tagged)
            else:
                _write_table(results, raw, tagged)
    except OSError as error:
        raise DlschedError(f"{path}: cannot be written ({error.strerror or error})") from None


def job_columns(jobs: JobOutcomes) -> dict[str, NDArray[Any]]:
    """The columns of the contract, then those that the policy added."""
    named: dict[str, NDArray[Any]] = {name: getattr(jobs, name) for name in JOB_COLUMNS}
    return named | {name: jobs.extra[name] for name in jobs.extra if name not in named}


def _write_table(
    results: Sequence[ReplayResult], raw: IO[bytes] | gzip.GzipFile, tagged: Sequence[str]
) -> None:
    tables = [job_columns(result.jobs) for result in results]
    # a column that one policy adds is empty for the others
    names = list(dict.fromkeys(name for table in tables for name in table))
    raw.write((",".join([*tagged, *map(quoted, names)]) + "\n").encode())
    for result, table in zip(results, tables, strict=True):
        tags = "".join(cell(result.summary.get(key)) + "," for key in tagged)
        for first in range(0, len(result.jobs), BLOCK_ROWS):
            rows = slice(first, first + BLOCK_ROWS)
            empty = [""] * len(result.jobs.status[rows])
            cells = [_texts(table[name][rows]) if name in table else empty for name in names]
            lines = map(",".join, zip(*cells, strict=True))
            raw.write("".join(f"{tags}{line}\n" for line in lines).encode())


def cell(value: object) -> str:
    """One value as a table has it."""
    if isinstance(value, float):
        return _number(value)
    return "" if value is None else quoted(str(value))


def _number(value: float) -> str:
    if value != value:  # noqa: PLR0124 - NaN
        return ""
    return str(int(value)) if value.is_integer() and abs(value) < EXACT_INTEGERS else repr(value)


def quoted(text: str) -> str:
    """A text as a table has it: in quotes where it has to be."""
    if any(sign in text for sign in ',"\r\n'):
        return '"' + text.replace('"', '""') + '"'
    return text


def _texts(column: NDArray[Any]) -> list[str]:
    """A column as it is written; whole columns at once, since a million rows have many cells."""
    if column.dtype == np.object_:
        texts: list[str] = column.tolist()
        special = {text: quoted(text) for text in set(texts)}
        if all(text == quoted for text, quoted in special.items()):
            return texts
        return [special[text] for text in texts]
    if column.dtype.kind in "iub":
        return list(map(str, column.astype(np.int64).tolist()))
    with np.errstate(invalid="ignore"):
        whole = (np.trunc(column) == column) & (np.abs(column) < EXACT_INTEGERS)
    if whole.all():
        return list(map(str, column.astype(np.int64).tolist()))
    return [
        str(int(value)) if is_whole else repr(value) if value == value else ""  # noqa: PLR0124 - NaN
        for value, is_whole in zip(column.tolist(), whole.tolist(), strict=True)
    ]


def summary_text(entries: Sequence[Mapping[str, Any]], *, several: bool) -> str:
    """Summaries as JSON: one object for one run, a list for a study of several.

    Raises:
        ValueError: a number that JSON does not know; summaries say None instead.
    """
    told: Any = list(entries) if several else entries[0]
    return json.dumps(told, indent=2, ensure_ascii=False, allow_nan=False, default=_plain) + "\n"


def _plain(value: object) -> object:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{value!r} has no place in a summary")
