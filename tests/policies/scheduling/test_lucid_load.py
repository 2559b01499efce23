"""The load of the next slots, as Lucid learns it."""

from __future__ import annotations

import math

import numpy as np

from dlsched.policies.scheduling.lucid.load import DAY, LearnedLoad

SLOT_S = 600.0


def fed(days: float) -> LearnedLoad:
    """By day 6 jobs of 2 GPUs a slot, by night none."""
    load = LearnedLoad()
    for slot in range(int(days * DAY)):
        if DAY // 3 <= slot % DAY < 2 * DAY // 3:
            load.arrived(np.full(6, slot * SLOT_S + 1), np.full(6, 2))
    return load


def test_day_and_night_are_told_apart() -> None:
    noon, midnight = fed(9.5), fed(9)
    assert noon.jobs(9.5 * DAY * SLOT_S) > 4
    assert noon.gpus(9.5 * DAY * SLOT_S) > 8
    assert midnight.jobs(9 * DAY * SLOT_S) < 1


def test_at_first_the_next_slots_are_as_the_last_hour() -> None:
    load = LearnedLoad()
    assert math.isnan(load.jobs(0.0))
    for slot in range(12):
        load.arrived(np.full(slot, slot * SLOT_S), np.ones(slot, np.int64))
    assert load.jobs(12 * SLOT_S) == np.mean([6, 7, 8, 9, 10, 11])


def test_it_goes_on_from_its_state() -> None:
    load = fed(9)
    load.jobs(9 * DAY * SLOT_S)
    again = LearnedLoad()
    again.load_state_dict(load.state_dict())
    now = 9.4 * DAY * SLOT_S
    assert again.gpus(now) == load.gpus(now)
