"""The layouts of the Blox toolkit's job streams.

`job_id,submit_time,num_gpus,duration` (which is also a native file), and
`job,round_delivered,submit,num_gpus,duration`, where `round_delivered` [s] is the round at which
the job reaches admission: in the time base of `submit`, and kept as a column.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dlsched.core.errors import BadInput
from simulate.traces.ledger import Ledger
from simulate.traces.normal import Rows, normal_trace
from simulate.traces.options import ReadOptions
from simulate.traces.table import read_table
from simulate.traces.textfile import stem_of
from simulate.traces.trace import Trace

__all__ = ["read", "recognises"]

STREAM = ("job", "round_delivered", "submit", "num_gpus", "duration")
PLAIN = ("job_id", "submit_time", "num_gpus", "duration")
NUMBERS = ("round_delivered", "submit", "submit_time", "num_gpus", "duration")


def recognises(header: Sequence[str]) -> bool:
    """Whether a header is that of a delivered stream; the plain layout is read as native."""
    return set(header).issuperset(STREAM)


def read(path: Path, options: ReadOptions) -> Trace:
    """Read a Blox job stream; times stay as they are.

    Raises:
        BadInput: see `normal_trace` and `read_table`; neither layout's columns are there.
    """
    ledger = Ledger(path, skip_bad_rows=options.skip_bad_rows)
    table = read_table(
        path, ledger, numbers=NUMBERS, required=("num_gpus", "duration"), unique=("job", "job_id")
    )
    is_stream = recognises(table.header)
    if not is_stream and not set(table.header).issuperset(PLAIN):
        raise BadInput(f"{path}:1: neither {','.join(PLAIN)} nor {','.join(STREAM)}")
    rows = Rows.of(
        table,
        job_id=table.text("job" if is_stream else "job_id"),
        submit_time=table.number("submit" if is_stream else "submit_time"),
        num_gpus=table.number("num_gpus"),
        duration=table.number("duration"),
        columns={"round_delivered": table.number("round_delivered")} if is_stream else {},
    )
    return normal_trace(rows, ledger, options, name=stem_of(path), source="blox", is_log=False)
