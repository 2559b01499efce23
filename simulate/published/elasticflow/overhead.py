"""What the released simulator charges each running job at each of its events.

Two seconds (seven from 256 GPUs on); where the job's set of GPUs was not used by any job since the
trainers were last restarted, 2·(log2 n + 1) seconds more for its n GPUs, and 27 (47) more at the
events, one in so many, that restart the trainers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dlsched.core.cluster.occupancy import Placement
from dlsched.core.memory import Remembering, by_row, kept, rows
from dlsched.policies.scheduling.elasticflow.planning import Plan

LARGE = 256  # GPUs of a cluster on which everything takes longer


@dataclass(frozen=True, slots=True, kw_only=True)
class Events:
    """What a decision has done, in its order; by row.

    Attributes:
        first: plans before what was left was given, the earliest deadline first.
        gained: those that got more, in their turns, with their new plans.
        last: the plans in the end.
        overhead: what the starts cost, in seconds.
    """

    first: Mapping[int, Plan]
    gained: Sequence[tuple[int, Plan]]
    last: Mapping[int, Plan]
    overhead: dict[int, float] = field(default_factory=dict)


class Trainers(Remembering):
    """The sets of GPUs on which trainers run together."""

    _events: int = kept(0)
    _known: set[tuple[tuple[int, ...], tuple[int, ...]]] = kept(
        set,
        lambda stored: {(tuple(nodes), tuple(masks)) for nodes, masks in stored},
        key="trainers",
    )
    _changes: set[float] = kept(set)  # of plans, without admission
    _ends: dict[int, float] = by_row(float, optional=True)  # of all jobs, without admission
    _begun: list[int] = rows(list)  # in the order of their starts, without admission

    def __init__(self) -> None:
        """Begin without trainers."""
        self._restarts = self._is_free = False
        self._before: frozenset[int] = frozenset()  # those that had started before a decision

    def begin_event(self, restart_every: int, *, is_free: bool) -> None:
        """One more event; one in so many restarts all trainers. Where it is free none costs."""
        self._is_free = is_free
        self._restarts = self._events > 0 and self._events % restart_every == 0
        self._events += 1

    def end_event(self) -> None:
        """All jobs of the event were asked about."""
        if self._restarts:
            self._known.clear()

    def overhead(self, placement: Placement, total: int) -> float:
        """Seconds that a job loses at this event, on a cluster of so many GPUs."""
        if self._is_free:
            return 0.0
        large = total >= LARGE
        seconds = 7.0 if large else 2.0
        where = placement.nodes, placement.masks
        if where in self._known:
            return seconds
        self._known.add(where)
        if self._restarts:
            seconds += 47.0 if large else 27.0
        return seconds + 2.0 * (math.log2(placement.gpus) + 1)

    def order_of_starts(self, rows: Sequence[int], starting: Sequence[int]) -> list[int]:
        """Places of jobs in the order in which they have started first; without admission.

        Args:
            rows: all jobs.
            starting: places of those with GPUs; those that are new start in this order.
        """
        there = set(rows)
        begun = dict.fromkeys(row for row in self._begun if row in there)
        self._before = frozenset(begun)
        begun |= dict.fromkeys(rows[place] for place in starting)
        self._begun = list(begun)
        place = {row: number for number, row in enumerate(rows)}
        return [place[row] for row in self._begun] + [
            place[row] for row in rows if row not in begun
        ]

    def wakes_at(self, events: Events, now: float, *, admits: bool) -> float:
        """When the released simulator looks next, besides arrivals and ends.

        With admission: at the first change of any plan, if that is before all ends. Without: at the
        first change of every plan that was ever made, whether or not it is still in force. But its
        list has one entry for each time: when a job's end is taken out of an entry and no other
        job ends then, the entry goes, with the changes of other jobs in it.
        """
        plans = events.last.values()
        changes = [plan.next_change for plan in plans if math.isfinite(plan.next_change)]
        if admits:
            first = min(changes, default=math.inf)
            return now + first if first < min(plan.end for plan in plans) else math.inf
        self._ends = {row: end for row, end in self._ends.items() if row in events.first}
        for row, plan in events.first.items():
            self._ends_at(row, now + plan.end)
        self._changes = {time for time in self._changes if time > now}
        for row, plan in events.first.items():
            if not plan.first and row not in self._before:
                self._changes.add(now + plan.next_change)
        for row, plan in events.gained:
            self._ends_at(row, now + plan.end)
        for row in self._begun:
            if math.isfinite(events.last[row].next_change):
                self._changes.add(now + events.last[row].next_change)
        for row in self._begun:
            if row in events.overhead:
                self._ends_at(row, now + events.last[row].end + events.overhead[row])
        waiting = (self._ends[row] for row, plan in events.last.items() if not plan.first)
        return min(*self._changes, *waiting, math.inf, math.inf)

    def _ends_at(self, row: int, time: float) -> None:
        """A job is to end at another time than before."""
        before = self._ends.pop(row, None)
        if before != time and before is not None and before not in self._ends.values():
            self._changes.discard(before)
        self._ends[row] = time
