"""The layout of Shockwave's traces as tables: jobs that may adapt their batch size.

`job_id,model,batch_size,scale_factor,total_steps,mode,duration_s,priority_weight,arrival_time_s`.
Batch size and steps are those at the start; `mode` is `static`, or the rule by which the batch size
changes: `accordion` or `gns`. It is kept as the column `batch_mode`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from simulate.traces.formats.gavel import check_steps
from simulate.traces.ledger import Ledger
from simulate.traces.normal import Rows, normal_trace
from simulate.traces.options import ReadOptions
from simulate.traces.table import read_table
from simulate.traces.textfile import stem_of
from simulate.traces.trace import Trace

__all__ = ["read", "recognises"]

REQUIRED = ("job_id", "model", "scale_factor", "total_steps", "mode", "arrival_time_s")
NUMBERS = (
    *("scale_factor", "total_steps", "duration_s", "priority_weight", "arrival_time_s"),
    "batch_size",
)
MODES = ("static", "accordion", "gns")


def recognises(header: Sequence[str]) -> bool:
    """Whether a header names the required columns."""
    return set(header).issuperset(REQUIRED)


def read(path: Path, options: ReadOptions) -> Trace:
    """Read a Shockwave trace; times stay as they are.

    Raises:
        BadInput: see `normal_trace` and `read_table`; steps or GPUs that are not a positive number,
            a negative weight, an unknown mode.
    """
    ledger = Ledger(path, skip_bad_rows=options.skip_bad_rows)
    table = read_table(path, ledger, numbers=NUMBERS, required=REQUIRED)
    weight = check_steps(table)
    mode = np.array([text.strip() or "static" for text in table.text("mode").tolist()], np.object_)
    table.refuse(
        np.flatnonzero(~np.isin(mode.astype(str), MODES)),
        "mode is unknown",
        f"mode must be one of {', '.join(MODES)}",
    )
    rows = Rows.of(
        table,
        job_id=table.text("job_id"),
        submit_time=table.number("arrival_time_s"),
        num_gpus=table.number("scale_factor"),
        duration=table.number("duration_s"),
        columns={
            "model": table.text("model"),
            "batch_size": table.number("batch_size"),
            "total_iterations": table.number("total_steps"),
            "weight": weight,
            "batch_mode": mode,
        },
    )
    return normal_trace(rows, ledger, options, name=stem_of(path), source="shockwave", is_log=False)
