"""Gavel's plain rounds: one queue, whole rounds, leftovers to the next job."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dlsched.core.arrays import Rows
from dlsched.core.context import RoundContext
from dlsched.core.errors import BadInput, PolicyFailed
from dlsched.core.options import parse_options
from dlsched.policies.heterogeneous.time_shares import TimeShares
from dlsched.policies.scheduling.gavel.options import GavelOptions
from dlsched.policies.scheduling.gavel.policy import Gavel

ROUND = 360.0
Shares = dict[int, dict[str, float]]


def engine_of(lab: Any, jobs: list[tuple[float, int, float]], x: Shares, **given: Any) -> Any:
    """Jobs as (submit, GPUs, seconds), with a fixed X by row and type."""

    def source(rows: Rows, types: tuple[str, ...], ctx: RoundContext) -> TimeShares:
        no_rows = np.zeros(0, np.int64)
        found = [[x.get(row, {}).get(name, 0.0) for name in types] for row in rows.tolist()]
        return TimeShares(
            rows=rows, x=np.array(found), first=no_rows, second=no_rows, pair_x=np.zeros((0, 2))
        )

    engine = lab.engine(lab.trace(jobs), "gavel", round_s=ROUND, **given)
    made = parse_options(GavelOptions, {"mechanism": "plain"}, owner="gavel")
    engine.parts.scheduling = Gavel(made, source)
    return engine


def received(engine: Any) -> np.ndarray[Any, Any]:
    table = engine.world.table
    running = np.where(table.gpus_now > 0, engine.now - table.since, 0.0)
    found: np.ndarray[Any, Any] = (table.held_s + running) / ROUND
    return found


def test_time_is_shared_as_x_says(lab: Any) -> None:
    x = {0: {"t": 0.5}, 1: {"t": 0.25}, 2: {"t": 0.25}}
    engine = engine_of(lab, [(0.0, 1, 1e6)] * 3, x, cluster="1x1:t")
    engine.horizon = 100 * ROUND
    engine.run()
    assert received(engine) == pytest.approx([50, 25, 25], abs=2)


def test_shares_that_differ_by_rounding_are_equal(lab: Any) -> None:
    # the later job's is larger by a solver's error; the earlier one begins all the same
    x = {0: {"t": 0.5}, 1: {"t": 0.5 + 1e-9}}
    engine = engine_of(lab, [(0.0, 1, 1e6)] * 2, x, cluster="1x1:t")
    engine.horizon = 0.5 * ROUND
    engine.run()
    assert engine.world.table.gpus_now.tolist() == [1, 0]


def test_what_is_left_goes_to_the_next_job_on_any_type(lab: Any) -> None:
    # the second job's type is full, so it loses nothing by the other one meanwhile
    x = {0: {"a": 1.0}, 1: {"a": 1.0}}
    engine = engine_of(lab, [(0.0, 1, 1e6)] * 3, x, cluster="1x1:a+1x1:b")
    engine.horizon = 0.5 * ROUND
    engine.run()
    assert engine.world.table.gpus_now.tolist() == [1, 1, 0]


def test_time_of_ended_jobs_still_counts(lab: Any) -> None:
    """Of two newcomers to b, one had half of a: its part of all time on b is as small as theirs."""
    jobs = [(0.0, 1, 3600.0), (0.0, 1, 1e6)]
    engine = engine_of(lab, jobs, {0: {"a": 1.0}, 1: {"b": 1.0}}, cluster="1x1:a+1x1:b")
    engine.horizon = 20 * ROUND
    engine.run()
    state = engine.parts.scheduling.rounds.state_dict()
    # half a round for each of the two on both types, and whole rounds: 10 on a, 21 on b
    assert state["given"] == [ROUND * 11, ROUND * 22]
    assert state["got"] == [[1, ROUND / 2, ROUND * 21.5]]


def test_larger_gangs_choose_first_and_a_job_that_stays_keeps_its_gpus(lab: Any) -> None:
    # GPUs 0 and 1 for the pair, 2 for the single one, which the gang of 3 then drives to 3
    jobs = [(0.0, 1, 1e6), (0.0, 2, 300.0), (ROUND, 3, 1e6)]
    x = {0: {"t": 1.0}, 1: {"t": 1.0}, 2: {"t": 1.0}}
    engine = engine_of(lab, jobs, x, cluster="1x4:t")
    engine.horizon = 1.5 * ROUND
    engine.run()
    held = {row: where.masks for row, where in engine.world.occupancy.held.items()}
    assert held == {2: (0b0111,), 0: (0b1000,)}


@pytest.mark.parametrize("min_run", [0.0, 3 * ROUND])
def test_rounds_hold_together_whatever_happens(lab: Any, min_run: float) -> None:
    rng = np.random.default_rng(3)
    jobs = [
        (float(rng.uniform(0, 4000)), int(rng.choice([1, 2, 3, 4])), float(rng.uniform(50, 4000)))
        for _ in range(30)
    ]
    trace = lab.trace(sorted(jobs))
    result = lab.run(
        trace,
        "gavel",
        cluster="2x4:a+3x2:b",
        round_s=ROUND,
        options=(
            "semantics=rounds",
            "mechanism=plain",
            "objective=max-throughput",
            "settle=centre",
        ),
        min_run=min_run,
    )
    assert result.summary["completed"] == 30


def test_without_rounds_it_is_refused(lab: Any) -> None:
    with pytest.raises(PolicyFailed, match="mechanism=plain counts whole rounds: --round SECONDS"):
        lab.run(
            lab.trace([(0.0, 1, 10.0)]),
            "gavel",
            options=("mechanism=plain", "semantics=events"),
        )


def test_pairs_are_refused(lab: Any) -> None:
    with pytest.raises(BadInput, match="which mechanism=plain cannot"):
        lab.run(
            lab.trace([(0.0, 1, 10.0)]),
            "gavel",
            options=("mechanism=plain", "objective=max-min-packed"),
        )
