"""Gavel's objectives on random instances, against the artifact and independent exact programs.

Gavel (OSDI 2020) and its published code. Objectives to 1e-5 relative: the artifact's interior-point
solver and the exact programs agree to 1e-6. Allocations only where they are unique.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlsched.policies.scheduling.gavel import Entity, Problem, Shares, Solver
from dlsched.policies.scheduling.gavel.objectives.allox import Places
from dlsched.policies.scheduling.gavel.problem import isolated_share, proportional_rate, rates

ROOT = Path(os.environ.get("DLSCHED_DATA", Path(__file__).parents[3] / "shared" / "data"))
FOLDER = ROOT / "gavel"
OBJECTIVE = 1e-5
EXACT = 1e-9  # the file prints nine decimals of closed forms
PRICES = {"v100": 0.74, "p100": 0.43, "k80": 0.135}

pytestmark = pytest.mark.fidelity

Case = dict[str, Any]


def cases(pattern: str, marks: str) -> list[Any]:
    """The instances of all files of a kind: those whose cases have a field."""
    found = []
    for path in sorted(FOLDER.glob(pattern)):
        found += [case for case in json.loads(path.read_text()) if marks in case]
    if not found:
        reason = f"no {pattern} in {FOLDER} (set DLSCHED_DATA)"
        return [pytest.param({}, marks=pytest.mark.skip(reason=reason), id="none")]
    return [pytest.param(case, id=case["name"]) for case in found]


POLICY_CASES = cases("*policy_cases*.json", "expected")
HIERARCHICAL_CASES = cases("*hierarchical_cases*.json", "entities")


def problem(case: Case) -> Problem:
    types = sorted(case["cluster"])
    jobs = case["jobs"]
    steps = "steps_remaining" in jobs[0]
    return Problem.of(
        [[job["throughput"][kind] for kind in types] for job in jobs],
        [case["cluster"][kind] for kind in types],
        ids=[job["job_id"] for job in jobs],
        types=types,
        scale=[job["scale_factor"] for job in jobs],
        weight=[job["priority_weight"] for job in jobs],
        remaining=[job["steps_remaining"] for job in jobs] if steps else None,
        elapsed=[job["time_since_submit_s"] for job in jobs] if steps else None,
        price=[PRICES[kind] for kind in types],
        entities=[
            Entity(jobs=tuple(e["jobs"]), weight=e["weight"], policy=e["policy"])
            for e in case.get("entities", {}).values()
        ],
    )


def solved(case: Case, objective: str) -> tuple[Problem, Shares]:
    given = problem(case)
    return given, Solver(objective).solve(given, np.random.default_rng(0)).shares


@pytest.mark.parametrize("case", POLICY_CASES)
def test_equal_splits_are_those_of_the_artifact(case: Case) -> None:
    given, expected = problem(case), case["expected"]
    assert proportional_rate(given) == pytest.approx(expected["proportional_throughput"], rel=1e-9)
    assert isolated_share(given) == pytest.approx(
        np.array(expected["isolated_allocation"]), abs=EXACT
    )
    assert (solved(case, "isolated")[1].x == isolated_share(given)).all()


@pytest.mark.parametrize("case", POLICY_CASES)
@pytest.mark.parametrize(
    ("objective", "policy", "field"),
    [
        ("max-min", "max_min_fairness_perf", "objective_exact_lp"),
        ("max-min-agnostic", "max_min_fairness", "objective_exact_lp"),
        ("max-throughput", "max_sum_throughput_perf", "objective_artifact"),
        ("cost", "max_sum_throughput_normalized_by_cost_perf", "objective_artifact"),
        ("makespan", "min_total_duration_perf", "T_exact_s"),
        ("ftf", "finish_time_fairness_perf", "rho_exact"),
    ],
    ids=lambda value: value if "_" not in value else "",
)
def test_objectives_reach_the_exact_optimum(
    case: Case, objective: str, policy: str, field: str
) -> None:
    expected = case["expected"].get(policy)
    if expected is None:
        pytest.skip(f"the case has no {policy}")
    found = solved(case, objective)[1].objective
    assert found == pytest.approx(expected[field], rel=1e-6 if objective == "ftf" else OBJECTIVE)


@pytest.mark.parametrize("case", POLICY_CASES)
def test_water_filling_reaches_every_level(case: Case) -> None:
    expected = case["expected"].get("water_filling_perf")
    if expected is None:
        pytest.skip("the case has no water_filling_perf")
    given, shares = solved(case, "water-filling")
    y = rates(given, shares) / proportional_rate(given)
    level = y * given.scale / given.weight  # what the file calls the normalised level
    assert level == pytest.approx(expected["normalised_level_exact"], rel=OBJECTIVE)


@pytest.mark.parametrize("case", POLICY_CASES)
def test_first_come_first_served_gives_the_same_types(case: Case) -> None:
    given, shares = solved(case, "fifo")
    assert types_of(given, shares) == case["expected"]["fifo_perf_allocation"]


def types_of(given: Problem, shares: Shares) -> dict[str, str]:
    return {
        str(given.ids[row]): given.types[kind] for row, kind in np.argwhere(shares.x > 0).tolist()
    }


@pytest.mark.parametrize("case", POLICY_CASES)
def test_allox_starts_the_same_jobs_or_ones_that_come_to_the_same(case: Case) -> None:
    """Workers of a type are alike, so which of equally placed jobs is first is a free choice.

    The artifact's first jobs must be those of *some* matching of least cost: with them put in
    front, the cheapest matching may not cost more.
    """
    expected = case["expected"].get("allox_allocation_alpha1")
    if expected is None:
        pytest.skip("the case has no allox_allocation_alpha1")
    given, shares = solved(case, "allox")
    found = types_of(given, shares)
    if found == expected:
        return
    assert sorted(found.values()) == sorted(expected.values())
    time = given.remaining[:, None] / np.maximum(given.throughput, 1e-10)
    scale = np.ones(given.size, np.int64)
    workers = given.workers.astype(np.int64)
    best = Places(time, scale, workers).cost()
    pinned = time.copy()
    for job, kind in expected.items():
        row = given.ids.tolist().index(int(job))
        others = np.arange(len(given.types)) != given.types.index(kind)
        pinned[row, others] = np.inf
    places = Places(pinned, scale, workers)
    assert places.cost() == pytest.approx(best, rel=1e-9)


@pytest.mark.parametrize("case", HIERARCHICAL_CASES)
def test_hierarchical_fairness_gives_every_job_the_same(case: Case) -> None:
    given, shares = solved(case, "hierarchical")
    y = rates(given, shares) / proportional_rate(given)
    assert y == pytest.approx(case["expected_normalised_throughput_lp"], abs=1e-5)
