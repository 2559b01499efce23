"""The layout of Pollux' workloads as a table: trainings of measured applications.

`name,submit_s,application,num_replicas,batch_size`, and where a file holds several workloads, `set`
and `workload` (a number) before them: then one of them must be chosen. How long the jobs take, the
profile of their applications says; `num_replicas` and `batch_size` are what their users ask for.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from dlsched.core.errors import BadInput
from simulate.traces.ledger import Ledger
from simulate.traces.normal import Rows, Source, normal_trace
from simulate.traces.options import ReadOptions
from simulate.traces.table import Table, read_table
from simulate.traces.textfile import stem_of
from simulate.traces.trace import Trace

REQUIRED = ("name", "submit_s", "application", "num_replicas")
POLLUX = Source(source="pollux", has_durations=False)
NUMBERS = ("submit_s", "num_replicas", "batch_size")


def recognises(header: Sequence[str]) -> bool:
    """Whether a header names the required columns."""
    return set(header).issuperset((*REQUIRED, "batch_size"))


def read(path: Path, options: ReadOptions) -> Trace:
    """Read one workload; times stay as they are.

    Raises:
        BadInput: see `normal_trace` and `read_table`; a file of several workloads of which none is
            chosen, or one that it does not hold; batch sizes or GPUs that are not positive.
    """
    ledger = Ledger(path, skip_bad_rows=options.skip_bad_rows)
    table = read_table(path, ledger, numbers=NUMBERS, required=REQUIRED, unique=())
    chosen = choose_workload(table, options.workload)
    for name in ("num_replicas", "batch_size"):
        column = table.number(name)
        wrong = np.flatnonzero(~((column >= 1) & (column == np.floor(column))))
        if name == "batch_size":
            wrong = wrong[~np.isnan(column[wrong])]
        table.refuse(wrong, f"{name} is not whole", f"{name} must be a whole number from 1 up")
    rows = Rows.of(
        table,
        job_id=table.text("name"),
        submit_time=table.number("submit_s"),
        num_gpus=table.number("num_replicas"),
        duration=np.full(len(table), np.nan),
        columns={"model": table.text("application"), "batch_size": table.number("batch_size")},
    )
    rows.usable &= chosen
    name = f"{stem_of(path)} {options.workload}" if options.workload else ""
    return normal_trace(rows, ledger, options, POLLUX, name=name)


def choose_workload(table: Table, wanted: str | None) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """The rows of the workload that is wanted, as SET:NUMBER; all of a file that holds only one.

    Raises:
        BadInput: it is not there, or the file has several and none is named.
    """
    path = table.ledger.path
    if "workload" not in table.header:
        if wanted is not None:
            raise BadInput(f"--workload {wanted}: {path} holds one workload without a number")
        return np.ones(len(table), np.bool_)
    sets, numbers = table.text("set").tolist(), table.text("workload").tolist()
    keys = [
        f"{group}:{number}" if group else number
        for group, number in zip(sets, numbers, strict=True)
    ]
    there = list(dict.fromkeys(keys))
    if wanted is None and len(there) == 1:
        wanted = there[0]
    if wanted not in there:
        some = ", ".join(there[:8]) + (", …" if len(there) > 8 else "")
        problem = "choose one with --workload" if wanted is None else f"none is {wanted}"
        raise BadInput(f"{path}: holds {len(there)} workloads, {problem}; there are {some}")
    return np.array([key == wanted for key in keys], np.bool_)
