"""The Acme logs (`trace_seren.csv`, `trace_kalos.csv`): two clusters that train language models.

Times carry their offset. Kalos' own `duration` column includes the queue, against its description,
so durations are always taken anew from the times.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from simulate.traces.ledger import Ledger
from simulate.traces.normal import Rows, normal_trace
from simulate.traces.options import ReadOptions
from simulate.traces.table import read_table
from simulate.traces.textfile import stem_of
from simulate.traces.trace import Trace

__all__ = ["read", "recognises"]

REQUIRED = (
    *("job_id", "user", "node_num", "gpu_num", "cpu_num", "type", "state"),
    *("submit_time", "start_time", "end_time"),
)
NUMBERS = ("node_num", "gpu_num", "cpu_num", "mem_per_pod_GB", "shared_mem_per_pod")


def recognises(header: Sequence[str]) -> bool:
    """Whether a header has the log's columns (`type` tells it from Helios, `vc` is absent)."""
    return set(header).issuperset(REQUIRED)


def read(path: Path, options: ReadOptions) -> Trace:
    """Read one cluster's log.

    Raises:
        BadInput: see `normal_trace` and `read_table`.
    """
    ledger = Ledger(path, skip_bad_rows=options.skip_bad_rows)
    table = read_table(path, ledger, numbers=NUMBERS, required=REQUIRED)
    submit, start, end = (table.times(f"{event}_time") for event in ("submit", "start", "end"))
    columns = {
        "start_time": start.seconds,
        "end_time": end.seconds,
        "num_nodes": table.number("node_num"),
        "num_cpus": table.number("cpu_num"),
        "workload": table.text("type"),
    }
    if "mem_per_pod_GB" in table.header:
        # A pod is a node's part of the job.
        pods = np.maximum(table.number("node_num"), 1)
        columns["memory_gb"] = table.number("mem_per_pod_GB") * pods
    rows = Rows.of(
        table,
        job_id=table.text("job_id"),
        status=table.statuses("state"),
        submit_time=submit.seconds,
        num_gpus=table.number("gpu_num"),
        duration=end.seconds - start.seconds,
        user=table.text("user"),
        columns=columns,
    )
    return normal_trace(
        rows, ledger, options, name=stem_of(path), source="acme", is_log=True, zone=submit.zone
    )
