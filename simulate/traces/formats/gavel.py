"""The layout of Gavel's traces as tables: jobs that do steps of a model.

`job_id,job_type,scale_factor,total_steps,duration_v100_s,priority_weight,arrival_time_s`. A job
type reads `ResNet-18 (batch size 32)`, or just the model; `duration_v100_s`, where it is known, is
the time on V100s. A column `deadline` (seconds after arrival) is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from dlsched.core.arrays import Floats
from simulate.profiles.throughput_file import job_kind
from simulate.traces.ledger import Ledger
from simulate.traces.normal import Rows, normal_trace
from simulate.traces.options import ReadOptions
from simulate.traces.table import Table, read_table
from simulate.traces.textfile import stem_of
from simulate.traces.trace import Trace

__all__ = ["check_steps", "read", "recognises"]

REQUIRED = ("job_id", "job_type", "scale_factor", "total_steps", "arrival_time_s")
NUMBERS = (
    *("scale_factor", "total_steps", "duration_v100_s", "priority_weight", "arrival_time_s"),
    "deadline",
)


def recognises(header: Sequence[str]) -> bool:
    """Whether a header names the required columns."""
    return set(header).issuperset(REQUIRED)


def read(path: Path, options: ReadOptions) -> Trace:
    """Read a Gavel trace; times stay as they are.

    Raises:
        BadInput: see `normal_trace` and `read_table`; steps or GPUs that are not a positive number,
            a negative weight.
    """
    ledger = Ledger(path, skip_bad_rows=options.skip_bad_rows)
    table = read_table(path, ledger, numbers=NUMBERS, required=REQUIRED)
    weight = check_steps(table)
    kinds = [job_kind(text.strip()) for text in table.text("job_type").tolist()]
    columns = {
        "model": np.array([kind.model for kind in kinds], np.object_),
        "batch_size": np.array(
            [np.nan if kind.batch_size is None else float(kind.batch_size) for kind in kinds]
        ),
        "total_iterations": table.number("total_steps"),
        "weight": weight,
    }
    if "deadline" in table.header:
        columns["deadline"] = table.number("deadline")
    rows = Rows.of(
        table,
        job_id=table.text("job_id"),
        submit_time=table.number("arrival_time_s"),
        num_gpus=table.number("scale_factor"),
        duration=table.number("duration_v100_s"),
        columns=columns,
    )
    return normal_trace(rows, ledger, options, name=stem_of(path), source="gavel", is_log=False)


def check_steps(table: Table) -> Floats:
    """Refuse rows whose steps, GPUs or weight cannot be; returns the weights."""
    for name in ("total_steps", "scale_factor"):
        column = table.number(name)
        table.refuse(
            np.flatnonzero(~(column > 0)), f"{name} is not positive", f"{name} must be above 0"
        )
    weight = table.number("priority_weight")
    table.refuse(
        np.flatnonzero(weight < 0), "priority_weight is negative", "priority_weight is below 0"
    )
    return weight
