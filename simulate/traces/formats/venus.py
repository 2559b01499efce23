"""All arrivals of a few weeks at Venus, one of the Helios clusters.

`row,submit_time,user,num_gpus,num_cpus,num_nodes,duration_s,status`, naive local times; no start,
end or virtual cluster.
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

COLUMNS = (
    *("row", "submit_time", "user", "num_gpus", "num_cpus", "num_nodes", "duration_s", "status"),
)
NUMBERS = ("num_gpus", "num_cpus", "num_nodes", "duration_s")


def recognises(header: Sequence[str]) -> bool:
    """Whether a header has the excerpt's columns (`num_cpus` tells it from Philly's attempts)."""
    return set(header).issuperset(COLUMNS)


def read(path: Path, options: ReadOptions) -> Trace:
    """Read the excerpt; a job is named by its `row`.

    Raises:
        BadInput: see `normal_trace` and `read_table`.
    """
    ledger = Ledger(path, skip_bad_rows=options.skip_bad_rows)
    table = read_table(path, ledger, numbers=NUMBERS, required=COLUMNS, unique=("row",))
    submit = table.times("submit_time")
    rows = Rows.of(
        table,
        job_id=table.text("row"),
        status=table.statuses("status"),
        submit_time=submit.seconds,
        num_gpus=table.number("num_gpus"),
        duration=table.number("duration_s"),
        user=table.text("user"),
        columns={"num_nodes": table.number("num_nodes"), "num_cpus": table.number("num_cpus")},
    )
    return normal_trace(
        rows, ledger, options, name=stem_of(path), source="venus", is_log=True, zone=submit.zone
    )
