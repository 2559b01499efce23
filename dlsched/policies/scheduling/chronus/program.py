"""Planning leases by the 0-1 program of the paper, in HiGHS.

x says whether a row holds a lease, s whether it is the row that serves its job:

    max  Σ_r v_r s_r + σ Σ_r G_r x_r0 / max_i C_i
    Σ_(i < max_r) x_ri = req_r s_r;   Σ_r G_r x_ri <= C_i for each lease i;   Σ_(r of a job) s_r = 1

σ is -1 to keep the present lease free, or +1 to fill it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from dlsched.core.arrays import Floats, Ints
from dlsched.core.sums import ordered_sum
from dlsched.policies.highs import Limits, MixedProgram
from dlsched.policies.scheduling.chronus.leases import Row, capacity_for


def best_plan(
    rows: Sequence[Row],
    total: int,
    booked: Ints,
    *,
    sigma: int,
    limits: Limits,
    start: Mapping[int, Ints] | None = None,
) -> tuple[Mapping[int, Ints], float] | None:
    """Leases by job, and the objective; None where there is no plan for all within the limits.

    Args:
        rows: the requests, one for each deadline of a job.
        total: GPUs of the cluster.
        booked: GPUs that are booked in each lease.
        sigma: -1 or +1, as above.
        limits: when the search ends.
        start: a plan, by job, from which the search starts; of plans of equal value it is kept.
    """
    capacity = capacity_for(rows, total, booked)
    if not len(capacity):
        return None
    program = MixedProgram()
    most = float(capacity.max())
    in_lease: list[dict[int, float]] = [{} for _ in capacity]
    serving: dict[int, dict[int, float]] = {}
    columns: list[list[int]] = []
    for row in rows:
        serves = program.column(row.value, 0.0, 1.0, whole=True)
        leases = []
        for lease in range(row.most):
            gain = sigma * row.gpus / most if lease == 0 else 0.0
            leases.append(program.column(gain, 0.0, 1.0, whole=True))
            in_lease[lease][leases[-1]] = float(row.gpus)
        program.row(0.0, 0.0, {serves: -float(row.leases), **dict.fromkeys(leases, 1.0)})
        serving.setdefault(row.job, {})[serves] = 1.0
        columns.append(leases)
    for used, room in zip(in_lease, capacity.tolist(), strict=True):
        if ordered_sum(used.values()) > room:
            program.row(0.0, float(room), used)
    for ways in serving.values():
        program.row(1.0, 1.0, ways)
    guess = None if start is None else _solution(rows, columns, start, len(program.cost))
    found = program.solve(limits, guess)
    if found is None:
        return None
    x, objective, _ = found
    plans = {
        row.job: np.array([at for at, column in enumerate(leases) if x[column] > 0.5], np.int64)
        for row, leases in zip(rows, columns, strict=True)
        if any(x[column] > 0.5 for column in leases)
    }
    return plans, objective


def _solution(
    rows: Sequence[Row], columns: Sequence[list[int]], plans: Mapping[int, Ints], size: int
) -> Floats:
    """Plans as values of the program's columns; a row's s is the column before its leases."""
    x = np.zeros(size)
    served: set[int] = set()
    for row, leases in zip(rows, columns, strict=True):
        plan = plans.get(row.job)
        if plan is None or row.job in served or len(plan) != row.leases:
            continue
        if not len(plan) or plan.max() < row.most:
            served.add(row.job)
            x[[leases[at] for at in plan]] = 1.0
            if leases:
                x[leases[0] - 1] = 1.0
    return x
