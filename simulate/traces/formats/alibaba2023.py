"""Alibaba's pod lists of 2023 (`openb_pod_list_*.csv`): pods with whole GPUs and shares of one.

Times are seconds from the trace's start, not of a wall clock, and stay as they are. A pod that was
deleted while running counts as cancelled, one that was never placed as unfinished; the `note`
column keeps which it was.
"""

from __future__ import annotations

import numpy as np

from dlsched.core.errors import BadInput
from simulate.traces.normal import Rows
from simulate.traces.table import Table
from simulate.traces.table_format import TableFormat
from simulate.traces.trace import FloatColumn, TextColumn

SIZE = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
TIMES = ("creation_time", "deletion_time", "scheduled_time")
RUNNING_UNTIL_DELETED = "running_until_deleted"
NEVER_SCHEDULED = "never_scheduled"


def _rows(table: Table) -> Rows:
    """The pods as jobs.

    Raises:
        BadInput: the list has no times (the "multigpu" lists).
    """
    if not set(TIMES) <= set(table.header):
        raise BadInput(
            f"{table.ledger.path}:1: this pod list has sizes but no times ({', '.join(TIMES)}), "
            "so there is nothing to replay; take one of the lists with times"
        )
    created, deleted, placed = (table.number(name) for name in TIMES)
    status, note = _status(table, placed)
    rows = Rows.of(
        table,
        job_id=table.text("name"),
        submit_time=created,
        num_gpus=table.number("num_gpu") * table.number("gpu_milli") / 1000,
        duration=deleted - placed,
        status=status,
        columns={
            "start_time": placed,
            "end_time": deleted,
            "num_cpus": table.number("cpu_milli") / 1000,
            "memory_gb": table.number("memory_mib") / 1024,
            "gpu_type": table.text("gpu_spec"),
            "qos": table.text("qos"),
            "note": note,
        },
    )
    # The sizes of CPU pods come as 0 GPUs of 0 or of 1000 milli.
    rows.num_gpus[table.number("num_gpu") == 0] = 0
    return rows


def _status(table: Table, placed: FloatColumn) -> tuple[TextColumn, TextColumn]:
    """Say how a pod ended, from its phase at deletion and whether it was ever placed."""
    status = table.statuses("pod_phase")
    note = np.full(len(table), "", dtype=object)
    open_ended = np.asarray(status == "unfinished", dtype=np.bool_)
    never = np.isnan(placed)
    note[open_ended & ~never] = RUNNING_UNTIL_DELETED
    note[never] = NEVER_SCHEDULED
    status[open_ended & ~never] = "cancelled"
    status[never] = "unfinished"
    return status, note


ALIBABA2023 = TableFormat(
    source="alibaba2023",
    is_log=True,
    rows=_rows,
    required=SIZE,
    numbers=(*SIZE[1:], *TIMES),
    unique=("name",),
)
