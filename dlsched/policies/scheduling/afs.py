"""AFS: elastic resource sharing with an apathetic view of the future.

Hwang, Kim, Kim, Shin, Park, "Elastic Resource Sharing for Distributed Deep Learning", NSDI 2021.
Divide M GPUs among jobs whose throughput p(k) on k GPUs is known, to minimise the average JCT.
GPUs are granted one by one. Of two jobs, a ends first with its present share and b later. When a
has ended, b will have more GPUs, which greedy marginal throughput ignores. The apathetic view
assumes that b's share will then be the one it has with this GPU. So one more GPU is better spent
on b if and only if

    (p_b(m+1) - p_b(m)) / p_b(m+1)  >  (p_a(m+1) - p_a(m)) / p_a(m)

The job that wins against all others gets it. With `length=known`, a is the job with less remaining
work divided by present throughput; with `length=attained`, the job with less attained service.

The authors published no program. What the paper leaves open is decided here as follows: two jobs
without GPUs compare by the time that they would take on their fewest GPUs, ties go to the earlier
job; a job's first grant is its fewest GPUs at once; no job grows beyond the knee of its throughput.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from dlsched.core.arrays import Bools, Floats, Ints
from dlsched.core.context import RoundContext
from dlsched.core.errors import BadInput
from dlsched.core.memory import kept
from dlsched.core.options import option
from dlsched.core.scheduling import SchedulingPolicy
from dlsched.core.units import Units
from dlsched.core.walk.walk import Walk
from dlsched.policies.scheduling.gang_sizes import (
    bounds_of,
    capacity,
    has_known_scaling,
    resize,
    share_by_pool,
)


class Sharing:
    """GPUs granted one by one; columns of what the rule compares.

    Attributes:
        sizes: GPUs of each job so far.
        grants: jobs in the order of their grants.
    """

    def __init__(
        self, rates: Floats, ahead: Floats, least: Ints, most: Ints, *, known_length: bool = True
    ) -> None:
        """Start without grants.

        Args:
            rates: throughput on 1, 2, … GPUs, [job, GPUs - 1].
            ahead: remaining work, or attained service where lengths are not known.
            least: GPUs of a job's first grant.
            most: the most GPUs of a job.
            known_length: whether `ahead` is remaining work.
        """
        count = len(ahead)
        self._rates = np.concatenate([np.zeros((count, 1)), rates], axis=1)
        self._ahead, self._least, self._most = ahead, least, _knees(rates, least, most)
        self._known_length = known_length
        self.sizes: Ints = np.zeros(count, np.int64)
        self.grants: list[int] = []
        first = self._rates[np.arange(count), least]
        takes = np.divide(ahead, first, out=np.full(count, np.inf), where=first > 0)
        self._first = takes if known_length else ahead
        self._ends = np.full(count, np.inf)
        self._keeps = np.ones(count)  # the gain of one more, relative to what it would have
        self._grows = np.full(count, np.inf)  # the gain of one more, relative to what it has

    def grant(self, gpus: int) -> Ints:
        """Grant so many GPUs; returns the GPUs of each job.

        One pass over the jobs, each against the best so far, finds the winner. Only the last winner
        has changed since the previous pass, so a pass resumes at its position.
        """
        self._eligible = self._least <= np.minimum(self._most, gpus)
        best: list[int] = []  # the best so far, at each place where it changed
        place = 0
        while gpus > 0:
            place = self._pass(best, place)
            if not best:
                break
            job = best.pop()
            took = self._give(job)
            gpus -= took
            fits = self._eligible & (np.where(self.sizes > 0, 1, self._least) <= gpus)
            if (fits != self._eligible).any():
                self._eligible = fits
                best, place = [], 0
            else:
                place = job
        return self.sizes

    def _give(self, job: int) -> int:
        size = self.sizes.item(job)
        took = 1 if size else self._least.item(job)
        size += took
        self.sizes[job] = size
        self.grants.append(job)
        rate = self._rates.item(job, size)
        self._ends[job] = self._ahead[job] / rate if self._known_length else self._ahead[job]
        if size >= self._most[job]:
            self._eligible[job] = False
            return took
        more = self._rates.item(job, size + 1)
        self._keeps[job], self._grows[job] = (more - rate) / more, (more - rate) / rate
        return took

    def _pass(self, best: list[int], place: int) -> int:
        """Continue a pass from a position; `best` ends with the winner."""
        count = len(self._ends)
        if not best:
            later = self._eligible[place:]
            if not later.any():
                return count
            best.append(place + int(later.argmax()))
            place = best[-1] + 1
        while place < count:
            beats = self._beats(best[-1], place)
            if not beats.any():
                break
            best.append(place + int(beats.argmax()))
            place = best[-1] + 1
        return count

    def _beats(self, holder: int, place: int) -> Bools:
        """Which jobs from a position on win against the holder."""
        ends, sizes = self._ends[place:], self.sizes[place:]
        earlier = ends < self._ends[holder]
        as_a = ~(self._keeps[holder] > self._grows[place:])
        as_b = self._keeps[place:] > self._grows[holder]
        found: Bools = np.where(earlier, as_a, as_b)
        if self.sizes[holder] == 0:
            found = np.where(sizes == 0, self._first[place:] < self._first[holder], found)
        return found & self._eligible[place:]


def _knees(rates: Floats, least: Ints, most: Ints) -> Ints:
    """The most GPUs from which each job gains: the next one would not help."""
    after = np.arange(1, rates.shape[1] + 1)[None, :]  # GPUs after which a job may stop
    next_rate = np.concatenate([rates[:, 1:], np.zeros((len(rates), 1))], axis=1)
    stops = (next_rate <= rates) & (after >= least[:, None]) & (after < most[:, None])
    knee = np.where(stops.any(axis=1), stops.argmax(axis=1) + 1, most)
    return np.where(most < least, most, np.maximum(knee, least))


def shares(
    rates: Floats,
    ahead: Floats,
    gpus: int,
    *,
    least: Ints | None = None,
    most: Ints | None = None,
    known_length: bool = True,
) -> Sharing:
    """Divide GPUs among jobs; see `Sharing` for the arguments."""
    count, width = rates.shape
    sharing = Sharing(
        rates,
        ahead,
        np.ones(count, np.int64) if least is None else least,
        np.full(count, width) if most is None else most,
        known_length=known_length,
    )
    sharing.grant(gpus)
    return sharing


@dataclass(frozen=True, slots=True, kw_only=True)
class AfsOptions:
    """Apathetic future share."""

    length: Literal["known", "attained"] = option(
        "known", "which job ends first: by predicted remaining work, or by attained service"
    )


class Afs(SchedulingPolicy[AfsOptions]):
    """GPUs are divided again when jobs come, go or are known better, and kept in between."""

    name = "afs"
    summary = "elastic jobs: apathetic future share (AFS-L, or by attained service)"
    needs = frozenset({"predicted_work"})
    preemptive = True
    rests = False  # jobs grow when others leave

    _due: bool = kept(True)  # something has changed since shares were last divided
    _version: int = kept(0)  # of the fitted speeds at that time

    def allocate(self, units: Units, ctx: RoundContext, walk: Walk) -> None:
        """Divide if jobs came or went; between rounds only give idle GPUs."""
        version = ctx.perf.version(units.rows)
        walk.stable_until(-np.inf if version else np.inf)  # fitted speeds keep changing
        self._due = self._due or bool(ctx.changes) or version != self._version
        self._version = version
        if not self._due or not len(units):
            return
        protected = ctx.protected(units)
        if protected.any():
            walk.wake_at(float((ctx.kept_since(units.rows[protected]) + ctx.min_run).min()))
        self._due = not walk.may_preempt or bool(protected.any())
        units = units[~protected]
        for pool, places in share_by_pool(units):
            some = units[places]
            if len(some):
                resize(walk, some, self._divide(some, capacity(some, walk, pool), ctx))

    def _divide(self, units: Units, gpus: int, ctx: RoundContext) -> Ints:
        gang = units.gang
        width = int(max(gang.max(), np.minimum(units.table.max_gpus[units.rows].max(), gpus), 1))
        rates = ctx.perf.rate_by_count(units.rows, width)
        known = has_known_scaling(rates)
        least, most = bounds_of(units, known)
        ahead = np.where(known, ctx.perf.steps_left(units), units.remaining_work)
        rates[~known] = 1.0  # they have their gang or nothing
        if self.options.length == "attained":
            ahead = units.attained
        elif np.isnan(ahead).any():
            lacking = int(np.isnan(ahead).sum())
            raise BadInput(
                f"the remaining work of {lacking} of {len(units)} jobs is not known: estimate "
                "it (--estimate) or decide by attained service (-o length=attained)"
            )
        runs = rates[np.arange(len(units)), least - 1] > 0
        most = np.where(runs, np.minimum(most, width), 0)
        return shares(
            rates,
            ahead,
            gpus,
            least=least,
            most=most,
            known_length=self.options.length == "known",
        ).sizes
