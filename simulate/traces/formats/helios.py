"""The Helios logs: Slurm jobs of four clusters, naive local times.

`cluster_log.csv` is the log of one cluster. `venus` is an excerpt with all arrivals of a few weeks
at one of them: `row,submit_time,user,num_gpus,num_cpus,num_nodes,duration_s,status`, without start,
end or virtual cluster.
"""

from __future__ import annotations

from simulate.traces.normal import Rows
from simulate.traces.table import Table
from simulate.traces.table_format import TableFormat


def log_rows(table: Table) -> Rows:
    """The jobs of a Slurm log with these columns; the duration is end minus start, taken anew."""
    submit, start, end = (table.times(f"{event}_time") for event in ("submit", "start", "end"))
    return Rows.of(
        table,
        job_id=table.text("job_id"),
        status=table.statuses("state"),
        submit_time=submit.seconds,
        num_gpus=table.number("gpu_num"),
        duration=end.seconds - start.seconds,
        user=table.text("user"),
        vc=table.text("vc"),
        columns={
            "start_time": start.seconds,
            "end_time": end.seconds,
            "num_nodes": table.number("node_num"),
            "num_cpus": table.number("cpu_num"),
        },
        zone=submit.zone,
    )


def _excerpt(table: Table) -> Rows:
    """The jobs of the excerpt, named by their `row`."""
    submit = table.times("submit_time")
    return Rows.of(
        table,
        job_id=table.text("row"),
        status=table.statuses("status"),
        submit_time=submit.seconds,
        num_gpus=table.number("num_gpus"),
        duration=table.number("duration_s"),
        user=table.text("user"),
        columns={"num_nodes": table.number("num_nodes"), "num_cpus": table.number("num_cpus")},
        zone=submit.zone,
    )


HELIOS = TableFormat(
    source="helios",
    is_log=True,
    wall_clock=True,
    rows=log_rows,
    required=(
        *("job_id", "user", "vc", "gpu_num", "cpu_num", "node_num", "state"),
        *("submit_time", "start_time", "end_time"),
    ),
    numbers=("gpu_num", "cpu_num", "node_num", "duration", "queue"),
)
VENUS = TableFormat(
    source="venus",
    is_log=True,
    wall_clock=True,
    rows=_excerpt,
    required=(  # `num_cpus` tells it from Philly's attempts
        *("row", "submit_time", "user", "num_gpus", "num_cpus", "num_nodes"),
        *("duration_s", "status"),
    ),
    numbers=("num_gpus", "num_cpus", "num_nodes", "duration_s"),
    unique=("row",),
)
