"""The Helios logs (`<cluster>/cluster_log.csv`): Slurm jobs of four clusters, naive local times."""

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

REQUIRED = (
    *("job_id", "user", "vc", "gpu_num", "cpu_num", "node_num", "state"),
    *("submit_time", "start_time", "end_time"),
)
NUMBERS = ("gpu_num", "cpu_num", "node_num", "duration", "queue")


def recognises(header: Sequence[str]) -> bool:
    """Whether a header has the log's columns."""
    return set(header).issuperset(REQUIRED)


def read(path: Path, options: ReadOptions) -> Trace:
    """Read a cluster's log; the duration is taken anew, as end minus start.

    Raises:
        BadInput: see `normal_trace` and `read_table`.
    """
    ledger = Ledger(path, skip_bad_rows=options.skip_bad_rows)
    table = read_table(path, ledger, numbers=NUMBERS, required=REQUIRED)
    submit, start, end = (table.times(f"{event}_time") for event in ("submit", "start", "end"))
    rows = Rows.of(
        table,
        job_id=table.text("job_id"),
        status=table.statuses("state"),
        submit_time=submit.seconds,
        num_gpus=table.number("gpu_num"),
        duration=end.seconds - start.seconds,
        user=table.text("user"),
        vc=table.text("vc"),
        columns={
            "start_time": start.seconds,
            "end_time": end.seconds,
            "num_nodes": table.number("node_num"),
            "num_cpus": table.number("cpu_num"),
        },
    )
    return normal_trace(
        rows, ledger, options, name=stem_of(path), source="helios", is_log=True, zone=submit.zone
    )
