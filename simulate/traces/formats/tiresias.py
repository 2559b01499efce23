"""The layout of the Tiresias simulator's trace files.

`job_id,num_gpu,submit_time,iterations,model_name,duration,interval`: `duration` is the execution
time needed [s], `interval` the gap to the next submit [s], `iterations` is unused by the policies.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from simulate.traces.ledger import Ledger
from simulate.traces.normal import Rows, normal_trace
from simulate.traces.options import ReadOptions
from simulate.traces.table import read_table
from simulate.traces.textfile import stem_of
from simulate.traces.trace import Trace

__all__ = ["read", "recognises"]

REQUIRED = ("job_id", "num_gpu", "submit_time", "duration")
NUMBERS = ("num_gpu", "submit_time", "iterations", "duration", "interval")


def recognises(header: Sequence[str]) -> bool:
    """Whether a header is this layout's (`num_gpu` and `iterations` tell it from others)."""
    return set(header).issuperset((*REQUIRED, "iterations"))


def read(path: Path, options: ReadOptions) -> Trace:
    """Read a Tiresias trace; times stay as they are.

    Raises:
        BadInput: see `normal_trace` and `read_table`.
    """
    ledger = Ledger(path, skip_bad_rows=options.skip_bad_rows)
    table = read_table(path, ledger, numbers=NUMBERS, required=REQUIRED)
    renamed = {"model_name": "model"}
    rows = Rows.of(
        table,
        job_id=table.text("job_id"),
        submit_time=table.number("submit_time"),
        num_gpus=table.number("num_gpu"),
        duration=table.number("duration"),
        columns={
            renamed.get(name, name): table.number(name) if name in NUMBERS else table.text(name)
            for name in table.header
            if name not in REQUIRED
        },
    )
    return normal_trace(rows, ledger, options, name=stem_of(path), source="tiresias", is_log=False)
