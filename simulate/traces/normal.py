"""From a format's columns to a `Trace`: the rules that hold for every format.

Rows are left out in a fixed order of reasons and counted; the rest is sorted by submit time, ties
in file order. Logs of real clusters are shifted so that their first kept submit is second 0;
research traces already count from 0 and keep their times.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlsched.core.errors import BadInput
from simulate.traces.ledger import Ledger, Lines
from simulate.traces.options import LOG_STATUSES, ReadOptions
from simulate.traces.table import Table
from simulate.traces.textfile import stem_of
from simulate.traces.trace import FloatColumn, TextColumn, Trace

LARGEST = 1e15  # of any quantity: above, seconds are too coarse to add up

# Columns in the time base of `submit_time`: they move with it.
TIME_COLUMNS = ("start_time", "end_time", "round_delivered")


@dataclass(slots=True, kw_only=True)
class Rows:
    """One row a job, in file order, before anything is left out. Times in seconds."""

    job_id: TextColumn
    submit_time: FloatColumn
    num_gpus: FloatColumn
    duration: FloatColumn
    user: TextColumn
    vc: TextColumn
    status: TextColumn
    lines: Lines
    usable: NDArray[np.bool_]
    columns: dict[str, NDArray[Any]] = field(default_factory=dict)
    zone: str = ""  # as in `Trace`
    notes: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        table: Table,
        *,
        job_id: TextColumn,
        submit_time: FloatColumn,
        num_gpus: FloatColumn,
        duration: FloatColumn,
        user: TextColumn | None = None,
        vc: TextColumn | None = None,
        status: TextColumn | None = None,
        columns: dict[str, NDArray[Any]] | None = None,
        zone: str = "",
        notes: tuple[str, ...] = (),
    ) -> Rows:
        """Make the rows of a table; a column that is not given is unknown ("" in each row).

        Args:
            table: gives the line numbers, and which rows are usable.
            job_id: one per row, as are all columns below; see `Trace`.
            submit_time: in seconds.
            num_gpus: may be a fraction.
            duration: in seconds.
            user: texts.
            vc: texts.
            status: of `STATUSES`.
            columns: further columns by native name.
            zone: see `Trace`.
            notes: see `Trace`.
        """
        unknown = np.full(len(table), "", dtype=object)
        return cls(
            job_id=job_id,
            submit_time=submit_time,
            num_gpus=num_gpus,
            duration=duration,
            user=unknown if user is None else user,
            vc=unknown if vc is None else vc,
            status=unknown if status is None else status,
            lines=table.lines,
            usable=table.usable.copy(),
            columns=columns or {},
            zone=zone,
            notes=notes,
        )


def _no_offset(_: float) -> float:
    return 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What holds for all traces of a format.

    Attributes:
        source: the name of the format, as in `Trace`.
        is_log: a real cluster wrote it, defects and all: use the limits that are meant for logs.
        wall_clock: times are of a wall clock: shift them, so that the first submit is second 0.
        has_durations: False where a profile says how long the jobs take.
        utc_offset: the offset from UTC [s] at a time of the log; asked for the first submit.
    """

    source: str
    is_log: bool = False
    wall_clock: bool = False
    has_durations: bool = True
    utc_offset: Callable[[float], float] = _no_offset


def normal_trace(
    rows: Rows, ledger: Ledger, options: ReadOptions, source: Source, *, name: str = ""
) -> Trace:
    """Apply the rules that hold for every format.

    Args:
        rows: the format's jobs; this function changes them.
        ledger: takes what is left out.
        options: what to leave out.
        source: the format.
        name: see `Trace`; the stem of the file's name when empty.

    Raises:
        BadInput: a negative or absurd quantity, a job id that is there twice (unless bad rows
            are skipped); no job is left.
    """
    _refuse_impossible(rows, ledger)
    _drop_unwanted(rows, ledger, options, source)
    _refuse_repeated_ids(rows, ledger)
    kept = np.flatnonzero(rows.usable)
    if not kept.size:
        why = ", ".join(f"{count} x {reason}" for reason, count in ledger.dropped().items())
        raise BadInput(f"{ledger.path}: no job to use ({why or 'the table has no rows'})")
    order = kept[np.argsort(rows.submit_time[kept], kind="stable")]
    submit_time = rows.submit_time[order]
    columns = {key: column[order] for key, column in rows.columns.items()}
    epoch = None
    if source.wall_clock:
        origin = submit_time[0]
        submit_time = submit_time - origin
        epoch = float(origin) - source.utc_offset(float(origin))
        columns |= {key: columns[key] - origin for key in TIME_COLUMNS if key in columns}
    return Trace(
        name=name or stem_of(ledger.path),
        source=source.source,
        job_id=rows.job_id[order],
        submit_time=submit_time,
        num_gpus=rows.num_gpus[order],
        duration=rows.duration[order],
        user=rows.user[order],
        vc=rows.vc[order],
        status=rows.status[order],
        columns=columns,
        epoch=epoch,
        zone=rows.zone,
        dropped=ledger.dropped(),
        notes=rows.notes,
    )


def _refuse_impossible(rows: Rows, ledger: Ledger) -> None:
    quantities = {
        "submit_time": rows.submit_time,
        "duration": rows.duration,
        "num_gpus": rows.num_gpus,
    }
    if "restart_overhead" in rows.columns:
        quantities["restart_overhead"] = rows.columns["restart_overhead"]
    if "gpu_share" in rows.columns:
        shares = rows.columns["gpu_share"]
        for row in np.flatnonzero(rows.usable & ((shares <= 0) | (shares > 1))):
            ledger.refuse(
                int(rows.lines[row]), "gpu_share is no part", f"gpu_share is {shares[row]:g}, "
                "not above 0 and at most 1",
            )  # fmt: skip
            rows.usable[row] = False
    for name, column in quantities.items():
        for row in np.flatnonzero(rows.usable & ((column < 0) | (column > LARGEST))):
            wrong = "negative" if column[row] < 0 else "too large"
            limit = "below 0" if column[row] < 0 else f"above {LARGEST:g}"
            ledger.refuse(
                int(rows.lines[row]), f"{name} is {wrong}", f"{name} is {column[row]:g}, {limit}"
            )
            rows.usable[row] = False


def _drop_unwanted(rows: Rows, ledger: Ledger, options: ReadOptions, source: Source) -> None:
    def drop(unwanted: NDArray[np.bool_], reason: str) -> None:
        rows_dropped = rows.usable & unwanted
        ledger.drop(reason, rows.lines[rows_dropped])
        rows.usable &= ~rows_dropped

    drop(np.isnan(rows.submit_time), "submit time unknown")
    if options.drop_cpu_jobs:
        drop(rows.num_gpus == 0, "CPU job")
    wanted = options.status or (LOG_STATUSES if source.is_log else ())
    if wanted:
        for status in sorted(set(rows.status.tolist()) - {"", *wanted}):
            drop(np.asarray(rows.status == status, dtype=np.bool_), f"status {status}")
    if options.on_missing == "drop":
        drop(np.isnan(rows.num_gpus), "GPU count unknown")
        if source.has_durations and "total_iterations" not in rows.columns:
            drop(np.isnan(rows.duration), "duration unknown")
    shortest = options.min_duration if options.min_duration is not None else float(source.is_log)
    drop(rows.duration < shortest, f"shorter than {shortest:g} s")


def _refuse_repeated_ids(rows: Rows, ledger: Ledger) -> None:
    kept = np.flatnonzero(rows.usable)
    ids = rows.job_id[kept].tolist()
    if len(set(ids)) == len(ids):
        return
    first_line: dict[str, int] = {}
    for row, job_id in zip(kept, ids, strict=True):
        line = int(rows.lines[row])
        if job_id in first_line:
            ledger.refuse(
                line,
                "job_id is there twice",
                f"job_id {job_id!r} is there twice, first in line {first_line[job_id]}",
            )
            rows.usable[row] = False
        else:
            first_line[job_id] = line
