"""Alibaba's pod lists of 2023 (`openb_pod_list_*.csv`): pods with whole GPUs and shares of one.

Times are seconds from the trace's start, not of a wall clock, and stay as they are. A pod that was
deleted while running counts as cancelled, one that was never placed as unfinished; the `note`
column keeps which it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from dlsched.core.errors import BadInput
from simulate.traces.ledger import Ledger
from simulate.traces.normal import Rows, normal_trace
from simulate.traces.options import ReadOptions
from simulate.traces.table import Table, read_table
from simulate.traces.textfile import stem_of
from simulate.traces.trace import FloatColumn, TextColumn, Trace

__all__ = ["read", "recognises"]

SIZE = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
TIMES = ("creation_time", "deletion_time", "scheduled_time")
NUMBERS = (*SIZE[1:], *TIMES)
RUNNING_UNTIL_DELETED = "running_until_deleted"
NEVER_SCHEDULED = "never_scheduled"


def recognises(header: Sequence[str]) -> bool:
    """Whether a header has the columns that say a pod's size."""
    return set(header).issuperset(SIZE)


def read(path: Path, options: ReadOptions) -> Trace:
    """Read a pod list.

    Raises:
        BadInput: see `normal_trace` and `read_table`; the list has no times (the "multigpu" lists).
    """
    ledger = Ledger(path, skip_bad_rows=options.skip_bad_rows)
    table = read_table(path, ledger, numbers=NUMBERS, required=SIZE, unique=("name",))
    if not set(TIMES) <= set(table.header):
        raise BadInput(
            f"{path}:1: this pod list has sizes but no times ({', '.join(TIMES)}), "
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
    return normal_trace(
        rows,
        ledger,
        options,
        name=stem_of(path),
        source="alibaba2023",
        is_log=True,
        wall_clock=False,
    )


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
