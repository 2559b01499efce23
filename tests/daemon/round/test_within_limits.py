"""Quotas in rounds: no waiting job takes room from another, and the policy's order holds."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlsched.core.cluster.site_rules import SiteRules
from dlsched.core.parts import part_of
from dlsched.core.sharing.gpu_limits import REASONS, Holder, holders_of, in_words
from dlsched.core.walk.walk import Walk
from dlsched.daemon.live.nodes import ClusterRules
from dlsched.daemon.round.decide import decide
from dlsched.daemon.round.prepared_round import prepare
from dlsched.daemon.round.snapshot import LiveSnapshot
from dlsched.daemon.round.snapshot_builder import take_snapshot
from dlsched.db.records import Drained, HoldChanged
from dlsched.policies.registry import names
from dlsched.protocol.ledger import Attach
from dlsched.protocol.messages import NodeName
from dlsched.tenants.fields import PriorityClass, Quota

POLICIES = [*names("scheduling"), "testing-always-preempt", "testing-thrash", "testing-random",
            "testing-resize"]  # fmt: skip
OPTIONS = {"what-if": ("what-if.scheduling=las,srtf", "what-if.admission=accept-all")}
CLASSES = (PriorityClass(name="urgent", priority=10.0), PriorityClass(name="idle"))
TEAM: Holder = ("account", "team")
WORDS = tuple({f"{word}:" for word in REASONS.values()})
TOLD = re.compile(r"^\S+: (.*) has ([\d.]+) of (\d+) GPUs?, needs ([\d.]+)$")


def a_lab(live: Any, policy: str = "fifo", nodes: tuple[int, ...] = (4, 4, 4), **more: Any) -> Any:
    return live.LiveLab(
        nodes, parts={"scheduling": policy}, options=OPTIONS.get(policy, ()), **more
    )


def quota(kind: str, name: str, gpus: int) -> dict[Holder, Quota]:
    return {(kind, name): Quota(kind=kind, name=name, gpus=gpus)}


def drain(lab: Any, node: str, drained: bool = True, now: float = 0.0) -> None:
    row = Drained(node=NodeName(node), drained=drained, reason="x", actor="root", at=now)
    lab.write(now, Attach(row))


@pytest.mark.parametrize("stuck", ["its node is drained", "too large for what is open"])
@pytest.mark.parametrize("policy", names("scheduling"))
def test_a_job_that_cannot_start_takes_no_room_from_others_of_its_account(
    live: Any, policy: str, stuck: str
) -> None:
    started = []
    for quotas in ({}, quota("account", "team", 5)):
        lab = a_lab(live, policy, (4, 4))
        lab.live.set_quotas(quotas, {})
        drain(lab, "n2")
        lab.add_node("n3", 3)
        only = {"not_nodes": ("n1", "n3")} if stuck == "its node is drained" else {}
        if not only:
            drain(lab, "n1")
        says: dict[str, Any] = {"account": "team", "expected_s": 60.0, "time_limit_s": 100.0}
        first = lab.submit(0.0, 4 if only else 5, user="bob", **only, **says)
        second = lab.submit(1.0, 1, **says)
        for now in (2.0, 62.0, 122.0):
            told = lab.round(now).reason_texts()
            assert not told.get(second, "").startswith(WORDS), told[second]
            if only:  # together they have room
                assert not told.get(first, "").startswith(WORDS), told[first]
        started.append(second in lab.running())
    assert started[0] == started[1]  # a policy may let a head block all others


@pytest.mark.parametrize("policy", names("scheduling"))
def test_a_job_that_its_class_refuses_keeps_no_gpu_from_others(live: Any, policy: str) -> None:
    rules = ClusterRules(site=SiteRules(classes=CLASSES))
    lab = a_lab(live, policy, (4, 4), rules=rules)
    lab.live.set_quotas(quota("class", "urgent", 4), {})
    says: dict[str, Any] = {"expected_s": 600.0, "time_limit_s": 900.0}
    urgent = [lab.submit(float(k), 4, priority_class="urgent", **says) for k in range(2)]
    other = lab.submit(2.0, 4, **says)
    lab.round(3.0)
    assert other in lab.running()
    assert len(lab.running().keys() & {*urgent}) == 1


NODES = st.sampled_from(  # where jobs may run: pools that overlap, and disjoint ones
    [
        [{}, {}, {"not_nodes": ("n1",)}, {"not_nodes": ("n2", "n3")}],
        [{"only_nodes": ("n1",)}, {"only_nodes": ("n2",)}, {"only_nodes": ("n3",)}],
        [{"only_nodes": ("n1", "n3")}, {"only_nodes": ("n2",)}],
    ]
)
JOBS = st.lists(
    st.fixed_dictionaries(
        {
            "gpus": st.integers(1, 6),
            "gpu_share": st.sampled_from([1.0, 1.0, 1.0, 0.5]),
            "expected_s": st.sampled_from([30.0, 100.0, 500.0]),
            "priority": st.sampled_from([None, 1.0]),
            "user": st.sampled_from(["ann", "bob", "cat"]),
            "account": st.sampled_from(["", "team", "lab"]),
            "priority_class": st.sampled_from(["", "urgent", "idle"]),
        }
    ),
    min_size=1,
    max_size=12,
)
WHERE = NODES.flatmap(lambda pools: st.lists(st.sampled_from(pools), min_size=12, max_size=12))
LIMITS = st.fixed_dictionaries(
    {
        ("user", "*"): st.none() | st.integers(1, 8),
        ("user", "ann"): st.none() | st.integers(1, 6),
        ("account", "team"): st.none() | st.integers(1, 8),
        ("class", "urgent"): st.none() | st.integers(1, 6),
        ("class user", "urgent"): st.none() | st.integers(1, 4),
    }
)
EVENTS = st.lists(
    st.sampled_from(["full", "fill", "end", "drain", "open", "hold", "release", "lower"]),
    min_size=3,
    max_size=9,
)


class Counted:
    """What jobs have, and what their holders may have, by the ledger and by quotas alone."""

    def __init__(self, lab: Any, limits: Mapping[Holder, int]) -> None:
        self.lab, self.limits = lab, limits
        self.used: dict[Holder, float] = {}
        for job in {*lab.running(), *lab.live.claims}:
            for holder in self.holders(job):
                self.used[holder] = self.used.get(holder, 0.0) + self.gpus(job)

    def holders(self, job: int) -> tuple[Holder, ...]:
        spec = self.lab.live.requests.specs[job]
        body = spec.body
        return holders_of(
            self.limits, {"team": "lab"}, spec.user, body.account, body.vc, body.priority_class
        )

    def gpus(self, job: int) -> float:
        body = self.lab.live.requests.specs[job].body
        return (self.lab.gpus_of(job) or body.gpus) * part_of(body.gpu_share)

    def most(self, holder: Holder) -> int:
        kind, name = holder
        if holder in self.limits:
            return self.limits[holder]
        return self.limits[(kind, name.split()[0]) if kind == "class user" else ("user", "*")]

    def full(self, job: int) -> list[Holder]:
        needs = self.gpus(job) + -1e-9
        return [h for h in self.holders(job) if self.used.get(h, 0.0) + needs > self.most(h)]


def check_round(lab: Any, limits: Mapping[Holder, int], now: float, mode: str) -> None:
    before = Counted(lab, limits)
    snapshot = take_snapshot(lab.state, mode, now)
    assert decide(LiveSnapshot.from_bytes(snapshot.to_bytes())).to_bytes() == (
        decide(snapshot).to_bytes()
    )
    decided = lab.round(now, mode)
    after = Counted(lab, limits)
    for holder, used in after.used.items():
        most = max(after.most(holder), before.used.get(holder, 0.0))  # a limit stops no job
        assert used <= most + 1e-9, f"{holder} has {used} of {most}"
    waiting = {
        job
        for job, row in lab.ledger.jobs.items()
        if not row.status.is_terminal and job not in lab.running() and job not in lab.live.claims
    }
    told = decided.reason_texts()
    for job in waiting & told.keys():
        full = after.full(job)
        if not told[job].startswith(WORDS):
            continue
        assert full, f"job {job} has room: {told[job]}"
        exact = TOLD.match(told[job])
        if exact is None:
            assert any(after.gpus(job) > after.most(h) for h in full), told[job]
            continue
        name, has, most, needs = exact.groups()
        (holder,) = (h for h in full if in_words(h) == name)
        numbers = (after.used.get(holder, 0.0), after.most(holder), after.gpus(job))
        assert (float(has), int(most), float(needs)) == pytest.approx(numbers), told[job]
    seen = {job for job in waiting if not lab.live.eligibility.hindrance(job, now)}
    assert seen <= decided.positions().keys() | decided.launched.keys() | set(decided.refused)


def live_through(live: Any, policy: str, jobs: Any, limits: Any, events: Any) -> None:
    limits = {holder: gpus for holder, gpus in limits.items() if gpus is not None}
    lab = a_lab(live, policy)
    set_quotas(lab, limits)
    for position, job in enumerate(jobs[:6] if policy == "what-if" else jobs):
        lab.submit(float(position), time_limit_s=1000.0, **job)
    now = 20.0
    for event in ["full", *events, "full", "full"]:
        now += 31.0
        running = sorted(lab.running())
        waiting = sorted(lab.live.jobs.row_of.keys() - running - lab.live.claims.keys())
        if event == "end" and running:
            lab.end(now, running[0])
        elif event in ("drain", "open"):
            drain(lab, "n2", event == "drain", now)
        elif event in ("hold", "release") and waiting:
            held = "user" if event == "hold" else ""
            lab.write(now, Attach(HoldChanged(job=waiting[0], held=held, actor="ann")))
        elif event == "lower":
            limits = {holder: max(gpus - 2, 1) for holder, gpus in limits.items()}
            set_quotas(lab, limits)
        elif event in ("full", "fill"):
            check_round(lab, limits, now, event)


def set_quotas(lab: Any, limits: Mapping[Holder, int]) -> None:
    found = {h: Quota(kind=h[0], name=h[1], gpus=gpus) for h, gpus in limits.items()}
    lab.live.set_quotas(found, {"team": "lab"})


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=4)
@given(jobs=JOBS, where=WHERE, limits=LIMITS, events=EVENTS)
def test_jobs_wait_for_a_limit_only_if_what_runs_reaches_it(
    live: Any, policy: str, jobs: Any, where: Any, limits: Any, events: Any
) -> None:
    jobs = [{**job, **nodes} for job, nodes in zip(jobs, where, strict=False)]
    live_through(live, policy, jobs, limits, events)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_limit_holds_over_jobs_that_have_no_node_in_common(live: Any, policy: str) -> None:
    lab = a_lab(live, policy, (4, 4))
    limits: dict[Holder, int] = {("user", "*"): 8, ("user", "ann"): 2}
    set_quotas(lab, limits)
    for node in ("n1", "n2"):
        lab.submit(0.0, 2, gpu_share=1.0, only_nodes=(node,), expected_s=60.0, time_limit_s=100.0)
    for now in (1.0, 62.0):
        check_round(lab, limits, now, "full")
    assert sum(lab.gpus_of(job) for job in lab.running()) <= 2


@pytest.mark.parametrize(
    ("policy", "options"),
    [
        *((policy, ()) for policy in ("easy", "multifactor", "fifo", "first-fit", "las", "srtf")),
        *(("srtf", (f"srtf.rebuild={how}",)) for how in ("full", "counted")),
    ],
)
def test_the_best_job_gets_what_a_limit_leaves_whichever_its_nodes_are(
    live: Any, policy: str, options: tuple[str, ...]
) -> None:
    lab = live.LiveLab((4, 4), parts={"scheduling": policy}, options=options)
    set_quotas(lab, {("user", "ann"): 2})
    lab.submit(0.0, 1, user="bob", only_nodes=("n1",), expected_s=60.0)  # its pool is the first
    lab.round(1.0)
    best = lab.submit(2.0, 2, only_nodes=("n2",), expected_s=50.0)
    lab.submit(3.0, 2, only_nodes=("n1",), expected_s=900.0)
    lab.round(4.0)
    assert best in lab.running()
    assert sum(lab.gpus_of(job) for job in lab.running()) == 3  # with that of bob


# -- the order within a limit ----------------------------------------------------------------------

WAITING = st.lists(
    st.tuples(
        st.integers(1, 3),
        st.sampled_from([30.0, 100.0, 500.0]),
        st.sampled_from([None, 1.0, 2.0]),
        st.sampled_from(["ann", "bob"]),
        st.sampled_from(["", "urgent", "idle"]),
    ),
    min_size=2,
    max_size=10,
)


@pytest.mark.parametrize("policy", names("scheduling"))
@settings(max_examples=4)
@given(jobs=WAITING)
def test_jobs_over_a_limit_are_ranked_as_all_others(live: Any, policy: str, jobs: Any) -> None:
    found = []
    for quotas in ({}, quota("user", "ann", 1) | quota("class", "urgent", 2)):
        lab = a_lab(live, policy, (4,))
        lab.submit(0.0, 4, user="dan", expected_s=5000.0, time_limit_s=9000.0)
        lab.round(1.0)
        lab.live.set_quotas(quotas, {})
        for gpus, expected, priority, user, kind in jobs:
            more = {"priority": priority, "user": user, "priority_class": kind}
            lab.submit(2.0, gpus, expected_s=expected, time_limit_s=9000.0, **more)
        decided = lab.decide(3.0, "fill")
        assert not decided.launched
        found.append((decided.order.tolist(), {n: v.tolist() for n, v in decided.terms.items()}))
    assert str(found[0]) == str(found[1])  # as texts: NaN is NaN


def test_an_urgent_job_starts_first_although_it_came_last_to_a_full_quota(live: Any) -> None:
    rules = ClusterRules(site=SiteRules(classes=CLASSES))
    lab = a_lab(live, "multifactor", (4,), rules=rules)
    lab.live.set_quotas(quota("account", "team", 1), {})
    jobs = [
        lab.submit(float(k), 1, account="team", expected_s=60.0, priority_class=kind)
        for k, kind in enumerate(["idle", "idle", "idle", "urgent"])
    ]
    lab.round(4.0)
    assert list(lab.running()) == [jobs[3]]  # all four came before the first round
    jobs += [lab.submit(5.0, 1, account="team", priority_class=k) for k in ("idle", "urgent")]
    lab.round(6.0)
    assert lab.live.position(jobs[5]) == 1
    assert lab.live.order_terms(jobs[5])["class"] > lab.live.order_terms(jobs[0])["class"] == 0.0
    lab.end(7.0, jobs[3])
    lab.round(8.0)
    assert list(lab.running()) == [jobs[5]]


@pytest.mark.parametrize("policy", ["multifactor", "easy", "fifo", "first-fit", "las", "srtf"])
def test_jobs_over_a_limit_cost_no_try_each(
    live: Any, policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[int] = []
    place = Walk.place

    def counted(walk: Walk, row: int, *args: Any, **more: Any) -> Any:
        tried.append(row)
        return place(walk, row, *args, **more)

    monkeypatch.setattr(Walk, "place", counted)
    lab = a_lab(live, policy, (8,))
    lab.live.set_quotas(quota("user", "*", 2), {})
    for number in range(300):
        lab.submit(0.0, 1 + number % 2, user="ann", expected_s=50.0, time_limit_s=99.0)
    bob = lab.submit(1.0, 1, user="bob", expected_s=50.0)
    lab.round(2.0)
    tried.clear()
    lab.end(3.0, bob)
    lab.submit(3.0, 1, user="cat", expected_s=50.0)
    lab.round(4.0)
    assert len(tried) <= 2
    assert sum(lab.gpus_of(job) for job in lab.running()) == 3


def test_a_round_without_limits_counts_none(live: Any) -> None:
    lab = a_lab(live)
    lab.live.set_quotas({("user", "*"): Quota(kind="user", name="*", gpu_hours=9.0)}, {})
    lab.submit(0.0, 1)
    snapshot = take_snapshot(lab.state, "full", 1.0)
    assert not snapshot.table.gpu_limits
    prepared = prepare(snapshot)
    assert prepared is not None
    ctx = prepared.ctx
    assert Walk(ctx, prepared.cycle.parts.placement, preemptive=False).limits is None
