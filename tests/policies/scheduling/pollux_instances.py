"""The worked question for Pollux, and all states of a small one."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from dlsched.core.goodput.params import BatchLimits, GradParams, PerfParams
from dlsched.policies.scheduling.pollux.problem import (
    Problem,
    fair_replicas,
    is_feasible,
    restart_factor,
)
from dlsched.policies.scheduling.pollux.speedups import Model, Tables, speedup_tables


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
