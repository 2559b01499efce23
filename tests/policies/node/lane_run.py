"""A lane from its first iteration to its last: sessions that want their next one at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from dlsched.core.sums import ordered_sum
from dlsched.policies.node.salus.turns import Order, Turns


class Iterations(NamedTuple):
    """A session as it comes to the lane; times in any one unit.

    Attributes:
        name: of the session.
        arrival: when it comes.
        number: of its iterations, at least 1.
        each: how long each takes.
    """

    name: str
    arrival: float
    number: int
    each: float


@dataclass(slots=True)
class LaneRun:
    """What became of the sessions.

    Attributes:
        order: the session of each iteration, in order.
        ends: when each session ended, in order of the ends.
    """

    order: list[str] = field(default_factory=list)
    ends: dict[str, float] = field(default_factory=dict)

    def mean_jct(self, sessions: Sequence[Iterations]) -> float:
        """The mean time from a session's arrival to its end."""
        return ordered_sum(self.ends[each.name] - each.arrival for each in sessions) / len(sessions)


def run_lane(
    sessions: Sequence[Iterations], order: Order, *, switch: float = 0, start: float = 0
) -> LaneRun:
    """Run all iterations of sessions in one lane.

    Sessions that have come by the end of an iteration queue before the next iteration of the
    session that ran.

    Args:
        sessions: in order of their entry among those that come at the same time.
        order: in which iterations run.
        switch: time that each change of session costs.
        start: when the lane is there.
    """
    turns, found = Turns(order), LaneRun()
    coming = sorted(sessions, key=lambda each: each.arrival)
    left = {each.name: each.number for each in sessions}
    each_takes = {each.name: each.each for each in sessions}
    now, last, place = start, "", 0
    while left:
        while place < len(coming) and coming[place].arrival <= now:
            name, _, count, each = coming[place]
            turns.enter(name, count * each)
            turns.want(name)
            place += 1
        if last in left and last in turns.sessions:
            turns.want(last)
        running = turns.pick()
        if running is None:
            now = coming[place].arrival
            continue
        now += each_takes[running] + (switch if last not in ("", running) else 0)
        turns.end(each_takes[running])
        found.order.append(running)
        last = running
        left[running] -= 1
        if not left[running]:
            del left[running]
            turns.leave(running)
            found.ends[running] = now
    return found
