"""DL2's slot world: every job of every recorded trace, under the five baselines."""

from __future__ import annotations

import csv
import gzip
import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simulate.worlds.slots.baselines import BASELINES
from simulate.worlds.slots.jobs import drawn_jobs, read_jobs
from simulate.worlds.slots.speeds import SpeedSurface, read_speeds
from simulate.worlds.slots.world import Conditions, SlotWorld, run_slots

pytestmark = pytest.mark.fidelity

ROOT = Path(os.environ.get("DLSCHED_DATA", Path(__file__).parents[3] / "shared" / "data"))
FOLDER = ROOT / "dl2"
CASES = sorted(FOLDER.glob("*.json"))
NONE = [pytest.param(None, marks=pytest.mark.skip(reason=f"{FOLDER} is not there"), id="none")]
TOLERANCE = 1e-6  # relative, as the sheet has it; what is left are roundings of about 1e-14
ABSENT = pytest.mark.skipif(not CASES, reason=f"{FOLDER} is not there (set DLSCHED_DATA)")


@cache
def surface(most: int) -> SpeedSurface:
    return read_speeds(FOLDER / "speed_records.csv.gz", most)


def rows_of(path: Path) -> dict[int, dict[str, str]]:
    with path.open() as file:
        return {int(row["job_id"]): row for row in csv.DictReader(file)}


@pytest.mark.parametrize("policy", sorted(BASELINES))
@pytest.mark.parametrize("case", CASES or NONE, ids=lambda path: getattr(path, "stem", None))
def test_every_job_takes_as_long_as_recorded(case: Path, policy: str) -> None:
    config = json.loads(case.read_text())["config"]
    jobs = read_jobs(case.with_suffix(".csv"))
    most = config["MAX_NUM_WORKERS"]
    world = SlotWorld(
        jobs,
        surface(most + 1),
        Conditions(config["CLUSTER_NUM_NODES"], config["TS_DURATION"], most),
    )
    divide, found = BASELINES[policy], []

    def divided(world: SlotWorld) -> None:
        divide(world)
        for job in world.there:
            assert max(world.workers[job], world.servers[job]) <= most
            if world.workers[job] or world.servers[job]:
                place = world.slot, jobs.number.item(job)
                found.append((*place, world.workers[job], world.servers[job]))

    outcome = run_slots(world, divided)
    rows = rows_of(case.with_suffix(".csv"))
    recorded = np.array([float(rows[each][f"jct_ts_{policy}"]) for each in jobs.number.tolist()])
    wanted = json.loads(case.read_text())["results"][policy]
    assert outcome.completion.mean() == pytest.approx(wanted["avg_jct_ts"], rel=TOLERANCE)
    assert outcome.makespan == pytest.approx(wanted["makespan_ts"], rel=TOLERANCE)
    assert outcome.rewards.mean() == pytest.approx(wanted["avg_reward"], rel=TOLERANCE)
    assert len(outcome.rewards) == wanted["timeslots"]
    same = np.isclose(outcome.completion, recorded, rtol=TOLERANCE, atol=0)
    if policy == "tetris" and not same.all():
        # Jobs of one model with the same progress have equal scores; in the record the rounding
        # of sums in which the progress came about decides between them. They swap their ends.
        for model in {jobs.model[job] for job in np.flatnonzero(~same).tolist()}:
            alike = np.array([each == model for each in jobs.model])
            ends = [
                np.sort((jobs.arrival + each)[alike]) for each in (outcome.completion, recorded)
            ]
            np.testing.assert_allclose(*ends, rtol=TOLERANCE)
        assert same.mean() > 0.95
    else:
        assert same.all()
    allocations = FOLDER / f"{case.stem}.alloc.csv.gz"
    if allocations.exists() and same.all():
        with gzip.open(allocations, "rt") as file:
            rows_there: list[Any] = [row for row in csv.reader(file) if row[0] == policy]
        recorded_there = {tuple(map(int, row[1:])) for row in rows_there}
        assert {each for each in recorded_there if each[2] or each[3]} == set(found)


@ABSENT
def test_the_interpolation_is_that_of_the_table() -> None:
    table = read_speeds(FOLDER / "speed_rbf_grid.csv.gz", 32)
    solved = surface(32)
    with gzip.open(FOLDER / "speed_records.csv.gz", "rt") as file:
        models = {row["model"] for row in csv.DictReader(file)}
    assert len(models) == 8
    for model in models:
        np.testing.assert_allclose(solved.of(model), table.of(model), rtol=1e-9, atol=1e-9)


@ABSENT
def test_the_sheets_examples_of_speeds() -> None:
    speeds = surface(17)
    resnet, dssm = speeds.of("resnet-50"), speeds.of("dssm")
    assert resnet[1, 1] == pytest.approx(15.783)
    assert resnet[4, 4] == pytest.approx(32.422)
    assert resnet[1, 2] == pytest.approx(15.404)
    assert dssm[4, 4] == pytest.approx(1091.8803, abs=1e-4)


@ABSENT
@pytest.mark.parametrize("seed", [1, 2])
def test_drawn_jobs_are_the_published_ones(seed: int) -> None:
    drawn = drawn_jobs(60, arrivals=3, most_epochs=4000, rng=np.random.RandomState(seed))
    recorded = read_jobs(FOLDER / f"small_Uniform_s{seed}.csv")
    for column in ("number", "type", "arrival", "epochs", "batches", "worker", "server"):
        np.testing.assert_array_equal(getattr(drawn, column), getattr(recorded, column), column)
    assert drawn.model == recorded.model


@ABSENT
@pytest.mark.parametrize(("seed", "drf", "optimus"), [(9973, 5.064, 3.537), (11, 5.704, 4.012)])
def test_the_validation_sets_of_the_learner_are_those_of_the_sheet(
    seed: int, drf: float, optimus: float
) -> None:
    rng = np.random.RandomState(seed)
    traces = [drawn_jobs(60, arrivals=3, most_epochs=4000, rng=rng) for _ in range(4)]
    for policy, wanted in (("drf", drf), ("optimus", optimus)):
        worlds = [SlotWorld(jobs, surface(17), Conditions(48)) for jobs in traces]
        means = [run_slots(world, BASELINES[policy]).completion.mean() for world in worlds]
        assert np.mean(means) == pytest.approx(wanted, abs=6e-4), policy
