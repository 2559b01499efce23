"""One round: a pure function from a snapshot to an allocation, the same in both worlds.

    snapshot → estimate → entitle → admit → rank → allocate ⇄ place → allocation

`Parts` are the stages of a run; `decide` is the round's second half, from `entitle` on. What it
does to the occupancy is what the allocation says; when a policy fails, everything is taken back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from dlsched.core.allocation import Allocation, Refused
from dlsched.core.arrays import Bools, Floats, Rows
from dlsched.core.cluster.description import Cluster
from dlsched.core.context import RoundContext
from dlsched.core.errors import BadInput, DlschedError, PolicyFailed
from dlsched.core.host_shares import HostPolicy
from dlsched.core.node_policy import NodePolicy
from dlsched.core.round.within_limits import within_limits
from dlsched.core.scheduling import Chooser, SchedulingPolicy
from dlsched.core.stage import (
    AdmissionPolicy,
    ClaimingPlacement,
    Entitlements,
    Estimator,
    FairnessPolicy,
    LaunchPart,
    MetricsPart,
    PlacementPolicy,
    PreemptionPart,
    Stage,
)
from dlsched.core.units import Units
from dlsched.core.walk.co_location import CoLocation
from dlsched.core.walk.walk import Walk


@dataclass(slots=True, kw_only=True)
class Parts:
    """The stages of a run, each chosen by name and replaceable at a round's boundary.

    Without launch, preemption or metrics a start costs the run's restart overhead, a suspension
    saves all work, and jobs report nothing. Without host, units have the processors and the memory
    that they ask for; without node, nothing divides a shared GPU.
    """

    scheduling: SchedulingPolicy[Any]
    placement: PlacementPolicy[Any]
    admission: AdmissionPolicy[Any]
    estimator: Estimator[Any]
    launch: LaunchPart[Any] | None = None
    preemption: PreemptionPart[Any] | None = None
    metrics: MetricsPart[Any] | None = None
    fairness: FairnessPolicy[Any] | None = None
    host: HostPolicy[Any] | None = None
    node: NodePolicy[Any, Any] | None = None

    @property
    def rest(self) -> bool:
        """Does a decision change nothing while no unit waits?"""
        return self.scheduling.rests and self.host is None

    def stages(self) -> dict[str, Stage[Any]]:
        """The parts by stage; one object may fill several."""
        parts: dict[str, Stage[Any]] = {
            "scheduling": self.scheduling,
            "placement": self.placement,
            "admission": self.admission,
            "estimator": self.estimator,
        }
        optional = {
            "launch": self.launch,
            "preemption": self.preemption,
            "metrics": self.metrics,
            "fairness": self.fairness,
            "host": self.host,
            "node": self.node,
        }
        return parts | {stage: part for stage, part in optional.items() if part is not None}

    def state_dict(self) -> dict[str, Any]:
        """The state of every distinct part, by the first stage that it fills."""
        states: dict[str, Any] = {}
        seen: set[int] = set()
        for stage, part in self.stages().items():
            if id(part) not in seen:
                seen.add(id(part))
                states[stage] = part.state_dict()
        return states

    def load_state_dict(self, states: Mapping[str, Any]) -> dict[str, Exception]:
        """Go on from a `state_dict` of the same parts.

        Returns:
            why a part begins anew, by its stage: another release kept its state in another form.
        """
        wrong: dict[str, Exception] = {}
        for stage, part in self.stages().items():
            if stage in states:
                try:
                    part.load_state_dict(states[stage])
                except Exception as error:
                    wrong[stage] = error
                    self.begin_anew(part)
        return wrong

    def begin_anew(self, part: Stage[Any]) -> None:
        """Put a new part in the place of one, in all stages that it fills."""
        new = type(part)(part.options)
        for stage, each in self.stages().items():
            if each is part:
                setattr(self, stage, new)

    def renumber(self, old: Rows, finished_gone: int) -> None:
        """Tell every distinct part that the table was packed; see `Stage.renumber`."""
        for part in {id(part): part for part in self.stages().values()}.values():
            part.renumber(old, finished_gone)


def admit(parts: Parts, queue: Units, ctx: RoundContext) -> tuple[Bools, dict[int, Refused]]:
    """Ask admission which of the units held back may enter.

    Raises:
        PolicyFailed: the part raised, or answered in the wrong shape.
    """
    with _blaming(f"admission {parts.admission.name}"):
        accepted, refused = parts.admission.admit(queue, ctx)
    if accepted.shape != (len(queue),):
        raise PolicyFailed(
            f"admission {parts.admission.name} answered for {accepted.shape} of {len(queue)} units"
        )
    return accepted, refused


def predict(parts: Parts, units: Units, true_work: Floats, ctx: RoundContext) -> Floats:
    """Ask the estimator how much work the units that arrive need.

    Args:
        parts: the stages.
        units: those that arrive.
        true_work: what a replay knows, by unit; NaN elsewhere.
        ctx: the snapshot.

    Raises:
        PolicyFailed: the part raised, or answered in the wrong shape or with a negative number.
    """
    name = parts.estimator.name
    with _blaming(f"estimator {name}"):
        work = parts.estimator.predict(units, true_work, ctx)
    if work.shape != (len(units),):
        raise PolicyFailed(f"estimator {name} answered for {work.shape} of {len(units)} units")
    if (work < 0).any():
        raise PolicyFailed(f"estimator {name} predicts a negative amount of work")
    return work


def revise(parts: Parts, ctx: RoundContext) -> None:
    """Let the estimator say anew how much work active units need; what it leaves open stays.

    Raises:
        PolicyFailed: the part raised, or answered in the wrong shape or with a negative number.
    """
    name, units = parts.estimator.name, ctx.units
    with _blaming(f"estimator {name}"):
        work = parts.estimator.revise(units, ctx)
    if work.shape != (len(units),):
        raise PolicyFailed(f"estimator {name} answered for {work.shape} of {len(units)} units")
    if (work < 0).any():
        raise PolicyFailed(f"estimator {name} predicts a negative amount of work")
    known = ~np.isnan(work)
    ctx.table.predicted_work[units.rows[known]] = work[known]


def choose(chooser: Chooser, ctx: RoundContext) -> Mapping[str, str] | None:
    """Ask a chooser which parts to install.

    Raises:
        PolicyFailed: the part raised.
    """
    with _blaming(f"policy {getattr(chooser, 'name', 'chooser')}"):
        return chooser.choose(ctx)


def refuse_chosen_gpus(parts: Parts, cluster: Cluster) -> None:
    """Refuse a policy that chooses GPUs itself where the placement alone may give them.

    Raises:
        BadInput: names the policy.
    """
    if isinstance(parts.placement, ClaimingPlacement) and parts.scheduling.chooses_gpus:
        try:
            parts.placement.check_exact(cluster)
        except BadInput as error:
            raise BadInput(f"policy {parts.scheduling.name}: {error}") from None


def _entitle(parts: Parts, ctx: RoundContext) -> Entitlements | None:
    if parts.fairness is None:
        return None
    with _blaming(f"fairness {parts.fairness.name}"):
        return parts.fairness.entitle(ctx.units, ctx)


@contextmanager
def _blaming(part: str) -> Iterator[None]:
    """End a run with one line that names the part, whatever it raises."""
    try:
        yield
    except DlschedError:
        raise
    except Exception as error:
        raise PolicyFailed(f"{part} failed: {error!r}") from error


def blamed_on(policy: SchedulingPolicy[Any], error: Exception) -> PolicyFailed:
    """What a decision raises where its policy or placement has raised an error."""
    if not isinstance(error, DlschedError):
        return PolicyFailed(f"policy {policy.name} failed: {error!r}")
    failed = PolicyFailed(f"policy {policy.name}: {error}")
    failed.exit_code = error.exit_code  # what was wrong with the input still is
    return failed


def decide(parts: Parts, ctx: RoundContext, *, counts: bool = True) -> Allocation:
    """Entitle, rank, allocate and place; the occupancy holds the outcome.

    Args:
        parts: the stages.
        ctx: the snapshot.
        counts: parts remember it whatever it decides; else it leaves no trace where it changes
            nothing.

    Raises:
        PolicyFailed: a part raised or asked for what cannot be; nothing has changed then.
    """
    policy = parts.scheduling
    before = None if counts else _Before(parts, ctx)
    if parts.estimator.revises:
        revise(parts, ctx)
    if ctx.occupancy.beside:
        with _blaming(f"estimator {parts.estimator.name}"):
            parts.estimator.observe(ctx)
    entitlements = _entitle(parts, ctx)
    walk = Walk(
        ctx,
        parts.placement,
        preemptive=policy.preemptive,
        entitlements=entitlements,
        host=parts.host,
    )
    try:
        if walk.limits is None and walk.tenancy is None:
            _allocate(policy, ctx, walk)
        else:
            within_limits(policy, ctx, walk, partial(_allocate, policy, ctx, walk))
        if walk.host_sharing is not None:
            walk.host_sharing.settle()
    except Exception as error:  # a third party's code: whatever it raises must not end the world
        walk.rollback(0)
        raise blamed_on(policy, error) from error
    allocation = walk.answer()
    if before is not None and allocation.changes_nothing:
        before.restore(walk)
        allocation.reserved = dict(ctx.occupancy.reserved)
    return allocation


class _Before:
    """What parts remember, and what is reserved for rows, before a decision."""

    def __init__(self, parts: Parts, ctx: RoundContext) -> None:
        remembering: list[Stage[Any]] = []
        if parts.scheduling.fills is None:
            remembering.append(parts.scheduling)
        if isinstance(parts.placement, ClaimingPlacement):
            remembering.append(parts.placement)
        self._states = [(part, part.state_dict()) for part in remembering]
        self._reserved = dict(ctx.occupancy.reserved)

    def restore(self, walk: Walk) -> None:
        """Go back to it; no row has got or lost GPUs since."""
        if walk.occupancy.reserved != self._reserved:
            walk.rollback(0)
        for part, state in self._states:
            part.load_state_dict(state)


def _allocate(policy: SchedulingPolicy[Any], ctx: RoundContext, walk: Walk) -> None:
    """Ask a policy, which need not know that rows share GPUs."""
    others = None if policy.pairs_units or not ctx.may_share else CoLocation(ctx)
    try:
        if others is not None:
            others.set_aside(walk)
        whole = policy.preemptive and ctx.mode == "full"
        policy.allocate(ctx.units if whole else ctx.waiting, ctx, walk)
        if others is not None:
            others.put_back(walk)
    finally:
        if others is not None:
            others.restore()
