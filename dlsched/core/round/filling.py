"""A fill by plain counting: rows that wait get idle GPUs, and nothing is built for a policy.

Between two rounds only idle GPUs are given. Where a policy takes what fits in a fixed order, and
what fits is a matter of counting, a few comparisons decide: `steps.decide` would answer the same.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable

from dlsched.core.arrays import Ints
from dlsched.core.cluster.occupancy import Placement
from dlsched.core.context import RoundContext
from dlsched.core.gpu_request import FreeGpus, GpuRequest
from dlsched.core.round.steps import Parts, blamed_on


def can_fill_by_count(parts: Parts, ctx: RoundContext) -> bool:
    """Is a fill a matter of the policy's order and of counting free GPUs, and of nothing else?"""
    occupancy, table = ctx.occupancy, ctx.table
    return (
        parts.scheduling.fills is not None
        and parts.placement.spans
        and parts.fairness is None
        and not parts.estimator.revises
        and not table.says_priorities
        and not (ctx.may_share and table.says_shares)
        and not (occupancy.beside or occupancy.cluster.tracks_host)
        and ctx.pools.whole
        and ctx.gpus_are_alike
    )


class FillQueue:
    """The waiting rows of a fill in the policy's order, which stands still while they wait.

    Attributes:
        entries: what each row is sorted by, its place in the order of admission, the row, and the
            GPUs that it needs; in order.
        gpus: how many GPUs all of them need.
    """

    def __init__(
        self, parts: Parts, ctx: RoundContext, admitted: Ints, rows: Iterable[int]
    ) -> None:
        """Begin with some rows.

        Args:
            parts: the stages.
            ctx: the snapshot; `can_fill_by_count` holds of it, and `active` may be out of date.
            admitted: per row of the table its place in the order of admission.
            rows: the rows that wait.
        """
        self._policy, self._placement = parts.scheduling, parts.placement
        self._table, self._occupancy = ctx.table, ctx.occupancy
        self._free = FreeGpus(ctx.occupancy, ctx.pools.nodes[0])
        self._gang = ctx.table.gang.data
        self.entries: list[tuple[object, int, int, int]] = []
        self.gpus = 0
        for row in rows:
            self.add(row, admitted.item(row))

    def add(self, row: int, place: int) -> None:
        """A row waits from now on; `place` is its place in the order of admission."""
        gang = self._gang[row]
        self.gpus += gang
        entry = (self._policy.fill_key(row, self._table), place, row, gang)
        if self.entries:
            insort(self.entries, entry)
        else:
            self.entries = [entry]

    def fill(self) -> list[tuple[int, int, Placement]]:
        """Give idle GPUs to rows, which leave the queue; the occupancy holds the outcome.

        Returns:
            the rows that start, how many GPUs each gets, and which, in order.

        Raises:
            PolicyFailed: the placement raised, or refused what fits.
        """
        occupancy, entries, place = self._occupancy, self.entries, self._placement.place
        started, stops = list[tuple[int, int, Placement]](), self._policy.fills == "stop"
        free = occupancy.free_total
        all_fit = self.gpus <= free
        tried = entries if all_fit or stops else [entry for entry in entries if entry[3] <= free]
        try:
            for _, _, row, gang in tried:
                if gang <= occupancy.free_total:
                    placed = place(GpuRequest(row, gang, self._table), self._free)
                    if type(placed) is not Placement:
                        placed = self._placement.kept_promise(row, placed)
                    occupancy.take(row, placed)
                    started.append((row, gang, placed))
                elif stops:
                    break
        except (
            Exception
        ) as error:  # a third party's code: whatever it raises must not end the world
            raise blamed_on(self._policy, error) from error
        if all_fit:
            self.entries, self.gpus = [], 0
        elif started:
            gone = {row for row, _, _ in started}
            self.entries = [entry for entry in entries if entry[2] not in gone]
            self.gpus -= free - occupancy.free_total
        return started
