"""A table of Philly's attempts: `row,submit_time,user,num_gpus,num_nodes,duration_s,status`.

Rows with the same submit time, user and size are the attempts of one job. Only how long each ran is
known, not when, so the job's duration is their sum; its status is that of its last attempt.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from simulate.traces.formats.philly_clock import PHILLY_ZONE, philly_utc_offset
from simulate.traces.ledger import Ledger
from simulate.traces.normal import Rows, normal_trace
from simulate.traces.options import ReadOptions
from simulate.traces.table import read_table
from simulate.traces.textfile import stem_of
from simulate.traces.trace import Trace

__all__ = ["read", "recognises"]

COLUMNS = ("row", "submit_time", "user", "num_gpus", "num_nodes", "duration_s", "status")
NUMBERS = ("num_gpus", "num_nodes", "duration_s")


def recognises(header: Sequence[str]) -> bool:
    """Whether a header has exactly these columns."""
    return set(header) == set(COLUMNS)


def read(path: Path, options: ReadOptions) -> Trace:
    """Read the attempts as jobs; a job is named by the `row` of its first attempt.

    Raises:
        BadInput: see `normal_trace` and `read_table`.
    """
    ledger = Ledger(path, skip_bad_rows=options.skip_bad_rows)
    table = read_table(path, ledger, numbers=NUMBERS, required=COLUMNS, unique=("row",))
    submit = table.times("submit_time").seconds
    status = table.statuses("status")
    user, gpus = table.text("user"), table.number("num_gpus")

    jobs: dict[tuple[float, str, float], list[int]] = {}
    for row, key in enumerate(zip(submit.tolist(), user.tolist(), gpus.tolist(), strict=True)):
        if table.usable[row]:
            jobs.setdefault(key, []).append(row)
    first = np.array([rows[0] for rows in jobs.values()], dtype=np.intp)
    last = np.array([rows[-1] for rows in jobs.values()], dtype=np.intp)
    seconds = table.number("duration_s")
    job_rows = Rows(
        job_id=table.text("row")[first],
        submit_time=submit[first],
        num_gpus=gpus[first],
        duration=np.array([seconds[rows].sum() for rows in jobs.values()]),
        user=user[first],
        vc=np.full(len(jobs), "", dtype=object),
        status=status[last],
        lines=table.lines[first],
        usable=np.ones(len(jobs), dtype=np.bool_),
        columns={
            "num_nodes": table.number("num_nodes")[first],
            "attempts": np.array([float(len(rows)) for rows in jobs.values()]),
            "attempt_durations": np.array(
                ["+".join(f"{seconds[row]:.0f}" for row in rows) for rows in jobs.values()],
                dtype=object,
            ),
        },
    )
    return normal_trace(
        job_rows,
        ledger,
        options,
        name=stem_of(path),
        source="philly",
        is_log=True,
        zone=PHILLY_ZONE,
        utc_offset=philly_utc_offset,
    )
