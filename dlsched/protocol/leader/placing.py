"""What may be placed: jobs that can start a run, and GPUs on which one fits."""

from __future__ import annotations

from collections.abc import Iterable

from dlsched.protocol import messages as m
from dlsched.protocol import rules
from dlsched.protocol.leader.state import LeaderState
from dlsched.protocol.ledger import (
    JobStatus,
    Ledger,
    MemberOver,
    NodeStatus,
    Run,
    apply,
    may_repeat_in_place,
)


def recovering(state: LeaderState, now: float) -> str:
    """Why no run may be placed yet; empty when every node has synced in this term."""
    if not state.stepped_back and rules.window_passed(state.window_from, now, state.timing):
        return ""
    nodes, last_syncs = state.reserved.nodes.values(), state.last_syncs
    unheard = [n.name for n in nodes if n.status is NodeStatus.UP and n.name not in last_syncs]
    return f"Recovering({', '.join(unheard)} not heard yet)" if unheard else ""


def unplaceable(ledger: Ledger, job: m.JobId) -> str:
    """Why a job cannot start a run; empty when it can."""
    row = ledger.jobs.get(job)
    if row is None or row.status is not JobStatus.PENDING:
        return "not pending"
    return _earlier_run(ledger, job)


def _earlier_run(ledger: Ledger, job: m.JobId) -> str:
    """Why an earlier run keeps a job from starting another one; empty when none does."""
    if any(orphan.held.key.job == job for orphan in ledger.orphans.values()):
        return "Orphan"
    if ledger.next_run(job) is not None:
        return "its next run is being ended"
    stuck = ledger.stuck_run(job)
    return unkillable(stuck) if stuck is not None else ""


def unkillable(run: Run) -> str:
    """Why a job waits whose run has ended and is alive."""
    return f"Unkillable({', '.join(run.stuck_on)}: a process of run {run.key.run} is alive)"


def why_not_beside(ledger: Ledger, job: m.JobId) -> str:
    """Why no run of a job can be made ready beside its present one; empty when one can."""
    row, run = ledger.jobs.get(job), ledger.live_run(job)
    if row is None or run is None or row.status is not JobStatus.RUNNING or run.stop is not None:
        return "it no longer runs"
    return _earlier_run(ledger, job)


def misfit(
    state: LeaderState,
    now: float,
    shares: Iterable[m.Share],
    job: m.JobId,
    *,
    instead_of: m.RunId | None = None,
    heard: m.NodeName | None = None,
) -> str:
    """Why a run of a job does not fit the present state; empty when it fits.

    Args:
        state: of the leader.
        now: on its clock, in seconds.
        shares: the GPUs.
        job: the job.
        instead_of: a run that is not counted, because the new one replaces it.
        heard: a node that is known to be up, because this step is about its sync.
    """
    ledger, timing = state.reserved, state.timing
    needed = ledger.jobs[job].request.gpu_share
    for share in shares:
        node = ledger.nodes.get(share.node)
        last = state.last_syncs.get(share.node)
        if node is None or node.status is not NodeStatus.UP:
            return f"{share.node} is not up"
        if share.node != heard:
            if last is None:
                return f"{share.node} is not up"
            if now - last.at > timing.witness_beats * timing.beat_s:
                return f"{share.node} is late"
        if not set(share.gpus) <= set(node.gpus):
            return f"{share.node} has no such GPU"
        if set(share.gpus) & ledger.busy(share.node, instead_of, share=needed):
            return f"{share.node} is busy"
    return ""


def may_repeat_at_once(state: LeaderState, now: float, over: MemberOver, sync: m.Sync) -> bool:
    """Whether a member's end is also that of its run, which may be repeated on its GPUs now.

    Args:
        state: of the leader.
        now: on its clock, in seconds.
        over: the end of the member.
        sync: of its node.
    """
    if state.reserved.runs[over.run_id].is_over:
        return False  # a late record: the job has been queued since
    run = apply(state.reserved, over).runs[over.run_id]
    job = state.reserved.jobs[run.key.job]
    sick = {*sync.health.quarantined, *sync.health.unhealthy}
    return (
        run.is_over
        and run.key.run == job.runs
        and over.run_id not in state.taken
        and not sick & set(run.members[over.node].gpus)
        and may_repeat_in_place(run, job)
        and not recovering(state, now)
        and not _earlier_run(state.reserved, job.job)
        and not misfit(state, now, run.shares, job.job, instead_of=over.run_id, heard=sync.node)
    )
