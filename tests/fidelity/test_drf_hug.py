"""DRF and HUG on random instances, in exact fractions; orders and runs of reference programs.

Tolerance 0, except for the two rules of comparison, whose expected values are floats.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from dlsched.policies.fairness.drf import dominant_share, filled
from dlsched.policies.fairness.hug import utilised
from tests.policies.fairness_comparison import asset_fair, competitive, precedence, progress, served

ROOT = Path(os.environ.get("DLSCHED_DATA", Path(__file__).parents[3] / "shared" / "data"))
FOLDER = ROOT / "classic"

pytestmark = pytest.mark.fidelity

Case = dict[str, Any]


def cases(pattern: str, marks: str) -> list[Any]:
    """Cases of all files of a kind that have a field."""
    found = [
        case
        for path in sorted(FOLDER.glob(pattern))
        for case in json.loads(path.read_text())
        if marks in case
    ]
    if not found:
        reason = f"no {pattern} in {FOLDER} (set DLSCHED_DATA)"
        return [pytest.param({}, marks=pytest.mark.skip(reason=reason), id="none")]
    return [pytest.param(case, id=case["id"]) for case in found]


def exact(values: Any) -> list[Fraction]:
    return [Fraction(value) for value in values]


def exactly(rows: Any) -> list[list[Fraction]]:
    return [exact(row) for row in rows]


INSTANCES = cases("drf/*instances*.json", "R")


@pytest.mark.parametrize("case", INSTANCES)
def test_progressive_filling_is_exact(case: Case) -> None:
    capacity, demands, expected = exact(case["R"]), exactly(case["D"]), case["expected"]
    x = filled(capacity, demands, exact(case["w"]), case["cap"])
    assert x == exact(expected["x"])
    shares = [
        dominant_share([d * n for d in demand], capacity, weight)
        for demand, n, weight in zip(demands, x, case["w"], strict=True)
    ]
    assert [float(share) for share in shares] == pytest.approx(
        expected["weighted_dominant_share"], rel=1e-15
    )


@pytest.mark.parametrize("case", INSTANCES)
@pytest.mark.parametrize("misfit", ["stop", "skip"])
def test_whole_tasks_are_served_in_the_same_order(
    case: Case, misfit: Literal["stop", "skip"]
) -> None:
    found = served(
        exact(case["R"]), exactly(case["D"]), exact(case["w"]), case["cap"], misfit=misfit
    )
    expected = case["expected"][f"discrete_{misfit}"]
    assert (found.tasks, found.sequence) == (expected["tasks"], expected["sequence"])


@pytest.mark.parametrize("case", INSTANCES)
def test_the_rules_of_comparison_agree(case: Case) -> None:
    expected = case["expected"]
    if "asset_fairness_x" not in expected:
        pytest.skip("the case has no rules of comparison")
    assets = asset_fair(exact(case["R"]), exactly(case["D"]))
    assert [float(x) for x in assets] == pytest.approx(expected["asset_fairness_x"], rel=1e-9)
    income = competitive(np.array(case["R"], np.float64), np.array(case["D"], np.float64))
    assert income.tolist() == pytest.approx(expected["ceei_x"], rel=1e-6)


def vector(amounts: dict[str, float], total: dict[str, float]) -> list[Fraction]:
    return [Fraction(str(amounts.get(name, 0))) for name in total]


@pytest.mark.parametrize("case", cases("drf/*ordering*.json", "steps"))
def test_accounts_are_sorted_by_dominant_share(case: Case) -> None:
    for step in case["steps"]:
        capacity = vector(step["total"], step["total"])
        weights = step.get("weight", {})

        def key(
            name: str, step: Any = step, capacity: Any = capacity, weights: Any = weights
        ) -> tuple[Fraction, str]:
            used = vector(step["alloc"][name], step["total"])
            weight = Fraction(str(weights.get(name, 1)))
            return dominant_share(used, capacity, weight), name

        assert sorted(step["alloc"], key=key) == step["order"]


@pytest.mark.parametrize("case", cases("drf/*ordering*.json", "pairs"))
def test_ties_are_resolved_by_the_next_share(case: Case) -> None:
    for pair in case["pairs"]:
        total = pair["total"]
        first, second = (
            precedence(
                vector(pair[place], total),
                vector(total, total),
                Fraction(str(pair[place].get("weight", 1))),
            )
            for place in ("first", "second")
        )
        assert first < second


@pytest.mark.parametrize("case", cases("drf/*sim*.json", "jobs"))
def test_a_run_in_which_the_least_served_is_next(case: Case) -> None:
    """Releases, then arrivals, then the head of the queue of the user with the least share."""
    total = case["total"]
    capacity = vector(total, total)
    free, used = list(capacity), defaultdict(lambda: [Fraction(0)] * len(capacity))
    picks: dict[str, int] = defaultdict(int)
    queues: dict[str, list[Case]] = defaultdict(list)
    arriving = sorted(case["jobs"], key=lambda job: (job["arrival"], job["id"]))
    running: list[tuple[int, Case]] = []
    found: dict[str, list[int]] = {}

    def move(job: Case, sign: int) -> None:
        for j, amount in enumerate(vector(job["demand"], total)):
            free[j] -= sign * amount
            used[job["user"]][j] += sign * amount

    def urgency(user: str) -> tuple[Fraction, int, str]:
        weight = Fraction(str(case["weights"][user]))
        return dominant_share(used[user], capacity, weight), picks[user], user

    while arriving or running:
        now = min([job["arrival"] for job in arriving[:1]] + [end for end, _ in running])
        for end, job in list(running):
            if end == now:
                running.remove((end, job))
                move(job, -1)
        while arriving and arriving[0]["arrival"] == now:
            job = arriving.pop(0)
            queues[job["user"]].append(job)
        waiting = {user for user, queue in queues.items() if queue}
        while waiting:
            user = min(waiting, key=urgency)
            job = queues[user][0]
            if any(d > f for d, f in zip(vector(job["demand"], total), free, strict=True)):
                waiting.discard(user)
                continue
            queues[user].pop(0)
            move(job, 1)
            picks[user] += 1
            running.append((now + job["duration"], job))
            found[str(job["id"])] = [now, now + job["duration"]]
            if not queues[user]:
                waiting.discard(user)
    assert found == case["expected"]["start_finish"]


@pytest.mark.parametrize("case", cases("hug/*instances*.json", "links"))
def test_hug_is_exact(case: Case) -> None:
    demands, expected = exactly(case["d"]), case["expected"]
    elastic = None if case["elastic"] is None else exactly(case["elastic"])
    found, trusting = utilised(demands, elastic), utilised(demands, elastic, cooperative=True)
    assert found.guarantee == Fraction(expected["isolation_guarantee"])
    assert found.entitled == exactly(expected["stage1"])
    assert found.ceiling == exactly(expected["hug"])
    assert trusting.ceiling == exactly(expected["cooperative"])
    for name, shares in (("hug", found.ceiling), ("coop", trusting.ceiling)):
        assert [progress(d, c) for d, c in zip(demands, shares, strict=True)] == exact(
            expected[f"progress_{name}"]
        )
        used = [sum(column, Fraction(0)) for column in zip(*shares, strict=True)]
        assert used == exact(expected[f"util_{name}"])
