"""The three programs over the window, as mixed-integer programs in HiGHS.

Program 1 maximises the social welfare (the sum of the logarithms of progress) minus the longest
remaining time, such that every target is met. Program 2 has no targets, and late jobs have larger
weights. Program 3 keeps the number of rounds of each job and moves urgent jobs to the front.

The logarithm of progress is linear between six points. It is concave and maximised, so bounds by
its five lines are equivalent to the special ordered sets of the paper, without their variables.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np

from dlsched.core.arrays import Bools, Floats
from dlsched.policies.highs import Limits, MixedProgram
from dlsched.policies.scheduling.shockwave.window import Plan, Window

BASES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
ORIGIN = 1e-6  # stands for no progress at all, since the logarithm of 0 is infinite


def make_plan(
    window: Window,
    *,
    makespan: float,
    power: float,
    fairness: float,
    limits: Limits,
) -> Plan:
    """Plan the window.

    Args:
        window: jobs and rounds.
        makespan: weight of the longest remaining time.
        power: exponent of the lateness of jobs that miss their targets.
        fairness: how many times its target a job may take.
        limits: when the search for a solution stops.
    """
    spare = window.share * (
        fairness * window.target_s - (window.now_s + window.round_s * window.rounds)
    )
    found = None
    if (spare >= 0).all():  # else the target of some job lies inside the window
        found = _welfare(window, np.zeros(len(window)), makespan, limits, spare)
    if found is not None:
        runs, objective, gap = found
        return Plan(runs=runs, program=1, objective=objective, order=math.nan, gap=gap)
    urgency = window.urgency(power, fairness)
    found = _welfare(window, urgency, makespan, limits, None)
    if found is None:
        nothing = np.zeros((len(window), window.rounds), np.bool_)
        return Plan(runs=nothing, program=2, objective=math.nan, order=math.nan, gap=math.inf)
    runs, objective, gap = found
    ordered = _order(window, urgency, runs, limits)
    if ordered is None:
        return Plan(runs=runs, program=2, objective=objective, order=math.nan, gap=gap)
    return Plan(runs=ordered[0], program=2, objective=objective, order=ordered[1], gap=gap)


def _welfare(
    window: Window, urgency: Floats, makespan: float, limits: Limits, spare: Floats | None
) -> tuple[Bools, float, float] | None:
    """Program 1 (with `spare`, the most remaining time of each job) or 2 (without)."""
    jobs, rounds = len(window), window.rounds
    program = MixedProgram()
    weight = np.exp(urgency) / (jobs * rounds)
    longest = program.column(-makespan, 0.0, math.inf)
    on = [[program.column(0.0, 0.0, 1.0, whole=True) for _ in range(rounds)] for _ in range(jobs)]
    for number in range(rounds):
        gangs = {on[job][number]: float(window.gang[job]) for job in range(jobs)}
        program.row(-math.inf, float(window.gpus), gangs)
    for job in range(jobs):
        epochs, finished = float(window.epochs[job]), float(window.finished[job])
        each, left = float(window.epoch_s[job]), float(window.left_s[job])
        more = program.column(0.0, 0.0, max(epochs - finished, 0.0))
        done = program.column(float(weight[job]), math.log(ORIGIN), 0.0)
        used = dict.fromkeys(on[job], -window.round_s)
        program.row(-math.inf, 0.0, {more: each, **used})
        for base, following in pairwise(BASES):
            at, then = math.log(max(base, ORIGIN)), math.log(following)
            slope = (then - at) / (following - base)
            reach = at + slope * (finished / epochs - base)
            program.row(-math.inf, reach, {done: 1.0, more: -slope / epochs})
        program.row(left, math.inf, {longest: 1.0, more: each})
        if spare is not None:
            program.row(left - float(spare[job]), math.inf, {more: each})
    found = program.solve(limits, None)
    if found is None:
        return None
    x, objective, gap = found
    return x[np.array(on, np.int64).reshape(jobs, rounds)] > 0.5, objective, gap


def _order(
    window: Window, urgency: Floats, runs: Bools, limits: Limits
) -> tuple[Bools, float] | None:
    """Program 3: as many rounds for each job as before, urgent jobs first."""
    counts = runs.sum(axis=1)
    jobs = np.flatnonzero(counts).tolist()
    program = MixedProgram()
    weight = np.exp(urgency)
    on = {
        job: [
            program.column(-float(weight[job]) * number / float(counts[job]), 0.0, 1.0, whole=True)
            for number in range(window.rounds)
        ]
        for job in jobs
    }
    if not jobs:
        return runs, 0.0
    for number in range(window.rounds):
        gangs = {on[job][number]: float(window.gang[job]) for job in jobs}
        program.row(-math.inf, float(window.gpus), gangs)
    for job in jobs:
        kept = float(counts[job])
        program.row(kept, kept, dict.fromkeys(on[job], 1.0))
    found = program.solve(limits, runs[jobs].astype(np.float64).ravel())
    if found is None:
        return None
    x, objective, _ = found
    moved = np.zeros_like(runs)
    moved[jobs] = x.reshape(len(jobs), window.rounds) > 0.5
    return moved, -objective
