"""Tables that projects made of the Philly log, and the clock that all its times are of.

Times are US Pacific wall time, written without a zone. Differences are taken on the wall, as
everyone who published figures of this trace did. The night of 2017-11-05, when 01:00-02:00 came
twice, is therefore an hour short.

`philly_attempts`: `row,submit_time,user,num_gpus,num_nodes,duration_s,status`. Rows with the same
submit time, user and size are the attempts of one job. Only how long each attempt ran is known, not
when, so the job's duration is their sum; its status is that of its last attempt.

`philly-passed`: `submit_time,duration_s,num_gpus,vc`, one row for each successful job.
"""

from __future__ import annotations

import numpy as np

from simulate.traces.normal import Rows
from simulate.traces.table import Table
from simulate.traces.table_format import TableFormat

PHILLY_ZONE = "America/Los_Angeles"
ONLY_PASSED = (
    "philly-passed contains only status Pass: the killed and failed jobs of the same months, "
    "half of the cluster's GPU time and more, are missing"
)
# 2017-11-05 02:00 on the wall. The trace lies within 2017-08..12, so one change is all it sees,
# and no time-zone database has to be there.
_CLOCK_SET_BACK = 1_509_847_200.0
_SUMMER_S, _WINTER_S = -7 * 3600.0, -8 * 3600.0


def philly_utc_offset(wall_s: float) -> float:
    """Return the offset of UTC [s] at a wall time given as seconds since 1970 on the wall.

    In the hour that came twice the first pass is meant.
    """
    return _SUMMER_S if wall_s < _CLOCK_SET_BACK else _WINTER_S


def _attempts(table: Table) -> Rows:
    """The attempts as jobs; a job is named by the `row` of its first attempt."""
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
    return Rows(
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
        zone=PHILLY_ZONE,
    )


def _passed(table: Table) -> Rows:
    """The successful jobs; a job is named by its row, counted from 0."""
    submit = table.times("submit_time").seconds
    return Rows.of(
        table,
        job_id=table.row_numbers(),
        submit_time=submit,
        num_gpus=table.number("num_gpus"),
        duration=table.number("duration_s"),
        vc=table.text("vc"),
        status=np.full(len(table), "completed", dtype=object),
        zone=PHILLY_ZONE,
        notes=(ONLY_PASSED,),
    )


ATTEMPTS = TableFormat(
    source="philly",
    is_log=True,
    wall_clock=True,
    utc_offset=philly_utc_offset,
    rows=_attempts,
    required=("row", "submit_time", "user", "num_gpus", "num_nodes", "duration_s", "status"),
    numbers=("num_gpus", "num_nodes", "duration_s"),
    exact=True,
    unique=("row",),
)
PASSED = TableFormat(
    source="philly-passed",
    is_log=True,
    wall_clock=True,
    utc_offset=philly_utc_offset,
    rows=_passed,
    required=("submit_time", "duration_s", "num_gpus", "vc"),
    numbers=("duration_s", "num_gpus"),
    exact=True,
)
