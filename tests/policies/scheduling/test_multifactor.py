"""Multifactor priority: each factor by itself, preemption by class, and the same order live."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.core.cluster.description import Cluster, Node
from dlsched.core.cluster.site_rules import SiteRules
from dlsched.core.errors import BadInput
from dlsched.policies.scheduling.multifactor import Multifactor, MultifactorOptions
from dlsched.tenants.fields import Account, PriorityClass
from tests.daemon.ledger_walk import LiveLab

DAY = 86400.0
CLASSES = (
    PriorityClass(name="urgent", priority=10.0, preempts=("normal", "idle")),
    PriorityClass(name="normal", priority=5.0, preempts=("idle",)),
    PriorityClass(name="idle", priority=0.0),
)


def site(gpus: int = 4, nodes: int = 1, **rules: Any) -> Cluster:
    made = [Node(name=f"n{k + 1}", gpus=gpus) for k in range(nodes)]
    return Cluster(made, rules=SiteRules(classes=CLASSES, **rules))


def terms(lab: Any, now: float, **chosen: Any) -> tuple[Any, dict[str, Any]]:
    """The points of four waiting units of 1, 2, 3 and 4 GPUs, and their table."""
    ctx = lab.context(site(), [1, 2, 3, 4], now=now)
    ctx.table.names |= {"user": ("ann", "bob"), "priority_class": ("urgent", "normal")}
    ctx.table.user[:] = [0, 1, 0, 1]
    ctx.table.keep_usage(7 * DAY)
    return ctx, Multifactor(MultifactorOptions(**chosen)).terms(ctx.units, ctx)


def test_the_points_of_each_factor_by_hand(lab: Any) -> None:
    ctx, _ = terms(lab, 0.0)
    ctx.now = 3.5 * DAY
    ctx.table.submit_time[:] = [0.0, 1.75 * DAY, -10 * DAY, 3.5 * DAY]
    ctx.table.priority_class[:] = [0, 1, -1, 1]
    ctx.table.priority[:] = [np.nan, -50.0, 7.0, np.nan]
    ctx.table.usage.restore(("ann", "", ""), 1000.0, ctx.now)
    found = Multifactor(MultifactorOptions()).terms(ctx.units, ctx)
    assert found["age"].tolist() == [500.0, 250.0, 1000.0, 0.0]
    # ann has used everything, and half is her share: 2^(−1/½); bob nothing
    assert found["fair_share"].tolist() == [2500.0, 10_000.0, 2500.0, 10_000.0]
    assert found["size"].tolist() == [25.0, 50.0, 75.0, 100.0]
    assert found["class"].tolist() == [10_000.0, 5000.0, 0.0, 5000.0]
    assert found["nice"].tolist() == [0.0, -50.0, 7.0, 0.0]
    parts = [found[name] for name in found if name != "total"]
    assert found["total"].tolist() == np.sum(parts, axis=0).tolist()


def test_small_jobs_may_be_favoured(lab: Any) -> None:
    _, found = terms(lab, 0.0, favours="small", size=100.0)
    assert found["size"].tolist() == [75.0, 50.0, 25.0, 0.0]


@given(
    waited=st.floats(0, 20 * DAY), more=st.floats(1, DAY), nice=st.integers(-1000, 1000),
    used=st.floats(0, 1e8),
)  # fmt: skip
def test_points_grow_with_age_and_fall_with_nice_and_usage(
    lab: Any, waited: float, more: float, nice: int, used: float
) -> None:
    def total(waited: float, nice: float, used: float) -> float:
        ctx, _ = terms(lab, 0.0)
        ctx.now = 100 * DAY
        ctx.table.submit_time[:] = ctx.now - waited
        ctx.table.priority[:] = -nice
        ctx.table.usage.restore(("ann", "", ""), used, ctx.now)
        ctx.table.usage.restore(("bob", "", ""), 1e6, ctx.now)
        return float(Multifactor(MultifactorOptions()).terms(ctx.units, ctx)["total"][0])

    before = total(waited, nice, used)
    assert total(waited + more, nice, used) >= before
    assert total(waited, nice + 1, used) < before
    assert total(waited, nice, used + 1e6) < before


def test_jobs_of_users_that_have_used_less_go_first(lab: Any) -> None:
    jobs = [(0, 4, 100), (1, 4, 100), (2, 4, 100)]
    trace = lab.trace(jobs, user=["ann", "ann", "bob"])
    assert lab.spans(lab.run(trace, "multifactor")) == {
        "A": (0, 100), "C": (100, 200), "B": (200, 300),
    }  # fmt: skip


def test_usage_that_has_faded_counts_less(lab: Any) -> None:
    """Ann has used twice as much as bob; with a short half-life only what is recent counts."""
    jobs = [(0, 4, 2000), (2000, 4, 1000), (2500, 4, 10), (2501, 4, 10)]
    trace = lab.trace(jobs, user=["ann", "bob", "ann", "bob"])
    options = ("age=0", "size=0")
    slow = lab.spans(lab.run(trace, "multifactor", options=(*options, "half_life_s=1e6")))
    assert slow["D"] < slow["C"]
    fast = lab.spans(lab.run(trace, "multifactor", options=(*options, "half_life_s=300")))
    assert fast["C"] < fast["D"]


def test_accounts_share_by_weight(lab: Any) -> None:
    rules = {"accounts": (Account(name="big", weight=9.0), Account(name="small", weight=1.0))}
    jobs = [(0, 2, 100), (0, 2, 100), (1, 4, 10), (2, 4, 10)]
    trace = lab.trace(jobs, user=list("abab"), vc=["big", "small", "small", "big"])
    spans = lab.spans(lab.run(trace, "multifactor", cluster=site(**rules)))
    assert spans["D"] < spans["C"]


def test_a_class_comes_first_and_preempts_those_that_it_may(lab: Any) -> None:
    jobs = [(0, 2, 1000), (0, 2, 1000), (60, 2, 100)]
    trace = lab.trace(jobs, **{"class": ["idle", "urgent", "normal"]})
    result = lab.run(trace, "multifactor", cluster=site(), clock="rounds")
    assert lab.spans(result)["C"] == (60, 160)
    assert result.jobs.preemptions.tolist() == [1, 0, 0]
    other = lab.trace(jobs, **{"class": ["normal", "urgent", "idle"]})  # idle may preempt none
    result = lab.run(other, "multifactor", cluster=site(), clock="rounds")
    assert result.jobs.preemptions.tolist() == [0, 0, 0]


def test_no_more_jobs_give_way_than_are_needed(lab: Any) -> None:
    """A gang of 4 on one node: two jobs of 2 there, not the six jobs of the other nodes."""
    jobs = [(k, 2, 5000) for k in range(6)] + [(60, 4, 100)]
    trace = lab.trace(jobs, **{"class": ["idle"] * 6 + ["urgent"]})
    result = lab.run(
        trace, "multifactor", cluster=site(nodes=3), clock="rounds", placement="consolidated"
    )
    assert lab.spans(result)["G"] == (60, 160)
    assert result.jobs.preemptions.sum() == 2


def test_the_jobs_with_the_fewest_points_give_way_first(lab: Any) -> None:
    jobs = [(0, 2, 1000), (0, 2, 1000), (60, 2, 100)]
    trace = lab.trace(jobs, priority=[5.0, 0.0, 0.0], **{"class": ["idle", "idle", "urgent"]})
    result = lab.run(trace, "multifactor", cluster=site(), clock="rounds")
    assert result.jobs.preemptions.tolist() == [0, 1, 0]


@pytest.mark.parametrize(
    ("behind", "starts"), [("backfill", (1, None)), ("skip", (1, 2)), ("stop", (None, None))]
)
def test_what_starts_behind_a_job_that_does_not_fit(
    lab: Any, behind: str, starts: tuple[float | None, float | None]
) -> None:
    """3 of 4 GPUs are busy until 100; the head needs 4; one short and one long job need 1."""
    jobs = [(0, 3, 100), (1, 4, 50), (1, 1, 20), (2, 1, 500)]
    trace = lab.trace(jobs, priority=[0, 9000, 5000, 100])
    spans = lab.spans(lab.run(trace, "multifactor", options=(f"behind={behind}",)))
    found = tuple(spans[name][0] if spans[name][0] < 100 else None for name in "CD")
    expected = starts if behind != "skip" else (1, 21)
    assert found == expected


def test_options_and_classes_that_cannot_be_are_refused(lab: Any) -> None:
    for option in ("half_life_s=0", "age=-1", "level=team", "behind=x"):
        with pytest.raises(BadInput):
            lab.run([(0, 1, 1)], "multifactor", options=(option,))
    mutual = (
        PriorityClass(name="a", preempts=("b",)),
        PriorityClass(name="b", preempts=("a",)),
    )
    with pytest.raises(BadInput, match="preempt each other"):
        SiteRules(classes=mutual).check()
    with pytest.raises(BadInput, match="preempts 'x' is not known"):
        SiteRules(classes=(PriorityClass(name="a", preempts=("x",)),)).check()


def test_a_live_cluster_and_a_replay_have_the_same_order(lab: Any) -> None:
    """The same jobs by the same owners, decided at the same moments, start at the same times."""
    chance = np.random.default_rng(5)
    count = 40
    jobs = [
        (float(at), int(chance.integers(1, 5)), float(chance.integers(20, 400)))
        for at in np.cumsum(chance.integers(1, 60, count))
    ]
    users = [str(chance.choice(["ann", "bob", "cat"])) for _ in range(count)]
    classes = [str(chance.choice(["normal", "idle"])) for _ in range(count)]
    options = ("half_life_s=2000", "behind=skip")
    names = [str(k + 1) for k in range(count)]
    trace = lab.trace(jobs, user=users, names=names, **{"class": classes})
    order = {"normal": 5.0, "idle": 0.0}
    rules = SiteRules(
        classes=tuple(PriorityClass(name=n, priority=p) for n, p in order.items()),
        half_life_s=2000.0,
    )
    nodes = [Node(name=f"n{k + 1}", gpus=4) for k in range(2)]
    replayed = lab.spans(
        lab.run(trace, "multifactor", cluster=Cluster(nodes, rules=rules), options=options)
    )
    started = _played_live(jobs, users, classes, rules)
    assert {job: span[0] for job, span in replayed.items()} == started


def _played_live(
    jobs: list[tuple[float, int, float]], users: list[str], classes: list[str], rules: SiteRules
) -> dict[str, float]:
    """When each job starts in a live state that decides at each arrival and end."""
    from dlsched.daemon.live.nodes import ClusterRules  # noqa: PLC0415 - of the daemon

    live = LiveLab(
        (4, 4),
        parts={"scheduling": "multifactor"},
        options=("half_life_s=2000", "behind=skip"),
        rules=ClusterRules(site=rules),
    )
    ends: dict[int, float] = {}
    started: dict[str, float] = {}
    coming = list(zip(jobs, users, classes, strict=True))
    for _ in itertools.count():
        now = min([*ends.values(), *([coming[0][0][0]] if coming else [])], default=None)
        if now is None:
            break
        for job in sorted(job for job, end in ends.items() if end == now):
            live.end(now, job)  # type: ignore[arg-type]  # a job's number
            del ends[job]
        while coming and coming[0][0][0] == now:
            (_, gpus, _), user, name = coming.pop(0)
            live.submit(now, gpus, user=user, priority_class=name, expected_s=1.0)
        live.round(now)
        for job in live.running():
            if str(job) not in started:
                started[str(job)] = now
                ends[job] = now + jobs[job - 1][2]
    return started
