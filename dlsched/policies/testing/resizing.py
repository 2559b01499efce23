"""A decider that resizes: every elastic job runs with a list of sizes, one after the other.

It has no other purpose than to test that the world can resize jobs.
"""

from __future__ import annotations

from dataclasses import dataclass

from dlsched.core.allocation import Refused
from dlsched.core.context import RoundContext
from dlsched.core.errors import BadInput
from dlsched.core.options import option
from dlsched.core.scheduling import SchedulingPolicy
from dlsched.core.units import Units
from dlsched.core.walk.walk import Walk


@dataclass(frozen=True, slots=True, kw_only=True)
class ResizeOptions:
    """The sizes, and the time for each."""

    sizes: str = option("2,3,1", "GPU counts, joined by commas; a job's k-th start has the k-th")
    period_s: float = option(60.0, "seconds that a job keeps a size", low=0.0)
    warm: bool = option(False, "count from the first step that a job reports, not from its start")
    rounds: int = option(1, "how often the list is repeated; then the last size stays", low=1)


class Resize(SchedulingPolicy[ResizeOptions]):
    """First come, first served, each elastic job with the size of its present start."""

    name = "testing-resize"
    summary = "takes every elastic job through a list of sizes"
    preemptive = True
    rests = False

    def __init__(self, options: ResizeOptions) -> None:
        super().__init__(options)
        words = options.sizes.split(",")
        if not all(word.isdecimal() and int(word) for word in words):
            raise BadInput(f"sizes={options.sizes}: GPU counts are needed, like 2,3,1")
        self._sizes = [int(word) for word in words] * options.rounds

    def size(self, row: int, starts: int, walk: Walk) -> int:
        """The GPUs of a job's next start, after so many starts."""
        table = walk.table
        gang, low, high = (
            int(column[row]) for column in (table.gang, table.min_gpus, table.max_gpus)
        )
        wanted = self._sizes[min(starts, len(self._sizes) - 1)]
        return max(low if low >= 0 else gang, min(wanted, high if high >= 0 else gang))

    def allocate(self, units: Units, ctx: RoundContext, walk: Walk) -> None:
        """Resize the jobs that are due, if there is room; then start jobs that fit."""
        running = ctx.running
        if walk.may_preempt:
            for row in running.rows[~ctx.protected(running)].tolist():
                self._resize(row, ctx, walk)
        for row in ctx.waiting.rows.tolist():
            placed = walk.place(row, self.size(row, int(ctx.table.starts[row]), walk))
            if isinstance(placed, Refused):
                walk.refuse(row, placed)

    def _resize(self, row: int, ctx: RoundContext, walk: Walk) -> None:
        table = ctx.table
        starts, now = int(table.starts[row]), walk.occupancy.held[row].gpus
        wanted = self.size(row, starts, walk)
        begun = float(table.progress_from[row])
        if wanted == now or starts >= len(self._sizes):
            return
        if self.options.warm and begun == float(table.since[row]):
            return  # it has not reported a step yet
        due = (begun if self.options.warm else float(table.since[row])) + self.options.period_s
        if ctx.now < due:
            walk.wake_at(due)
            return
        mark = walk.mark()
        walk.suspend(row)
        if isinstance(walk.place(row, wanted), Refused):
            walk.rollback(mark)
