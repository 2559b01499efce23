"""The native format: CSV (also gzip, or Parquet) with a header, one row a job.

Required are `job_id`, `submit_time`, `num_gpus`, and `duration` or `total_iterations`. Times are
seconds from the trace's start and stay as they are. Columns this module doesn't know are kept: as
numbers if they hold nothing else, as text otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlsched.core.deadlines import STEPS_FORM, deadline_steps
from dlsched.core.errors import BadInput
from dlsched.core.rewards import FORM, RewardCurve
from dlsched.jobs.fields import CSV, DEADLINE_KINDS, GUARANTEES
from simulate.traces.ledger import Ledger
from simulate.traces.normal import Rows, Source, normal_trace
from simulate.traces.options import ReadOptions
from simulate.traces.parquet import read_parquet
from simulate.traces.table import EMPTY, Table, as_numbers, read_table
from simulate.traces.trace import Trace

REQUIRED = ("job_id", "submit_time", "num_gpus")
_NUMBERS = ("number", "whole", "seconds", "limit", "moment")
# what users ask for has the names of the table of job fields; the rest is of traces alone
NUMBER_COLUMNS = frozenset(
    {
        *(name for name, row in CSV.items() if row.form in _NUMBERS),
        *("submit_time", "duration", "num_nodes", "start_time", "end_time", "round_delivered"),
        *("attempts", "restart_overhead", "begin", "array_limit"),
        *("gpu_memory_gib", "gpu_util", "iteration_ms", "data_ms", "gpu_ms", "network_ms"),
    }
)
TEXT_COLUMNS = frozenset(
    {
        *(name for name, row in CSV.items() if row.form not in _NUMBERS),
        *("job_id", "user", "status", "group", "parents", "note", "attempt_durations"),
        *("gang", "array", "deadline_steps"),
    }
)
_IN_TRACE = frozenset({*REQUIRED, "duration", "user", "vc", "status"})


def recognises(header: Sequence[str]) -> bool:
    """Whether a header names the required columns."""
    names = set(header)
    return names.issuperset(REQUIRED) and bool(names & {"duration", "total_iterations"})


def read(path: Path, options: ReadOptions) -> Trace:
    """Read a native trace, exactly as it stands.

    Raises:
        BadInput: see `normal_trace`; also a required field that is empty or not a number, fewer
            than one GPU share, a negative submit time.
    """
    ledger = Ledger(path, skip_bad_rows=options.skip_bad_rows)
    if path.suffix == ".parquet":
        table = read_parquet(path, ledger, numbers=NUMBER_COLUMNS, required=REQUIRED)
    else:
        table = read_table(path, ledger, numbers=NUMBER_COLUMNS, required=REQUIRED, lost=EMPTY)
    if not {"duration", "total_iterations"} & set(table.header):
        raise BadInput(f"{path}:1: no column duration (or total_iterations, with a profile)")
    _refuse_unusable(table, options)
    columns = {name: _column(table, name) for name in table.header if name not in _IN_TRACE}
    rows = Rows.of(
        table,
        job_id=table.text("job_id"),
        submit_time=table.number("submit_time"),
        num_gpus=table.number("num_gpus"),
        duration=table.number("duration"),
        user=table.text("user"),
        vc=table.text("vc" if "vc" in table.header else "account"),
        status=table.statuses("status"),
        columns=columns,
    )
    return normal_trace(rows, ledger, options, Source(source="dlsched"))


def _refuse_unusable(table: Table, options: ReadOptions) -> None:
    num_gpus = table.number("num_gpus")
    missing = {
        "job_id": table.text("job_id") == "",
        "submit_time": np.isnan(table.number("submit_time")),
    }
    if options.on_missing == "drop":
        missing["num_gpus"] = np.isnan(num_gpus)
        missing["duration"] = np.isnan(table.number("duration")) & np.isnan(
            table.number("total_iterations")
        )
    _refuse_unclear_deadlines(table)
    for name, rows in missing.items():
        table.refuse(np.flatnonzero(rows), f"{name} is empty", f"{name} is empty")
    if options.drop_cpu_jobs:
        table.refuse(
            np.flatnonzero(num_gpus <= 0),
            "num_gpus is not positive",
            lambda row: (
                f"num_gpus is {num_gpus[row]:g}; a job needs more than 0 "
                "(CPU jobs only when they are to be kept)"
            ),
        )


def _refuse_unclear_deadlines(table: Table) -> None:
    deadline, kinds = table.number("deadline"), table.text("deadline_kind")
    table.refuse(
        np.flatnonzero(deadline <= 0),
        "deadline is before the submit",
        lambda row: f"deadline is {deadline[row]:g}; it must be after the submit (more than 0 s)",
    )
    table.refuse(
        np.flatnonzero(~np.isin(kinds, ("", *DEADLINE_KINDS))),
        "deadline_kind is unknown",
        lambda row: f"deadline_kind is {kinds[row]!r}, none of {', '.join(DEADLINE_KINDS)}",
    )
    curves = table.text("sla")
    unsaid = np.flatnonzero(np.isnan(deadline) & np.isin(kinds, ("strict", "soft"))).tolist()
    table.refuse(
        np.array([row for row in unsaid if not _may_have_deadline(curves[row])], np.int64),
        "deadline_kind without a deadline",
        lambda row: f"deadline_kind is {kinds[row]}, and the job has no deadline",
    )
    guarantees = table.text("guarantee")
    table.refuse(
        np.flatnonzero(~np.isin(guarantees, ("", *GUARANTEES))),
        "guarantee is unknown",
        lambda row: f"guarantee is {guarantees[row]!r}, none of {', '.join(GUARANTEES)}",
    )
    _refuse_unclear(table, "deadline_steps", deadline_steps, lambda _: f"not {STEPS_FORM}")
    _refuse_unclear(table, "sla", RewardCurve.of_text, lambda error: f"{error} ({FORM})")


def _may_have_deadline(curve: str) -> bool:
    """Does a reward curve say a deadline? One that cannot be read is refused elsewhere."""
    try:
        return bool(curve) and RewardCurve.of_text(curve).deadline is not None
    except ValueError:
        return True


def _refuse_unclear(
    table: Table, name: str, read: Callable[[str], object], told: Callable[[ValueError], str]
) -> None:
    """Refuse texts that a reader does not take."""
    column = table.text(name)
    for row in np.flatnonzero(column != "").tolist():
        try:
            read(column[row])
        except ValueError as error:
            why = f"{name} is {column[row]!r}, {told(error)}"
            table.refuse([row], f"{name} is unclear", why)


def _column(table: Table, name: str) -> NDArray[Any]:
    if name in NUMBER_COLUMNS:
        return table.number(name)
    column = table.text(name)
    if name in TEXT_COLUMNS:
        return column
    numbers = as_numbers(column)
    return column if numbers is None else numbers
