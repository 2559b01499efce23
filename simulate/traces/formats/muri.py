"""The traces of Muri's simulator (SIGCOMM 2022), with its columns under plain names.

`job_id,submit_time,num_gpus,duration,model,batch_size,total_iterations,iteration_ms,data_ms,gpu_ms,
network_ms,opportunistic`; submits are seconds, stages of an iteration are milliseconds as measured
alone on the job's gang. The file's `duration` is that of the cluster that the trace comes from, and
its simulator does not use it: jobs take `total_iterations` of `iteration_ms`, each 1.5 % longer for
being measured. `restart_overhead`, in seconds, may follow.
"""

from __future__ import annotations

import numpy as np

from dlsched.core.speed.stages import MEASURED_FACTORS
from simulate.traces.normal import Rows
from simulate.traces.table import Table
from simulate.traces.table_format import TableFormat

MS = 1e-3
STAGES = ("iteration_ms", "data_ms", "gpu_ms", "network_ms")


def _jobs(table: Table) -> Rows:
    numbers = {name: table.number(name) for name in ("total_iterations", *STAGES)}
    for name, values in numbers.items():
        table.refuse(
            np.flatnonzero(~(values >= 0)), f"{name} is not known", f"{name} must be 0 or more"
        )
    opportunistic = table.number("opportunistic")
    table.refuse(
        np.flatnonzero(~np.isin(opportunistic, (0, 1))),
        "opportunistic is not known",
        "opportunistic must be 0 or 1",
    )
    iteration_s = numbers["iteration_ms"] * MEASURED_FACTORS[0] * MS
    return Rows.of(
        table,
        job_id=table.text("job_id"),
        submit_time=table.number("submit_time"),
        num_gpus=table.number("num_gpus"),
        duration=numbers["total_iterations"] * iteration_s,
        columns={
            "model": table.text("model"),
            "batch_size": table.number("batch_size"),
            **numbers,
            "guarantee": np.where(opportunistic == 1, "opportunistic", "guaranteed").astype(object),
            "restart_overhead": table.number("restart_overhead"),
        },
    )


MURI = TableFormat(
    source="muri",
    rows=_jobs,
    required=(
        "job_id", "submit_time", "num_gpus", "model", "batch_size", "total_iterations", *STAGES,
        "opportunistic",
    ),
    numbers=(
        "submit_time", "num_gpus", "batch_size", "total_iterations", *STAGES, "opportunistic",
        "restart_overhead",
    ),
    exact=False,
)  # fmt: skip
