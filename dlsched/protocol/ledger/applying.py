"""The meaning of each change of a ledger.

The store applies the same functions to the rows that a change concerns and stores the difference.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from dlsched.core.errors import InvariantBroken
from dlsched.protocol import messages as m
from dlsched.protocol.ledger import writes as change
from dlsched.protocol.ledger.ends import (
    Meaning,
    gpu_failures_after,
    has_handed_over,
    how_it_ended,
    is_repeated,
    judge,
    meaning,
)
from dlsched.protocol.ledger.rows import (
    NONE_LEFT,
    TRANSITIONS,
    Cause,
    Job,
    JobStatus,
    Ledger,
    Member,
    Node,
    NodeStatus,
    Orphan,
    Run,
    RunStatus,
    holds,
)
from dlsched.protocol.table import having, table_of


def apply(ledger: Ledger, write: change.Write) -> Ledger:  # noqa: PLR0911, PLR0912  # one case a change
    """The ledger after one change.

    Raises:
        InvariantBroken: the change is not possible, with the job's story.
    """
    match write:
        case change.Submit():
            return _submit(ledger, (write,))
        case change.Assign():
            if write.follows is not None:
                return _assign_beside(ledger, write)
            text = f"run {write.key.run}"
            return _assign(ledger, write.key, write.shares, Cause.ASSIGNED, text)
        case change.ReleaseRun(run_id=run_id):
            run = ledger.runs[run_id]
            ledger = _put(ledger, replace(run, status=RunStatus.RELEASED, released=True))
            if run.follows is not None:
                return ledger
            return _move(ledger, run.key.job, Cause.RELEASED)
        case change.StopRun(run_id=run_id, reason=reason, step=step, why=why):
            run = ledger.runs[run_id]
            if run.is_over or (run.stop is not None and reason is not m.StopReason.CANCEL):
                return ledger
            stopped = replace(run, stop=reason, stop_step=step, hand_over=write.hand_over)
            ledger = _put(ledger, stopped)
            if run.follows is not None:
                return ledger
            changes = {"reason": why} if why else {}
            return _move(ledger, run.key.job, Cause.STOP_ASKED, reason.value, **changes)
        case change.SuspendRun():
            return _suspend(ledger, write)
        case change.LetGo():
            return _let_go(ledger, write)
        case change.MemberOver():
            return _member_over(ledger, write)
        case change.CancelJob(job=job, why=why):
            return _move(ledger, job, Cause.CANCELLED, why, reason=why)
        case change.Restart(job=job):
            anew: dict[str, Any] = {"failures": 0, "timeouts": 0, "gpu_failures": 0}
            anew |= {"exit": None}
            return _move(ledger, job, Cause.RESTARTED, reason="Requeued", **anew)
        case change.ChangeTerms(job=job, terms=terms):
            row = replace(ledger.jobs[job], changed=terms)
            ledger = replace(ledger, jobs=having(ledger.jobs, job, row))
            live = ledger.live_run(job)
            return ledger if live is None else _bump(ledger, live.members)
        case change.RegisterNode():
            return _register(ledger, write)
        case change.SetWitnesses(node=name, sets=sets):
            node = replace(ledger.nodes[name], witnesses=sets)
            return replace(ledger, nodes=having(ledger.nodes, name, node))
        case change.SetNode(node=name, status=status, why=why):
            node = replace(ledger.nodes[name], status=status, why=why)
            if status is NodeStatus.DOWN:  # its disk may come back empty
                node = replace(node, incarnation=m.Incarnation(0), start="")
            return replace(ledger, nodes=having(ledger.nodes, name, node))
        case change.Quarantine(node=name, gpus=gpus):
            node = replace(ledger.nodes[name], quarantined=gpus)
            return replace(ledger, nodes=having(ledger.nodes, name, node))
        case change.Adopt():
            return _adopt(ledger, write)
        case change.OrphanOver():
            return _orphan_over(ledger, write)
        case change.RaiseEpoch(epoch=epoch):
            return replace(ledger, epoch=m.Epoch(max(epoch, ledger.epoch)))
        case change.RaiseRevision(node=name, revision=revision):
            node = ledger.nodes[name]
            node = replace(node, revision=m.Revision(max(revision, node.revision)))
            return replace(ledger, nodes=having(ledger.nodes, name, node))
        case change.Attach():
            return ledger


def apply_all(ledger: Ledger, writes: Iterable[change.Write]) -> Ledger:
    """The ledger after some changes in order; consecutive submissions are applied as one."""
    waiting: list[change.Submit] = []
    for write in writes:
        if isinstance(write, change.Submit):
            waiting.append(write)
            continue
        if isinstance(write, change.Attach):
            continue
        if waiting:
            ledger, waiting = _submit(ledger, waiting), []
        ledger = apply(ledger, write)
    return _submit(ledger, waiting) if waiting else ledger


def _submit(ledger: Ledger, writes: Sequence[change.Submit]) -> Ledger:
    jobs = [(w.job, w.row) for w in writes]
    requests = [((w.request.user, w.request.request_id), w.job) for w in writes]
    return replace(
        ledger,
        next_job=m.JobId(max(ledger.next_job, max(w.job for w in writes) + 1)),
        jobs=table_of(ledger.jobs).having_all(jobs),
        requests=table_of(ledger.requests).having_all(requests),
    )


def without_jobs(ledger: Ledger, jobs: Iterable[m.JobId]) -> Ledger:
    """The ledger without some ended jobs and their runs, which stay in the database."""
    gone = [ledger.jobs[job] for job in jobs if job in ledger.jobs]
    ids = [row.job for row in gone]
    runs = [run_id for job in ids for run_id in ledger.runs_of.get(job, ())]
    return replace(
        ledger,
        jobs=table_of(ledger.jobs).without(ids),
        requests=table_of(ledger.requests).without(
            (row.request.user, row.request.request_id) for row in gone
        ),
        runs=table_of(ledger.runs).without(runs),
        runs_of=table_of(ledger.runs_of).without(ids),
    )


def with_job(ledger: Ledger, job: Job, run: Run | None) -> Ledger:
    """The ledger with an ended job that had left memory, and its last run if it had one."""
    if job.job not in ledger.jobs:
        ledger = replace(ledger, jobs=having(ledger.jobs, job.job, job))
    return ledger if run is None else with_run(ledger, job, run)


def with_run(ledger: Ledger, job: Job, run: Run) -> Ledger:
    """The ledger with a run and its job that had left memory."""
    if run.key.run_id in ledger.runs:
        return ledger
    if job.job not in ledger.jobs:
        ledger = replace(ledger, jobs=having(ledger.jobs, job.job, job))
    return _indexed(replace(ledger, runs=having(ledger.runs, run.key.run_id, run)), run)


def _bump(ledger: Ledger, nodes: Iterable[m.NodeName]) -> Ledger:
    """The ledger with new revisions of nodes that have another desired set."""
    rows = [ledger.nodes[name] for name in nodes if name in ledger.nodes]
    bumped = [(row.name, replace(row, revision=m.Revision(row.revision + 1))) for row in rows]
    return replace(ledger, nodes=table_of(ledger.nodes).having_all(bumped))


def _put(ledger: Ledger, run: Run) -> Ledger:
    ledger = replace(ledger, runs=having(ledger.runs, run.key.run_id, run))
    return _bump(_indexed(ledger, run), run.members)


def _indexed(ledger: Ledger, run: Run) -> Ledger:
    """The ledger with its two indices brought up to date for one run."""
    run_id, of = run.key.run_id, ledger.runs_of.get(run.key.job, ())
    if run_id not in of:
        ledger = replace(ledger, runs_of=having(ledger.runs_of, run.key.job, (*of, run_id)))
    changed = []
    for name, member in run.members.items():
        held = ledger.held_by.get(name, frozenset())
        is_held = holds(run, member)
        if is_held != (run_id in held):
            changed.append((name, held | {run_id} if is_held else held - {run_id}))
    if not changed:
        return ledger
    return replace(ledger, held_by=table_of(ledger.held_by).having_all(changed))


def _move(ledger: Ledger, job: m.JobId, cause: Cause, why: str = "", **changes: Any) -> Ledger:
    row = ledger.jobs[job]
    target = TRANSITIONS.get((row.status, cause))
    if target is None:
        raise InvariantBroken(
            f"job {job} is {row.status.value} and cannot be {cause.value}; its story: "
            + "; ".join(row.story)
        )
    line = f"{row.status.value} -> {target.value}: {cause.value} {why}".rstrip()
    row = replace(row, status=target, story=(*row.story, line), **changes)
    return replace(ledger, jobs=having(ledger.jobs, job, row))


def _assign(
    ledger: Ledger,
    key: m.RunKey,
    shares: Iterable[m.Share],
    cause: Cause,
    why: str,
    **changes: Any,
) -> Ledger:
    """Give a job's next run its GPUs.

    Args:
        ledger: in which they must be free.
        key: of the run.
        shares: the GPUs, in rank order.
        cause: of the job's transition.
        why: for its story.
        **changes: other fields of its row.

    Raises:
        InvariantBroken: a GPU is not free.
    """
    run = _new_run(ledger, key, shares)
    ledger = _move(ledger, key.job, cause, why, runs=key.run, reason="", **changes)
    if run.released:
        ledger = _move(ledger, key.job, Cause.RELEASED, "one node")
    return _put(ledger, run)


def _assign_beside(ledger: Ledger, write: change.Assign) -> Ledger:
    """Give a job's next run its GPUs beside those of its present run, which goes on."""
    key, job = write.key, ledger.jobs[write.key.job]
    live = ledger.live_run(key.job)
    if live is None or live.key.run_id != write.follows or ledger.next_run(key.job) is not None:
        raise InvariantBroken(f"run {key} cannot follow; the story of its job: {job.story}")
    run = _new_run(ledger, key, write.shares, follows=write.follows)
    line = f"{job.status.value}: run {key.run} is made ready beside run {live.key.run}"
    job = replace(job, runs=key.run, story=(*job.story, line))
    return _put(replace(ledger, jobs=having(ledger.jobs, job.job, job)), run)


def _new_run(
    ledger: Ledger, key: m.RunKey, shares: Iterable[m.Share], *, follows: m.RunId | None = None
) -> Run:
    """A job's next run on GPUs that are free, or that the run which it follows has.

    Raises:
        InvariantBroken: a GPU is not free.
    """
    needed = ledger.jobs[key.job].request.gpu_share
    for share in shares:
        held = set(share.gpus) & ledger.busy(share.node, follows, share=needed)
        if held:
            raise InvariantBroken(f"run {key}: {share.node} {sorted(held)} is not free")
    members = {}
    for share in shares:
        node = ledger.nodes[share.node]
        members[share.node] = Member(
            node=share.node,
            gpus=share.gpus,
            boot_id=node.boot_id,
            since=m.Term(ledger.epoch, m.Revision(node.revision + 1)),
        )
    alone = len(members) == 1
    return Run(
        key=key,
        status=RunStatus.RELEASED if alone else RunStatus.PREPARING,
        members=members,
        epoch=ledger.epoch,
        released=alone,
        follows=follows,
    )


SUSPENSIONS = 1 << 20  # of a run, in one term


def _register(ledger: Ledger, write: change.RegisterNode) -> Ledger:
    """Take over what an agent says of its node.

    Runs that an agent without a fence has started stay without one under the next agent.
    """
    name, inventory = write.node, write.inventory
    node = ledger.nodes.get(name, Node(name=name))
    earlier_runs = node.boot_id == write.boot_id and bool(ledger.held_by.get(name))
    node = replace(
        node,
        boot_id=write.boot_id,
        incarnation=write.incarnation,
        gpus=inventory.gpus,
        start=write.start,
        machine=inventory.machine,
        can_fence=inventory.can_fence and (node.can_fence or not earlier_runs),
        status=NodeStatus.UP,
        why="",
    )
    return replace(ledger, nodes=having(ledger.nodes, name, node))


def _suspend(ledger: Ledger, write: change.SuspendRun) -> Ledger:
    run = ledger.runs[write.run_id]
    if not write.suspended and run.gives_way:
        for name, member in run.members.items():
            full = ledger.busy(name, run.key.run_id, share=ledger.share_of(run))
            taken = set(member.gpus) & full
            if taken and not member.is_over:
                raise InvariantBroken(f"run {run.key}: {name} {sorted(taken)} is not free")
    gives_way = write.suspended and write.gives_way
    # numbers of a term that a restore has undone are below those of the next term
    number = max(run.suspension, ledger.epoch * SUSPENSIONS) + 1 if gives_way else run.suspension
    members = {name: replace(member, let_go=False) for name, member in run.members.items()}
    run = replace(
        run, suspended=write.suspended, gives_way=gives_way, suspension=number, members=members
    )
    cause = Cause.SUSPENDED if write.suspended else Cause.RESUMED
    return _move(_put(ledger, run), run.key.job, cause)


def _let_go(ledger: Ledger, write: change.LetGo) -> Ledger:
    run = ledger.runs[write.run_id]
    member = replace(run.members[write.node], let_go=True)
    new = replace(run, members=having(run.members, write.node, member))
    if new.is_away and not run.is_away:
        job = ledger.jobs[run.key.job]
        job = replace(job, preemptions=job.preemptions + 1)
        ledger = replace(ledger, jobs=having(ledger.jobs, job.job, job))
    return replace(ledger, runs=having(ledger.runs, write.run_id, new))


def _adopt(ledger: Ledger, write: change.Adopt) -> Ledger:
    """Adopt an unknown run; a known job of it cannot start before that run is over."""
    held, name = write.held, write.node
    node = ledger.nodes[name]
    since = m.Term(ledger.epoch, m.Revision(node.revision + 1))
    orphan = Orphan(held=held, node=name, since=since)
    ledger = replace(ledger, orphans=having(ledger.orphans, (name, held.key.run_id), orphan))
    ledger = replace(ledger, next_job=m.JobId(max(ledger.next_job, held.key.job + 1)))
    job = ledger.jobs.get(held.key.job)
    if job is not None and job.request.request_id == held.request_id:
        runs = m.RunNumber(max(job.runs, held.key.run))
        line = f"run {held.key.run} is alive on {name}, unknown here"
        job = replace(job, runs=runs, story=(*job.story, line))
        if job.status is JobStatus.PENDING:
            job = replace(job, reason=f"Orphan(run {held.key.run} on {name})")
        ledger = replace(ledger, jobs=having(ledger.jobs, job.job, job))
    return _bump(ledger, [name])


def _orphan_over(ledger: Ledger, write: change.OrphanOver) -> Ledger:
    """An orphan is over; its record ends its job when no newer run was released."""
    place, record = (write.node, write.run_id), write.exit
    orphan = ledger.orphans.get(place)
    ledger = replace(ledger, orphans=table_of(ledger.orphans).without([place]))
    if record is not None:
        ledger = replace(ledger, history=having(ledger.history, place, record))
    known = orphan.held if orphan is not None else record
    job = ledger.jobs.get(known.key.job) if known is not None else None
    if known is not None and job is not None and job.request.request_id == known.request_id:
        ledger = _job_of_orphan(ledger, job, known.key.run, record)
    return _bump(ledger, [write.node])


def _job_of_orphan(
    ledger: Ledger, job: Job, number: m.RunNumber, record: m.ExitRecord | None
) -> Ledger:
    runs = m.RunNumber(max(job.runs, number))
    waiting = job.reason.startswith("Orphan")
    job = replace(job, runs=runs, reason="Resources" if waiting else job.reason)
    ledger = replace(ledger, jobs=having(ledger.jobs, job.job, job))
    newer = any(
        run.key.run >= number and run.released and run.follows is None
        for run in ledger.runs_of_job(job.job)
    )
    if record is None or newer or job.status is not JobStatus.PENDING or len(record.nodes) > 1:
        return ledger
    said = meaning(record)
    if said is Meaning.DONE:
        return _move(ledger, job.job, Cause.COMPLETED, "orphan: exit 0", exit=record, reason="")
    if said is Meaning.FAILED:
        return _move(ledger, job.job, Cause.FAILED, "orphan", exit=record, reason="")
    return ledger


def _member_over(ledger: Ledger, write: change.MemberOver) -> Ledger:
    run = ledger.runs[write.run_id]
    member = run.members[write.node]
    if member.exit is not None:  # P3: a recorded exit is never replaced
        if member.is_stuck and write.presumed.endswith(NONE_LEFT):
            why = f"{member.presumed}; {write.presumed}" if member.presumed else write.presumed
            member = replace(member, presumed=why)
            ledger = _put(ledger, replace(run, members=having(run.members, write.node, member)))
        return ledger
    late = run.is_over
    member = replace(member, exit=write.exit, presumed=write.presumed or member.presumed)
    run = replace(run, members=having(run.members, write.node, member))
    if not late and all(each.is_over for each in run.members.values()):
        run = replace(run, status=RunStatus.OVER)
    ledger = _put(ledger, run)
    if late:
        return _late_exit(ledger, run)
    if run.is_over:
        return _finish(ledger, run, write.again)
    return _end_peers(ledger, run, member)


def _end_peers(ledger: Ledger, run: Run, member: Member) -> Ledger:
    """One member of a gang is over: stop the other members if they must stop."""
    request = ledger.jobs[run.key.job].request
    if run.status is RunStatus.PREPARING:
        return apply(ledger, change.StopRun(run.key.run_id, m.StopReason.ABORT))
    fine = meaning(member.exit) is Meaning.DONE
    if fine and (request.mode is not m.LaunchMode.BATCH or member.node != next(iter(run.members))):
        return ledger
    return apply(ledger, change.StopRun(run.key.run_id, m.StopReason.PEER))


def _late_exit(ledger: Ledger, run: Run) -> Ledger:
    """A record of a run that was presumed over: it decides if no later run is released.

    A failure that is repeated decides nothing: the job has been queued when the run was lost.
    """
    job = ledger.jobs[run.key.job]
    newer = _later_runs(ledger, run)
    if job.status.is_terminal or any(r.released for r in newer):
        return ledger
    cause, why, record = judge(run, job)
    queued = is_repeated(run, job) or _time_is_extended(job, cause)
    if queued or cause in (Cause.REQUEUED, Cause.LOST):
        return ledger
    for other in newer:
        ledger = apply(ledger, change.StopRun(other.key.run_id, m.StopReason.ABORT))
    return _move(ledger, job.job, cause, f"late: {why}", exit=record, reason="")


def _finish(ledger: Ledger, run: Run, again: m.RunId | None) -> Ledger:
    """Every member is over: a run that follows it takes its place, or is over too."""
    if run.follows is not None:
        return ledger  # its job has another run
    following = ledger.next_run(run.key.job)
    if following is not None and following.follows == run.key.run_id:
        if has_handed_over(run) and _may_take_over(following):
            return _take_over(ledger, following)
        ledger = apply(ledger, change.StopRun(following.key.run_id, m.StopReason.ABORT))
    job = ledger.jobs[run.key.job]
    if job.status.is_terminal or _later_runs(ledger, run):
        return ledger
    return _after(ledger, run, job, again)


def _after(ledger: Ledger, run: Run, job: Job, again: m.RunId | None) -> Ledger:
    """After a run, its job ends, is pending again, or begins its run `again` in place."""
    cause, why, record = judge(run, job)
    if is_repeated(run, job):
        if again is not None:
            end = f"after {how_it_ended(record)} on {record.node}" if record else why
            return _repeat(ledger, run, again, end)
        return _move(
            ledger,
            job.job,
            Cause.REQUEUED,
            f"retry: {why}",
            failures=job.failures + 1,
            reason=f"Retry({why})",
        )
    if _time_is_extended(job, cause):
        why = f"TimeLimit({job.timeouts + 1} of {job.request.timeouts})"
        return _move(
            ledger, job.job, Cause.REQUEUED, why, timeouts=job.timeouts + 1, reason=why, exit=record
        )
    if cause in (Cause.REQUEUED, Cause.LOST):
        preemptions = job.preemptions + int(run.stop is m.StopReason.PREEMPT)  # a move is none
        counts = {"preemptions": preemptions, "gpu_failures": gpu_failures_after(run, job)}
        return _move(ledger, job.job, cause, why, reason=why, exit=record, **counts)
    is_said = cause is Cause.CANCELLED or run.stop is m.StopReason.TARGET
    reason = job.reason if is_said else ""
    if cause is Cause.FAILED and record is not None and (record.detail or len(record.nodes) > 1):
        reason = why
    return _move(ledger, job.job, cause, why, exit=record, reason=reason)


def _later_runs(ledger: Ledger, run: Run) -> list[Run]:
    """The later runs of a run's job, without those that have only followed another one."""
    return [
        each
        for each in ledger.runs_of_job(run.key.job)
        if each.key.run > run.key.run and each.follows is None
    ]


def _may_take_over(run: Run) -> bool:
    """Whether every part of a run that follows another one is there and is to stay."""
    return (
        run.released
        and run.stop is None
        and not any(member.is_over for member in run.members.values())
    )


def _take_over(ledger: Ledger, run: Run) -> Ledger:
    """Go on with the run that has followed, in place of the one that has handed over."""
    ledger = _put(ledger, replace(run, follows=None))
    return _move(ledger, run.key.job, Cause.HANDED_OVER, f"run {run.key.run} goes on")


def _repeat(ledger: Ledger, run: Run, again: m.RunId, why: str) -> Ledger:
    """Begin a job's next run on the GPUs of the one that has failed."""
    job = ledger.jobs[run.key.job]
    key = m.RunKey(job.job, m.RunNumber(job.runs + 1), again)
    why = f"{why}, run {key.run}"
    return _assign(ledger, key, run.shares, Cause.REPEATED, why, failures=job.failures + 1)


def _time_is_extended(job: Job, cause: Cause) -> bool:
    """Whether a job that has reached its time limit starts again."""
    return cause is Cause.TIMED_OUT and job.timeouts < job.request.timeouts
