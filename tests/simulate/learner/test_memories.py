"""What a learner remembers, and which decisions it draws."""

from __future__ import annotations

import numpy as np
import pytest

from simulate.learner.memories import Memory


def filled(rewards: list[float], size: int = 8) -> Memory:
    memory = Memory(size, 1)
    for number, reward in enumerate(rewards):
        state = np.array([[number]], np.float32)
        memory.store(state, np.array([number]), np.array([reward]))
    return memory


def test_the_oldest_decisions_are_forgotten() -> None:
    memory = filled([0.0] * 11)
    assert memory.is_full
    batch = memory.drawn_evenly(8, np.random.default_rng(0))
    assert sorted(batch.actions.tolist()) == list(range(3, 11))
    assert batch.states[:, 0].tolist() == batch.actions.tolist()
    memory.store(np.zeros((0, 1), np.float32), np.zeros(0, np.int64), np.zeros(0))
    assert memory.stored == 11


def test_a_rare_reward_is_drawn_more_often_and_weighs_less() -> None:
    memory = filled([0.0] * 7 + [9.0])
    batch = memory.drawn_by_priority(64, np.random.default_rng(0))
    drawn = np.bincount(batch.actions, minlength=8)
    assert drawn[7] == pytest.approx(64 * 9 / 16, abs=1)
    assert (np.abs(drawn[:7] - 64 / 16) <= 1).all()
    weights = dict(zip(batch.actions.tolist(), batch.weights.tolist(), strict=True))
    assert weights[0] == 1
    assert weights[7] == pytest.approx(9**-0.1)


def test_priorities_follow_what_surprised() -> None:
    memory = filled([0.0] * 8)
    memory.learned(np.arange(8), np.array([100.0] + [0.0] * 7, np.float32))
    batch = memory.drawn_by_priority(100, np.random.default_rng(0))
    least, most = 0.01**0.9, 4.0**0.9
    assert (batch.actions == 0).mean() == pytest.approx(most / (most + 7 * least), abs=0.02)


def test_a_memory_goes_on_from_its_state() -> None:
    memory = filled([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0])
    memory.drawn_by_priority(2, np.random.default_rng(0))
    other = Memory(8, 1)
    other.load_state_dict(memory.state_dict())
    one, two = (each.drawn_by_priority(16, np.random.default_rng(5)) for each in (memory, other))
    for left, right in zip(one, two, strict=True):
        np.testing.assert_array_equal(left, right)
