"""The rules that safety rests on, one predicate each.

Leader, agent and keeper ask here; nothing else decides these questions. The tests break each rule
in turn and demand that the invariant checker notices.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from dlsched.protocol.ledger import Run
from dlsched.protocol.messages import DesiredRun, NodeName, Term, Want
from dlsched.protocol.timing import Timing


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """Unbroken renewals of one witness, in the leader's time."""

    since: float  # covered from here on without a gap
    last_sent: float  # the reply of the newest renewal known to have arrived


def is_fresh(sent_at: float, now: float, timing: Timing) -> bool:
    """Whether a reply to a sync that left at `sent_at` may still be used."""
    return now - sent_at <= timing.reply_age_s


def supersedes(term: Term, on_disk: Term) -> bool:
    """Whether a reply of this term may be used by an agent that has the other on its disk."""
    return term >= on_disk


def may_release(run: Run, prepared: Collection[NodeName]) -> bool:
    """Whether a gang may execute: every member has prepared and nobody asked it to stop."""
    return run.stop is None and all(
        node in prepared and not member.is_over for node, member in run.members.items()
    )


def is_off_its_gpus(want: DesiredRun | None, suspension: int, *, let_go: bool) -> bool:
    """Whether a run that a node holds leaves its GPUs to others.

    It has let them go in the very suspension that stands, and nobody wants it to go on.
    """
    return (
        want is not None
        and want.want is Want.SUSPENDED
        and let_go
        and want.suspension > 0
        and suspension == want.suspension
    )


def may_renew(confirmed_at: float, now: float, timing: Timing) -> bool:
    """Whether a leader may hand out leases: the database confirmed it a moment ago."""
    return now - confirmed_at <= timing.confirmed_s


def was_paused(last: float, now: float, timing: Timing) -> bool:
    """Whether this process did not run for a while without knowing."""
    return now - last > timing.pause_s


def window_passed(since: float, now: float, timing: Timing) -> bool:
    """Whether an observation of `since..now` spans a full window."""
    return now - since >= timing.window_s


def is_witnessed(chains: Iterable[Chain], witnesses: int, now: float, timing: Timing) -> bool:
    """Whether at least half of the witnesses were renewed all through the last window.

    Any node that extends its own lease reaches more than half of them, so one of them would have
    told it about this leader.
    """
    good = sum(
        1
        for chain in chains
        if window_passed(chain.since, now, timing) and now - chain.last_sent <= timing.witnessed_s
    )
    return witnesses > 0 and 2 * good >= witnesses


def may_extend(
    ages: Iterable[float], witnesses: int, lease_until: float, now: float, timing: Timing
) -> bool:
    """Whether a node may extend its own lease: it is the daemon that is away, not the node.

    A lease that has ended stays ended until a leader gives a new one.
    """
    known = list(ages)
    unrenewed = timing.witness_beats * timing.beat_s
    return (
        now < lease_until and 2 * len(known) > witnesses and all(age >= unrenewed for age in known)
    )
