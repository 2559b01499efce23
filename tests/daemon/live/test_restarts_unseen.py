"""A restart at any moment is not seen by a policy: every column is bit for bit as it was before.

A walk goes through a real database. After each step a new state is loaded from it and compared with
one that was never restarted; at some steps the walk goes on with the loaded one.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlsched.daemon.live import job_columns as c
from dlsched.daemon.live.live_state import LiveState
from dlsched.daemon.live.nodes import ClusterRules
from dlsched.daemon.round.round_state import RoundState
from dlsched.daemon.round.snapshot_builder import take_snapshot
from dlsched.db.records import CheckpointCommitted, FieldsChanged, HoldChanged, Progress
from dlsched.db.store import Store
from dlsched.protocol.ledger import (
    NONE_LEFT,
    Assign,
    Attach,
    JobStatus,
    MemberOver,
    ReleaseRun,
    Run,
    StopRun,
)
from dlsched.protocol.messages import (
    ExitReason,
    ExitRecord,
    GpuId,
    JobId,
    NodeName,
    RunId,
    RunKey,
    RunNumber,
    Share,
    StopReason,
    Told,
)
from tests.daemon.stored_lab import lab_on
from tests.db.emptied_store import Emptied, emptied_store
from tests.postgres import postgres_cluster

__all__ = ["postgres_cluster"]

VERBS = (
    *("submit", "submit", "start", "start", "start", "start", "checkpoint", "checkpoint"),
    *("reports", "end", "fail", "lost", "half", "preempt", "migrate", "resize", "leave", "leave"),
    *("suspend", "suspend", "let go", "let go", "resume", "resume", "beside", "beside"),
    *("hand over", "hand over", "cancel", "requeue", "hold", "free", "update", "decline"),
    *("half life", "restart", "restart"),
)
walks = st.lists(
    st.tuples(
        st.sampled_from(VERBS),
        st.integers(0, 20),
        st.integers(1, 6),
        st.floats(0.001, 5000.0),  # seconds that pass before it
    ),
    min_size=4,
    max_size=40,
)
OF = {  # the jobs that some steps are of
    "start": lambda lab, job: lab.ledger.live_run(job) is None,
    "hand over": lambda lab, job: lab.ledger.next_run(job) is not None,
    "resume": lambda lab, job: lab.ledger.jobs[job].status is JobStatus.SUSPENDED,
    "let go": lambda lab, job: (run := lab.ledger.live_run(job)) and run.is_giving_way,
    "leave": lambda lab, job: (run := lab.ledger.live_run(job)) and run.stop is not None,
    **dict.fromkeys(
        ("checkpoint", "reports", "end", "fail", "lost", "preempt", "migrate", "resize", "suspend"),
        lambda lab, job: lab.ledger.live_run(job) is not None,
    ),
}
CODES = ("user", "account", "vc", "priority_class", "reservation")
BESIDE = ("phase", "leaving", "held", "failed_starts", "not_before", "orphan")
SHARES = (None, None, 0.3, 0.5)


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def fresh(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Emptied]:
    """Empties the store and returns it, many times a test."""
    cluster = request.getfixturevalue("postgres_cluster") if request.param == "postgres" else None
    yield from emptied_store(tmp_path_factory.mktemp("store"), cluster)


def bits(value: Any) -> Any:
    """A value, by which two floats are equal only bit for bit."""
    return struct.pack("d", value) if isinstance(value, float) else value


def seen(state: LiveState, settings: Any, now: float) -> dict[Any, Any]:
    """What policies see of live jobs and of owners, and what else is known of the jobs."""
    snapshot = take_snapshot(RoundState(state, settings), "full", now)
    table, jobs, usage = snapshot.table, state.jobs, state.jobs.usage
    columns = {name: getattr(table, name) for name in table.kinds} | table.extra
    found: dict[Any, Any] = {}
    for job, row in jobs.row_of.items():
        if jobs.get("phase", row) == c.ENDED:
            continue
        values = {name: bits(column[row].item()) for name, column in columns.items()}
        for name in CODES:
            code = int(columns[name][row])
            values[name] = table.names[name][code] if code >= 0 else None
        values["owner"] = usage.owners[int(columns["owner"][row])]
        values["pool"] = state.constraints.pool_mask(int(columns["pool"][row]), state.nodes)
        values |= {name: bits(jobs.get(name, row)) for name in BESIDE}
        found[job] = values | {"where": state.where(JobId(job)), "is": state.unseen_because(job)}
    for number, owner in enumerate(usage.owners):
        if usage.value[number] or usage.gpus[number]:
            counted = usage.value, usage.at, usage.gpus, usage.as_of(now)
            found[owner] = [bits(each.item(number)) for each in counted]
    return found


def record(run: Run, node: NodeName, *, code: int, at: float, told: Told | None) -> ExitRecord:
    return ExitRecord(
        key=run.key, node=node, reason=ExitReason.EXITED, code=code, stop=run.stop, at=at,
        ran_s=1 / 3,
        **({} if told is None else {"told": told}),
    )  # fmt: skip


def free_shares(lab: Any, gpus: int, part: float | None, taken: Any = ()) -> tuple[Share, ...]:
    """So many GPUs as are free, on as many nodes as it takes; none: there are not enough."""
    shares: list[Share] = []
    for name, node in lab.ledger.nodes.items():
        free = [
            g for g in node.gpus if g not in lab.ledger.busy(name, share=part) and g not in taken
        ]
        free = free[: gpus - sum(len(share.gpus) for share in shares)]
        if free:
            shares.append(Share(node=name, gpus=tuple(map(GpuId, free))))
    return tuple(shares) if sum(len(share.gpus) for share in shares) == gpus else ()


def over(lab: Any, now: float, run: Run, *, code: int, told: Told | None = None) -> None:
    """A run ends on all its nodes, some time before the daemon learns of it."""
    for node, member in run.members.items():
        if not member.is_over:
            end = record(run, node, code=code, at=now - 100 / 3, told=told)
            lab.write(now, MemberOver(run.key.run_id, node, exit=end))


def check_sums(lab: Any, store: Store) -> None:
    """What a job received is the sum of what its runs have, and no second is two things."""
    for row in store.jobs(list(lab.ledger.jobs)):
        runs, account = [run.received for run in store.runs(row.job.job)], row.facts.account
        alike = ("held_s", "lost_s", "overhead_s", "restart_s", "attained")
        pairs = [
            *((sum(getattr(run, name) for run in runs), getattr(account, name)) for name in alike),
            (sum(run.worked_s for run in runs), account.executed + account.lost_s),
            *((run.held_s, run.worked_s + run.overhead_s) for run in runs),
        ]
        for ours, theirs in pairs:
            assert ours == pytest.approx(theirs, rel=1e-9, abs=1e-6)


def take(lab: Any, verb: str, pick: int, number: int, now: float) -> None:
    """One step of a walk, where it is possible."""
    jobs = lab.ledger.jobs
    if verb == "requeue":
        ended = [j for j, r in jobs.items() if r.status.is_terminal and not lab.ledger.live_run(j)]
        if ended:
            lab.restart_job(now, ended[pick % len(ended)])
        return
    able = OF.get(verb, lambda lab, job: True)
    alive = [j for j, row in jobs.items() if not row.status.is_terminal and able(lab, j)]
    job = alive[pick % len(alive)] if alive else None
    run = lab.ledger.live_run(job) if job is not None else None
    status = jobs[job].status if job is not None else None
    match verb:
        case "submit":
            share = SHARES[pick % len(SHARES)]
            body = {"account": f"a{pick % 2}", "in_place": pick % 3 == 0, "max_gpus": number + 2}
            if share is not None:
                body = {"gpu_share": share}
            lab.submit(now, number, user=f"u{pick % 3}", **body)
        case "start" if status is JobStatus.PENDING and not run:
            request = jobs[job].request
            if shares := free_shares(lab, sum(request.gang), request.gpu_share):
                lab.assign(now, job, shares)
        case "checkpoint" if run:
            lab.write(
                now,
                Attach(
                    CheckpointCommitted(
                        job=job, run_id=run.key.run_id, at=now, path=f"/c/{now}", step=number,
                        size_bytes=1, sha256="a", executed_s=now / 3,
                    )
                ),
            )  # fmt: skip
        case "reports" if run:
            cost = None if number > 4 else number / 3
            row = Progress(run_id=run.key.run_id, step=number, executed_s=1.0, restart_s=cost)
            lab.write(now, Attach(row))
            for state in (lab.live, lab.never_restarted):
                state.note_steps(job, number)
        case "end" | "fail" | "leave" if run and (verb != "leave" or run.stop is not None):
            over(lab, now, run, code={"end": 0, "fail": 3, "leave": 143}[verb])
        case "lost" if run:
            node = list(run.members)[pick % len(run.members)]
            lab.write(
                now, MemberOver(run.key.run_id, node, presumed=("lost", *NONE_LEFT)[number % 2])
            )
        case "half" if run and len(run.members) > 1:
            lab.end(now, job, code=143, members=1)
        case "preempt" | "migrate" | "resize" if run and run.stop is None:
            lab.stop(now, job, StopReason[verb.upper()])
        case "suspend" if status is JobStatus.RUNNING:
            lab.suspend(now, job, suspended=True, gives_way=number > 3)
        case "let go" if run and run.is_giving_way:
            lab.let_go(now, job)
        case "resume" if status is JobStatus.SUSPENDED and run.stop is None:
            part, run_id = lab.ledger.share_of(run), run.key.run_id
            members = run.members.values()
            if not any(set(m.gpus) & lab.ledger.busy(m.node, run_id, share=part) for m in members):
                lab.suspend(now, job, suspended=False)
        case "beside" if run and status is JobStatus.RUNNING and run.stop is None:
            held = {gpu for member in run.members.values() for gpu in member.gpus}
            shares = free_shares(lab, number, jobs[job].request.gpu_share, held)
            if shares and not lab.ledger.next_run(job) and jobs[job].request.gpu_share is None:
                lab.runs += 1
                key = RunKey(job, RunNumber(jobs[job].runs + 1), RunId(f"next{lab.runs}"))
                lab.write(now, Assign(key=key, shares=shares, follows=run.key.run_id))
                if pick % 3:
                    lab.write(now, ReleaseRun(key.run_id))
        case "hand over" if run and run.stop is None and lab.ledger.next_run(job):
            lab.write(now, StopRun(run.key.run_id, StopReason.RESIZE, hand_over="x"))
            told = Told.HANDED_OVER if pick % 4 else None
            over(lab, now, lab.ledger.live_run(job), code=143, told=told)
        case "cancel" if job:
            lab.cancel(now, job)
        case "hold" | "free" if job:
            held_by = "user" if verb == "hold" else ""
            lab.write(now, Attach(HoldChanged(job=job, held=held_by, actor="ann")))
        case "update" if job:
            fields = {"time_limit_s": 60.0 * number}
            lab.write(now, Attach(FieldsChanged(job=job, fields=fields, actor="ann")))
        case "decline" if job and not run:
            for state in (lab.live, lab.never_restarted):
                state.decline(job, "no", now)
            lab.persist(now)
        case "half life":
            site = replace(lab.live.rules.site, half_life_s=1000.0 * number)
            for state in (lab.live, lab.never_restarted):
                state.set_rules(ClusterRules(site=site))
            lab.persist(now)
        case _:
            pass


@settings(max_examples=60)
@given(walk=walks)
def test_every_column_is_the_same_after_a_restart(live: Any, fresh: Emptied, walk: Any) -> None:
    store, now = fresh(), 1.7e9
    lab = lab_on(live, store)
    for verb, pick, number, passes in walk:
        now += passes
        if verb == "restart":
            lab.state = RoundState(lab.loaded(now), lab.state.settings)
        else:
            take(lab, verb, pick, number, now)
        before = seen(lab.never_restarted, lab.state.settings, now)
        assert seen(lab.loaded(now), lab.state.settings, now) == before
        assert seen(lab.live, lab.state.settings, now) == before
    check_sums(lab, store)


def test_a_restart_while_a_next_run_is_given_up_leaves_its_gpus_closed(
    live: Any, fresh: Emptied
) -> None:
    """The run that it followed is over, so a new daemon does not know it."""
    lab = lab_on(live, fresh())
    job = lab.submit(1.0, 2, in_place=True)
    lab.assign(2.0, job, free_shares(lab, 2, None))
    key = RunKey(job, RunNumber(2), RunId("next"))
    shares = (Share(node=NodeName("n2"), gpus=(GpuId("GPU-n2-1"),)),)
    lab.write(3.0, Assign(key=key, shares=shares, follows=lab.ledger.live_run(job).key.run_id))
    over(lab, 4.0, lab.ledger.live_run(job), code=3)
    for state in (lab.never_restarted, lab.loaded(5.0)):
        assert [node.closed for node in state.nodes.all()] == [0, 0b10, 0]
