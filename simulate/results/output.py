"""The files of a replay: jobs and trajectories of elastic jobs (CSV), and the summary (JSON).

A file appears whole or not at all. Numbers: a whole one has no point, another one is written as its
shortest exact text, an unknown one is empty (CSV) or null (JSON). The same results give the same
bytes, also packed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from dlsched.core.errors import DlschedError
from simulate.csv_text import cell, column_texts, quoted, whole_file
from simulate.results.columns import Columns
from simulate.results.tables import JobOutcomes, ReplayResult

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
TRAJECTORY_COLUMNS = ("job_id", "time", "gpus", "batch_size", "goodput")
BLOCK_ROWS = 65_536


def write_jobs(
    results: Sequence[ReplayResult], target: str | Path | IO[bytes], *, tagged: Sequence[str] = ()
) -> None:
    """Write the jobs of some runs as one table.

    A path that ends in .gz is packed. `tagged` are leading columns that tell the runs apart: keys
    of the summary ("policy", "load", "seed", "trace", …).

    Raises:
        DlschedError: the file cannot be written.
    """
    if not isinstance(target, str | Path):
        _write_table(results, target, tagged)
        return
    with _writing(Path(target)) as raw:
        _write_table(results, raw, tagged)


@contextmanager
def _writing(path: Path) -> Iterator[IO[bytes]]:
    try:
        with whole_file(path) as raw:
            yield raw
    except OSError as error:
        raise DlschedError(f"{path}: cannot be written ({error.strerror or error})") from None


def job_columns(jobs: JobOutcomes) -> dict[str, NDArray[Any]]:
    """The columns of the contract, then those that the policy added."""
    named: dict[str, NDArray[Any]] = {name: getattr(jobs, name) for name in JOB_COLUMNS}
    return named | {name: jobs.extra[name] for name in jobs.extra if name not in named}


def _write_table(results: Sequence[ReplayResult], raw: IO[bytes], tagged: Sequence[str]) -> None:
    tables = [job_columns(result.jobs) for result in results]
    # a column that one policy adds is empty for the others
    names = list(dict.fromkeys(name for table in tables for name in table))
    raw.write((",".join([*tagged, *map(quoted, names)]) + "\n").encode())
    for result, table in zip(results, tables, strict=True):
        tags = "".join(cell(result.summary.get(key)) + "," for key in tagged)
        for first in range(0, len(result.jobs), BLOCK_ROWS):
            rows = slice(first, first + BLOCK_ROWS)
            empty = [""] * len(result.jobs.status[rows])
            cells = [column_texts(table[name][rows]) if name in table else empty for name in names]
            lines = map(",".join, zip(*cells, strict=True))
            raw.write("".join(f"{tags}{line}\n" for line in lines).encode())


def write_trajectories(
    results: Sequence[ReplayResult], path: Path, *, tagged: Sequence[str] = ()
) -> None:
    """Write the trajectories of all elastic jobs of some runs, in order of time.

    A path that ends in .gz is packed; for `tagged` see `write_jobs`.

    Raises:
        DlschedError: the file cannot be written.
    """
    with _writing(path) as raw:
        raw.write("".join(_trajectory_lines(results, tagged)).encode())


def _trajectory_lines(results: Sequence[ReplayResult], tagged: Sequence[str]) -> Iterator[str]:
    yield ",".join([*tagged, *TRAJECTORY_COLUMNS]) + "\n"
    for result in results:
        trajectories = result.trajectories
        if trajectories is None:
            continue
        tags = "".join(cell(result.summary.get(key)) + "," for key in tagged)
        names = [quoted(str(name)) for name in result.jobs.job_id.tolist()]
        for job, time, gpus, batch_size, goodput in zip(
            trajectories.job.tolist(),
            trajectories.time.tolist(),
            trajectories.gpus.tolist(),
            trajectories.batch_size.tolist(),
            trajectories.goodput.tolist(),
            strict=True,
        ):
            yield f"{tags}{names[job]},{cell(time)},{gpus},{cell(batch_size)},{cell(goodput)}\n"


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


# -- runs as rows ----------------------------------------------------------------------------------

RUN_LABELS = ("trace", "label", "load", "seed")


def run_columns(results: Sequence[ReplayResult]) -> Columns:
    """A row for each run: what tells it from others, and the figures of its summary.

    Figures in objects have dots (`deadlines.met_share`); lists and options are left out. A figure
    that one run does not know is unknown there.
    """
    rows = [
        {**{name: getattr(result, name) for name in RUN_LABELS}, **_flat(result.summary)}
        for result in results
    ]
    names = dict.fromkeys(name for row in rows for name in row)
    return Columns({name: [row.get(name) for row in rows] for name in names})


def _flat(summary: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in summary.items():
        if isinstance(value, Mapping):
            if key != "options":
                found |= _flat(value, f"{prefix}{key}.")
        elif isinstance(value, np.generic):
            found[prefix + key] = value.item()
        elif value is None or isinstance(value, str | int | float):
            found[prefix + key] = value
    return found
