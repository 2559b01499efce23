"""Questions for Pollux: the worked small one, random ones, all states of a small one."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from dlsched.core.goodput.params import BatchLimits, GradParams, PerfParams
from dlsched.policies.scheduling.pollux.feasible import is_feasible, repaired
from dlsched.policies.scheduling.pollux.problem import Problem, fair_replicas, restart_factor
from dlsched.policies.scheduling.pollux.speedups import Model, Tables, speedup_tables

MEASURED = (  # fitted to real trainings: speed, then (noise, batch limits)
    ((0.0179, 0.00069, 0.1197, 0.00316, 0.0313, 0.00197, 2.04), (0.1, 60.0), (128, 4096, 32, 1024)),
    ((0.1698, 0.0586, 1.3363, 0.0178, 0.2629, 0.0168, 1.80), (1.0, 40.0), (12, 384, 2, 12)),
    ((0.3026, 0.0241, 0.3771, 0.0318, 0.0920, 0.0060, 1.41), (1.0, 30.0), (20, 640, 5, 80)),
    ((0.0658, 0.0044, 0.2899, 0.0080, 0.0735, 0.0001, 2.45), (1.0, 120.0), (200, 12800, 16, 256)),
    ((0.1871, 0.0262, 0.7019, 0.0289, 0.1298, 0.0323, 1.19), (1.0, 20.0), (8, 512, 4, 16)),
)


def worked(age_c: float = 45.0) -> Problem:
    """Three jobs on two nodes of four GPUs, of which one has no model yet."""
    perf = PerfParams(
        *np.array(
            [
                (0.05, 0.002, 0.10, 0.01, 0.02, 0.003, 1.5),
                (0.2, 0.01, 0.30, 0.03, 0.05, 0.005, 1.2),
                [np.nan] * 7,
            ]
        ).T
    )
    grads = GradParams(np.array([0.5, 0.05, np.nan]), np.array([4.0, 5.0, np.nan]))
    limits = BatchLimits(
        initial=np.array([128.0, 20.0, 1.0]),
        maximum=np.array([4096.0, 640.0, 1.0]),
        local_min=np.array([32.0, 10.0, 1.0]),
        local_max=np.array([256.0, 80.0, 1.0]),
        accumulation=np.ones(3, np.bool_),
        fixed=np.zeros(3, np.bool_),
    )
    model, most = Model(perf, grads, limits), np.array([8, 8, 1])
    goodput = Tables().goodput(np.arange(3), np.zeros(3, np.int64), model, most)
    fair = fair_replicas(8, 3)
    base = model.goodput(np.array([1]), np.array([fair]))[:, 0]
    return Problem(
        speedup=speedup_tables(goodput, base, fair),
        weight=np.full(3, 2 / 8),
        factor=restart_factor(np.array([600.0, 1200.0, age_c]), np.array([1, 0, 0]), 30.0),
        base=np.array([[2, 0], [2, 0], [0, 0]]),
        capacity=np.array([4, 4]),
        allowed=np.ones((3, 2), np.bool_),
        least=np.ones(3, np.int64),
        most=most,
        pinned=np.zeros(3, np.bool_),
    )


def every_state(problem: Problem) -> Any:
    """All states that may be, [state, job, node]."""
    rows = [
        [
            row
            for row in itertools.product(*(range(int(c) + 1) for c in problem.capacity))
            if sum(row) <= most
        ]
        for most in problem.most.tolist()
    ]
    states = np.array(list(itertools.product(*rows)), np.int64)
    return states[is_feasible(problem, states)]


def random_problem(
    jobs: int,
    nodes: int,
    rng: np.random.Generator,
    *,
    per_node: int = 4,
    exponent: float | None = -1.0,
    apart: bool = True,
) -> Problem:
    """Jobs like real ones, of different ages, in the middle of a run.

    Some hold GPUs as an earlier round may have left them, some wait, some have no model yet.
    """
    kind = rng.integers(0, len(MEASURED), jobs)
    noise = rng.lognormal(0.0, 1.0, jobs)
    perf = np.array([MEASURED[k][0] for k in kind]) * rng.lognormal(0.0, 0.1, (jobs, 1))
    perf[:, 6] = np.clip(perf[:, 6], 1.0, 10.0)
    grads = np.array([MEASURED[k][1] for k in kind])
    limits = np.array([MEASURED[k][2] for k in kind], np.float64)
    perf[rng.random(jobs) < 0.1] = np.nan
    model = Model(
        PerfParams(*perf.T),
        GradParams(grads[:, 0], grads[:, 1] * noise),
        BatchLimits(limits[:, 0], limits[:, 1], limits[:, 2], limits[:, 3]),
    )
    seen = np.where(np.isnan(perf[:, 0]), 0, 2 ** rng.integers(0, 6, jobs))
    most = np.clip(2 * seen, 1, np.minimum(limits[:, 1] // limits[:, 2], 64)).astype(np.int64)
    gpus = nodes * per_node
    fair = fair_replicas(gpus, jobs)
    base = model.goodput(np.array([1]), np.array([fair]))[:, 0]
    goodput = Tables().goodput(np.arange(jobs), np.zeros(jobs, np.int64), model, most)
    problem = Problem(
        speedup=speedup_tables(goodput, base, fair),
        weight=np.full(jobs, nodes / gpus),
        factor=restart_factor(rng.exponential(2000.0, jobs), rng.poisson(3.0, jobs), 30.0),
        base=np.zeros((jobs, nodes), np.int64),
        capacity=np.full(nodes, per_node),
        allowed=np.ones((jobs, nodes), np.bool_),
        least=np.ones(jobs, np.int64),
        most=most,
        pinned=np.zeros(jobs, np.bool_),
        exponent=exponent,
        apart=apart,
    )
    wanted = np.zeros((jobs, nodes), np.int64)
    for job in rng.permutation(jobs).tolist():
        if rng.random() < 0.8:
            spans = int(rng.integers(1, 4)) if rng.random() < 0.3 else 1
            where = rng.choice(nodes, min(spans, nodes), replace=False)
            wanted[job, where] = rng.integers(1, per_node + 1, len(where))
    problem.base[:] = repaired(problem, wanted, rng)
    return problem
