"""The policy mlfs: order, places, relief and memory, in small replays and single rounds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dlsched.core.cluster.description import Cluster, Node
from dlsched.core.cluster.occupancy import Placement
from dlsched.core.options import NoOptions
from dlsched.core.round.cycle import Parts, decide
from dlsched.core.units import Status
from dlsched.policies.admission.thresholds import AcceptAll
from dlsched.policies.estimators.estimators import Oracle
from dlsched.policies.placement.spanning import MinNodes
from dlsched.policies.scheduling.mlfs.options import MlfsOptions
from dlsched.policies.scheduling.mlfs.policy import Mlfs


def decided(ctx: Any, policy: Mlfs | None = None, **options: Any) -> Any:
    parts = Parts(
        scheduling=policy or Mlfs(MlfsOptions(**options)),
        placement=MinNodes(NoOptions()),
        admission=AcceptAll(NoOptions()),
        estimator=Oracle(NoOptions()),
    )
    return decide(parts, ctx)


def order(allocation: Any) -> list[int]:
    found: list[int] = allocation.order.tolist()
    return found


# -- order ----------------------------------------------------------------------------------------


def test_the_job_that_has_waited_longest_goes_first(lab: Any) -> None:
    ctx = lab.context("1x1", [1, 1, 1], holding={})
    ctx.table.since[:] = [90.0, 10.0, 50.0]
    assert order(decided(ctx)) == [1, 2, 0]


def test_a_deadline_that_is_near_goes_before_waiting(lab: Any) -> None:
    ctx = lab.context("1x1", [1, 1])
    ctx.table.since[:] = [0.0, 100.0]
    ctx.table.deadline[1] = 101.0  # seconds after the submit at 1: two seconds from now
    allocation = decided(ctx)
    assert order(allocation) == [1, 0]
    terms = allocation.terms
    assert terms["deadline"][0] == pytest.approx(0.7 * 0.3 / (2 / 60))
    parts = sum(values for name, values in terms.items() if name != "total")
    assert parts.tolist() == pytest.approx(terms["total"].tolist())


def test_the_unit_of_time_is_an_option(lab: Any) -> None:
    ctx = lab.context("1x1", [1])
    ctx.table.since[:] = 0.0
    assert decided(ctx, time_unit_s=1.0).terms["waited"].tolist() == pytest.approx([0.7 * 35.0])


def test_what_learns_much_goes_before_what_learns_little(lab: Any) -> None:
    """Equal but for their losses: 10 → 9 → 6 and 10 → 7 → 6."""
    policy = Mlfs(MlfsOptions())
    ctx = lab.context("1x1", [1, 1, 1], holding={2: {0: 1}})
    ctx.table.since[:2] = 100.0
    for steps, losses in ((1, [10, 10, 1]), (2, [7, 9, 1]), (3, [6, 6, 1])):
        ctx.table.extra["steps_done"] = np.full(3, float(steps))
        ctx.table.extra["loss"] = np.array(losses, np.float64)
        allocation = decided(ctx, policy)
    assert order(allocation) == [1, 0]
    assert allocation.terms["learning"].tolist() == pytest.approx(
        [0.3 / 4 * 3 / 4, 0.3 / 4 * 1 / 4]  # α · L / I · part of the reductions
    )
    again = Mlfs(MlfsOptions())
    again.load_state_dict(policy.state_dict())
    assert again.state_dict() == policy.state_dict()
    again.renumber(np.array([1, 2]), 0)
    assert {row for row, *_ in again.state_dict()["losses"]} == {0, 1}


def test_a_unit_has_part_of_the_priority_of_those_that_wait_for_it(lab: Any) -> None:
    ctx = lab.context("1x1", [1, 1, 3])
    ctx.table.since[:] = 100.0
    ctx.table.parents = {2: (1,)}
    ctx.table.group[:] = [-1, 0, 0]
    ctx.table.priority[1:] = 2.0
    ctx.table.status[2] = Status.FUTURE
    ctx.active = np.array([0, 1])
    allocation = decided(ctx)
    assert order(allocation) == [1, 0]
    mine = 0.3 * 2 * 0.25 + 0.7 * 0.3 / (1000 / 60)  # a quarter of its group's GPUs
    below = 0.3 * 2 * 0.75 + 0.7 * 0.3 / (1000 / 60)
    assert allocation.terms["total"][0] == pytest.approx(mine + 0.8 * below)
    assert allocation.terms["dependents"].tolist() == pytest.approx([0.8 * below, 0.0])


def test_a_deadline_leaves_time_for_the_units_that_wait(lab: Any) -> None:
    ctx = lab.context("1x1", [1, 1])
    ctx.table.since[:] = 100.0
    ctx.table.parents = {1: (0,)}
    ctx.table.group[:] = 0
    ctx.table.deadline[1] = 3099.0  # at 3100, of which the last 1000 s are its own
    ctx.table.status[1] = Status.FUTURE
    ctx.active = np.array([0])
    assert decided(ctx).terms["deadline"].tolist() == pytest.approx([0.7 * 0.3 / (2000 / 60)])


def test_normalised_priorities_are_at_most_one(lab: Any) -> None:
    ctx = lab.context("1x1", [1, 1, 1])
    ctx.table.since[:] = [0.0, 50.0, 100.0]
    ctx.table.priority[:] = [1.0, 2.0, 9.0]
    total = decided(ctx, normalise=True).terms["total"]
    assert 0 < total.max() <= 1.0


# -- places ---------------------------------------------------------------------------------------


def test_small_jobs_spread_and_the_gpus_of_a_gang_stay_together(lab: Any) -> None:
    allocation = decided(lab.context("2x4", [1, 1, 3]))
    where = {row: placement.nodes for row, placement in allocation.launched.items()}
    assert where == {0: (0,), 1: (1,), 2: (0,)}


def test_a_unit_goes_to_the_server_of_the_units_that_it_waited_for(lab: Any) -> None:
    ctx = lab.context("3x4", [2, 1], holding={0: {2: 0b11}})
    ctx.table.parents = {1: (0,)}
    assert decided(ctx).launched[1].nodes == (2,)
    apart = lab.context("3x4", [2, 1], holding={0: {2: 0b11}})
    assert decided(apart).launched[1].nodes == (0,)


def test_with_hosts_from_the_placement_gangs_are_packed(lab: Any) -> None:
    ctx = lab.context("2x4", [1, 1, 3])
    allocation = decided(ctx, hosts="placement")
    assert {row: p.nodes for row, p in allocation.launched.items()} == {0: (0,), 1: (0,), 2: (1,)}


def test_behind_a_job_that_does_not_fit_others_start_unless_told_to_stop(lab: Any) -> None:
    for misfit, started in (("skip", [1]), ("stop", [])):
        ctx = lab.context("1x2", [4, 1])
        ctx.table.since[:] = [0.0, 99.0]
        assert list(decided(ctx, misfit=misfit).launched) == started


# -- overload -------------------------------------------------------------------------------------


def busy(lab: Any, cpus_used: list[float], holding: Any, gangs: list[int]) -> Any:
    """Servers of 10 processors, and how many the jobs were seen to use."""
    cluster = Cluster([Node(name=f"n{k}", gpus=4, cpus=10) for k in range(2)])
    ctx = lab.context(cluster, gangs, holding=holding)
    ctx.table.extra["cpus_used"] = np.array(cpus_used)
    return ctx


def test_a_job_does_not_go_where_it_would_overload_a_server(lab: Any) -> None:
    ctx = busy(lab, [6.0, 8.0, 3.5], {0: {0: 1}, 1: {1: 1}}, [1, 1, 1])
    allocation = decided(ctx)
    assert list(allocation.launched) == []
    assert str(allocation.refused[2]).startswith("Overload: each server with a free GPU would use")
    fits = busy(lab, [6.0, 8.0, 2.5], {0: {0: 1}, 1: {1: 1}}, [1, 1, 1])
    assert decided(fits).launched[2].nodes == (0,)


def test_a_job_moves_out_of_an_overloaded_server(lab: Any) -> None:
    ctx = busy(lab, [4.0, 5.5], {0: {0: 0b01}, 1: {0: 0b10}}, [1, 1])
    allocation = decided(ctx)
    assert allocation.suspended == {1: Placement((0,), (0b10,))}  # it uses most
    assert allocation.launched[1].nodes == (1,)


def test_a_job_that_finds_no_other_place_goes_back_to_the_queue(lab: Any) -> None:
    ctx = busy(lab, [4.0, 5.5, 8.0], {0: {0: 0b01}, 1: {0: 0b10}, 2: {1: 1}}, [1, 1, 1])
    allocation = decided(ctx)
    assert list(allocation.suspended) == [1]
    assert 1 not in allocation.launched
    assert allocation.refused[1].reason == "Overload"


def test_reservations_alone_overload_no_server(lab: Any) -> None:
    ctx = busy(lab, [np.nan, np.nan], {0: {0: 0b01}}, [1, 1])
    ctx.table.cpus[:] = 10.0
    ctx.pools.nodes[0] = 0b01
    ctx.table.cpus[1] = 0.0
    assert list(decided(ctx).launched) == [1]


def test_a_server_with_one_job_is_left_alone_and_so_is_one_in_its_minimum_time(lab: Any) -> None:
    alone = busy(lab, [9.9], {0: {0: 1}}, [1])
    assert not decided(alone).suspended
    ctx = busy(lab, [4.0, 5.5], {0: {0: 0b01}, 1: {0: 0b10}}, [1, 1])
    ctx.min_run = 1000.0
    assert not decided(ctx).suspended
    off = busy(lab, [4.0, 5.5], {0: {0: 0b01}, 1: {0: 0b10}}, [1, 1])
    assert not decided(off, relieve=False).suspended


def test_gpus_are_shared_as_far_as_jobs_were_seen_to_use_them(lab: Any) -> None:
    trace = lab.trace(
        [(0, 1, 3000), (10, 1, 3000), (20, 1, 600)],
        gpu_util=[30.0, 50.0, 50.0],
        gpu_share=[0.3, 0.3, 0.3],
    )
    done = lab.run(trace, "mlfs", cluster="1x1", interference="none")
    assert done.jobs.first_start_time.tolist() == [0, 10, 3010]  # B and C would use 100 %


def test_the_least_urgent_job_leaves_an_overloaded_gpu(lab: Any) -> None:
    for priorities, leaves in (([9.0, 1.0], 1), ([1.0, 9.0], 0)):
        ctx = lab.context("1x2", [1, 1], holding={0: {0: 0b01}})
        ctx.may_share = True
        ctx.occupancy.join(1, 0)
        ctx.table.status[1] = Status.RUNNING
        ctx.table.gpu_share[:] = 0.4
        ctx.table.priority[:] = priorities
        ctx.table.extra["gpu_util"] = np.array([60.0, 40.0])
        allocation = decided(ctx)
        assert list(allocation.suspended) == [leaves]
        assert allocation.launched[leaves] == Placement((0,), (0b10,))


# -- whole runs -----------------------------------------------------------------------------------


@pytest.mark.parametrize("hosts", ["nearest", "placement"])
def test_on_a_random_trace_no_job_starves_and_skipping_changes_nothing(
    lab: Any, hosts: str
) -> None:
    rng = np.random.default_rng(5)
    jobs = [
        (float(submit), int(gpus), float(took))
        for submit, gpus, took in zip(
            np.sort(rng.integers(0, 20_000, 60)),
            rng.choice([1, 2, 4, 8], 60),
            rng.integers(60, 4000, 60),
            strict=True,
        )
    ]
    runs = [
        lab.run(
            jobs,
            "mlfs",
            cluster="2x8",
            options=(f"hosts={hosts}",),
            clock="rounds",
            skipping=skipping,
        )
        for skipping in (True, False)
    ]
    assert lab.outcome(runs[0]) == lab.outcome(runs[1])
    assert set(runs[0].jobs.status.tolist()) == {"completed"}
    assert runs[0].jobs.preemptions.sum() == 0


@pytest.mark.slow
def test_on_a_loaded_cluster_each_part_of_mlfs_helps(lab: Any) -> None:
    """500 jobs with deadlines and targets: MLFS is no worse than MLF-H, and that than FIFO."""
    rng = np.random.default_rng(11)
    count = 500
    took = rng.lognormal(7.0, 1.2, count)
    submit = np.sort(rng.uniform(0, 1.05 * float((took * 2.3).sum()) / 64, count))
    trace = lab.trace(
        [
            (float(s), int(g), float(t))
            for s, g, t in zip(
                submit, rng.choice([1, 2, 4, 8], count, p=[0.5, 0.25, 0.15, 0.1]), took, strict=True
            )
        ],
        deadline=np.maximum(1.1 * took, rng.uniform(0.5, 24, count) * 3600),
        epoch_s=took / 50,
        loss_falls=np.ones(count),
        loss_begins=np.ones(count),
        loss_floor=np.full(count, 0.1),
        accuracy_best=np.full(count, 0.9),
        accuracy_gap=np.full(count, 0.8),
        accuracy_speed=np.full(count, 1.0),
        target_accuracy=rng.uniform(0.7, 0.95, count),
        stop_under_load=["either"] * count,
    )

    def outcome(policy: str, *options: str) -> tuple[float, float]:
        done = lab.run(
            trace, policy, cluster="8x8", options=options, clock="rounds", metrics="losses",
            check=False,
        ).jobs  # fmt: skip
        jct = done.finish_time - done.submit_time
        return float(jct.mean()), float((jct <= trace.columns["deadline"]).mean())

    mlfs, heuristic = outcome("mlfs"), outcome("mlfs", "load_control=false")
    fifo = outcome("fifo")
    assert mlfs[0] <= heuristic[0] <= fifo[0]
    assert mlfs[1] >= heuristic[1] >= fifo[1]
    assert mlfs[0] < fifo[0]
