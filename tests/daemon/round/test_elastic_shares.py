"""Policies that divide GPUs by how jobs scale use fitted models live."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dlsched.daemon.round.decide import decide
from dlsched.daemon.round.forecasts.forecasting import foreseen
from dlsched.daemon.round.prepared_round import prepare
from dlsched.daemon.round.snapshot import LiveSnapshot
from dlsched.daemon.round.snapshot_builder import take_snapshot

GOOD = (0.01, 0.01, 0.01, 1e-8, 0.005, 1e-8, 1.0)  # nearly all of a step is computing
POOR = (0.01, 0.0001, 1.0, 0.5, 0.5, 0.2, 1.0)  # nearly all of it is synchronising


def told(models: Sequence[tuple[float, ...]]) -> dict[str, Any]:
    """Columns of the table of training profiles: batches of 128, at least 8 samples a GPU."""
    count = len(models)
    return {
        "types": ("gpu",),
        "rows": np.arange(count),
        "limits": np.array([[128.0, 1024.0, 8.0, 128.0, 1.0, 0.0]] * count),
        "grads": np.array([[0.5, 4.0]] * count),
        "restart_s": np.full(count, np.nan),
        "version": np.ones(count, np.int64),
        "perf": np.array(models)[:, None, :],
        "profiled": np.ones((count, 1), np.int64),
        "one_gpu_step": np.full((count, 1), 0.01),
    }


def snapshot(live: Any, policy: str, *options: str, jobs: int = 2) -> LiveSnapshot:
    lab = live.LiveLab((4, 4), parts={"scheduling": policy}, options=options)
    for _ in range(jobs):
        lab.submit(0.0, 1, expected_s=1000.0, min_gpus=1, max_gpus=8)
    taken: LiveSnapshot = take_snapshot(lab.state, "full", 5.0)
    return taken


def sizes(taken: LiveSnapshot) -> list[int]:
    """GPUs of each job, in order of ids, by the plan."""
    launched = decide(taken).launched
    return [launched[job].gpus for job in sorted(launched)]


@pytest.mark.parametrize(("policy", "options"), [("afs", ()), ("optimus", ("oracle=true",))])
def test_the_job_that_scales_gets_the_gpus(
    live: Any, policy: str, options: tuple[str, ...]
) -> None:
    bare = snapshot(live, policy, *options)
    known = replace(bare, trainings=told([POOR, GOOD]))
    prepared = prepare(known)
    assert prepared is not None
    scaling = prepared.ctx.perf.by_count
    assert scaling is not None
    rates = scaling.rates(np.arange(2), 8)
    assert rates[1, 3] > 2.5 * rates[1, 0]
    assert rates[0, 3] < rates[0, 0] * 1.05
    assert sizes(known) == [1, 7]


def test_a_job_without_a_profile_gets_what_it_asks_for(live: Any) -> None:
    assert sizes(snapshot(live, "afs")) == [1, 1]
    assert sizes(snapshot(live, "optimus", "oracle=true")) == [1, 1]
    nan = tuple([np.nan] * 7)
    known = replace(snapshot(live, "afs"), trainings=told([nan, nan]))
    assert sizes(known) == [1, 1]


def test_forecasts_let_jobs_run_faster_on_more_gpus(live: Any) -> None:
    crowd = snapshot(live, "afs", jobs=9)
    starts = {}
    for name, taken in (
        ("rigid", crowd),
        ("elastic", replace(crowd, trainings=told([GOOD] * 9))),
    ):
        starts[name] = sorted(e.start_at for e in foreseen(taken) if e.start_at == e.start_at)
    assert len(starts["rigid"]) == len(starts["elastic"]) == 9
    assert starts["rigid"][-1] == pytest.approx(1005, abs=61)
    assert starts["elastic"][-1] <= starts["rigid"][-1]
