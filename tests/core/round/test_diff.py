"""Commands are the difference between what runs and what should run, losers first."""

from __future__ import annotations

import numpy as np

from dlsched.core.allocation import Allocation, Grant, Ranking
from dlsched.core.cluster.occupancy import Placement
from dlsched.core.round.diff import Command, Verb, diff
from dlsched.core.scheduling import SchedulingPolicy
from dlsched.core.units import UnitTable
from dlsched.core.walk.following import follow
from dlsched.policies import registry

HERE, THERE, WIDE = Placement((0,), (1,)), Placement((0,), (2,)), Placement((0,), (6,))


def commands(allocation, starts=(1, 1, 1, 0)):
    units = UnitTable(len(starts))
    units.starts[:] = starts
    return [(c.verb, c.row) for c in diff(allocation, units)]


def test_a_lease_that_stays_as_it_is_yields_nothing():
    assert commands(Allocation()) == []


def test_jobs_that_lose_gpus_come_before_jobs_that_start():
    allocation = Allocation(
        suspended={1: HERE, 0: THERE}, launched={3: HERE, 0: WIDE, 2: Placement((1,), (1,))}
    )
    assert commands(allocation) == [
        (Verb.SUSPEND, 1),
        (Verb.RESIZE, 0),
        (Verb.START, 3),
        (Verb.RESUME, 2),
    ]


def test_a_move_says_from_where_to_where_and_with_what():
    grant = Grant(batch_size=64)
    allocation = Allocation(suspended={0: HERE}, launched={0: THERE}, grants={0: grant})
    assert diff(allocation, UnitTable(1)) == [Command(Verb.MIGRATE, 0, HERE, THERE, grant)]


class EndsAtTen(SchedulingPolicy):
    """Runs the jobs that fit, and says at ten seconds of work that it is enough."""

    name = "ends-at-ten"
    preemptive = True
    rests = False

    def allocate(self, units, ctx, walk):
        follow(walk, units, Ranking(order=np.arange(len(units))))
        for row, done in zip(units.rows.tolist(), units.executed.tolist(), strict=True):
            if done >= 10:
                walk.grant(row, Grant(complete=True))


def test_a_policy_may_end_a_job_whose_target_is_reached(lab, monkeypatch):
    find = registry.find
    ours = {"ends-at-ten": EndsAtTen}
    patched = lambda stage, name: ours.get(name) or find(stage, name)  # noqa: E731
    monkeypatch.setattr(registry, "find", patched)
    monkeypatch.setattr("dlsched.composition.parts.find", patched)
    run = lab.run([(0, 4, 100), (0, 4, 5)], "ends-at-ten", clock="rounds", round_s=10)
    assert lab.spans(run) == {"A": (0, 10), "B": (20, 25)}
    assert run.jobs.gpu_seconds.tolist() == [40, 20]
