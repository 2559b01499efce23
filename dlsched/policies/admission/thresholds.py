"""Admission: all jobs, below a load threshold, or within quotas per user and virtual cluster.

The load threshold is Blox' (EuroSys 2024). A job held back keeps its place in one FIFO queue; its
waiting time counts from its submit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dlsched.core.allocation import Refused
from dlsched.core.arrays import Bools
from dlsched.core.context import RoundContext
from dlsched.core.options import NoOptions, option
from dlsched.core.stage import AdmissionPolicy
from dlsched.core.units import Units


class AcceptAll(AdmissionPolicy[NoOptions]):
    """Every job enters at once."""

    name = "accept-all"
    summary = "every job enters the queue at once (default)"
    admits_all = True

    def admit(self, queue: Units, ctx: RoundContext) -> tuple[Bools, dict[int, Refused]]:
        """Admit all jobs."""
        return np.ones(len(queue), np.bool_), {}


ROUNDED = 1e-9  # of a GPU: ten tenths must make one


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadThresholdOptions:
    """Blox' LoadBasedAccept."""

    threshold: float = option(
        1.2, "admit while the demand of admitted jobs is at most this times the GPUs", low=0.0
    )


class LoadThreshold(AdmissionPolicy[LoadThresholdOptions]):
    """Admit from the head while demand is at most threshold × GPUs.

    The test precedes the addition, so demand may overshoot by one job.
    """

    name = "load-threshold"
    summary = "admit in order while demand is at most a multiple of the GPUs (Blox)"

    def admit(self, queue: Units, ctx: RoundContext) -> tuple[Bools, dict[int, Refused]]:
        """Admit the longest head of the queue that starts below the threshold."""
        capacity = ctx.occupancy.capacity_in(ctx.occupancy.in_service)
        limit = self.options.threshold * capacity
        demand, asked = float(ctx.units.counted_gpus.sum()), queue.counted_gpus
        before = demand + np.cumsum(asked) - asked
        # demand only grows along the queue, so the admitted jobs are its head
        accepted = np.asarray(before <= limit)
        why = Refused(
            "Admission",
            f"admitted jobs ask for {demand:g} GPUs, the limit is {limit:g} of {capacity}",
        )
        head = queue.rows[~accepted][:1].tolist()  # the other jobs wait behind it
        return accepted, dict.fromkeys(head, why)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaOptions:
    """GPUs that admitted, unfinished jobs of one owner may ask for at once."""

    user: float = option(np.inf, "GPUs per user", low=0.0)
    vc: float = option(np.inf, "GPUs per virtual cluster", low=0.0)


class Quota(AdmissionPolicy[QuotaOptions]):
    """Admitted, unfinished jobs of a user or virtual cluster ask for at most a quota of GPUs.

    Owners do not block each other: a job over the quota of its owner waits and the jobs behind it
    may enter, but jobs of one owner enter in order. A job larger than its quota is refused.
    """

    name = "quota"
    summary = "at most a quota of GPUs per user and per virtual cluster"

    def admit(self, queue: Units, ctx: RoundContext) -> tuple[Bools, dict[int, Refused]]:
        """Admit jobs in order, with a count for each owner."""
        active = ctx.units
        limits = (("user", self.options.user), ("vc", self.options.vc))
        used: dict[tuple[str, int], float] = {}
        for kind, _ in limits:
            owners = getattr(active, kind)
            for owner in np.unique(owners).tolist():
                used[kind, owner] = float(active.counted_gpus[owners == owner].sum())
        closed: set[tuple[str, int]] = set()
        accepted = np.zeros(len(queue), np.bool_)
        refused: dict[int, Refused] = {}
        owners_of = {kind: getattr(queue, kind) for kind, _ in limits}
        asked = zip(queue.rows.tolist(), queue.counted_gpus.tolist(), strict=True)
        for k, (row, gpus) in enumerate(asked):
            keys = [(kind, int(owners_of[kind][k]), limit) for kind, limit in limits]
            refusal = _over(ctx, keys, used, gpus, closed)
            if refusal is None:
                accepted[k] = True
                for kind, owner, _ in keys:
                    used[kind, owner] = used.get((kind, owner), 0.0) + gpus
            else:
                refused[row] = refusal
                if refusal.reason != "Never":
                    closed.update((kind, owner) for kind, owner, limit in keys if limit < np.inf)
        return accepted, refused


def _over(
    ctx: RoundContext,
    keys: list[tuple[str, int, float]],
    used: dict[tuple[str, int], float],
    gpus: float,
    closed: set[tuple[str, int]],
) -> Refused | None:
    for kind, owner, limit in keys:
        if owner < 0 or limit == np.inf:
            continue
        name = ctx.table.names[kind][owner]
        if gpus > limit:
            asks = f"{gpus:g} GPU{'' if gpus == 1 else 's'}"
            return Refused("Never", f"asks for {asks}, the quota of {kind} {name} is {limit:g}")
        have = used.get((kind, owner), 0.0)
        if have + gpus > limit + ROUNDED or (kind, owner) in closed:
            return Refused("Quota", f"{kind} {name}: {have:g} of {limit:g} GPUs in the queue")
    return None
