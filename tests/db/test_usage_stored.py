"""Decayed usage in the database: charged in the transaction in which a run ends, on both kinds."""

from __future__ import annotations

import math

import pytest

from dlsched.core.sharing.decayed_usage import DecayedUsage
from dlsched.db.store import Store
from dlsched.protocol.messages import Epoch
from tests.db.ledgers import assign, ended, node, submit

DAY = 86400.0


def charged(store: Store) -> dict[tuple[str, str, str], tuple[float, float]]:
    return {(u.user_name, u.account, u.vc): (u.gpu_s, u.at) for u in store.load().usage}


def test_an_ended_run_is_charged_to_its_owner_as_it_fades(store: Store, epoch: Epoch) -> None:
    store.half_life_s = DAY
    jobs = [submit(1, gang=(2,), account="lab", vc="x"), submit(2), submit(3, user="bob")]
    store.persist(epoch, 1, [node("n1", 4), *jobs], 0.0)
    store.persist(epoch, 2, [assign(1, ("n1", (0, 1))), assign(2, ("n1", (2,)))], 0.0)
    assert charged(store) == {}  # what runs is not charged yet
    store.persist(epoch, 3, [ended(1, "n1", ran_s=DAY, at=DAY)], DAY)
    expected = DecayedUsage(DAY, [("ann", "lab", "x"), ("ann", "", "")])
    expected.change(0, 2, 0.0)
    expected.change(0, -2, DAY)
    assert charged(store) == {
        ("ann", "lab", "x"): (pytest.approx(expected.as_of(DAY)[0]), DAY),
    }
    store.persist(epoch, 4, [ended(2, "n1", ran_s=2 * DAY, at=2 * DAY)], 2 * DAY)
    store.persist(epoch, 5, [assign(3, ("n1", (0,)))], 2 * DAY)
    store.persist(epoch, 6, [ended(3, "n1", ran_s=0.0, at=2 * DAY)], 2 * DAY)
    expected.change(1, 1, 0.0)
    expected.change(1, -1, 2 * DAY)
    assert charged(store)["ann", "", ""] == (pytest.approx(expected.as_of(2 * DAY)[1]), 2 * DAY)
    assert set(charged(store)) == {("ann", "lab", "x"), ("ann", "", "")}  # bob has used nothing


def test_runs_that_end_together_and_later_ones_add_up(store: Store, epoch: Epoch) -> None:
    store.half_life_s = 7 * DAY
    store.persist(epoch, 1, [node("n1", 4), *(submit(k) for k in (1, 2, 3))], 0.0)
    for job, number in ((1, 2), (2, 3), (3, 4)):
        store.persist(epoch, number, [assign(job, ("n1", (job - 1,)))], 100.0 * job)
    together = [ended(1, "n1", ran_s=900.0, at=1000.0), ended(2, "n1", ran_s=800.0, at=1000.0)]
    store.persist(epoch, 5, together, 1000.0)
    store.persist(epoch, 6, [ended(3, "n1", ran_s=6700.0, at=7000.0)], 7000.0)
    expected = DecayedUsage(7 * DAY, [("ann", "", "")])
    for begin, end in ((100.0, 1000.0), (200.0, 1000.0), (300.0, 7000.0)):
        expected.change(0, 1, begin)
        expected.change(0, -1, end)
    value, at = charged(store)["ann", "", ""]
    assert at == 7000.0
    assert value == pytest.approx(expected.as_of(7000.0)[0], rel=1e-9)


def test_a_repeated_transaction_charges_once(store: Store, epoch: Epoch) -> None:
    store.half_life_s = math.inf
    store.persist(epoch, 1, [node("n1", 4), submit(1), assign(1, ("n1", (0,)))], 0.0)
    for _ in range(2):
        store.persist(epoch, 2, [ended(1, "n1", ran_s=60.0, at=60.0)], 60.0)
    assert charged(store) == {("ann", "", ""): (60.0, 60.0)}
