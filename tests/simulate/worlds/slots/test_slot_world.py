"""The slot world by hand: speeds, placements, ends within a slot, and the five baselines."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.core.errors import BadInput
from simulate.worlds.slots.baselines import BASELINES
from simulate.worlds.slots.jobs import COLUMNS, SlotJobs, drawn_jobs, read_jobs
from simulate.worlds.slots.speeds import SpeedSurface, interpolated, read_speeds
from simulate.worlds.slots.world import NODE_SLOTS, Conditions, Nodes, Role, SlotWorld, run_slots

MODELS = ("resnet-50", "vgg-16", "resnext-110", "inception-bn", "seq2seq",
          "cnn-text-classification", "dssm", "wlm")  # fmt: skip


def surface(rate: Callable[[int, int], float] = min, most: int = 17) -> SpeedSurface:
    """Every model alike, at a speed by servers and workers."""
    numbers = range(most + 1)
    table = np.array([[rate(p, w) if p and w else 0.0 for w in numbers] for p in numbers])
    return SpeedSurface(dict.fromkeys(MODELS, table))


def drawn(count: int, seed: int = 0, epochs: float = 100.0) -> SlotJobs:
    return drawn_jobs(count, arrivals=3, most_epochs=epochs, rng=np.random.RandomState(seed))


def test_the_interpolation_meets_its_points_and_follows_its_formula() -> None:
    points = np.array([[1, 1], [1, 3], [3, 1], [3, 3]], np.float64)
    table = interpolated(points, np.array([1.0, 2.0, 3.0, 4.0]), 3)
    assert [table[1, 1], table[1, 3], table[3, 1], table[3, 3]] == [1, 2, 3, 4]  # to the last digit
    # each point is 2, 2 and 2√2 away from the others, and √2 from the middle
    assert table[2, 2] == pytest.approx(math.sqrt(2) * 10 / (4 + 2 * math.sqrt(2)))
    assert (table[0] == 0).all()
    assert (table[:, 0] == 0).all()


def test_a_request_is_tried_on_the_emptiest_node_alone() -> None:
    nodes = Nodes(2)
    assert nodes.place((2, 4))  # node 0
    assert nodes.place((2, 4))  # node 1, which is empty
    assert nodes.place((8 - 2, 0))  # node 0 again: equal, the first
    assert nodes.place((2, 4))  # node 1: 12 slots used
    assert not nodes.place((2, 4))  # node 0, 12 slots: no processor is left
    assert nodes.used == [(8, 4), (4, 8)]
    assert nodes.place((0, 0))


def test_the_last_slot_counts_as_far_as_it_is_needed() -> None:
    jobs = drawn(1)
    world = SlotWorld(jobs, surface(lambda p, w: float(w)), Conditions(4, slot_s=60.0))
    per_slot = 60.0 / jobs.batches.item(0)
    outcome = run_slots(world, lambda world: world.place(0, Role.BUNDLE) and None)
    slots = jobs.epochs.item(0) / per_slot
    assert outcome.completion.tolist() == pytest.approx([slots])
    assert outcome.makespan == pytest.approx(slots)
    assert outcome.rewards.sum() == pytest.approx(1.0)
    assert outcome.rewards[0] == pytest.approx(per_slot / jobs.epochs.item(0))


def test_without_a_server_or_a_worker_nothing_is_done() -> None:
    world = SlotWorld(drawn(3), surface(), Conditions(4))
    world.begin()
    assert world.place(0, Role.WORKER)
    assert world.place(1, Role.SERVER)
    assert world.end() == 0
    world.begin()
    assert (world.workers[:2], world.servers[:2]) == ([0, 0], [0, 0])


def test_a_job_that_never_trains_ends_the_run_with_its_number() -> None:
    world = SlotWorld(drawn(1), surface(), Conditions(1))
    with pytest.raises(BadInput, match="job 1 has not ended after 100,000 slots"):
        run_slots(world, lambda world: None)


def three_jobs() -> SlotWorld:
    """Three jobs whose bundles take a fourth of the processors of a node, on one node."""
    jobs = drawn(3, seed=4)
    assert set(jobs.type.tolist()) != {6, 7}
    world = SlotWorld(jobs, surface(lambda p, w: float(min(p, w))), Conditions(2))
    world.begin()
    return world


@pytest.mark.parametrize(
    ("policy", "workers"), [("fifo", [4, 0, 0]), ("srtf", [0, 0, 4]), ("drf", [2, 1, 1])]
)
def test_baselines_share_the_room_for_four_bundles(policy: str, workers: list[int]) -> None:
    world = three_jobs()
    world.progress[2] = world.epochs[2] / 2  # most is done
    BASELINES[policy](world)
    assert world.workers == workers == world.servers


def test_optimus_gives_the_next_task_to_the_job_that_gains_most() -> None:
    world = three_jobs()
    world.progress[1:] = [each * 0.999 for each in world.epochs[1:]]
    BASELINES["optimus"](world)
    assert [min(pair) for pair in zip(world.workers, world.servers, strict=True)][1:] == [1, 1]
    assert world.workers[0] >= 1


def test_tetris_fills_a_node_before_the_next() -> None:
    world = three_jobs()
    BASELINES["tetris"](world)
    assert sum(world.workers) == 4
    assert world.nodes.used[0] == world.nodes.used[1]


@pytest.mark.parametrize("policy", sorted(BASELINES))
@given(
    count=st.integers(1, 12), nodes=st.integers(1, 9), seed=st.integers(0, 99),
    most=st.integers(1, 6),
)  # fmt: skip
def test_no_node_is_ever_over_its_slots(
    policy: str, count: int, nodes: int, seed: int, most: int
) -> None:
    jobs = drawn(count, seed)
    world = SlotWorld(jobs, surface(), Conditions(nodes, slot_s=12_000.0, most=most))
    while not world.is_over:
        world.begin()
        BASELINES[policy](world)
        used = np.zeros(2, np.int64)
        for job in world.there:
            used += world.workers[job] * jobs.worker[job] + world.servers[job] * jobs.server[job]
            assert max(world.workers[job], world.servers[job]) <= most
        assert used.tolist() == np.sum(world.nodes.used, axis=0).tolist()
        assert max(max(each) for each in world.nodes.used) <= NODE_SLOTS
        before = list(world.progress)
        reward = world.end()
        done = sum(
            (after - earlier) / whole
            for earlier, after, whole in zip(before, world.progress, world.epochs, strict=True)
        )
        assert reward == pytest.approx(done)
        assert reward >= 0
        assert world.slot < 5_000
    assert (world.completion > 0).all()


@given(scale=st.floats(1.0, 4.0), seed=st.integers(0, 20))
def test_faster_models_never_give_a_smaller_reward_in_a_slot(scale: float, seed: int) -> None:
    rewards = []
    for factor in (1.0, scale):
        speeds = surface(lambda p, w, factor=factor: factor * min(p, w))
        world = SlotWorld(drawn(6, seed), speeds, Conditions(4))
        world.begin()
        BASELINES["drf"](world)
        rewards.append(world.end())
    assert rewards[1] >= rewards[0] - 1e-12


HEADER = ",".join(COLUMNS)
GOOD = "7,1,resnet-50,0,10,115,2,4,2,0"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            HEADER.replace("num_epochs", "epochs") + "\n",
            "no column num_epochs; the first line must name",
        ),
        (HEADER + "\n", "has no jobs"),
        (f"{HEADER}\n{GOOD}\n{GOOD}\n", "a job_id is there twice"),
        (f"{HEADER}\n{GOOD.replace(',10,', ',0,')}\n", ":2: num_epochs is 0; it must be 1 or more"),
        (
            f"{HEADER}\n{GOOD.replace('7,1', '7,1.5')}\n",
            ":2: type is 1.5; it must be a whole number of 1",
        ),
        (f"{HEADER}\n{GOOD.replace(',115', ',x')}\n", ":2: batches_per_epoch is 'x', not a number"),
        (f"{HEADER}\n7,1\n", ":2: 2 fields where the header has 10"),
    ],
)
def test_a_bad_file_of_jobs_is_one_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text(text)
    with pytest.raises(BadInput, match=message):
        read_jobs(path)


POINTS = "model,num_ps,num_workers,speed_sum_batches_s\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model,num_ps,speed\n", "no column num_workers, speed_sum_batches_s"),
        (POINTS, "has no speeds"),
        (POINTS + "a,1,1,5\na,1,1,6\n", ":3: a was measured there before"),
        (POINTS + "a,0,1,5\n", ":2: num_ps is 0; it must be a whole number of 1"),
        (POINTS + "a,1,x,5\n", ":2: num_workers is 'x', not a number"),
        (POINTS + "a,1,1,5\na,1,2,6\n", "a has 2 points; three or more are needed"),
        (POINTS.replace("sum_batches_s", "rbf") + "a,1,1,5\n", "a lacks speeds; 1 to 3 servers"),
    ],
)
def test_a_bad_file_of_speeds_is_one_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "speeds.csv"
    path.write_text(text)
    with pytest.raises(BadInput, match=message):
        read_speeds(path, 3)


def test_a_model_without_speeds_is_named() -> None:
    with pytest.raises(BadInput, match="no speeds of model 'bert'; there are those of cnn-text"):
        surface().of("bert")
