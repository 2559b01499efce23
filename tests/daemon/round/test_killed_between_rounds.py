"""A daemon that is killed before each round decides what it would have decided without that.

All that policies learn from jobs, also from those that have ended since the last round, comes back
from the database.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlsched.core.errors import BadInput
from dlsched.daemon.round.decided import Decided
from dlsched.daemon.round.snapshot_builder import copy_present
from dlsched.db.store import Store
from dlsched.policies.registry import names
from dlsched.protocol.ledger import JobStatus
from tests.daemon.stored_lab import lab_on

ROUND_S = 60.0
BEGIN = 1e6  # seconds of the policy's clock
QUICK = {"gandiva-fair", "tiresias", "srtf"}
POLICIES = [
    name if name in QUICK else pytest.param(name, marks=pytest.mark.slow)
    for name in names("scheduling")
]


def random_jobs(seed: int, count: int) -> list[tuple[float, int, float, dict[str, Any]]]:
    """When each job comes, its GPUs, how many seconds it needs, and what it says."""
    rng = np.random.default_rng(seed)
    jobs = []
    for _ in range(count):
        needs = float(rng.integers(1, 400))
        extra = {"total_iterations": f"{needs * 2}", "epoch_s": f"{needs / 20}"}
        says = {
            "user": f"u{rng.integers(3)}",
            "expected_s": needs * float(rng.uniform(0.5, 2.0)),
            "extra": extra,
        }
        jobs.append((float(rng.integers(0, 8) * 45), int(rng.integers(1, 5)), needs, says))
    return sorted(jobs, key=lambda job: job[0])


def what(decided: Decided) -> tuple[Any, ...]:
    """What is decided of which job, and why."""
    return (
        {job: (where.nodes, where.masks) for job, where in decided.launched.items()},
        decided.suspended,
        decided.completed,
        decided.refused,
        decided.order.tolist(),
        decided.reason_texts(),
    )


def decisions(
    live: Any, path: Path, policy: str, seed: int, *, killed: bool, estimator: str = ""
) -> list[tuple[Any, ...]]:
    """What is decided over a random trace; ends, failures and cancels come between rounds."""
    jobs, found = random_jobs(seed, 10), []
    needs: dict[int, float] = {}
    with Store.open(f"sqlite:///{path}") as store:
        parts = {"scheduling": policy, "estimator": estimator}
        options = ("what-if.scheduling=las,srtf",) if policy == "what-if" else ()
        lab = lab_on(live, store, (4, 2), parts=parts, options=options, round_s=ROUND_S)
        for tick in range(24):
            now = BEGIN + tick * ROUND_S
            columns = lab.live.jobs
            for job in list(lab.running()):
                row = columns.row_of[job]
                held = columns.get("held_s", row) + now - columns.get("since", row)
                if held >= needs[job]:
                    lab.end(now - 20.0, job, code=int(job % 4 == 3))
            if tick % 7 == 6:
                waiting = [j for j, r in lab.ledger.jobs.items() if r.status is JobStatus.PENDING]
                for job in waiting[:1]:
                    lab.cancel(now - 10.0, job)
            while jobs and BEGIN + jobs[0][0] <= now:
                at, gpus, took, says = jobs.pop(0)
                needs[lab.submit(BEGIN + at, gpus, **says)] = took
            if killed:
                lab.restart(now)
            found.append(what(lab.round(now)))
    return found


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_decides_as_if_its_daemon_had_not_been_killed(
    live: Any, tmp_path: Path, policy: str
) -> None:
    for seed in range(2):
        try:
            expected = decisions(live, tmp_path / f"{seed}a.db", policy, seed, killed=False)
        except BadInput as refused:
            pytest.skip(str(refused))
        found = decisions(live, tmp_path / f"{seed}b.db", policy, seed, killed=True)
        for number, (ours, theirs) in enumerate(zip(found, expected, strict=True)):
            assert ours == theirs, f"seed {seed}, round {number}"


def fill_columns(lab: Any, now: float) -> None:
    """Let so many jobs that no policy has seen end that the columns drop what may go."""
    for _ in range(25):
        lab.cancel(now, lab.submit(now))


def test_an_ended_job_stays_until_an_accepted_decision_has_seen_it_ended(live: Any) -> None:
    lab = live.LiveLab((4,), learn_from=0)
    known, waits = lab.submit(0.0, 4), lab.submit(0.0, 4)
    lab.round(0.0)
    lab.end(10.0, known, code=1)
    lab.cancel(10.0, waits)
    fill_columns(lab, 10.0)
    lab.decide(20.0)  # it is lost: the process of the policy died, say
    fill_columns(lab, 20.0)
    copy_present(lab.state, 21.0)  # for a prediction, which no policy keeps
    assert {known, waits} <= lab.live.jobs.row_of.keys()
    lab.round(30.0)
    fill_columns(lab, 30.0)
    assert not {known, waits} & lab.live.jobs.row_of.keys()
    assert lab.live.jobs.count < 60
