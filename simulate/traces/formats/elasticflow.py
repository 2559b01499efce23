"""The traces of ElasticFlow's simulator (ASPLOS 2023), with its columns under plain names.

`job_id,submit_time,num_gpus,duration,model,batch_size,total_iterations,deadline,best_effort`; times
are seconds, the deadline in the time of the trace, the duration that on `num_gpus` GPUs. A job may
have any number of GPUs up to 64, of which each computes one sample at least. Its simulator knows
up to how many a training gains (`useful_gpus`); those are measurements, and stand here.
"""

from __future__ import annotations

import numpy as np

from simulate.traces.normal import Rows
from simulate.traces.table import Table
from simulate.traces.table_format import TableFormat

MOST = 64
USEFUL = {
    ("bert", 64): 8, ("bert", 128): 16, ("bert", 384): 16,
    ("deepspeech2", 32): 32, ("deepspeech2", 64): 64, ("deepspeech2", 320): 32,
    ("gpt2", 128): 16, ("gpt2", 256): 32,
    ("inception3", 64): 16, ("inception3", 128): 32,
    ("resnet50", 64): 32, ("vgg16", 64): 32,
    ("cifar10", 2048): 16, ("cifar10", 4096): 16, ("yolov3", 64): 4, ("ncf", 32768): 1,
}  # fmt: skip


def _jobs(table: Table) -> Rows:
    submit, due = table.number("submit_time"), table.number("deadline")
    gpus, batch = table.number("num_gpus"), table.number("batch_size")
    deadline = np.where(table.number("best_effort") == 1, np.nan, due - submit)
    wrong = np.flatnonzero(deadline <= 0)
    table.refuse(wrong, "the deadline is before the submit", "deadline must be after submit_time")
    models = table.text("model")
    most = np.maximum(np.minimum(np.nan_to_num(batch, nan=MOST), MOST), gpus)
    useful = [
        min(USEFUL.get((str(model), int(size)), MOST), int(limit)) if limit >= 1 else 1
        for model, size, limit in zip(models, np.nan_to_num(batch), most, strict=True)
    ]
    return Rows.of(
        table,
        job_id=table.text("job_id"),
        submit_time=submit,
        num_gpus=gpus,
        duration=table.number("duration"),
        columns={
            "model": models,
            "batch_size": batch,
            "total_iterations": table.number("total_iterations"),
            "deadline": deadline,
            "min_gpus": np.minimum(1.0, gpus),
            "max_gpus": most,
            "useful_gpus": np.array(useful, np.float64),
        },
    )


ELASTICFLOW = TableFormat(
    source="elasticflow",
    rows=_jobs,
    required=(
        "job_id", "submit_time", "num_gpus", "duration", "model", "batch_size", "total_iterations",
        "deadline", "best_effort",
    ),
    numbers=(
        "submit_time", "num_gpus", "duration", "batch_size", "total_iterations", "deadline",
        "best_effort",
    ),
    exact=True,
)  # fmt: skip
