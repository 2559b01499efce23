"""The job streams of Chronus' simulator (SoCC 2021).

`job_id,user,num_gpu,submit_time,model_name,duration,expect_time_list,expect_value_list,best_effort,
job_type`; times are minutes. A strict job has one deadline [minutes after the submit], a soft one
several, joined by "-", each with the value of meeting it; those of best-effort jobs count for
nothing. Jobs without a GPU are in the files, and no policy sees them.
"""

from __future__ import annotations

import numpy as np

from dlsched.core.deadlines import deadline_steps
from simulate.traces.normal import Rows
from simulate.traces.table import Table
from simulate.traces.table_format import TableFormat

MINUTE_S = 60.0
KINDS = ("strict", "soft")


def _jobs(table: Table) -> Rows:
    types, efforts = table.text("job_type"), table.number("best_effort")
    times, values = table.text("expect_time_list"), table.text("expect_value_list")
    count = len(table)
    deadline, worth = np.full(count, np.nan), np.full(count, np.nan)
    steps = np.full(count, "", object)
    for row in range(count):
        if efforts[row] == 1 or types[row] == "best":
            continue
        ends, gains = times[row].split("-"), values[row].split("-")
        try:
            if types[row] not in KINDS or len(ends) != len(gains):
                raise ValueError
            pairs = zip(ends, gains, strict=True)
            text = " ".join(f"{float(end) * MINUTE_S:g}:{gain}" for end, gain in pairs)
            deadline[row], worth[row] = deadline_steps(text)[0]
        except ValueError:
            table.refuse(
                [row],
                "deadlines are unclear",
                f"expect_time_list {times[row]!r}, expect_value_list {values[row]!r}, job_type "
                f"{types[row]!r}: not strict, soft or best with rising minutes and their values",
            )
            continue
        if len(ends) > 1:
            steps[row] = text
    return Rows.of(
        table,
        job_id=table.text("job_id"),
        submit_time=table.number("submit_time") * MINUTE_S,
        num_gpus=table.number("num_gpu"),
        duration=table.number("duration") * MINUTE_S,
        user=table.text("user"),
        columns={
            "model": table.text("model_name"),
            "deadline": deadline,
            "deadline_value": worth,
            "deadline_steps": steps,
        },
    )


CHRONUS = TableFormat(
    source="chronus",
    rows=_jobs,
    required=(
        "job_id", "num_gpu", "submit_time", "duration",
        "expect_time_list", "expect_value_list", "best_effort", "job_type",
    ),
    numbers=("num_gpu", "submit_time", "duration", "best_effort"),
)  # fmt: skip
