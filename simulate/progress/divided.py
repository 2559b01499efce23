"""Units on GPUs that a node policy divides: the policy of the agents, on the clock of a replay.

What jobs would tell it, the model of interference says: how long a mini-batch of each owner takes
where it is. What it decides reaches a job a second later, since a job looks for its limits once a
second, and one mini-batch after that.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Hashable, Mapping
from typing import Any

from dlsched.core.cluster.occupancy import Placement
from dlsched.core.node_policy import FULL, DividedGpus, Limit, NodePolicy, Resident, Stepped
from dlsched.core.units import RUNNING
from simulate.progress.lazy import LazyProgress
from simulate.progress.strategy import Complete, Setting

LATENCY_S = 1.0  # until a job looks for its limits again
REPORT_S = 1.0  # between two reports of a job; one whose steps are unknown does one in this time
Gpu = tuple[int, int]  # node, and number of the GPU there


class DividedProgress(LazyProgress):
    """Units at a constant speed, until the node policy or anything else changes it."""

    def __init__(self, setting: Setting, policy: NodePolicy[Any, Any]) -> None:
        super().__init__(setting)
        self._divided = DividedGpus(policy)
        # where units are, and are they opportunistic?
        self._known: dict[int, tuple[Placement, bool]] = {}
        self._owner: dict[Hashable, int] = {}
        self._coming: list[
            tuple[float, int, int, float]
        ] = []  # when, order, unit, part of the time
        self._sent = 0
        self._now = 0.0
        self._equal: dict[
            Hashable, tuple[object, int]
        ] = {}  # what was seen last, and how often in a row
        self._steps = setting.table.extra.get("total_iterations")

    # -- units come and go -------------------------------------------------------------------------

    def meet(self, now: float) -> None:
        """Units have come to GPUs or have left them: tell the policy."""
        self._now = now
        occupancy = self.setting.occupancy
        here = {
            row: (where, row in occupancy.opportunistic) for row, where in occupancy.held.items()
        }
        for row in [row for row, known in self._known.items() if here.get(row) != known]:
            self._leave(row, now)
        fresh = [row for row in here if row not in self._known]
        for row in sorted(fresh, key=lambda row: (here[row][1], row)):  # owners first
            self._come(row, *here[row], now)

    def _come(self, row: int, placement: Placement, is_opportunistic: bool, now: float) -> None:
        self._known[row] = placement, is_opportunistic
        gpus = _gpus(placement)
        if is_opportunistic:
            for owner in {self._owner[gpu] for gpu in gpus if gpu in self._owner}:
                self._report(owner, now, now - self.setting.table.progress_from.item(owner))
        else:
            self._owner |= dict.fromkeys(gpus, row)
        limits = self._divided.come(now, Resident(job=row, guaranteed=not is_opportunistic), gpus)
        first = limits.pop(row)
        self.limit({row: first.share / FULL}, now)  # it is there before the job
        self._carry(limits, now)

    def _leave(self, row: int, now: float) -> None:
        placement, _ = self._known.pop(row)
        for gpu in _gpus(placement):
            if self._owner.get(gpu) == row:
                del self._owner[gpu]
            self._equal.pop(gpu, None)
        self._carry(self._divided.leave(now, row), now)

    # -- limits ------------------------------------------------------------------------------------

    def _carry(self, limits: Mapping[int, Limit], now: float) -> None:
        """Limits are on their way."""
        for row, limit in limits.items():
            self._sent += 1
            arrives = now + LATENCY_S + (self._step_s(row) if self._steps is not None else 0.0)
            heapq.heappush(self._coming, (arrives, self._sent, row, limit.share / FULL))

    def _arrive(self, now: float) -> None:
        """Limits have reached their jobs."""
        arrived: dict[int, float] = {}
        while self._coming and self._coming[0][0] <= now:
            _, _, row, part = heapq.heappop(self._coming)
            if row in self._known:
                arrived[row] = part
        self.limit(arrived, now)

    # -- what the policy would be told -------------------------------------------------------------

    def _step_s(self, row: int) -> float:
        """Seconds of one of a unit's steps where it is; where they are unknown, of its work."""
        rate = self.setting.table.rate.item(row)
        if rate <= 0:
            return 0.0
        count = math.nan if self._steps is None else float(self._steps[row])
        work = self.setting.true_work.item(row)
        return 1.0 / rate if math.isnan(count) or count <= 0 else work / count / rate

    def _report(self, row: int, now: float, since_s: float) -> None:
        """An owner says how long its mini-batches take."""
        table = self.setting.table
        duration = self._step_s(row)
        works = table.status.item(row) == RUNNING and now > table.progress_from.item(row)
        if works and duration > 0 and since_s > 0:
            steps = max(1, int(since_s / duration))
            event = Stepped(now=now, job=row, duration_s=duration, steps=steps)
            self._carry(self._divided.report(event), now)

    def _wake(self, now: float) -> None:
        """The policy looks at the GPUs whose time has come."""
        due = [gpu for gpu, at in self._divided.wake_at.items() if at <= now]
        owners = {self._owner[gpu] for gpu in due if gpu in self._owner}
        for row in sorted(owners):
            self._report(row, now, REPORT_S)
        changed = self._divided.wake(now)
        self._carry(changed, now)
        settles_after = self._divided.policy.settles_after
        if settles_after is None:
            return
        for gpu in due:
            owner = self._owner.get(gpu)
            seen = owner, None if owner is None else self._step_s(owner)
            before, times = self._equal.get(gpu, (None, 0))
            times = times + 1 if seen == before and not self._coming else 0
            self._equal[gpu] = seen, times
            if times > settles_after:
                self._divided.wake_at[gpu] = math.inf  # until something happens

    # -- the agenda --------------------------------------------------------------------------------

    def next_end(self) -> float:
        """When the next unit is seen to end, or the policy looks, or a limit arrives."""
        wakes = self._divided.next_wake
        arrives = self._coming[0][0] if self._coming else math.inf
        return min(self.next_of_agenda(), max(self._now, min(wakes, arrives)))

    def complete_until(self, now: float, complete: Complete) -> list[int]:
        """Complete every unit that is seen to end by now, and let the policy look."""
        done = super().complete_until(now, complete)
        self._now = now
        self._arrive(now)
        if self._divided.next_wake <= now:
            self._wake(now)
        return done


def _gpus(placement: Placement) -> tuple[Gpu, ...]:
    return tuple(
        (node, gpu)
        for node, mask in zip(*placement, strict=True)
        for gpu in range(mask.bit_length())
        if mask >> gpu & 1
    )
