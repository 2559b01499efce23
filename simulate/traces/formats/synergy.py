"""The traces of Synergy's simulator (OSDI 2022).

`job_id,model,submit_time,total_iterations,num_gpus`; times are seconds and stay as they are. How
long a job runs follows from its iterations and from a profile of its model (`--profiles`).
"""

from __future__ import annotations

import numpy as np

from simulate.traces.normal import Rows
from simulate.traces.table import Table
from simulate.traces.table_format import TableFormat


def _jobs(table: Table) -> Rows:
    steps = table.number("total_iterations")
    wrong = np.flatnonzero(~(steps > 0))
    table.refuse(wrong, "no iterations", "total_iterations must be a number above 0")
    return Rows.of(
        table,
        job_id=table.text("job_id"),
        submit_time=table.number("submit_time"),
        num_gpus=table.number("num_gpus"),
        duration=np.full(len(table), np.nan),
        columns={"model": table.text("model"), "total_iterations": steps},
    )


SYNERGY = TableFormat(
    source="synergy",
    rows=_jobs,
    required=("job_id", "model", "submit_time", "total_iterations", "num_gpus"),
    numbers=("submit_time", "total_iterations", "num_gpus"),
    exact=True,
    has_durations=False,
)
