"""Which jobs are interleaved: groups of jobs of one gang size, by repeated matching.

Jobs are merged only as long as those that are to run need more GPUs than there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement

import numpy as np

from dlsched.core.arrays import Bools, Floats, Ints
from dlsched.core.speed.stages import (
    MEASURED_FACTORS,
    MOST_TOGETHER,
    Ordering,
    efficiencies,
    group_times,
)
from dlsched.core.sums import ordered_sum
from dlsched.policies.scheduling.muri.matching import best_pairs

WHOLE = 1.0 + 1e-9  # of a GPU: three thirds must make it

Group = tuple[int, ...]  # jobs by number
Times = dict[
    tuple[tuple[float, ...], ...], float
]  # of groups, by their jobs' stages and times alone


@dataclass(frozen=True, slots=True, kw_only=True)
class Interleaving:
    """How jobs run that are interleaved.

    Attributes:
        most: jobs on the same GPUs at most.
        factors: how much longer than planned 1, 2, … jobs on the same GPUs take.
        ordering: in which order of its stages a group runs.
    """

    most: int = MOST_TOGETHER
    factors: tuple[float, ...] = MEASURED_FACTORS
    ordering: Ordering = "best"


class InterleavedJobs:
    """Jobs by number, and how long they take together."""

    def __init__(
        self,
        stages: Floats,
        alone_s: Floats,
        share: Floats,
        how: Interleaving,
        known: Times | None = None,
    ) -> None:
        """Take what is known of each job.

        Args:
            stages: seconds of an iteration's stages, [job, stage]; NaN where not known.
            alone_s: seconds of an iteration alone, with what measuring adds; NaN where not known.
            share: the part of each GPU that it needs; 0 where it fits beside any other.
            how: jobs run together.
            known: seconds of an iteration of groups; what is found is added.
        """
        measured = np.column_stack([stages, alone_s])
        self._is_known: Bools = np.asarray(~np.isnan(measured).any(axis=1))
        measured = np.nan_to_num(measured)
        distinct, kinds = np.unique(measured, axis=0, return_inverse=True)
        self._stages, self._alone_s = distinct[:, :-1], distinct[:, -1]
        self._named: list[tuple[float, ...]] = [tuple(each) for each in distinct.tolist()]
        self._kind: list[int] = kinds.reshape(-1).tolist()
        self._share: list[float] = share.tolist()
        self._how = how
        self._times = {} if known is None else known

    def time_of(self, group: Group) -> float:
        """Seconds of an iteration of a group."""
        kind = self._kind_of(group)
        named = tuple(self._named[each] for each in kind)
        time = self._times.get(named)
        if time is None:
            time = self._times[named] = float(self._times_of(np.array([kind]))[0])
        return time

    def alone_of(self, group: Group) -> float:
        """Seconds of an iteration of each, one after the other."""
        return float(sum(self._alone_s[self._kind[job]] for job in group))

    def efficiency_of(self, group: Group) -> float:
        """The part of the time for which resources are busy."""
        stages = self._stages[[self._kind[job] for job in group]][np.newaxis]
        return float(efficiencies(stages, np.array([self.time_of(group)]))[0])

    def may_be(self, group: Group) -> bool:
        """May these jobs run together: are all known, and is a GPU enough for their parts?"""
        return bool(self._is_known[list(group)].all()) and self._part(group) <= WHOLE

    def _part(self, group: Group) -> float:
        """The part of each GPU that a group needs."""
        return ordered_sum(self._share[job] for job in group)

    def weights(self, groups: Sequence[Group]) -> Floats:
        """The efficiency of each two groups together, [group, group]; 0 where they may not be."""
        kinds = [self._kind_of(group) for group in groups]
        sizes = sorted({len(kind) for kind in kinds})
        distinct = {size: sorted({k for k in kinds if len(k) == size}) for size in sizes}
        place = {kind: at for listed in distinct.values() for at, kind in enumerate(listed)}
        of_size = {
            size: np.array([at for at, kind in enumerate(kinds) if len(kind) == size])
            for size in sizes
        }
        found = np.zeros((len(groups), len(groups)))
        for one, other in combinations_with_replacement(sizes, 2):
            if one + other > self._how.most:
                continue
            table = self._efficiency_of_pairs(np.array(distinct[one]), np.array(distinct[other]))
            lines, columns = of_size[one], of_size[other]
            picked = np.ix_(
                [place[kinds[at]] for at in lines], [place[kinds[at]] for at in columns]
            )
            found[np.ix_(lines, columns)] = table[picked]
            found[np.ix_(columns, lines)] = table[picked].T
        part = np.array([self._part(group) for group in groups])
        found[part[:, np.newaxis] + part > WHOLE] = 0.0
        unknown = [at for at, group in enumerate(groups) if not self._is_known[list(group)].all()]
        found[unknown] = found[:, unknown] = 0.0
        return found

    def _kind_of(self, group: Group) -> Group:
        """Groups of equal kinds take equally long."""
        return tuple(sorted(self._kind[job] for job in group))

    def _times_of(self, kinds: Ints) -> Floats:
        how = self._how
        return group_times(self._stages[kinds], self._alone_s[kinds], how.factors, how.ordering)

    def _efficiency_of_pairs(self, first: Ints, second: Ints) -> Floats:
        """Efficiencies of kinds [n, jobs] with kinds [m, jobs], [n, m]."""
        lines, columns = np.indices((len(first), len(second))).reshape(2, -1)
        is_square = first.shape == second.shape and bool((first == second).all())
        if is_square:
            lines, columns = np.tril_indices(len(first))
        both = np.concatenate([first[lines], second[columns]], axis=1)
        found = np.zeros((len(first), len(second)))
        found[lines, columns] = efficiencies(self._stages[both], self._times_of(both))
        if is_square:
            found[columns, lines] = found[lines, columns]
        return found


def matched_groups(
    classes: Sequence[tuple[int, Sequence[int]]], gpus: int, jobs: InterleavedJobs, rounds: int
) -> list[tuple[int, Group]]:
    """Group jobs by maximum-weight matching (Blossom), until they fit or no pair is left.

    Args:
        classes: the jobs that are to run by gang size, in the order of their keys.
        gpus: how many GPUs there are.
        jobs: how long they take together.
        rounds: of matching, at most.

    Returns:
        each group, with its gang size.
    """
    groups: dict[int, list[Group]] = {gang: [(job,) for job in some] for gang, some in classes}
    required = sum(gang * len(some) for gang, some in classes)
    for _ in range(rounds):
        if required <= gpus:
            break
        before = required
        for gang, some in groups.items():
            groups[gang], saved = _merged(some, jobs, -(-(required - gpus) // gang))
            required -= gang * saved
        if required == before:
            break
    return [(gang, group) for gang, some in groups.items() for group in some]


def _merged(some: list[Group], jobs: InterleavedJobs, most: int) -> tuple[list[Group], int]:
    """Merge matched pairs, the first `most` of them; returns the groups and how many were."""
    if most <= 0 or len(some) < 2:
        return some, 0
    lower_of = {higher: lower for lower, higher in best_pairs(jobs.weights(some))}
    paired = {*lower_of.values()}
    merged: list[Group] = []
    count = 0
    for place, group in enumerate(some):
        if place in paired:
            continue  # it comes with its higher half
        lower = lower_of.get(place)
        if lower is None:
            merged.append(group)
        elif count < most:
            merged.append(some[lower] + group)
            count += 1
        else:
            merged += [some[lower], group]
    return merged, count


def consecutive_groups(
    classes: Sequence[tuple[int, Sequence[int]]], gpus: int, jobs: InterleavedJobs, most: int
) -> list[tuple[int, Group]]:
    """Group jobs that follow each other in the order of their keys ("no Blossom").

    Args:
        classes: as for `matched_groups`.
        gpus: how many GPUs there are.
        jobs: how long they take together.
        most: jobs of a group.
    """
    required = sum(gang * len(some) for gang, some in classes)
    found: list[tuple[int, Group]] = []
    for gang, some in classes:
        for first in range(0, len(some), most):
            group: Group = (some[first],)
            for job in some[first + 1 : first + most]:
                if required > gpus and jobs.may_be((*group, job)):
                    group += (job,)
                    required -= gang
                else:
                    found.append((gang, (job,)))
            found.append((gang, group))
    return found


def unpacked(groups: Sequence[tuple[int, Group]], jobs: InterleavedJobs) -> list[tuple[int, Group]]:
    """Split the groups whose jobs would be done sooner one after the other."""
    found: list[tuple[int, Group]] = []
    for gang, group in groups:
        if jobs.time_of(group) > jobs.alone_of(group):
            found += [(gang, (job,)) for job in group]
        else:
            found.append((gang, group))
    return found
