"""The Acme logs (`trace_seren.csv`, `trace_kalos.csv`): two clusters that train language models.

Times carry their offset. Kalos' own `duration` column includes the queue, against its description,
so durations are always taken anew from the times.
"""

from __future__ import annotations

import numpy as np

from simulate.traces.formats.helios import log_rows
from simulate.traces.normal import Rows
from simulate.traces.table import Table
from simulate.traces.table_format import TableFormat


def _rows(table: Table) -> Rows:
    rows = log_rows(table)
    rows.columns["workload"] = table.text("type")
    if "mem_per_pod_GB" in table.header:
        # A pod is a node's part of the job.
        pods = np.maximum(table.number("node_num"), 1)
        rows.columns["memory_gb"] = table.number("mem_per_pod_GB") * pods
    return rows


ACME = TableFormat(
    source="acme",
    is_log=True,
    wall_clock=True,
    rows=_rows,
    required=(  # `type` tells it from Helios; `vc` is absent
        *("job_id", "user", "node_num", "gpu_num", "cpu_num", "type", "state"),
        *("submit_time", "start_time", "end_time"),
    ),
    numbers=("node_num", "gpu_num", "cpu_num", "mem_per_pod_GB", "shared_mem_per_pod"),
)
