"""Leaving out the jobs that a throughput table does not know (`--skip-bad-rows`)."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np

from dlsched.core.cluster.description import Cluster
from dlsched.core.errors import BadInput
from dlsched.core.speed.throughput_table import JobKind, ThroughputTable
from simulate.traces.trace import Trace


def without_unprofiled(trace: Trace, cluster: Cluster, table: ThroughputTable) -> Trace:
    """The jobs that the table knows on the cluster's types; the others are counted by reason.

    Raises:
        BadInput: no job is left.
    """
    dropped: Counter[str] = Counter()
    known: dict[tuple[JobKind, int], str] = {}
    kept = np.ones(len(trace), np.bool_)
    models = trace.columns.get("model")
    sizes = trace.columns.get("batch_size")
    steps = trace.columns.get("total_iterations")
    for row in range(len(trace)):
        why = ""
        if models is None or not models[row]:
            why = "no model"
        elif steps is None or np.isnan(steps[row]):
            why = "no total_iterations"
        elif steps[row] <= 0:
            why = "total_iterations not above 0"
        else:
            size = np.nan if sizes is None else float(sizes[row])
            kind = JobKind(str(models[row]), None if np.isnan(size) else int(size))
            key = kind, max(int(np.ceil(trace.num_gpus[row])), 1)
            if key not in known:
                known[key] = _why_not(*key, cluster, table)
            why = known[key]
        if why:
            kept[row] = False
            dropped[why] += 1
    if kept.all():
        return trace
    if not kept.any():
        reasons = ", ".join(f"{count} x {reason}" for reason, count in dropped.items())
        raise BadInput(f"{trace.name}: no job is left to replay ({reasons})")
    columns = ("job_id", "submit_time", "num_gpus", "duration", "user", "vc", "status")
    return replace(
        trace,
        **{name: getattr(trace, name)[kept] for name in columns},
        columns={name: column[kept] for name, column in trace.columns.items()},
        dropped={**trace.dropped, **dropped},
    )


def _why_not(kind: JobKind, gang: int, cluster: Cluster, table: ThroughputTable) -> str:
    """Why a job of this kind cannot be replayed; "" when it can."""
    types = [name for name in cluster.gpu_types if name in table.types]
    try:
        speed = table.speeds(table.codes([kind]), np.array([gang]), types)
    except BadInput:
        return "not in the profile"
    return "" if (speed > 0).any() else "throughput 0 everywhere"
