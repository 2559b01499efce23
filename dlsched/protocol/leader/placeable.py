"""Whether a job's next run may be placed now, or why not."""

from __future__ import annotations

from dlsched.protocol import rules
from dlsched.protocol.leader.state import LeaderState
from dlsched.protocol.ledger import (
    JobStatus,
    Ledger,
    NodeStatus,
    Run,
)
from dlsched.protocol.messages import (
    ExitReason,
    JobId,
)

__all__ = ["recovering", "refusal", "unplaceable"]


def refusal(state: LeaderState, job: JobId, now: float) -> str:
    """Why a job's next run may not be placed now; empty when it may."""
    return recovering(state, now) or unplaceable(state.reserved, job)


def recovering(state: LeaderState, now: float) -> str:
    """Why nothing may be placed yet: a term begins by hearing what its nodes hold."""
    if not state.stepped_back and rules.window_passed(state.window_from, now, state.timing):
        return ""
    nodes, hearings = state.reserved.nodes.values(), state.hearings
    unheard = [n.name for n in nodes if n.status is NodeStatus.UP and n.name not in hearings]
    return f"Recovering({', '.join(unheard)} not heard yet)" if unheard else ""


def unplaceable(ledger: Ledger, job: JobId) -> str:
    """What stands in the way of a run of this job."""
    row = ledger.jobs.get(job)
    if row is None or row.status is not JobStatus.PENDING:
        return "not pending"
    if any(orphan.held.key.job == job for orphan in ledger.orphans.values()):
        return "Orphan"
    for run in ledger.runs_of_job(job):
        if stuck := stuck_on(ledger, run):
            return f"Unkillable({stuck})"
    return ""


def stuck_on(ledger: Ledger, run: Run) -> str:
    """The node on which a process of an ended run is still stuck."""
    for member in run.members.values():
        node = ledger.nodes[member.node]
        stuck = member.exit is not None and member.exit.reason is ExitReason.UNKILLABLE
        if stuck and node.boot_id == member.boot_id and set(node.quarantined) & set(member.gpus):
            return node.name
    return ""
