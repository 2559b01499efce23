"""The columns of the live state equal a recount from the ledger and the log of its changes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlsched.daemon.live import job_columns as c
from dlsched.daemon.live.nodes import ClusterRules
from dlsched.daemon.round.snapshot_builder import take_snapshot
from dlsched.db.records import (
    ArrayShape,
    Dependency,
    Drained,
    FieldsChanged,
    HoldChanged,
    NodeDescribed,
)
from dlsched.protocol.ledger import (
    Attach,
    JobStatus,
    MemberOver,
    NodeStatus,
    Quarantine,
    SetNode,
)
from dlsched.protocol.messages import (
    ExitReason,
    ExitRecord,
    NodeName,
    Share,
    StartFault,
    StopReason,
)

steps = st.lists(
    st.tuples(
        st.sampled_from(
            ["submit", "submit", "round", "fill", "end", "fail", "cancel", "preempt", "suspend",
             "let go", "resume", "half", "hold", "free", "restart"]
        ),
        st.integers(0, 20),
        st.integers(1, 6),
    ),
    min_size=3,
    max_size=40,
)  # fmt: skip


FACTS = '{"cpus": 8, "memory_bytes": "64000000000", "gpus": [{"type": "v100"}]}'


class Recount:
    """An accountant that looks at the ledger alone, after each step."""

    def __init__(self) -> None:
        self.since: dict[int, tuple[float, int, str]] = {}
        self.attained: dict[int, float] = {}
        self.held: dict[int, float] = {}
        self.starts: dict[int, int] = {}
        self.first: dict[int, float] = {}

    def look(self, lab: Any, now: float) -> None:
        holding = {
            run.key.job: (sum(len(m.gpus) for m in run.members.values()), run.key.run_id)
            for run in lab.ledger.runs.values()
            if not run.is_over and not run.is_away and (run.gives_way or not run.suspended)
        }
        for job, (begun, gpus, run_id) in list(self.since.items()):
            if holding.get(job, (0, ""))[1] != run_id:
                self.attained[job] = self.attained.get(job, 0.0) + (now - begun) * gpus
                self.held[job] = self.held.get(job, 0.0) + now - begun
                del self.since[job]
        for job, (gpus, run_id) in holding.items():
            if job not in self.since:
                self.since[job] = (now, gpus, run_id)
                self.starts[job] = self.starts.get(job, 0) + 1
                self.first.setdefault(job, now)


WHOLE_GPUS: tuple[float | None, ...] = (None,)
PARTS: tuple[float | None, ...] = (None, 0.5, 0.3, 0.5)


def play(
    live: Any,
    script: Any,
    check: Any,
    shares: tuple[float | None, ...] = WHOLE_GPUS,
    **given_to_lab: Any,
) -> None:
    lab = live.LiveLab((4, 4, 2), parts={"scheduling": "las"}, **given_to_lab)
    now = 0.0
    for verb, pick, gpus in script:
        now += 7.0
        jobs = lab.ledger.jobs
        alive = [j for j, row in jobs.items() if not row.status.is_terminal]
        job = alive[pick % len(alive)] if alive else None
        run = lab.ledger.live_run(job) if job is not None else None
        status = jobs[job].status if job is not None else None
        match verb:
            case "submit":
                share = shares[pick % len(shares)]
                lab.submit(now, gpus, user=f"u{pick % 3}", gpu_share=share)
            case "round":
                lab.round(now)
            case "fill":
                lab.round(now, "fill")
            case "restart":
                lab.restart(now)
            case "end" if run:
                lab.end(now, job)
            case "fail" if run:
                lab.end(now, job, code=3)
            case "half" if run and len(run.members) > 1:
                lab.end(now, job, code=143, members=1)
            case "cancel" if job:
                lab.cancel(now, job)
            case "preempt" if run and run.stop is None:
                lab.stop(now, job, StopReason.PREEMPT)
            case "suspend" if status is JobStatus.RUNNING:
                lab.suspend(now, job, suspended=True, gives_way=gpus > 3)
            case "let go" if run and run.is_giving_way:
                lab.let_go(now, job)
            case "resume" if status is JobStatus.SUSPENDED and run.stop is None:
                lent = [m for m in run.members.values() if run.gives_way and not m.is_over]
                part = lab.ledger.share_of(run)
                full = {m.node: lab.ledger.busy(m.node, run.key.run_id, share=part) for m in lent}
                lent = [m for m in lent if set(m.gpus) & full[m.node]]
                if not lent:
                    lab.suspend(now, job, suspended=False)
            case "hold" | "free" if job:
                lab.write(
                    now, Attach(HoldChanged(job=job, held="user" * (verb == "hold"), actor="ann"))
                )
            case _:
                pass
        check(lab, now)


@pytest.mark.parametrize("shares", [WHOLE_GPUS, PARTS])
@settings(max_examples=60)
@given(script=steps)
def test_columns_equal_a_recount(live: Any, shares: Any, script: Any) -> None:
    recount = Recount()

    def check(lab: Any, now: float) -> None:
        recount.look(lab, now)
        columns = lab.live.jobs
        alive = {j: row for j, row in lab.ledger.jobs.items() if not row.status.is_terminal}
        shown = {job for job, row in columns.row_of.items() if columns.get("phase", row) != c.ENDED}
        assert shown == set(alive)
        taken = dict.fromkeys(range(len(lab.live.nodes)), 0)
        parts: Counter[str] = Counter()
        for job, row in columns.row_of.items():
            if job not in alive:
                continue
            begun, gpus, _ = recount.since.get(job, (now, 0, ""))
            assert columns.get("gpus_now", row) == gpus
            grown = now - columns.get("since", row) if gpus else 0.0
            assert columns.get("attained", row) + grown * gpus == pytest.approx(
                recount.attained.get(job, 0.0) + (now - begun) * gpus
            )
            assert columns.get("held_s", row) + grown == pytest.approx(
                recount.held.get(job, 0.0) + (now - begun if gpus else 0.0)
            )
            assert columns.get("starts", row) == recount.starts.get(job, 0)
            first = columns.get("first_start", row)
            assert (first != first) == (job not in recount.first)
            assert columns.get("runs", row) == alive[job].runs
            assert lab.live.reason(job)
        for run in lab.ledger.runs.values():
            if run.is_over or run.is_away:
                continue
            theirs = [Share(node=m.node, gpus=m.gpus) for m in run.members.values()]
            where = lab.live.nodes.placement(theirs)
            for node, mask in zip(where.nodes, where.masks, strict=True):
                taken[node] |= mask
            part = lab.ledger.share_of(run) or 1.0
            parts.update({gpu: part for each in theirs for gpu in each.gpus})  # type: ignore[dict-item]
        assert all(part <= 1.0 + 1e-9 for part in parts.values())
        assert [lab.live.nodes.gpu_use.taken(node) for node in range(len(lab.live.nodes))] == list(
            taken.values()
        )

    play(live, script, check, shares)


@settings(max_examples=30)
@given(script=steps)
def test_packing_and_restarting_leave_what_policies_see(live: Any, script: Any) -> None:
    seen: list[list[Any]] = []

    def note(lab: Any, now: float) -> None:
        snapshot = take_snapshot(lab.state, "full", now)
        alive = snapshot.table.status < 4
        names = ("job", "gang", "status", "attained", "starts", "gpus_now", "submit_time")
        seen[-1].append([getattr(snapshot.table, name)[alive].tolist() for name in names])

    script = [step for step in script if step[0] not in ("restart", "round", "fill")]
    for learn_from in (512, 0):
        seen.append([])
        play(live, script, note, learn_from=learn_from)
    assert seen[0] == seen[1]


def reasons(lab: Any, now: float) -> dict[int, str]:
    lab.round(now)
    return {
        job: lab.live.reason(job)
        for job, row in lab.ledger.jobs.items()
        if row.status is JobStatus.PENDING
    }


def test_jobs_that_may_not_start_are_hidden_from_policies_with_a_reason(live: Any) -> None:
    lab = live.LiveLab((4,))
    first = lab.submit(0.0, 1)
    held = lab.submit(0.0, 1)
    lab.write(0.0, Attach(HoldChanged(job=held, held="admin", actor="root")))
    later = lab.submit(0.0, 1, begin_at=100.0)
    after = lab.submit(0.0, 1, dependencies=(Dependency(kind="afterok", job=first),))
    big = lab.submit(0.0, 9)
    assert reasons(lab, 1.0) == {
        held: "JobHeldAdmin",
        later: "BeginTime",
        after: f"Dependency: afterok:{first}",
        big: "Resources: needs 9 GPUs, 3 are free",
    }
    assert lab.live.eligibility.next_moment(1.0) == 100.0
    lab.cancel(2.0, big)
    lab.end(3.0, first)
    lab.write(3.0, Attach(HoldChanged(job=held, held="", actor="root")))
    assert set(reasons(lab, 4.0)) == {later}
    assert not reasons(lab, 101.0)


def test_a_dependency_that_can_never_hold_is_reported(live: Any) -> None:
    lab = live.LiveLab((4,))
    first = lab.submit(0.0, 1)
    ok = lab.submit(0.0, 1, dependencies=(Dependency(kind="afterok", job=first),))
    either = lab.submit(
        0.0,
        1,
        dependencies=(
            Dependency(kind="afterok", job=first, or_next=True),
            Dependency(kind="afternotok", job=first),
        ),
    )
    kept = lab.submit(
        0.0,
        1,
        dependencies=(Dependency(kind="afterok", job=first),),
        keep_on_broken_dependency=True,
    )
    lab.round(1.0)
    assert set(lab.running()) == {first}
    lab.end(2.0, first, code=1)
    assert lab.live.eligibility.never_satisfied(2.0) == [
        (ok, f"DependencyNeverSatisfied: afterok:{first}")
    ]
    lab.round(3.0)
    assert set(lab.running()) == {either}
    assert lab.live.reason(kept).startswith("DependencyNeverSatisfied")


def test_a_delayed_dependency_holds_after_the_delay(live: Any) -> None:
    lab = live.LiveLab((4,))
    first = lab.submit(0.0, 1)
    late = lab.submit(0.0, 1, dependencies=(Dependency(kind="after", job=first, delay_s=30.0),))
    lab.round(1.0)
    lab.round(30.0)
    assert set(lab.running()) == {first}
    assert lab.live.eligibility.next_moment(30.0) == 31.0
    lab.round(31.0)
    assert set(lab.running()) == {first, late}


def test_namesakes_run_one_after_the_other(live: Any) -> None:
    lab = live.LiveLab((4,))
    alone = (Dependency(kind="singleton"),)
    jobs = [lab.submit(0.0, 1, name="x", dependencies=alone) for _ in range(2)]
    other = lab.submit(0.0, 1, name="x", user="bob", dependencies=alone)
    lab.round(1.0)
    assert set(lab.running()) == {jobs[0], other}
    lab.end(2.0, jobs[0])
    lab.round(3.0)
    assert set(lab.running()) == {jobs[1], other}


def test_an_array_runs_no_more_at_once_than_its_limit(live: Any) -> None:
    lab = live.LiveLab((8,))
    shape = ArrayShape(tasks=(1, 2, 3, 4, 5), limit=2)
    jobs = [lab.submit(0.0, 1, array=shape, index=k) for k in range(5)]
    lab.round(1.0)
    assert set(lab.running()) == set(jobs[:2])
    assert lab.live.reason(jobs[2]) == "JobArrayTaskLimit: 2 at once"
    lab.end(2.0, jobs[0])
    lab.round(3.0, "fill")
    assert set(lab.running()) == set(jobs[1:3])


def test_after_an_array_means_all_elements_and_aftercorr_the_same_task(live: Any) -> None:
    lab = live.LiveLab((8,))
    shape = ArrayShape(tasks=(1, 2))
    jobs = [lab.submit(0.0, 1, array=shape, index=k) for k in range(2)]
    whole = lab.submit(0.0, 1, dependencies=(Dependency(kind="afterok", job=jobs[0]),))
    twin = (Dependency(kind="aftercorr", job=jobs[0]),)
    twins = [lab.submit(0.0, 1, array=shape, index=k, dependencies=twin) for k in range(2)]
    lab.round(1.0)
    lab.end(2.0, jobs[1])
    lab.round(3.0)
    assert set(lab.running()) == {jobs[0], twins[1]}
    lab.end(4.0, jobs[0])
    lab.round(5.0)
    assert set(lab.running()) == {whole, *twins}


def test_bad_gpus_and_nodes_get_no_new_work(live: Any) -> None:
    lab = live.LiveLab((4, 4, 4, 4))
    for number, gpu in ((1, "GPU-n1-0"), (1, "GPU-n1-1")):
        lab.write(0.0, Quarantine(NodeName(f"n{number}"), (gpu,)))
    lab.write(
        0.0, Attach(Drained(node=NodeName("n2"), drained=True, reason="fan", actor="root", at=0.0))
    )
    lab.live.observe_node(NodeName("n3"), late=True)
    lab.live.observe_node(NodeName("n4"), unhealthy=["GPU-n4-3"], foreign=["GPU-n4-0"])
    jobs = [lab.submit(0.0, 1) for _ in range(9)]
    lab.round(1.0)
    got = {gpu for shares in lab.running().values() for share in shares for gpu in share.gpus}
    assert got == {"GPU-n1-0", "GPU-n1-2", "GPU-n1-3", "GPU-n4-1", "GPU-n4-2"}
    assert len(lab.running()) == 5
    lab.write(2.0, SetNode(NodeName("n1"), NodeStatus.DOWN, "smoke"))
    lab.live.observe_node(NodeName("n3"), late=False)
    lab.round(3.0)
    assert len(lab.running()) == 9 == len(jobs)


def test_partitions_types_and_named_nodes(live: Any) -> None:
    rules = ClusterRules(partitions={"long": frozenset({"n1"}), "all": None})
    lab = live.LiveLab((), rules=rules)
    for name, kind in (("n1", "v100"), ("n2", "v100"), ("n3", "a100")):
        lab.add_node(name, 2, kind)
    asks = [
        ({"partition": "long"}, {"n1"}),
        ({"gpu_types": ("a100",)}, {"n3"}),
        ({"only_nodes": ("n2",)}, {"n2"}),
        ({"not_nodes": ("n2", "n3"), "partition": "all"}, {"n1"}),
    ]
    jobs = {lab.submit(0.0, 1, **ask): where for ask, where in asks}
    lab.round(1.0)
    assert {job: {share.node for share in shares} for job, shares in lab.running().items()} == jobs


def test_gangs_of_given_shape_and_whole_nodes(live: Any) -> None:
    lab = live.LiveLab((4, 4, 4))
    pair = lab.submit(0.0, gang=(2, 2))
    alone = lab.submit(0.0, 1, exclusive=True)
    three = lab.submit(0.0, gang=(2, 2, 2))
    lab.round(1.0)
    shares = lab.running()
    assert sorted(len(share.gpus) for share in shares[pair]) == [2, 2]
    assert [len(share.gpus) for share in shares[alone]] == [4]
    assert three not in shares
    assert lab.live.reason(three) == "Resources: needs 6 GPUs, 4 are free"


def test_a_node_that_returns_with_other_gpus_is_matched_by_uuid(live: Any) -> None:
    lab = live.LiveLab((2,))
    first = lab.submit(0.0, 1)
    lab.round(1.0)
    held = lab.running()[first][0].gpus[0]
    lab.add_node("n1", 0, now=2.0)  # comes back without any
    machine = lab.live.nodes[0]
    assert machine.closed == 3
    place = lab.live.nodes.index(machine.name)
    assert lab.live.nodes.gpu_use.taken(place) == machine.mask([held])
    lab.add_node("n1", 3, now=3.0)
    assert machine.closed == 0
    assert len(machine.gpus) == 3


def test_updated_fields_count_from_the_next_round_on(live: Any) -> None:
    lab = live.LiveLab((4,), parts={"scheduling": "sjf"})
    blocker = lab.submit(0.0, 4, time_limit_s=10.0)
    slow, fast = lab.submit(0.0, 4, time_limit_s=50.0), lab.submit(0.0, 4, time_limit_s=20.0)
    lab.round(1.0)
    lab.write(2.0, Attach(FieldsChanged(job=slow, fields={"time_limit_s": 5.0}, actor="ann")))
    lab.end(3.0, blocker)
    lab.round(4.0)
    assert set(lab.running()) == {slow}
    assert lab.live.position(fast) == 1


def test_an_update_of_a_job_changes_what_it_names_and_nothing_else(live: Any) -> None:
    """Neither when a running job has begun, nor what it has used, nor a waiting one's place."""
    lab = live.LiveLab((4, 4), parts={"scheduling": "fifo"})
    jobs = [lab.submit(5.0, 2), lab.submit(6.0, 8)]
    for at in (20.0, 40.0):
        lab.round(at)
    assert set(lab.running()) == {jobs[0]}
    columns = {name: lab.live.jobs[name] for name in lab.live.jobs.kinds}
    before = {name: values.copy() for name, values in columns.items()}
    for job in jobs:
        changed = {"comment": "x", "time_limit_s": 500.0}
        lab.write(50.0, Attach(FieldsChanged(job=job, fields=changed, actor="ann")))
    other = [name for name, was in before.items() if was.tobytes() != columns[name].tobytes()]
    assert other == ["time_limit"]
    assert columns["first_start"][lab.live.jobs.row_of[jobs[0]]] == 20.0


def test_the_reported_memory_of_a_node_bounds_its_jobs(live: Any) -> None:
    lab = live.LiveLab((4, 4))
    for name in ("n1", "n2"):
        lab.write(0.0, Attach(NodeDescribed(node=NodeName(name), facts=FACTS)))
    jobs = [lab.submit(0.0, 1, cpus=6) for _ in range(3)]
    lab.round(1.0)
    assert set(lab.running()) == set(jobs[:2])


@pytest.mark.parametrize("fault", [StartFault.NODE, StartFault.JOB_HERE])
def test_a_start_that_fails_after_another_rank_has_executed_pauses_its_job(
    live: Any, fault: StartFault
) -> None:
    lab = live.LiveLab((2, 2))
    job = lab.submit(0.0, gang=(2, 2))
    pauses = []
    for now in (1.0, 100.0):
        lab.round(now)
        run = lab.ledger.live_run(job)
        for name, found in (("n1", fault), ("n2", None)):
            end = ExitRecord(
                key=run.key,
                node=NodeName(name),
                reason=ExitReason.EXITED,
                code=1,
                ran_s=2.0,
                start_fault=found,
            )
            lab.write(now + 5.0, MemberOver(run.key.run_id, NodeName(name), exit=end))
        assert lab.ledger.jobs[job].status is JobStatus.PENDING
        columns, row = lab.live.jobs, lab.live.jobs.row_of[job]
        pauses.append(columns.get("not_before", row) - now - 5.0)
    assert pauses == [1.0, 2.0]
