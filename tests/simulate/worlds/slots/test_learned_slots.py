"""A network divides slots: what it sees, what it may do, and what a baseline shows it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.core.errors import BadInput
from dlsched.policies.learning.network import Network
from simulate.worlds.slots.baselines import drf
from simulate.worlds.slots.jobs import KINDS, SlotJobs, drawn_jobs
from simulate.worlds.slots.learned import (
    FEATURES,
    ROLES,
    SCHEMA,
    Imitation,
    LearnedSlots,
    Window,
    check_schema,
)  # fmt: skip
from simulate.worlds.slots.speeds import SpeedSurface
from simulate.worlds.slots.world import NODE_SLOTS, Conditions, SlotWorld, run_slots


def speeds() -> SpeedSurface:
    numbers = np.arange(18, dtype=np.float64)
    table = np.sqrt(numbers[:, None] * numbers)
    return SpeedSurface({kind.model: table for kind in KINDS})


def jobs_of(count: int, seed: int) -> SlotJobs:
    rng = np.random.RandomState(seed)
    return drawn_jobs(count, arrivals=3, most_epochs=50.0, rng=rng)


def random_network(jobs: int, seed: int) -> Network:
    rng = np.random.default_rng(seed)
    weight = rng.normal(0, 0.3, size=(FEATURES * jobs, ROLES * jobs + 1)).astype(np.float32)
    return Network("random", SCHEMA, [weight], [np.zeros(ROLES * jobs + 1, np.float32)])


def test_the_window_has_the_six_features_of_each_job() -> None:
    jobs = jobs_of(3, 1)
    world = SlotWorld(jobs, speeds(), Conditions(4, most=2))
    world.begin()
    world.progress[1] = world.epochs[1] / 4
    world.workers[:2], world.servers[:2] = [2, 1], [2, 0]
    window = Window(world, 4)
    assert window.jobs == [1, 2]  # the first one is full
    share = max(2, jobs.worker.item(1, 1)) / (4 * NODE_SLOTS)
    kinds = [*jobs.type[1:].tolist(), 0, 0]
    np.testing.assert_allclose(
        window.state,
        [kinds, [0] * 4, [0.75, 1, 0, 0], [share, 0, 0, 0], [1, 0, 0, 0], [0] * 4],
        rtol=1e-6,
    )
    assert window.allowed.tolist() == [True] * 6 + [False] * 6 + [True]
    world.workers[1] = 2
    assert window.update(0)  # servers may still come
    assert window.allowed[:3].tolist() == [False, True, False]


@given(
    count=st.integers(1, 9), nodes=st.integers(1, 6), seed=st.integers(0, 50),
    places=st.integers(1, 5), most=st.integers(1, 4),
)  # fmt: skip
def test_no_network_overfills_a_node_or_does_what_is_masked(
    count: int, nodes: int, seed: int, places: int, most: int
) -> None:
    jobs = jobs_of(count, seed)
    world = SlotWorld(jobs, speeds(), Conditions(nodes, slot_s=60_000.0, most=most))

    def seen(window: Window, action: int) -> int:
        assert window.allowed[action]
        return action

    divide = LearnedSlots(random_network(places, seed), np.random.default_rng(seed), seen)
    while not world.is_over:
        world.begin()
        divide(world)
        assert max(max(used) for used in world.nodes.used) <= NODE_SLOTS
        assert all(max(world.workers[j], world.servers[j]) <= most for j in world.there)
        used = sum(
            world.workers[j] * jobs.worker[j] + world.servers[j] * jobs.server[j]
            for j in world.there
        )
        assert used.tolist() == np.sum(world.nodes.used, axis=0).tolist()
        world.end()
        assert world.slot < 2_000


def test_the_same_seed_gives_the_same_run() -> None:
    def run(seed: int) -> list[float]:
        divide = LearnedSlots(random_network(4, 0), np.random.default_rng(seed))
        world = SlotWorld(jobs_of(9, 3), speeds(), Conditions(3))
        return run_slots(world, divide).completion.tolist()

    assert run(1) == run(1) != run(2)


@given(count=st.integers(1, 9), nodes=st.integers(1, 9), seed=st.integers(0, 20))
def test_a_bundle_of_the_baseline_is_a_worker_and_then_its_server(
    count: int, nodes: int, seed: int
) -> None:
    world = SlotWorld(jobs_of(count, seed), speeds(), Conditions(nodes, most=3))
    world.begin()
    watched = Imitation(world, 9, np.random.default_rng(seed))
    drf(world, watched)
    decisions = watched.decisions
    assert len(decisions) == 2 * sum(world.workers)
    for worker, server in zip(decisions[::2], decisions[1::2], strict=True):
        assert (worker.action % ROLES, server.action % ROLES) == (0, 1)
        before = worker.state.reshape(FEATURES, 9)[:, worker.action // ROLES]
        after = server.state.reshape(FEATURES, 9)[:, server.action // ROLES]
        assert after[4] == before[4] + 1  # the worker is there, its server not yet
        assert after[5] == before[5] == before[4]
        assert after[[0, 1, 2]].tolist() == before[[0, 1, 2]].tolist()


def test_networks_of_other_worlds_are_refused() -> None:
    made = random_network(2, 0)
    with pytest.raises(BadInput, match="a network for dl2-gpus/1; the slot world needs one for"):
        check_schema(Network("x", "dl2-gpus/1", made.weights, made.biases))
    weight = np.zeros((12, 8), np.float32)
    with pytest.raises(BadInput, match="takes 12 numbers and gives 8"):
        check_schema(Network("x", SCHEMA, [weight], [np.zeros(8, np.float32)]))
