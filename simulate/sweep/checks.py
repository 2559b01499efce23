"""What can be known to be wrong before the first run of a sweep starts."""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from dlsched.core.arrays import Floats
from dlsched.core.cluster.description import Cluster, VirtualCluster
from dlsched.core.errors import BadInput, plural
from simulate.replay import prepare
from simulate.settings import RunSettings
from simulate.sweep.run import Inputs, Run
from simulate.traces.textfile import open_text
from simulate.traces.trace import Trace


def check_runs(inputs: Inputs, runs: Sequence[Run]) -> None:
    """Set up, without running, every combination of parts on every trace.

    Raises:
        BadInput: an option, a missing column, a tracked job: whatever `prepare` refuses.
    """
    checked: set[tuple[int, RunSettings]] = set()
    for run in runs:
        settings = replace(run.settings, load=None, seed=0)
        if (run.trace, settings) not in checked:
            checked.add((run.trace, settings))
            trace = inputs.traces[run.trace]
            prepare(trace, inputs.cluster, settings, **inputs.of_a_replay)


def check_fits(trace: Trace, cluster: Cluster, path: Path) -> None:
    """Refuse a trace with a job that no schedule of this cluster could ever run.

    Such a job says that trace and cluster were not meant for each other; what a placement cannot do
    (a gang over two nodes) is the policy's business, and a refusal in its results. The cluster has
    every node that is ever in service.

    Raises:
        BadInput: file, line where it can be found, the first such job and how many there are.
    """
    gangs = np.maximum(np.ceil(trace.num_gpus), 1.0)
    room, where = _room(trace, cluster)
    impossible = np.flatnonzero(gangs > room)
    if not impossible.size:
        _check_types(trace, cluster, path)
        return
    row = int(impossible[0])
    job = str(trace.job_id[row])
    raise BadInput(
        f"{path}{_line_of(job, path)}: job {job} asks for {plural(int(gangs[row]), 'GPU')}, "
        f"{where[row]} {room[row]:.0f}{_and_others(impossible.size - 1)}"
    )


def _and_others(others: int) -> str:
    also = f"; so do {others:,} more jobs" if others > 1 else "; so does another job"
    return f"{also if others else ''} (--skip-bad-rows refuses such jobs and goes on)"


def _room(trace: Trace, cluster: Cluster) -> tuple[Floats, Sequence[str]]:
    """GPUs that each job could get on the empty cluster, and words for where they are."""
    room = np.full(len(trace), float(cluster.total_gpus))
    where = ["the cluster has"] * len(trace)
    if not cluster.vcs:
        return room, where
    gpus = dict(zip(cluster.names, cluster.gpus.tolist(), strict=True))
    own = {vc.name: sum(gpus[name] for name in vc.nodes) for vc in cluster.vcs.values()}
    common = float(cluster.total_gpus - sum(own.values()))
    rooms: dict[str, float] = {}
    for name, vc in cluster.vcs.items():
        quota = math.inf
        above: VirtualCluster | None = vc
        while above is not None:
            quota = quota if above.gpus < 0 or above.borrow else min(quota, float(above.gpus))
            above = cluster.vcs.get(above.parent)
        rooms[name] = min(quota, float(own[name]) if vc.nodes else common)
    for row, name in enumerate(trace.vc.tolist()):
        room[row] = rooms.get(name, common)
        where[row] = f"vc {name} has" if name in rooms else "the nodes of no vc have"
    return room, where


def _check_types(trace: Trace, cluster: Cluster, path: Path) -> None:
    types = trace.columns.get("gpu_type")
    if types is None or len(cluster.gpu_types) < 2 or types.dtype != np.object_:
        return
    for text in dict.fromkeys(types.tolist()):
        wanted = [part.strip() for part in text.split("|") if part.strip()]
        if wanted and not any(part in cluster.gpu_types for part in wanted):
            rows = np.flatnonzero(types == text)
            job = str(trace.job_id[int(rows[0])])
            raise BadInput(
                f"{path}{_line_of(job, path)}: job {job} wants GPU type {text}, the cluster has "
                f"{', '.join(cluster.gpu_types)}{_and_others(rows.size - 1)}"
            )


def _line_of(job: str, path: Path) -> str:
    """`:LINE` of the first row that has the job's id in a field; "" where none has."""
    if not os.path.isfile(path):
        return ""
    try:
        with open_text(path) as text:
            rows = csv.reader(text)
            for fields in rows:
                if job in fields:
                    return f":{rows.line_num}"
    except BadInput:
        return ""  # another format, where lines say little
    return ""
