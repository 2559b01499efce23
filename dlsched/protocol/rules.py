"""The rules that the protocol's safety depends on, one predicate each.

Leader, agent and keeper all call these functions, so each rule exists once. The tests break each
rule in turn and require that the invariant checker notices.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from dlsched.protocol.ledger import Node, Run
from dlsched.protocol.messages import (
    DesiredRun,
    Epoch,
    HeldRun,
    Inventory,
    NodeName,
    Phase,
    RunId,
    Sync,
    Term,
    Want,
)
from dlsched.protocol.timing import Timing


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """An unbroken series of lease renewals of one witness, on the leader's clock."""

    since: float  # covered without a gap since then
    last_sent: float  # when the newest renewal that is known to have arrived was sent


def is_fresh(sent_at: float, now: float, timing: Timing) -> bool:
    """Whether a reply to a sync that was sent at `sent_at` may still be used."""
    return now - sent_at <= timing.reply_age_s


def has_the_records(node: Node, sync: Sync) -> bool:
    """Whether a sync is from an agent with the records of the one that registered its node last.

    An agent with an empty folder, an older copy of it or that of another machine does not know the
    name of that agent's start.
    """
    return not node.start or node.start in sync.starts


def is_same_machine(node: Node, inventory: Inventory) -> bool:
    """Whether a node's hardware is what it was: its GPUs or the machine's own name say so."""
    same = node.machine == inventory.machine if node.machine and inventory.machine else False
    return same or bool(set(node.gpus) & set(inventory.gpus))


def names_hardware(node: Node, inventory: Inventory) -> bool:
    """Whether something names the hardware both of a node and of the agent that asks for it."""
    return bool((node.machine and inventory.machine) or (node.gpus and inventory.gpus))


def supersedes(term: Term, on_disk: Term) -> bool:
    """Whether an agent with the term `on_disk` may use a reply of `term`."""
    return term >= on_disk


def may_release(run: Run, prepared: Collection[NodeName]) -> bool:
    """Whether a gang may execute: every member has prepared, and no stop is requested."""
    return run.stop is None and all(
        node in prepared and not member.is_over for node, member in run.members.items()
    )


def is_off_its_gpus(want: DesiredRun | None, suspension: int, *, let_go: bool) -> bool:
    """Whether other runs may use the GPUs of a run that a node holds.

    The run has left its GPUs in the current suspension, and the leader does not want it to resume.
    The node reports the number of the suspension, and whether the run uses no GPU (`let_go`); where
    `want` is None, nothing is known of the run.
    """
    return (
        want is not None
        and want.want is Want.SUSPENDED
        and let_go
        and want.suspension > 0
        and suspension == want.suspension
    )


def may_renew(confirmed_at: float, now: float, timing: Timing) -> bool:
    """Whether a leader may hand out leases: the database has confirmed its term recently."""
    return now - confirmed_at <= timing.confirmed_s


def was_paused(last: float, now: float, timing: Timing) -> bool:
    """Whether this process was paused between two ticks."""
    return now - last > timing.pause_s


def window_passed(since: float, now: float, timing: Timing) -> bool:
    """Whether the time from `since` to `now` is a full window."""
    return now - since >= timing.window_s


def is_witnessed(chains: Iterable[Chain], witnesses: int, now: float, timing: Timing) -> bool:
    """Whether at least half of the witnesses were renewed throughout the last window.

    A node that extends its own lease reaches more than half of them, so one of these would have
    answered that this leader renewed it.

    Args:
        chains: the renewals of each witness that has any.
        witnesses: the number of witnesses.
        now: on the leader's clock, in seconds.
        timing: the cluster's times.
    """
    good = sum(
        1
        for chain in chains
        if window_passed(chain.since, now, timing) and now - chain.last_sent <= timing.witnessed_s
    )
    return witnesses > 0 and 2 * good >= witnesses


def may_be_fenced(
    run: Run, told_to_stop: Collection[RunId] | None, held: Iterable[HeldRun]
) -> bool:
    """Whether the end of its node's lease ends a run whose node is silent.

    A lease fences only what obeys. A process that was sent SIGKILL before and is alive does not.
    A run that was never released has none.

    Args:
        run: with a fence.
        told_to_stop: the runs that the node was told to end; None: an earlier leader knows.
        held: what the node has held.
    """
    asked = run.stop is not None if told_to_stop is None else run.key.run_id in told_to_stop
    ends = any(each.key == run.key and each.phase is Phase.STOPPING for each in held)
    return not run.released or not (asked or ends)


def has_no_earlier_witnesses(
    sync: Sync, offered: tuple[NodeName, ...], for_s: float, epoch: Epoch, timing: Timing
) -> bool:
    """Whether a node has the newest witnesses and can get no earlier ones any more.

    Args:
        sync: of the node.
        offered: the newest witnesses.
        for_s: for how long every reply to the node has had them, in seconds.
        epoch: of the leader; a node that has carried out its orders uses no earlier leader's.
        timing: the cluster's times.
    """
    too_old = for_s > 2 * timing.reply_age_s  # every earlier reply is
    return sync.witnesses == offered and too_old and sync.applied.epoch == epoch


def may_extend(
    ages: Iterable[float], witnesses: int, lease_until: float, now: float, timing: Timing
) -> bool:
    """Whether a node may extend its own lease, because the daemon is away and not the node.

    A lease that has ended stays ended until a leader grants a new one.

    Args:
        ages: seconds since a leader renewed each witness that has answered.
        witnesses: the number of witnesses.
        lease_until: when the node's lease ends.
        now: on the node's clock, in seconds.
        timing: the cluster's times.
    """
    known = list(ages)
    unrenewed = timing.witness_beats * timing.beat_s
    return (
        now < lease_until and 2 * len(known) > witnesses and all(age >= unrenewed for age in known)
    )
