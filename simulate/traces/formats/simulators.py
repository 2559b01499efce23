"""The job streams of two published simulators, Tiresias and Blox; times stay as they are.

Tiresias: `job_id,num_gpu,submit_time,iterations,model_name,duration,interval`; `duration` is the
execution time needed [s], `interval` the gap to the next submit [s], and no policy uses
`iterations`.

Blox: `job_id,submit_time,num_gpus,duration` (which is also a native file), and
`job,round_delivered,submit,num_gpus,duration`, where `round_delivered` [s] is the round at which
the job reaches admission: in the time base of `submit`, and kept as a column. A column
`job_priority` becomes `priority` with the other sign: in Blox lower goes first.
"""

from __future__ import annotations

from dlsched.core.errors import BadInput
from simulate.traces.normal import Rows
from simulate.traces.table import Table
from simulate.traces.table_format import TableFormat

STREAM = ("job", "round_delivered", "submit", "num_gpus", "duration")
PLAIN = ("job_id", "submit_time", "num_gpus", "duration")


def _tiresias(table: Table) -> Rows:
    return Rows.of(
        table,
        job_id=table.text("job_id"),
        submit_time=table.number("submit_time"),
        num_gpus=table.number("num_gpu"),
        duration=table.number("duration"),
        columns={
            "model" if name == "model_name" else name: table.number(name)
            if name in table.numbers
            else table.text(name)
            for name in table.header
            if name not in TIRESIAS.required
        },
    )


def _blox(table: Table) -> Rows:
    is_stream = BLOX.recognises(table.header)
    if not is_stream and not set(table.header).issuperset(PLAIN):
        raise BadInput(f"{table.ledger.path}:1: neither {','.join(PLAIN)} nor {','.join(STREAM)}")
    columns = {"round_delivered": table.number("round_delivered")} if is_stream else {}
    if "job_priority" in table.header:
        columns["priority"] = -table.number("job_priority")
    return Rows.of(
        table,
        job_id=table.text("job" if is_stream else "job_id"),
        submit_time=table.number("submit" if is_stream else "submit_time"),
        num_gpus=table.number("num_gpus"),
        duration=table.number("duration"),
        columns=columns,
    )


TIRESIAS = TableFormat(
    source="tiresias",
    rows=_tiresias,
    required=("job_id", "num_gpu", "submit_time", "duration"),
    numbers=("num_gpu", "submit_time", "iterations", "duration", "interval"),
    marks=("job_id", "num_gpu", "submit_time", "duration", "iterations"),
)
BLOX = TableFormat(
    source="blox",
    rows=_blox,
    required=("num_gpus", "duration"),
    numbers=(
        *("round_delivered", "submit", "submit_time", "num_gpus", "duration", "job_priority"),
    ),
    marks=STREAM,  # the plain layout is read as native
    unique=("job", "job_id"),
)
