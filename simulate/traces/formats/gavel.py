"""The layouts of Gavel's and Shockwave's traces as tables: jobs that do steps of a model.

Gavel: `job_id,job_type,scale_factor,total_steps,duration_v100_s,priority_weight,arrival_time_s`. A
job type reads `ResNet-18 (batch size 32)`, or just the model; `duration_v100_s`, where it is known,
is the time on V100s. A column `deadline` (seconds after arrival) is kept.

Shockwave, whose jobs may adapt their batch size: `job_id,model,batch_size,scale_factor,total_steps,
mode,duration_s,priority_weight,arrival_time_s`. Batch size and steps are those at the start; `mode`
is `static`, or the rule by which the batch size changes: `accordion` or `gns`. It is kept as the
column `batch_mode`.

Times stay as they are. Steps and GPUs must be positive numbers, and no weight may be negative.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulate.profiles.throughput_file import job_kind
from simulate.traces.normal import Rows
from simulate.traces.table import Table
from simulate.traces.table_format import TableFormat

MODES = ("static", "accordion", "gns")


def _gavel(table: Table) -> Rows:
    kinds = [job_kind(text.strip()) for text in table.text("job_type").tolist()]
    model = np.array([kind.model for kind in kinds], np.object_)
    batch_size = np.array(
        [np.nan if kind.batch_size is None else float(kind.batch_size) for kind in kinds]
    )
    rows = _steps(table, "duration_v100_s", {"model": model, "batch_size": batch_size})
    if "deadline" in table.header:
        rows.columns["deadline"] = table.number("deadline")
    return rows


def _shockwave(table: Table) -> Rows:
    mode = np.array([text.strip() or "static" for text in table.text("mode").tolist()], np.object_)
    rows = _steps(
        table,
        "duration_s",
        {"model": table.text("model"), "batch_size": table.number("batch_size")},
    )
    table.refuse(
        np.flatnonzero(~np.isin(mode.astype(str), MODES)),
        "mode is unknown",
        f"mode must be one of {', '.join(MODES)}",
    )
    rows.columns["batch_mode"] = mode
    rows.usable &= table.usable
    return rows


def _steps(table: Table, duration: str, kind: dict[str, NDArray[Any]]) -> Rows:
    """The columns that both layouts share, behind those that say what kind a job is."""
    for name in ("total_steps", "scale_factor"):
        column = table.number(name)
        table.refuse(
            np.flatnonzero(~(column > 0)), f"{name} is not positive", f"{name} must be above 0"
        )
    weight = table.number("priority_weight")
    table.refuse(
        np.flatnonzero(weight < 0), "priority_weight is negative", "priority_weight is below 0"
    )
    return Rows.of(
        table,
        job_id=table.text("job_id"),
        submit_time=table.number("arrival_time_s"),
        num_gpus=table.number("scale_factor"),
        duration=table.number(duration),
        columns={**kind, "total_iterations": table.number("total_steps"), "weight": weight},
    )


GAVEL = TableFormat(
    source="gavel",
    rows=_gavel,
    required=("job_id", "job_type", "scale_factor", "total_steps", "arrival_time_s"),
    numbers=(
        *("scale_factor", "total_steps", "duration_v100_s", "priority_weight", "arrival_time_s"),
        "deadline",
    ),
)
SHOCKWAVE = TableFormat(
    source="shockwave",
    rows=_shockwave,
    required=("job_id", "model", "scale_factor", "total_steps", "mode", "arrival_time_s"),
    numbers=(
        *("scale_factor", "total_steps", "duration_s", "priority_weight", "arrival_time_s"),
        "batch_size",
    ),
)
