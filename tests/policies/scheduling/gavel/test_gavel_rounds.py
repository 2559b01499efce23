"""The policy `gavel` in a replay: what rounds do with X, from whatever source; what is refused."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np
import pytest

from dlsched.core.arrays import Rows
from dlsched.core.context import RoundContext
from dlsched.core.errors import BadInput, PolicyFailed
from dlsched.core.options import parse_options
from dlsched.core.speed.throughput_table import ThroughputTable
from dlsched.policies.heterogeneous.time_shares import TimeShares
from dlsched.policies.scheduling.gavel.options import GavelOptions, ObjectiveName
from dlsched.policies.scheduling.gavel.policy import Gavel
from dlsched.policies.scheduling.gavel.solver import OBJECTIVES, Solver
from simulate.published.gavel.policy import PublishedGavel

TWO_TYPES = "1x1:slow+1x1:quick"
ROUND = 360.0


def table(lab: Any) -> ThroughputTable:
    """A is four times as fast on quick GPUs, B not at all; side by side both keep most of it."""
    alone = {("A", "slow"): 1.0, ("A", "quick"): 4.0, ("B", "slow"): 1.0, ("B", "quick"): 1.0}
    pairs = {("A", "B", kind): (0.9 * alone["A", kind], 0.9) for kind in ("slow", "quick")}
    found: ThroughputTable = lab.throughputs(alone, pairs)
    return found


def trace_of(lab: Any, jobs: list[tuple[float, int, float, str]], **columns: Any) -> Any:
    """Jobs as (submit, GPUs, steps, model)."""
    return lab.trace(
        [(submit, gang, steps) for submit, gang, steps, _ in jobs],
        total_iterations=[steps for _, _, steps, _ in jobs],
        model=[model for *_, model in jobs],
        **columns,
    )


class Fixed:
    """X as a test says, by row and type; 0 for all others."""

    def __init__(self, x: dict[int, dict[str, float]]) -> None:
        self.x = x
        self.asked: list[float] = []

    def __call__(self, rows: Rows, types: tuple[str, ...], ctx: RoundContext) -> TimeShares:
        self.asked.append(ctx.now)
        x = [[self.x.get(row, {}).get(name, 0.0) for name in types] for row in rows.tolist()]
        no_rows = np.zeros(0, np.int64)
        return TimeShares(
            rows=rows,
            x=np.array(x).reshape(-1, len(types)),
            first=no_rows,
            second=no_rows,
            pair_x=np.zeros((0, len(types))),
        )


def engine_of(lab: Any, trace: Any, source: Fixed | None = None, **given: Any) -> Any:
    options = given.pop("options", {})
    semantics = given.pop("semantics", "rounds")
    cluster = given.pop("cluster", TWO_TYPES)
    if semantics == "gavel":
        options = {"mechanism": "published", "resolve_s": 1920.0, **options}
    engine = lab.engine(
        trace,
        "gavel",
        cluster=cluster,
        throughputs=table(lab),
        options=(f"semantics={semantics}",),
        round_s=ROUND,
        **given,
    )
    if source is not None or options:
        kind = PublishedGavel if semantics == "gavel" else Gavel
        made = parse_options(kind.Options, options, owner="gavel")
        engine.parts.scheduling = kind(made, source)
    return engine


def test_every_objective_of_the_solver_is_an_option() -> None:
    assert set(get_args(ObjectiveName)) == set(OBJECTIVES)


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("semantics", ["rounds", "gavel"])
def test_every_objective_replays(lab: Any, objective: str, semantics: str) -> None:
    if (objective, semantics) == ("isolated-plus", "rounds"):
        return  # refused, see below
    jobs = [(90.0 * k, 1 + k % 2, 400.0 + 97 * k, "AB"[k % 3 == 0]) for k in range(12)]
    trace = trace_of(lab, jobs, deadline=[4000.0] * 12, vc=["x", "y"] * 6)
    result = lab.run(
        trace,
        "gavel",
        cluster="2x1:slow+2x2:quick",
        throughputs=table(lab),
        round_s=ROUND,
        options=(
            f"objective={objective}",
            f"semantics={semantics}",
            "reference=quick",
            "prices=slow:0.1,quick:0.5",
            "entity_weights=x:2",
        ),
    )
    assert result.summary["completed"] == 12


@pytest.mark.parametrize("objective", ["fifo", "allox", "max-min", "max-throughput", "gandiva"])
def test_rounds_that_would_repeat_need_no_decision(lab: Any, objective: str) -> None:
    jobs = [(700.0 * k, 1 + k % 2, 2500.0 + 970 * k, "AB"[k % 3 == 0]) for k in range(9)]
    runs = [
        lab.run(
            trace_of(lab, jobs),
            "gavel",
            cluster="2x1:slow+2x2:quick",
            throughputs=table(lab),
            round_s=ROUND,
            options=(f"objective={objective}", "semantics=gavel"),
            skipping=skipping,
        )
        for skipping in (True, False)
    ]
    assert lab.outcome(runs[0]) == lab.outcome(runs[1])
    assert runs[0].summary["rounds"] == runs[1].summary["rounds"] == runs[1].summary["decisions"]
    if objective in ("fifo", "allox"):
        assert runs[0].summary["decisions"] < runs[1].summary["decisions"] / 2


def test_isolated_plus_is_of_the_published_rounds(lab: Any) -> None:
    trace = trace_of(lab, [(0.0, 1, 400.0, "A")])
    with pytest.raises(BadInput, match="-o semantics=shockwave"):
        lab.run(trace, "gavel", throughputs=table(lab), options=("objective=isolated-plus",))


def test_under_isolated_plus_no_job_overtakes(lab: Any) -> None:
    # the first job that does not fit ends the round, though a third job would have fitted
    jobs = [(0.0, 1, 2e6, "A"), (1.0, 2, 2e6, "A"), (2.0, 1, 2e6, "A")]
    shared = {}
    for objective in ("isolated", "isolated-plus"):
        result = lab.run(
            trace_of(lab, jobs),
            "gavel",
            cluster="1x2:quick",
            throughputs=table(lab),
            options=(f"objective={objective}", "semantics=gavel"),
        )
        shared[objective] = result.summary["gpu_utilization"]
    assert shared["isolated-plus"] < shared["isolated"]


def test_time_is_shared_as_x_says(lab: Any) -> None:
    # three jobs want the same GPU, half, a quarter and a quarter of its time
    jobs = [(0.0, 1, 1e6, "A")] * 3
    engine = engine_of(
        lab,
        trace_of(lab, jobs),
        Fixed({0: {"quick": 0.5}, 1: {"quick": 0.25}, 2: {"quick": 0.25}}),
        cluster="1x1:quick",
    )
    engine.horizon = 100 * ROUND
    engine.run()
    held = engine.world.table.held_s + np.where(
        engine.world.table.gpus_now > 0, engine.now - engine.world.table.since, 0.0
    )
    assert held / engine.now == pytest.approx([0.5, 0.25, 0.25], abs=0.04)


def test_a_job_that_keeps_its_type_keeps_its_gpus(lab: Any) -> None:
    jobs = [(0.0, 1, 3000.0, "B"), (0.0, 1, 3000.0, "B")]
    result_engine = engine_of(
        lab, trace_of(lab, jobs), Fixed({0: {"quick": 1.0}, 1: {"quick": 1.0}}), cluster="2x1:quick"
    )
    result_engine.run()
    table_ = result_engine.world.table
    assert table_.starts.tolist() == [1, 1]


def test_a_newcomer_uses_an_idle_gpu_at_once(lab: Any) -> None:
    # B comes between two rounds and has no share yet
    jobs = [(0.0, 1, 5000.0, "A"), (100.0, 1, 50.0, "B")]
    source = Fixed({0: {"quick": 1.0}})
    engine = engine_of(lab, trace_of(lab, jobs), source)
    engine.run()
    assert engine.world.table.first_start.tolist() == [0, 100]
    published = engine_of(lab, trace_of(lab, jobs), Fixed({0: {"quick": 1.0}}), semantics="gavel")
    published.run()
    # there it waits for the next X, which is not made within 1920 s of the first one but for the
    # rounds at 0 and 360
    assert published.world.table.first_start[1] >= ROUND


def test_leftovers_go_first_to_jobs_that_are_behind(lab: Any) -> None:
    # C is entitled to the slow GPU, which D has more right to; the quick one is in no job's X
    jobs = [(0.0, 1, 1e5, "B")] * 3
    source = Fixed({0: {"slow": 0.6}, 1: {"slow": 0.4}})
    engine = engine_of(lab, trace_of(lab, jobs), source)
    engine.horizon = 20 * ROUND
    engine.run()
    held = engine.world.table.held_s + np.where(
        engine.world.table.gpus_now > 0, engine.now - engine.world.table.since, 0.0
    )
    assert held[:2] == pytest.approx([engine.now, engine.now]), "one on each GPU"
    assert held[2] == 0, "no share, and others are behind"


def test_no_job_stays_on_a_slow_type_while_a_faster_one_idles(lab: Any) -> None:
    engine = engine_of(lab, trace_of(lab, [(0.0, 1, 400.0, "A")]), Fixed({0: {"slow": 1.0}}))
    engine.run()
    assert engine.world.table.finish[0] == pytest.approx(100)


def test_an_idle_gap_counts_for_no_job(lab: Any) -> None:
    # A ends at 50, B and C come long after; they share the GPU evenly from the start
    jobs = [(0.0, 1, 200.0, "A"), (50_000.0, 1, 1e6, "A"), (50_000.0, 1, 1e6, "A")]
    shares = {row: {"quick": 0.5} for row in range(3)}
    engine = engine_of(lab, trace_of(lab, jobs), Fixed(shares), cluster="1x1:quick")
    engine.horizon = 50_000 + 40 * ROUND
    engine.run()
    table_ = engine.world.table
    held = table_.held_s + np.where(table_.gpus_now > 0, engine.now - table_.since, 0.0)
    assert held[1] == pytest.approx(held[2], abs=2 * ROUND)


def test_a_tail_shorter_than_the_gang_ends(lab: Any) -> None:
    # four GPUs, three steps: the published program would fail it for ever
    trace = trace_of(lab, [(0.0, 4, 3.0, "A")])
    for semantics in ("rounds", "gavel"):
        engine = engine_of(lab, trace, cluster="1x4:quick", semantics=semantics)
        engine.run()
        assert engine.world.table.finish[0] == pytest.approx(3 / 4)


def test_a_gang_that_no_type_can_hold_runs_on_a_mix(lab: Any) -> None:
    trace = trace_of(lab, [(0.0, 2, 100.0, "A"), (0.0, 1, 40.0, "B")])
    engine = engine_of(lab, trace)
    engine.run()
    assert engine.world.table.finish[0] == pytest.approx(40 + 100 / 1), "the slow one's pace"


def test_pairs_run_side_by_side_where_that_pays(lab: Any) -> None:
    jobs = [(0.0, 1, 900.0, "A"), (0.0, 1, 900.0, "B")]
    options = {"objective": "max-min-packed"}
    engine = engine_of(lab, trace_of(lab, jobs), cluster="1x1:slow", options=options)
    engine.run()
    assert engine.world.table.finish.tolist() == pytest.approx([1000, 1000])
    alone = engine_of(lab, trace_of(lab, jobs), cluster="1x1:slow")
    alone.run()
    assert alone.world.table.finish.max() == pytest.approx(1800)


def test_nodes_that_leave_and_come_back_change_x(lab: Any) -> None:
    from simulate.clusters.cluster_events import ClusterEvent  # noqa: PLC0415

    jobs = [(0.0, 1, 5000.0, "A")]
    events = [
        ClusterEvent(time=500.0, kind="fail", node=1),
        ClusterEvent(time=1000.0, kind="join", node=1),
    ]
    source = Fixed({0: {"quick": 0.7, "slow": 0.3}})
    engine = engine_of(lab, trace_of(lab, jobs), source, events=events)
    engine.run()
    assert engine.world.table.status[0] == 4
    assert len(source.asked) == 3


def test_the_state_goes_on_where_it_was(lab: Any) -> None:
    jobs = [(70.0 * k, 1, 900.0 + 31 * k, "AB"[k % 2]) for k in range(8)]
    for semantics in ("rounds", "gavel"):
        given = {"options": {"objective": "max-min-agnostic"}, "semantics": semantics}
        whole = engine_of(lab, trace_of(lab, jobs), **given)
        whole.run()
        parts = engine_of(lab, trace_of(lab, jobs), **given)

        def replaced(engine: Any, _: Any) -> None:
            before = engine.parts.scheduling
            after = type(before)(before.options)
            after.load_state_dict(before.state_dict())
            engine.parts.scheduling = after

        parts.observers.append(replaced)
        parts.run()
        assert parts.world.table.finish.tolist() == whole.world.table.finish.tolist()


# -- what is refused ------------------------------------------------------------------------------


def test_a_job_that_runs_nowhere_is_named(lab: Any) -> None:
    speeds = lab.throughputs({("A", "quick"): 1.0, ("C", "quick"): 0.0})
    trace = trace_of(lab, [(0, 1, 10, "A"), (0, 1, 10, "C")])
    with pytest.raises(BadInput, match="tiny: job B can run nowhere: C on 1 GPU has throughput 0"):
        lab.run(trace, "gavel", cluster="1x1:quick", throughputs=speeds)


def test_what_the_profile_lacks_is_named_with_the_job(lab: Any) -> None:
    def refused(message: str, jobs: list[Any], cluster: str = TWO_TYPES) -> None:
        with pytest.raises(BadInput, match=message):
            lab.run(trace_of(lab, jobs), "gavel", cluster=cluster, throughputs=table(lab))

    refused("job A: the profile has no throughputs of BERT; it has A, B", [(0, 1, 9, "BERT")])
    refused("job B: the profile has no throughputs on 8 GPUs", [(0, 1, 9, "A"), (1, 8, 9, "A")])
    refused("the cluster has GPUs of type tpu, the profile knows", [(0, 1, 9, "A")], "1x1:tpu")
    refused("job A has no model; a profile needs it", [(0, 1, 9, "")])
    with pytest.raises(BadInput, match="job A has no total_iterations; a profile needs it"):
        lab.run(
            lab.trace([(0, 1, 9)], model=["A"]),
            "gavel",
            cluster=TWO_TYPES,
            throughputs=table(lab),
        )


def test_a_type_only_in_the_profile_does_not_matter(lab: Any) -> None:
    result = lab.run(
        trace_of(lab, [(0, 1, 40, "A")]), "gavel", cluster="1x1:quick", throughputs=table(lab)
    )
    assert result.jobs.finish_time.tolist() == [10]
    assert result.jobs.duration.tolist() == [10]


def test_a_job_keeps_to_types_on_which_it_runs_under_any_policy(lab: Any) -> None:
    speeds = lab.throughputs(
        {("A", "slow"): 0.0, ("A", "quick"): 1.0, ("B", "slow"): 1.0, ("B", "quick"): 1.0}
    )
    jobs = [(0, 1, 10, "A"), (0, 1, 10, "A"), (0, 1, 10, "B")]
    for policy in ("first-fit", "gavel"):
        result = lab.run(trace_of(lab, jobs), policy, cluster=TWO_TYPES, throughputs=speeds)
        assert sorted(result.jobs.finish_time.tolist()) == [10, 10, 20]


def test_weights_of_zero_are_entitled_to_nothing_and_still_run(lab: Any) -> None:
    jobs = [(0, 1, 1000, "B"), (0, 1, 1000, "B")]
    trace = trace_of(lab, jobs, weight=[0.0, 1.0])
    result = lab.run(trace, "gavel", cluster="1x1:slow", throughputs=table(lab), clock="rounds")
    assert result.jobs.finish_time.tolist() == [2000, 1000]
    trace = trace_of(lab, jobs, weight=[-1.0, 1.0])
    with pytest.raises(BadInput, match="tiny: job A has weight -1; a weight is 0 or more"):
        lab.run(trace, "gavel", cluster="1x1:slow", throughputs=table(lab))


def test_deadlines_that_cannot_be_met_are_left_aside(lab: Any) -> None:
    trace = trace_of(lab, [(0, 1, 1000, "A"), (0, 1, 1000, "B")], deadline=[1.0, 1.0])
    result = lab.run(
        trace,
        "gavel",
        cluster=TWO_TYPES,
        throughputs=table(lab),
        options=("objective=cost-slo", "prices=slow:1,quick:2"),
    )
    assert result.summary["completed"] == 2


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("objective=fastest", "objective"),
        ("mechanism=published", "must be one of corrected, plain, not 'published'"),
        ("prices=v100", "prices: 'v100' is not of the form NAME:NUMBER"),
        ("prices=v100:cheap", "is not of the form NAME:NUMBER"),
        ("entity_weights=:3", "is not of the form NAME:NUMBER"),
    ],
)
def test_wrong_options_are_refused(lab: Any, option: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        lab.run([(0, 1, 9)], "gavel", options=(option,))


def test_prices_and_reference_types_must_be_of_the_cluster(lab: Any) -> None:
    trace = trace_of(lab, [(0, 1, 9, "A")])
    for option, message in (
        ("objective=cost", "cost needs the price of quick"),
        ("objective=ftf-agnostic", "uses the speeds on v100 only, but the cluster has"),
    ):
        with pytest.raises(PolicyFailed, match=message):
            lab.run(trace, "gavel", cluster=TWO_TYPES, throughputs=table(lab), options=(option,))


def test_a_solve_that_takes_too_long_leaves_the_last_x(lab: Any) -> None:
    ticks = iter(float(k) for k in range(10**6))
    ctx = lab.context(TWO_TYPES, [1, 1])
    policy = Gavel(parse_options(GavelOptions, {"solve_limit_s": "0.5"}, owner="gavel"))
    before = policy.shares(ctx.active, ("quick", "slow"), ctx)
    ctx.cpu_clock = lambda: next(ticks)
    ctx.table.weight[:] = [5.0, 1.0]
    after = policy.shares(ctx.active, ("quick", "slow"), ctx)
    assert after.x.tolist() == before.x.tolist()
    assert policy.late == 1
    assert isinstance(policy.solver, Solver)
