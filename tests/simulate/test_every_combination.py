"""Any combination of parts runs, or is refused before the start with the reason.

Everything is discovered from the registry, so that a new part is covered the day it is registered.
"""

from __future__ import annotations

import itertools
import json
import pickle
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlsched.composition.parts import build_parts
from dlsched.core.cluster.description import Cluster, Node, VirtualCluster
from dlsched.policies.registry import names
from simulate.clusters.cluster_events import ClusterEvent
from simulate.engine import Engine
from simulate.published.profiles import semantics_of
from simulate.traces.trace import Trace

POLICIES = names("scheduling")
PLACEMENTS = names("placement")
ADMISSIONS = names("admission")
# what pairs do is guessed from a table of throughputs, which plain durations have not
ESTIMATES = [name for name in names("estimator") if name != "co-location"]
WILD = ["testing-always-preempt", "testing-thrash", "testing-random"]
# the what-if chooser tries two combinations instead of nine: each is a run of its own
FEW = ("what-if.scheduling=las,srtf", "what-if.admission=accept-all")
HOW: dict[str, dict[str, Any]] = {
    "rounds": {"clock": "rounds", "options": FEW},
    "events": {"clock": "events", "options": FEW},
    "blox": {"options": ("semantics=blox", *FEW)},
}
ROUNDS = HOW["rounds"]
BLOX_IS_SLOW = [pytest.param(how, marks=pytest.mark.slow) if how == "blox" else how for how in HOW]


def mixed_trace(lab: Any, seed: int, count: int = 14) -> Trace:
    """Jobs of all sizes, in bursts, with every column that some part wants."""
    rng = np.random.default_rng(seed)
    jobs = [
        (float(submit), int(gpus), float(duration))
        for submit, gpus, duration in zip(
            np.sort(rng.integers(0, 4, count)) * 250.0,
            rng.choice([1, 1, 2, 3, 4, 6], count),
            rng.integers(1, 900, count),
            strict=True,
        )
    ]
    durations = np.array([duration for _, _, duration in jobs])
    return lab.trace(
        jobs,
        user=[f"u{k % 3}" for k in range(count)],
        vc=[("red", "blue")[k % 2] for k in range(count)],
        model=[("vgg16", "resnet50")[k % 2] for k in range(count)],
        time_limit=(durations * 1.3).tolist(),
        total_iterations=(durations * 2).tolist(),
        restart_overhead=[5.0] * count,
        epoch_s=(durations / 20).tolist(),
        loss_falls=[0.4] * count,
        loss_begins=[0.9] * count,
        loss_floor=[0.15] * count,
    )


# -- (i) composability ----------------------------------------------------------------------------


def check_composition(
    lab: Any, policy: str, how: str, combinations: Iterable[tuple[str, str]]
) -> None:
    """A policy runs with each of some pairs of admission and placement."""
    trace = mixed_trace(lab, 1, count=8)
    for admission, placement in combinations:
        given = {"admission": admission, "placement": placement, **HOW[how]}
        result = lab.run(trace, policy, cluster="2x4", **given)
        ended = set(result.jobs.status.tolist())
        assert ended <= {"completed", "refused"}, (admission, placement, ended)
        assert all(result.jobs.reason[result.jobs.status == "refused"])


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_runs_with_every_admission_and_every_placement(lab: Any, policy: str) -> None:
    # each of both once; which come together differs between the policies
    first = POLICIES.index(policy)
    admissions = itertools.cycle(ADMISSIONS[first % len(ADMISSIONS) :] + ADMISSIONS)
    longest = max(len(ADMISSIONS), len(PLACEMENTS))
    placements = itertools.islice(itertools.cycle(PLACEMENTS), longest)
    check_composition(lab, policy, "rounds", zip(admissions, placements, strict=False))


@pytest.mark.slow
@pytest.mark.parametrize(
    "how",
    ["rounds", *(pytest.param(how, marks=pytest.mark.exhaustive) for how in ("events", "blox"))],
)
@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_runs_with_every_pair_of_admission_and_placement(
    lab: Any, policy: str, how: str
) -> None:
    check_composition(lab, policy, how, itertools.product(ADMISSIONS, PLACEMENTS))


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_runs_with_every_estimate(lab: Any, policy: str) -> None:
    trace = mixed_trace(lab, 2, count=10)
    for estimate in ESTIMATES:
        result = lab.run(trace, policy, cluster="2x4", estimate=estimate, **ROUNDS)
        assert set(result.jobs.status.tolist()) == {"completed"}, estimate


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("stage", ["launch", "preemption", "metrics"])
def test_every_policy_runs_with_every_way_to_start_stop_and_measure(
    lab: Any, policy: str, stage: str
) -> None:
    trace = mixed_trace(lab, 3, count=10)
    for part in names(stage):
        result = lab.run(trace, policy, cluster="2x4", round_s=600, **{stage: part}, **ROUNDS)
        assert set(result.jobs.status.tolist()) == {"completed"}, part


PARTITIONED = Cluster(
    [Node(name=f"n{k}", gpus=4, gpu_type="ab"[k // 2]) for k in range(4)],
    [VirtualCluster(name="red", nodes=("n0", "n1"))],
)
QUOTAS = Cluster(
    [Node(name=f"n{k}", gpus=4) for k in range(3)],
    [
        VirtualCluster(name="red", gpus=6, guaranteed=6),
        VirtualCluster(name="blue", gpus=6, guaranteed=4, borrow=True),
    ],
)
CORES = Cluster([Node(name=f"n{k}", gpus=4, cpus=8, memory_gb=64) for k in range(3)])


@pytest.mark.parametrize("cluster", [PARTITIONED, QUOTAS, CORES], ids=["vcs", "quotas", "cores"])
@pytest.mark.parametrize(
    ("how", "placement"),
    [
        ("rounds", "min-nodes"),
        ("events", "consolidated"),
        pytest.param("blox", "min-nodes", marks=pytest.mark.slow),
        pytest.param("rounds", "consolidated", marks=pytest.mark.exhaustive),
        pytest.param("events", "min-nodes", marks=pytest.mark.exhaustive),
        pytest.param("blox", "consolidated", marks=pytest.mark.exhaustive),
    ],
)
@pytest.mark.parametrize("policy", [*POLICIES, *WILD])
def test_every_policy_runs_on_divided_clusters(
    lab: Any, policy: str, how: str, placement: str, cluster: Cluster
) -> None:
    trace = mixed_trace(lab, 4)
    columns = {"num_cpus": np.array([2.0 + k % 3 for k in range(len(trace))])}
    trace = Trace(**{**_fields(trace), "columns": {**trace.columns, **columns}})
    result = lab.run(trace, policy, cluster=cluster, placement=placement, **HOW[how])
    assert set(result.jobs.status.tolist()) <= {"completed", "refused"}


def _fields(trace: Trace) -> dict[str, Any]:
    return {name: getattr(trace, name) for name in trace.__dataclass_fields__}


EVENTS = [
    ClusterEvent(time=130, kind="fail", node=0),
    ClusterEvent(time=290, kind="drain", node=1),
    ClusterEvent(time=411, kind="join", node=0),
    ClusterEvent(time=600, kind="leave", node=1),
    ClusterEvent(time=777, kind="join", node=1),
    ClusterEvent(time=1000, kind="fail", node=2),
    ClusterEvent(time=1300, kind="join", node=2),
]


@pytest.mark.parametrize("how", BLOX_IS_SLOW)
@pytest.mark.parametrize("policy", [*POLICIES, *WILD])
def test_every_policy_survives_nodes_that_come_and_go(lab: Any, policy: str, how: str) -> None:
    trace = mixed_trace(lab, 5)
    for interval, overhead in ((None, 0.0), (60.0, 7.0)):
        result = lab.run(
            trace,
            policy,
            cluster="3x4",
            events=EVENTS,
            interval=interval,
            overhead=overhead,
            **HOW[how],
        )
        assert set(result.jobs.status.tolist()) == {"completed"}


# -- (ii) skipping --------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["rounds", pytest.param("blox", marks=pytest.mark.slow)])
@pytest.mark.parametrize("policy", [*POLICIES, *WILD])
def test_skipping_rounds_changes_no_outcome(lab: Any, policy: str, how: str) -> None:
    for seed, cluster, overhead in ((11, "1x6", 0.0), (13, "2x4", 13.0)):
        trace = mixed_trace(lab, seed, count=8 if policy == "what-if" else 14)
        runs = [
            lab.run(
                trace, policy, cluster=cluster, overhead=overhead, skipping=skipping, **HOW[how]
            )
            for skipping in (True, False)
        ]
        assert lab.outcome(runs[0]) == lab.outcome(runs[1]), f"seed {seed}"
        assert runs[0].summary["decisions"] <= runs[1].summary["decisions"]


@pytest.mark.parametrize("policy", POLICIES)
def test_skipping_changes_no_outcome_with_failures_and_minimum_runs(lab: Any, policy: str) -> None:
    trace = mixed_trace(lab, 14)
    runs = [
        lab.run(
            trace,
            policy,
            cluster="3x4",
            events=EVENTS,
            **ROUNDS,
            min_run=100.0,
            interval=60.0,
            skipping=skipping,
        )
        for skipping in (True, False)
    ]
    assert lab.outcome(runs[0]) == lab.outcome(runs[1])


@settings(max_examples=3)
@given(seed=st.integers(0, 10_000))
@pytest.mark.parametrize("policy", POLICIES)
def test_skipping_changes_no_outcome_of_random_traces(lab: Any, policy: str, seed: int) -> None:
    trace = mixed_trace(lab, seed, count=5 if policy == "what-if" else 9)
    runs = [
        lab.run(trace, policy, cluster="1x6", round_s=37, skipping=skipping, **ROUNDS)
        for skipping in (True, False)
    ]
    assert lab.outcome(runs[0]) == lab.outcome(runs[1])


# -- (iii) a restart in the middle ----------------------------------------------------------------


def fresh_parts(engine: Engine, given: dict[str, Any], lab: Any, policy: str) -> Any:
    settings_ = lab.settings(policy, **given)
    return build_parts(settings_, semantics_of(settings_))


@pytest.mark.parametrize("how", BLOX_IS_SLOW)
@pytest.mark.parametrize("policy", [*POLICIES, *WILD])
def test_a_run_goes_on_as_if_nothing_had_happened_after_a_restart(
    lab: Any, policy: str, how: str
) -> None:
    given = {
        **HOW[how],
        "placement": "random",
        "estimate": "history",
        "metrics": "iterations",
        "admission": "load-threshold",
    }
    trace = mixed_trace(lab, 21, count=8 if policy == "what-if" else 14)
    whole = lab.engine(trace, policy, cluster="2x4", **given)
    whole.run()
    cut = lab.engine(trace, policy, cluster="2x4", horizon=651.0, **given)
    cut.run()
    state = pickle.loads(pickle.dumps(cut.parts.state_dict()))
    cut.cycle.parts = fresh_parts(cut, given, lab, policy)
    assert not cut.parts.load_state_dict(state)
    cut.horizon = np.inf
    cut.run()
    for column in ("finish", "first_start", "starts", "preemptions", "attained"):
        ours, theirs = getattr(cut.world.table, column), getattr(whole.world.table, column)
        assert ours.tolist() == theirs.tolist(), column


@pytest.mark.parametrize("policy", [*POLICIES, *WILD])
def test_a_saved_state_is_a_snapshot_and_not_a_view(lab: Any, policy: str) -> None:
    given = {**ROUNDS, "placement": "random", "estimate": "history"}
    engine = lab.engine(mixed_trace(lab, 22), policy, cluster="2x4", horizon=500.0, **given)
    engine.run()
    state = engine.parts.state_dict()
    frozen = pickle.dumps(state)
    engine.horizon = np.inf
    engine.run()
    assert pickle.dumps(state) == frozen


def plain(value: Any) -> Any:
    """The same with arrays as lists, which is how a database would hold it."""
    if isinstance(value, dict):
        assert all(isinstance(key, str | int) for key in value), f"keys {list(value)[:3]}"
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, np.ndarray):
        return value.tolist()
    assert value is None or isinstance(value, bool | int | float | str), f"{value!r}"
    return value


@pytest.mark.parametrize("policy", [*POLICIES, *WILD])
def test_a_saved_state_is_made_of_plain_values_and_arrays(lab: Any, policy: str) -> None:
    given = {**ROUNDS, "placement": "random", "estimate": "history"}
    engine = lab.engine(mixed_trace(lab, 23), policy, cluster="2x4", horizon=500.0, **given)
    engine.run()
    json.dumps(plain(engine.parts.state_dict()))


# -- same seed, same bytes ------------------------------------------------------------------------


@pytest.mark.parametrize("policy", [*POLICIES, *WILD])
def test_the_same_seed_gives_the_same_outcome(lab: Any, policy: str) -> None:
    given = {**ROUNDS, "placement": "random", "estimate": "noise:0.7", "seed": 5}
    runs = [
        lab.run(mixed_trace(lab, 31), policy, cluster="2x4", events=EVENTS[:5], **given)
        for _ in range(2)
    ]
    assert lab.outcome(runs[0]) == lab.outcome(runs[1])
    assert runs[0].segments is not None
    for column in ("job", "node", "gpus", "start", "end"):
        first, second = (getattr(run.segments, column) for run in runs)
        assert first.tobytes() == second.tobytes(), column
