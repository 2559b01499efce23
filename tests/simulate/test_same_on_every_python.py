"""Replays are the same, to the last bit, on every Python and with every numpy.

Digests of replays under every policy, and of the world of stages, are compared with recorded ones.
After a change that is meant to change schedules, this file run as a program records them anew.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import random
from fractions import Fraction
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from dlsched.core.sums import ordered_sum
from dlsched.policies.registry import names
from dlsched.policies.scheduling.carbyne.stages import Graph, Stage
from simulate.worlds.dags.comparison import DISCIPLINES, PROFILES, compare
from simulate.worlds.dags.workload import Dag, Workload

RECORDED = Path(__file__).with_name("recorded_replays.json")
POLICIES = names("scheduling")
CLOCKS = ("rounds", "events")
FEW = ("what-if.scheduling=las,srtf", "what-if.admission=accept-all")
FEWER = {"what-if": 12, "shockwave": 6, "pollux": 20}  # they take long
BY_PROGRAM = ("chronus", "gavel", "shockwave", "sia", "synergy")
COLUMNS = (
    *("status", "first_start_time", "finish_time", "starts", "preemptions"),
    *("migrations", "gpu_seconds", "lost_seconds"),
)


def fractional_trace(lab: Any, count: int) -> Any:
    """Jobs with times and lengths that no float holds exactly, so that each sum is rounded."""
    random_ = random.Random(28)
    jobs = [
        (
            round(random_.random() * 900, 3),
            random_.choice([1, 1, 2, 3, 4, 6]),
            round(20 + random_.random() * 900, 3),
        )
        for _ in range(count)
    ]
    jobs.sort()
    durations = [duration for _, _, duration in jobs]
    return lab.trace(
        jobs,
        user=[f"u{k % 3}" for k in range(count)],
        vc=[("red", "blue")[k % 2] for k in range(count)],
        model=[("vgg16", "resnet50")[k % 2] for k in range(count)],
        time_limit=[duration * 1.3 for duration in durations],
        total_iterations=[duration * 2 for duration in durations],
        restart_overhead=[5.1] * count,
        epoch_s=[duration / 20 for duration in durations],
        loss_falls=[0.4] * count,
        loss_begins=[0.9] * count,
        loss_floor=[0.15] * count,
    )


def digest(lab: Any, policy: str, clock: str) -> str:
    """The digest of what became of each job."""
    trace = fractional_trace(lab, FEWER.get(policy, 40))
    given: dict[str, Any] = {"estimate": "noise:0.7", "seed": 5, "options": FEW}
    result = lab.run(trace, policy, cluster="2x4:v100+2x4:k80", clock=clock, **given)
    whole = hashlib.sha256()
    for column in COLUMNS:
        whole.update(repr((column, getattr(result.jobs, column).tolist())).encode())
    return whole.hexdigest()[:16]


def graphs(seed: int) -> Workload:
    """Jobs of a few stages on a cluster of four resources."""
    random_ = random.Random(seed)
    jobs = []
    for number in range(12):
        stages = [
            Stage(
                random_.randint(1, 40),
                tuple(Fraction(random_.randint(1, 30), 100) for _ in range(4)),
                random_.randint(1, 8),
                tuple(sorted(random_.sample(range(k), min(k, random_.randint(0, 2))))),
            )
            for k in range(random_.randint(2, 5))
        ]
        jobs.append(Dag(id=f"J{number}", arrival=random_.randint(0, 20), graph=Graph(stages)))
    return Workload(resources=("a", "b", "c", "d"), capacity=(1, 1, 1, 1), jobs=jobs)


def digest_of_graphs(compat: str) -> str:
    """The digest of when the jobs of a few workloads end under every discipline."""
    whole = hashlib.sha256()
    for seed in range(3):
        for result in compare(graphs(seed), DISCIPLINES, compat=compat):
            ends = sorted((name, float(end)) for name, end in result.ends.items())
            whole.update(repr((result.discipline, ends)).encode())
    return whole.hexdigest()[:16]


def skip_with_another_solver(policy: str) -> None:
    """Skip what was recorded of a policy that solves programs, with another version of the solver.

    It may find another of several best solutions.
    """
    recorded = json.loads(RECORDED.read_text())["highspy"]
    if policy in BY_PROGRAM and recorded != version("highspy"):
        pytest.skip(f"recorded with highspy {recorded}; here is {version('highspy')}")


@pytest.mark.parametrize("clock", CLOCKS)
@pytest.mark.parametrize("policy", POLICIES)
def test_a_replay_has_the_recorded_digest(lab: Any, policy: str, clock: str) -> None:
    skip_with_another_solver(policy)
    assert digest(lab, policy, clock) == json.loads(RECORDED.read_text())[policy][clock]


@pytest.mark.parametrize("compat", PROFILES)
def test_stages_have_the_recorded_digest(compat: str) -> None:
    assert digest_of_graphs(compat) == json.loads(RECORDED.read_text())["stages"][compat]


def test_a_sum_is_rounded_after_each_step() -> None:
    """`sum()` gives 0.30000000000000004 before Python 3.12, and 0.3 with 1e-17 more since then."""
    assert ordered_sum([0.1] * 10) == 0.1 + 0.1 + 0.1 + 0.1 + 0.1 + 0.1 + 0.1 + 0.1 + 0.1 + 0.1
    assert ordered_sum([0.1] * 10) != 1.0
    assert ordered_sum([]) == 0


def record() -> None:
    """Record what is now."""
    path = Path(__file__).parents[1] / "conftest.py"
    spec = importlib.util.spec_from_file_location("conftest", path)
    assert spec is not None
    assert spec.loader is not None
    conftest = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(conftest)
    found: dict[str, Any] = {
        policy: {clock: digest(conftest.Lab(), policy, clock) for clock in CLOCKS}
        for policy in POLICIES
    }
    found["stages"] = {compat: digest_of_graphs(compat) for compat in PROFILES}
    found["highspy"] = version("highspy")
    RECORDED.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    record()
