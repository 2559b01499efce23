"""The job lists of Lucid's simulator (ASPLOS 2023), one row a job.

`seq,job_id,vc,submit_s,num_gpus,duration_s,model,dataset,batchsize,amp,gpu_util,gpu_mem_mib,
share_score,est_lucid_s,est_qssf_s`: seconds, which stay as they are, per cent and MiB. `seq` orders
jobs of the same second. `share_score` is the packing class (0 tiny, 1 medium, 2 jumbo); the last
two columns are predicted durations.
"""

from __future__ import annotations

import numpy as np

from simulate.traces.normal import Rows
from simulate.traces.table import Table
from simulate.traces.table_format import TableFormat

_KEPT = ("amp", "gpu_util", "gmem_util", "share_score", "est_lucid_s", "est_qssf_s")
_MIB_PER_GIB = 1024.0


def _jobs(table: Table) -> Rows:
    seq = table.number("seq")
    if (np.diff(seq) < 0).any():
        table.refuse(
            np.flatnonzero(np.diff(seq) < 0) + 1, "seq goes down", "seq must ascend: it breaks ties"
        )
    known = [name for name in _KEPT if name in table.header]
    return Rows.of(
        table,
        job_id=table.text("job_id"),
        submit_time=table.number("submit_s"),
        num_gpus=table.number("num_gpus"),
        duration=table.number("duration_s"),
        vc=table.text("vc"),
        columns={
            "model": table.text("model"),
            "dataset": table.text("dataset"),
            "batch_size": table.number("batchsize"),
            "gpu_memory_gib": table.number("gpu_mem_mib") / _MIB_PER_GIB,
            **{name: table.number(name) for name in known},
        },
    )


LUCID = TableFormat(
    source="lucid",
    rows=_jobs,
    required=(
        "seq", "job_id", "vc", "submit_s", "num_gpus", "duration_s", "model", "dataset",
        "batchsize", "amp", "share_score", "gpu_mem_mib",
    ),
    numbers=("seq", "submit_s", "num_gpus", "duration_s", "batchsize", "gpu_mem_mib", *_KEPT),
)  # fmt: skip
