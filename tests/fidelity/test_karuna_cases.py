"""Karuna against allocations, fluid runs, thresholds and GPU divisions computed apart from it."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlsched.core.arrays import Floats
from dlsched.core.round.steps import Parts, decide
from dlsched.core.speed.belief import Belief
from dlsched.core.units import Units
from dlsched.policies.registry import make
from dlsched.policies.scheduling.karuna.queues import Sizes, best_limits, mean_response
from simulate.worlds.network.disciplines import DISCIPLINES, Queues, karuna
from simulate.worlds.network.flows import Flow, Kind
from simulate.worlds.network.fluid import follow

pytestmark = pytest.mark.fidelity

ROOT = Path(os.environ.get("DLSCHED_DATA", Path(__file__).parents[3] / "shared" / "data"))
FOLDER = ROOT / "classic" / "karuna"


def cases(name: str) -> list[Any]:
    file = FOLDER / f"{name}.json"
    if not file.exists():
        return [pytest.param({}, marks=pytest.mark.skip(reason=f"no {file}"), id="none")]
    return [pytest.param(case, id=case["id"]) for case in json.loads(file.read_text())]


# -- GPUs -----------------------------------------------------------------------------------------


class Recorded:
    """Speeds of a case: steps per second on the numbers of GPUs that it names."""

    def __init__(self, jobs: list[dict[str, Any]]) -> None:
        self._jobs = jobs

    def rates(self, rows: Any, most: int) -> Floats:
        found = np.zeros((len(rows), most))
        for place, row in enumerate(rows.tolist()):
            for gpus, rate in self._jobs[row]["throughput"].items():
                if int(gpus) <= most:
                    found[place, int(gpus) - 1] = rate
        return found

    def step(self, row: int, gpus: int) -> float:
        return 1.0 / float(self._jobs[row]["throughput"][str(gpus)])

    def version(self, rows: Any) -> int:
        return 0

    def steps_left(self, units: Units) -> Floats:
        return np.array([self._jobs[row]["remaining_iters"] for row in units.rows], np.float64)


@pytest.mark.parametrize("case", cases("gpu_jobs"))
@pytest.mark.parametrize("mode", ["just_enough", "work_conserving"])
def test_gpus_are_those_of_the_reference(case: dict[str, Any], mode: str, lab: Any) -> None:
    jobs = sorted(case["jobs"], key=lambda job: (job["arrival"], job["id"]))
    ctx = lab.context(f"1x{case['gpus']}", [job["requested_gpus"] for job in jobs])
    table = ctx.table
    for row, job in enumerate(jobs):
        table.submit_time[row] = table.admitted_at[row] = table.since[row] = job["arrival"]
        due, total = job["deadline"], job["gpu_seconds_total"]
        table.deadline[row] = np.nan if due is None else due - job["arrival"]
        table.predicted_work[row] = np.nan if total is None else total / job["requested_gpus"]
        table.attained[row] = job["gpu_seconds_attained"]
        table.min_gpus[row], table.max_gpus[row] = 1, case["gpus"]
    ctx.now, ctx.perf = float(case["now"]), Belief(by_count=Recorded(jobs))
    options = {name: ",".join(map(str, case[name])) for name in ("alpha", "beta")}
    options["work_conserving"] = "true" if mode == "work_conserving" else "false"
    parts = Parts(
        scheduling=make("scheduling", "karuna", options),
        placement=make("placement", "count"),
        admission=make("admission", "accept-all"),
        estimator=make("estimator", "oracle"),
    )
    answer = decide(parts, ctx)
    expected = case["expected"]
    given = {str(jobs[row]["id"]): placed.gpus for row, placed in answer.launched.items()}
    assert given == expected[mode]["gpus"]
    assert ctx.free_gpus == expected[mode]["free"]
    demoted = {jobs[row]["id"] for row, is_so in answer.columns.get("demoted", {}).items() if is_so}
    assert demoted == set(expected["demoted"])


# -- thresholds -----------------------------------------------------------------------------------


class Exponential(Sizes):
    """Sizes of which most are small."""

    def __init__(self, mean: float) -> None:
        self._mean = mean

    def moments(self, low: Floats, high: Floats) -> tuple[Floats, Floats, Floats]:
        below, above = self._above(low), self._above(high)
        return below[0] - above[0], below[1] - above[1], below[2] - above[2]

    def _above(self, x: Floats) -> tuple[Floats, Floats, Floats]:
        x = np.where(np.isinf(x), 1e6, x)
        tail, mean = np.exp(-x / self._mean), self._mean
        return tail, (x + mean) * tail, (x * x + 2 * x * mean + 2 * mean**2) * tail

    def quantile(self, share: Floats) -> Floats:
        return -self._mean * np.log(1 - share)


class BoundedPareto(Sizes):
    """Sizes of which few are large: density α L^α x^(−α−1) / (1 − (L/H)^α) from L to H."""

    def __init__(self, alpha: float, low: float, high: float) -> None:
        self._alpha, self._low, self._high = alpha, low, high
        self._scale = alpha * low**alpha / (1 - (low / high) ** alpha)

    def moments(self, low: Floats, high: Floats) -> tuple[Floats, Floats, Floats]:
        first, last = (np.clip(end, self._low, self._high) for end in (low, high))
        powers = [power - self._alpha for power in range(3)]
        found = [self._scale * (last**power - first**power) / power for power in powers]
        return found[0], found[1], found[2]

    def quantile(self, share: Floats) -> Floats:
        inside = 1 - (self._low / self._high) ** self._alpha
        found: Floats = self._low * (1 - share * inside) ** (-1 / self._alpha)
        return found


@pytest.mark.parametrize("case", cases("thresholds"))
def test_thresholds_make_the_mean_response_least(case: dict[str, Any]) -> None:
    params, rate, expected = case["params"], case["arrival_rate"], case["expected"]
    sizes: Sizes = (
        Exponential(params["mean"] / case["capacity"])
        if case["dist"] == "exp"
        else BoundedPareto(params["alpha"], params["L"], params["H"])
    )
    assert mean_response(sizes, rate, ()) == pytest.approx(expected["fcfs"], rel=1e-9)
    fixed = expected["fixed_K3"]
    mean = mean_response(sizes, rate, fixed["thresholds"])
    assert mean == pytest.approx(fixed["mean_response"], rel=1e-9)
    for name, best in expected.items():
        if not name.startswith("K"):
            continue
        limits, mean = best_limits(sizes, rate, int(name[1:]))
        assert mean == pytest.approx(best["mean_response"], rel=1e-6)
        assert limits == pytest.approx(best["thresholds"], rel=1e-3)  # the optimum is flat


# -- the network ----------------------------------------------------------------------------------

KIND: dict[int, Kind] = {1: "deadline", 2: "known", 3: "unknown"}


def exact(value: Any) -> Fraction | None:
    return None if value is None else Fraction(value)


def flow_of(described: dict[str, Any], path: tuple[str, ...]) -> Flow:
    return Flow(
        id=described["id"],
        kind=KIND[described["type"]],
        path=path,
        size=Fraction(described["size"]),
        arrival=Fraction(described.get("arrival", 0)),
        deadline=exact(described["deadline"]),
        sent=Fraction(described.get("sent", 0)),
    )


def queues_in(case: dict[str, Any]) -> Queues:
    return Queues(
        alpha=tuple(map(Fraction, case["alpha"])), beta=tuple(map(Fraction, case["beta"]))
    )


@pytest.mark.parametrize("case", cases("alloc"))
def test_rates_are_the_exact_fractions(case: dict[str, Any]) -> None:
    flows = [flow_of(each, tuple(each["path"])) for each in case["flows"]]
    links = {name: Fraction(capacity) for name, capacity in case["links"].items()}
    found = karuna(queues_in(case)).share(flows, links, Fraction(case["now"]))
    expected = case["expected"]
    assert {str(k): rate for k, rate in found.rate.items()} == {
        k: Fraction(rate) for k, rate in expected["rate"].items()
    }
    assert sorted(found.demoted) == expected["demoted"]
    assert {str(k): queue for k, queue in found.queue.items()} == expected["queue"]
    assert found.residual == {k: Fraction(left) for k, left in expected["residual"].items()}


@pytest.mark.parametrize("case", cases("sim"))
@pytest.mark.parametrize("name", DISCIPLINES)
def test_flows_end_at_the_exact_times(case: dict[str, Any], name: str) -> None:
    discipline = DISCIPLINES[name](queues_in(case))
    flows = [flow_of(each, ("link",)) for each in case["flows"]]
    ends = follow(flows, {"link": Fraction(case["capacity"])}, discipline)
    expected = case["expected"][name.replace("-", "_")]
    assert {str(k): end for k, end in ends.items()} == {
        k: Fraction(end) for k, end in expected["finish"].items()
    }
    late = [
        flow.id for flow in flows if flow.deadline is not None and ends[flow.id] > flow.deadline
    ]
    assert late == expected["missed"]
    took = [float(ends[flow.id] - flow.arrival) for flow in flows if flow.deadline is None]
    assert sum(took) / len(took) == pytest.approx(expected["mean_fct_nondeadline"], rel=1e-12)
    # the same in floats, as the command line runs it
    rough = [replace(f, size=float(f.size), arrival=float(f.arrival)) for f in flows]
    near = follow(rough, {"link": float(case["capacity"])}, discipline)
    assert {k: float(v) for k, v in near.items()} == pytest.approx(
        {k: float(v) for k, v in ends.items()}, rel=1e-9
    )
