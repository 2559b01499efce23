"""Synergy: the sheet's example, what every decision keeps, and other policies with its shares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlsched.composition.host_tables import HostTables
from dlsched.core.allocation import Allocation, HostShare
from dlsched.core.cluster.description import Cluster, Node
from dlsched.core.errors import BadInput
from dlsched.core.speed.sensitivity import HostProfile, HostSpeeds
from dlsched.policies.placement.spanning import FirstFree
from dlsched.policies.scheduling.synergy.demand import demand_of
from simulate.engine import Engine
from simulate.replay import prepare, replay
from simulate.settings import RunSettings

FAIR = HostShare(3.0, 62.5)
# processors and GB for each GPU with full speed, seconds of a step with the fair share, full gain
MODELS = {
    "alexnet": (12.0, 125.0, 0.6, 2.94),
    "res18": (9.0, 62.5, 0.64, 2.4),
    "shufflenet": (12.0, 125.0, 0.615, 2.89),
    "m5": (6.0, 187.5, 0.6, 2.5),
    "deepspeech": (3.0, 62.5, 0.757, 1.0),
    "gnmt": (1.0, 20.0, 0.12, 1.0),
}
EXAMPLE = ("alexnet", "res18", "shufflenet", *["gnmt"] * 5)


def tables(models: Mapping[str, tuple[float, float, float, float]] = MODELS) -> HostTables:
    demands = {
        (FAIR.cpus, name): (HostShare(cpus, memory), step, gain)
        for name, (cpus, memory, step, gain) in models.items()
    }
    return HostTables(demands=demands)


def servers(count: int = 1, **given: Any) -> Cluster:
    size = {"gpus": 8, "cpus": 24.0, "memory_gb": 500.0} | given
    return Cluster([Node(name=f"n{k}", **size) for k in range(count)])


def engine_of(
    lab: Any,
    jobs: Sequence[tuple[float, float, float]],
    models: Sequence[str],
    policy: str = "synergy",
    *,
    cluster: Cluster | None = None,
    host: str = "",
    options: tuple[str, ...] = (),
    **given: Any,
) -> Engine:
    trace = lab.trace(jobs, model=list(models))
    settings = RunSettings(policy=policy, host=host, options=options, check=True, **given)
    return prepare(trace, cluster or servers(), settings, host=tables())


def shares_at_once(lab: Any, mode: str, **given: Any) -> dict[int, tuple[float, float]]:
    """Processors and speed of each job of the example that runs."""
    jobs = [(0.0, 1.0, 1000.0)] * len(EXAMPLE)
    engine = engine_of(
        lab, jobs, EXAMPLE, cluster=servers(), options=(f"mode={mode}",), clock="events", **given
    )
    seen: dict[int, tuple[float, float]] = {}

    def look(engine: Engine, allocation: Allocation) -> None:
        table = engine.world.table
        if not seen:
            seen.update(
                (row, (table.gpu_cpus.item(row), table.rate.item(row)))
                for row in engine.world.occupancy.held
            )

    engine.observers.append(look)
    engine.run()
    return seen


def test_fair_gives_each_gpu_its_part_of_the_node(lab: Any) -> None:
    assert shares_at_once(lab, "fair") == dict.fromkeys(range(8), (3.0, 1.0))


def test_greedy_leaves_gpus_idle_for_want_of_processors(lab: Any) -> None:
    assert shares_at_once(lab, "greedy") == {
        0: (12.0, 2.94),
        1: (9.0, 2.4),
        3: (1.0, 1.0),
        4: (1.0, 1.0),
        5: (1.0, 1.0),
    }


def test_tune_cuts_the_richest_peer_and_nothing_waits(lab: Any) -> None:
    assert shares_at_once(lab, "tune") == {
        0: (3.0, 1.0),
        1: (9.0, 2.4),
        2: (3.0, 1.0),
        **dict.fromkeys(range(3, 8), (1.0, 1.0)),
    }


def test_opt_has_the_greatest_sum_of_gains(lab: Any) -> None:
    found = shares_at_once(lab, "opt")
    assert len(found) == 8
    # 24 processors, 5 for gnmt: alexnet with 12 gains most of the 19; the others have their share
    assert sum(gain for _, gain in found.values()) == pytest.approx(2.94 + 2 + 5)
    assert sum(cpus for cpus, _ in found.values()) <= 24


def test_what_a_job_gives_up_comes_back_when_the_others_have_left(lab: Any) -> None:
    """A sole sensitive job has all it wants, gives it up for a second, and gets it back."""
    jobs = [(0.0, 4.0, 4000.0), (100.0, 4.0, 100.0)]
    result = replay(
        lab.trace(jobs, model=["alexnet", "alexnet"]),
        servers(),
        RunSettings(policy="fifo", host="synergy", clock="events", check=True),
        host=tables(),
    )
    first, second = result.jobs.finish_time.tolist()
    full = 1 + 1.94 / 9 * 3  # with 24 processors on four GPUs
    assert second == pytest.approx(200.0)  # both have three for each GPU, until the second ends
    assert first == pytest.approx(200 + (4000 - 100 * full - 100) / full)
    assert result.jobs.preemptions.sum() == result.jobs.starts.sum() - 2 == 0


@pytest.mark.parametrize("policy", ["fifo", "las", "srtf", "tiresias", "gavel", "themis"])
@pytest.mark.parametrize("mode", ["fair", "tune", "greedy", "opt"])
def test_any_policy_goes_with_its_shares(lab: Any, policy: str, mode: str) -> None:
    jobs = [(5.0 * k, float(1 << k % 4), 300.0 + 7 * k) for k in range(16)]
    models = [sorted(MODELS)[k % len(MODELS)] for k in range(16)]
    result = replay(
        lab.trace(jobs, model=models),
        servers(2),
        RunSettings(policy=policy, host="synergy", options=(f"host.mode={mode}",), check=True),
        host=tables(),
    )
    assert result.summary["completed"] == 16
    assert result.summary["host"] == "synergy"


@given(data=st.data())
@settings(max_examples=25)
def test_in_tune_no_job_has_less_than_its_proportional_share(lab: Any, data: Any) -> None:
    """Nor is a node overdrawn (every decision is checked), nor does a job wait for processors."""
    names = st.sampled_from(sorted(MODELS))
    count = data.draw(st.integers(1, 20))
    models = data.draw(st.lists(names, min_size=count, max_size=count))
    gangs = data.draw(st.lists(st.sampled_from([1, 2, 3, 4, 8]), min_size=count, max_size=count))
    order = data.draw(st.sampled_from(["fifo", "las", "srtf", "ftf", "drf", "tetris"]))
    rebuild = data.draw(st.sampled_from(["sticky", "full"]))
    peers = data.draw(st.sampled_from(["that-help", "in-turn"]))
    jobs = [(20.0 * k, float(g), 200.0 + 13 * k) for k, g in enumerate(gangs)]
    engine = engine_of(
        lab, jobs, models, cluster=servers(2),
        options=(f"order={order}", f"rebuild={rebuild}", f"peers={peers}"),
    )  # fmt: skip

    def look(engine: Engine, allocation: Allocation) -> None:
        table, ctx = engine.world.table, engine.cycle.ctx
        least = demand_of(ctx.running, ctx.occupancy.cluster, ctx.perf, "tune").least
        rows = ctx.running.rows
        has = np.stack([table.gpu_cpus[rows], table.gpu_memory_gb[rows]], axis=1)
        assert (has >= least - 1e-9).all()
        assert (table.rate[rows] >= 1 - 1e-9).all()
        free = ctx.occupancy.free_total
        waiting = table.gang[ctx.waiting.rows]
        assert ctx.mode == "fill" or not (waiting <= free).any()

    engine.observers.append(look)
    engine.run()
    assert (engine.world.table.finish > 0).all()


@pytest.mark.parametrize("mode", ["fair", "greedy", "tune"])
@pytest.mark.parametrize("order", ["fifo", "las", "srtf"])
def test_a_rebuild_in_one_go_is_that_of_the_walk(
    lab: Any, monkeypatch: pytest.MonkeyPatch, order: str, mode: str
) -> None:
    rng = np.random.default_rng(7)
    jobs = [(40.0 * k, float(rng.choice([1, 1, 2, 4, 8])), 400.0 + 23 * k) for k in range(40)]
    models = [sorted(MODELS)[int(rng.integers(len(MODELS)))] for _ in jobs]
    options = (f"order={order}", f"mode={mode}", "rebuild=full")
    outcomes = []
    for in_one_go in (True, False):
        monkeypatch.setattr(FirstFree, "takes_lowest", in_one_go)
        engine = engine_of(
            lab, jobs, models, cluster=servers(2), placement="first-free", options=options
        )
        engine.run()
        table = engine.world.table
        outcomes.append((table.finish.tolist(), table.migrations.tolist()))
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("order", ["fifo", "las", "srtf"])
def test_skipping_rounds_changes_nothing(lab: Any, order: str) -> None:
    jobs = [(50.0 * k, float(1 << k % 4), 900.0 + 30 * k) for k in range(24)]
    models = [sorted(MODELS)[k % len(MODELS)] for k in range(24)]
    outcomes = [
        lab.outcome(
            replay(
                lab.trace(jobs, model=models),
                servers(),
                RunSettings(policy="synergy", options=(f"order={order}",), skipping=skips),
                host=tables(),
            )
        )
        for skips in (True, False)
    ]
    assert outcomes[0] == outcomes[1]


def test_a_job_that_says_its_processors_has_just_those(lab: Any) -> None:
    trace = lab.trace(
        [(0.0, 1.0, 100.0), (0.0, 1.0, 100.0)], model=["alexnet"] * 2, num_cpus=[6.0, np.nan]
    )
    settings = RunSettings(policy="fifo", host="synergy", clock="events", check=True)
    result = replay(trace, servers(), settings, host=tables())
    gain = 1 + 1.94 / 9 * 3
    assert result.jobs.finish_time.tolist() == pytest.approx([100 / gain, 100 / 2.94])


def test_speed_is_linear_between_what_was_measured_and_falls_with_few_processors() -> None:
    profile = HostProfile(
        cpus=np.array([2.0, 4.0]),
        memory_gb=np.array([10.0, 20.0]),
        gain=np.array([[1.0, 2.0], [2.0, 4.0]]),
    )
    speeds = HostSpeeds(["a", "?"], {"a": profile}, HostShare(2.0, 10.0))
    shares = np.array([[3.0, 15.0], [1.0, 10.0], [9.0, 99.0], [9.0, 99.0]])
    gains = speeds.gains(np.array([0, 0, 0, 1]), shares)  # of the last one nothing is known
    assert gains.tolist() == pytest.approx([2.25, 0.5, 4.0, 1.0])
    assert tuple(profile.ideal) == (4.0, 20.0)


def test_nodes_without_processors_are_refused_in_one_line(lab: Any) -> None:
    with pytest.raises(BadInput, match="the cluster's nodes do not say"):
        lab.run([(0.0, 1.0, 1.0)], "las", host="synergy", cluster="1x8")
