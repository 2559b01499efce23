"""What Sia believes configurations to be worth, and where it puts jobs."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.composition.settings import Costs
from dlsched.core.arrays import Floats, Ints, Rows
from dlsched.core.cluster.description import parse_cluster_spec
from dlsched.core.errors import BadInput
from dlsched.core.goodput.batch import best_batch
from dlsched.core.goodput.params import BatchLimits, GradParams, PerfParams
from dlsched.policies.registry import make
from dlsched.policies.scheduling.sia.adaptive_goodput import Adaptive, goodput_rows, normalised
from dlsched.policies.scheduling.sia.configurations import Configurations
from dlsched.policies.scheduling.sia.integer_program import MISSING
from dlsched.policies.scheduling.sia.node_capacity import NodeCapacity
from dlsched.policies.scheduling.sia.placement import Request, plan_all_again, plan_with_few_moves
from simulate.replay import replay
from simulate.settings import RunSettings
from simulate.traces.open import open_trace

FAST, SLOW = 0, 1
ROOM = Configurations.of(["fast", "slow"], [2, 2], [8, 4])
MODEL = PerfParams(0.05, 0.002, 0.10, 0.01, 0.02, 0.003, 1.5)
NOISE = GradParams(0.5, 4.0)
LIMITS = BatchLimits(128, 4096, 32, 256)
UNKNOWN = [np.nan] * 7


@dataclass
class Belief:
    """One job, known on some types."""

    models: dict[str, PerfParams] = field(default_factory=dict)
    ran_with: dict[str, int] = field(default_factory=dict)
    step: dict[str, float] = field(default_factory=lambda: {"fast": 0.001, "slow": 0.004})
    oracle: None = None

    def perf(self, rows: Rows, gpu_type: str = "") -> Floats:
        return np.array([self.models.get(gpu_type, UNKNOWN)] * len(rows), np.float64)

    def grads(self, rows: Rows) -> Floats:
        return np.array([NOISE] * len(rows), np.float64)

    def limits(self, rows: Rows, gpu_type: str = "") -> BatchLimits:
        return BatchLimits(*(np.full(len(rows), each) for each in LIMITS))

    def replica_gpus(self, rows: Rows, gpu_type: str = "") -> Ints:
        return np.ones(len(rows), np.int64)

    def profiled(self, rows: Rows, gpu_type: str = "") -> Ints:
        return np.full(len(rows), self.ran_with.get(gpu_type, 0))

    def one_gpu_step(self, rows: Rows, gpu_type: str = "") -> Floats:
        return np.full(len(rows), self.step.get(gpu_type, np.nan))

    def restart_s(self, rows: Rows) -> Floats:
        return np.full(len(rows), 30.0)

    def version(self, rows: Rows) -> Ints:
        return np.zeros(len(rows), np.int64)


def job(unit: tuple[int, int] = (1, 1), batch: float = np.nan, most: int = 64) -> Adaptive:
    return Adaptive(
        rows=np.array([0]),
        unit=np.array([unit]),
        batch=np.array([batch]),
        fewest=np.array([1]),
        most=np.array([most]),
    )


def row(belief: Belief, asked: Adaptive | None = None) -> dict[tuple[int, int], float]:
    """What can be had, by (type, GPUs)."""
    found = goodput_rows(asked or job(), belief, ROOM)[0]
    return {
        (int(kind), int(gpus)): float(value)
        for kind, gpus, value in zip(ROOM.gpu_type, ROOM.gpus, found, strict=True)
        if value > MISSING
    }


def goodput(nodes: int, replicas: int, limits: BatchLimits = LIMITS) -> float:
    return float(best_batch(MODEL, NOISE, limits, nodes, replicas).goodput)


def test_a_fresh_job_starts_on_one_gpu_of_any_type() -> None:
    assert row(Belief()) == {(FAST, 1): 1.0, (SLOW, 1): 1.0}


def test_a_job_may_double() -> None:
    found = row(Belief({"slow": MODEL}, {"slow": 2}))
    assert {gpus for kind, gpus in found if kind == SLOW} == {1, 2, 4}
    assert {gpus for kind, gpus in found if kind == FAST} == {1, 2, 4}
    alone = goodput_rows(job(), Belief({"slow": MODEL}, {"slow": 2}), ROOM, share_largest=False)
    assert (alone[0] > MISSING).sum() == 3 + 1


def test_its_own_model_speaks_where_it_has_run_and_another_in_proportion_elsewhere() -> None:
    found = row(Belief({"slow": MODEL}, {"slow": 4}))
    assert found[SLOW, 8] == pytest.approx(goodput(2, 8))
    # 8 GPUs of the fast type are one node there; the model that speaks saw nodes of 4
    assert found[FAST, 8] == pytest.approx(4 * goodput(2, 8))
    assert found[FAST, 4] == pytest.approx(4 * goodput(1, 4))
    both = row(Belief({"slow": MODEL, "fast": MODEL}, {"slow": 4}))
    assert both[FAST, 8] == pytest.approx(goodput(1, 8))


def test_without_the_profile_of_one_gpu_types_count_alike() -> None:
    found = row(Belief({"slow": MODEL}, {"slow": 1}, step={}))
    assert found[FAST, 1] == pytest.approx(found[SLOW, 1])


def test_a_job_that_keeps_its_batch_is_judged_by_it() -> None:
    found = row(Belief({"slow": MODEL}, {"slow": 2}), job(batch=512.0))
    kept = LIMITS._replace(maximum=512, fixed=True)
    assert found[SLOW, 4] == pytest.approx(goodput(1, 4, kept))


def test_no_more_gpus_than_asked_for() -> None:
    assert max(gpus for _, gpus in row(Belief({"slow": MODEL}, {"slow": 8}), job(most=5))) == 4


def test_replicas_of_several_gpus_come_whole() -> None:
    belief = Belief({"slow": MODEL}, {"slow": 1})
    found = row(belief, job(unit=(8, 2)))
    assert set(found) == {(SLOW, 2), (SLOW, 4), (FAST, 8), (FAST, 16)}
    assert found[SLOW, 4] == pytest.approx(goodput(1, 2))
    only_fast = row(belief, job(unit=(8, 0)))
    assert {kind for kind, _ in only_fast} == {FAST}
    fresh = row(Belief(), job(unit=(8, 2)))
    assert fresh == {(FAST, 8): 8.0, (SLOW, 2): 2.0}


def test_rows_count_in_multiples_of_their_least() -> None:
    given = np.array([[MISSING, 6.0, 3.0, *[MISSING] * (len(ROOM) - 3)]])
    found = normalised(given, np.array([[4, 1]]), ROOM)
    assert found[0, :3].tolist() == [MISSING, 8.0, 4.0]


def test_no_power_of_nothing() -> None:
    with pytest.raises(BadInput, match="power must not be 0"):
        make("scheduling", "sia", {"power": 0.0})


# -- nodes --------------------------------------------------------------------------------------


def ground(*room: int, size: int = 4) -> NodeCapacity:
    return NodeCapacity(("a",), [0] * len(room), [list(range(len(room)))], list(room), [size])


def test_parts_of_nodes_pack_and_whole_nodes_are_taken_whole() -> None:
    asks = {1: Request(0, 2), 2: Request(0, 8), 3: Request(0, 1)}
    assert plan_all_again(asks, ground(4, 4, 4)) == {2: [(0, 4), (1, 4)], 1: [(2, 2)], 3: [(2, 1)]}
    assert plan_with_few_moves(asks, {}, ground(4, 4, 4)) == {
        2: [(2, 4), (1, 4)],
        1: [(0, 2)],
        3: [(0, 1)],
    }


def test_an_odd_gang_takes_a_whole_node_and_a_part() -> None:
    assert plan_all_again({1: Request(0, 6)}, ground(4, 4)) == {1: [(0, 4), (1, 2)]}
    assert plan_with_few_moves({1: Request(0, 6)}, {}, ground(4, 4)) == {1: [(1, 4), (0, 2)]}
    assert plan_with_few_moves({1: Request(0, 6)}, {}, ground(2, 2, 2)) == {
        1: [(0, 2), (1, 2), (2, 2)]
    }


def test_small_jobs_move_when_the_free_gpus_lie_badly() -> None:
    held = {1: [(0, 1)], 2: [(1, 1)], 3: [(1, 2)]}
    asks = {1: Request(0, 1), 2: Request(0, 1), 3: Request(0, 2), 9: Request(0, 4)}
    plan = plan_with_few_moves(asks, held, ground(4, 4))
    assert plan[9] == [(0, 4)]
    assert plan[1] == [(1, 1)]
    assert (plan[2], plan[3]) == (held[2], held[3])


def test_a_node_is_emptied_for_a_job_over_several() -> None:
    held = {1: [(0, 1)], 2: [(1, 2)]}
    asks = {1: Request(0, 1), 2: Request(0, 2), 9: Request(0, 8)}
    plan = plan_with_few_moves(asks, held, ground(4, 4, 4))
    assert plan[9] == [(2, 4), (0, 4)]
    assert plan[1] == [(1, 1)]


powers = st.lists(st.sampled_from([1, 2, 4, 8, 12]), min_size=1, max_size=12)


@given(powers, powers, st.integers(1, 4))
def test_what_fits_by_count_finds_its_nodes(
    before: list[int], after: list[int], nodes: int
) -> None:
    """Powers of two and whole nodes always fit, whatever the others did before."""
    place = ground(*[4] * nodes)

    def fitting(sizes: list[int], first: int) -> dict[int, Request]:
        asks, left = {}, 4 * nodes
        for number, gpus in enumerate(sizes):
            if gpus <= left:
                asks[first + number] = Request(0, gpus)
                left -= gpus
        return asks

    held = plan_with_few_moves(fitting(before, 0), {}, place)
    kept = {row: Request(0, sum(g for _, g in counts)) for row, counts in list(held.items())[::2]}
    left = 4 * nodes - sum(ask.gpus for ask in kept.values())
    asks = dict(kept)
    for row, ask in fitting(after, 100).items():
        if ask.gpus <= left:
            asks[row] = ask
            left -= ask.gpus
    for plan in (plan_with_few_moves(asks, held, place), plan_all_again(asks, place)):
        assert set(plan) == set(asks)
        used = [0] * nodes
        for row, counts in plan.items():
            assert sum(gpus for _, gpus in counts) == asks[row].gpus
            assert len(counts) == -(-asks[row].gpus // 4)
            for node, gpus in counts:
                used[node] += gpus
        assert max(used) <= 4


# -- whole runs -----------------------------------------------------------------------------------

HEADER = "job_id,submit_time,num_gpus,duration,preemptible,reserved,gpu_type\n"


def run(folder: Path, *jobs: str) -> dict[str, tuple[float, int]]:
    """First start and starts of each job, on two nodes of 4 GPUs."""
    path = folder / "jobs.csv"
    path.write_text(HEADER + "".join(f"{line}\n" for line in jobs))
    settings = RunSettings(policy="sia", check=True, costs=Costs(restart_overhead=10.0))
    jobs_of = replay(open_trace(path), parse_cluster_spec("1x4:a+1x4:b"), settings).jobs
    columns = (jobs_of.job_id, jobs_of.first_start_time, jobs_of.starts)
    return {
        name: (start, starts)
        for name, start, starts in zip(*(each.tolist() for each in columns), strict=True)
    }


def test_a_job_that_may_not_be_preempted_runs_to_its_end(tmp_path: Path) -> None:
    found = run(
        tmp_path, "x,0,4,900,0,0,a", "y,0,4,900,0,0,b", "z,60,1,100,1,1,a", "u,60,1,100,1,0,b"
    )
    assert found["x"] == (0.0, 1)
    assert found["y"] == (0.0, 1)
    assert found["z"][0] >= 900.0


def test_a_reservation_is_served_before_others(tmp_path: Path) -> None:
    found = run(tmp_path, "x,0,4,900,1,0,a", "z,60,4,300,1,1,a")
    assert found["z"][0] == 60.0
    assert found["x"][1] == 2


def test_a_guaranteed_type_is_kept_to(tmp_path: Path) -> None:
    found = run(tmp_path, "x,0,4,300,1,0,a", "y,0,4,300,1,0,a", "z,0,4,300,1,0,b")
    assert found["z"] == (0.0, 1)
    assert sorted(start for start, _ in (found["x"], found["y"]))[0] == 0.0
    assert max(found["x"][0], found["y"][0]) >= 300.0
