"""Shockwave's planner: tiny programs whose optima are known, and the whole policy on its trace.

The inputs of the tiny cases are those under which the published planner was run; several solvers
agree on the optima. A whole run cannot be equal, since the authors' programs stopped at a time
limit; its figures are compared with theirs.
"""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlsched.core.cluster.description import parse_cluster_spec
from dlsched.core.speed.epochs import EpochProfile
from dlsched.policies.highs import Limits
from dlsched.policies.scheduling.shockwave.finish_times import (
    Target,
    remaining_seconds,
    whole_seconds,
)
from dlsched.policies.scheduling.shockwave.programs import make_plan
from dlsched.policies.scheduling.shockwave.window import Window
from simulate.profiles.open import open_profiles
from simulate.replay import replay
from simulate.settings import RunSettings
from simulate.traces.open import open_trace

ROOT = Path(os.environ.get("DLSCHED_DATA", Path(__file__).parents[3] / "shared" / "data"))
FOLDER = ROOT / "shockwave"
TINY = FOLDER / "tiny_planner_cases.json"
AUTHORS = FOLDER / "authors_tacc32_shockwave.json.gz"

Segments = list[tuple[int, int, float]]  # epochs, batch size, seconds each
# by the letter of a case: GPUs, planned rounds, present round, (segments, gang, epochs done) a job
INPUTS: dict[str, tuple[int, int, int, list[tuple[Segments, int, int]]]] = {
    "A": (
        2,
        4,
        0,
        [
            ([(10, 32, 60.0)], 1, 0),
            ([(5, 32, 60.0), (5, 64, 30.0)], 1, 0),
            ([(6, 32, 120.0)], 1, 0),
        ],
    ),
    "B": (
        2,
        4,
        10,
        [
            ([(10, 32, 60.0)], 2, 0),
            ([(20, 32, 60.0)], 1, 0),
            ([(6, 32, 120.0)], 1, 2),
            ([(3, 32, 120.0)], 1, 0),
        ],
    ),
    "C": (
        3,
        5,
        0,
        [([(10, 32, 60.0)], 1, 0), ([(20, 32, 60.0)], 1, 0), ([(6, 32, 120.0)], 1, 0)],
    ),
}

pytestmark = pytest.mark.fidelity


def cases() -> list[dict[str, Any]]:
    """Those whose inputs are known."""
    if not TINY.exists():
        return []
    found: list[dict[str, Any]] = json.loads(TINY.read_text())
    return [case for case in found if case["name"][0] in INPUTS]


@pytest.mark.skipif(not cases(), reason=f"no {TINY}")
@pytest.mark.parametrize("case", cases(), ids=lambda case: f"{case['name'][0]}-{case['solver']}")
def test_a_tiny_window_is_planned_to_its_optimum(case: dict[str, Any]) -> None:
    gpus, rounds, number, jobs = INPUTS[case["name"][0]]
    profiles = [EpochProfile.of_segments(segments) for segments, _, _ in jobs]
    finished = [done for *_, done in jobs]
    left = [remaining_seconds(*each) for each in zip(profiles, finished, strict=True)]
    share = min(1.0, gpus / len(jobs))
    targets = []
    for profile, done, rest in zip(profiles, finished, left, strict=True):
        target = Target()
        target.note((float(whole_seconds(profile)[:done].sum()) + rest) / share, number)
        targets.append(target.at(number))
    assert left == pytest.approx(list(case["posterior_remaining_s"].values()), rel=1e-12)
    assert targets == pytest.approx(list(case["finish_time_objective_s"].values()), rel=1e-12)

    plan = make_plan(
        Window(
            gang=np.array([gang for _, gang, _ in jobs]),
            epochs=np.array([len(profile) for profile in profiles]),
            finished=np.array(finished),
            epoch_s=np.array(
                [p.seconds[: done + 1].mean() for p, done in zip(profiles, finished, strict=True)]
            ),
            left_s=np.array(left),
            target_s=np.array(targets),
            gpus=gpus,
            now_s=number * 120.0,
            round_s=120.0,
            rounds=rounds,
            active=len(jobs),
        ),
        makespan=1e-3,
        power=12.0,
        fairness=1.0,
        limits=Limits(gap=0.0),
    )
    welfare, order = (objective for _, objective in case["solves"][1:])
    assert plan.program == 2  # the first program is infeasible in all of them
    assert plan.objective == pytest.approx(welfare, rel=1e-9)
    assert plan.order == pytest.approx(order, rel=1e-9)


@pytest.mark.slow
@pytest.mark.skipif(not AUTHORS.exists(), reason=f"no {AUTHORS}")
def test_a_whole_run_is_as_good_as_the_authors() -> None:
    with gzip.open(AUTHORS, "rt") as file:
        authors = json.load(file)
    throughputs, patterns, *_ = open_profiles(
        f"{FOLDER / 'tacc_throughputs.csv.gz'},{FOLDER / 'gns_batch_size_pattern.csv'}"
    )
    result = replay(
        open_trace(FOLDER / authors["trace"]),
        parse_cluster_spec(f"{authors['gpus']}x1:v100"),
        RunSettings(policy="shockwave", options=("semantics=shockwave",), record=False),
        throughputs=throughputs,
        patterns=patterns,
    )
    fairness = result.summary["finish_time_fairness"]
    assert result.summary["avg_jct"] == pytest.approx(authors["avg_jct_s"], rel=0.1)
    assert result.summary["makespan"] == pytest.approx(authors["makespan_s"], rel=0.1)
    assert fairness["max"] <= authors["worst_ftf_static"]
    assert fairness["unfair_fraction"] <= authors["unfair_fraction_static"] + 0.05
