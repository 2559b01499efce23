"""What limits on the GPUs of classes, users and other holders leave in one decision.

Only rows that have GPUs count: those that ran when the decision began, to its end, and those that
it starts. A row that waits counts for nothing, whatever it waits for. A row that runs may always
have its own number of GPUs again: limits stop no job.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dlsched.core.allocation import Refused
from dlsched.core.arrays import Bools, Floats, Ints, Rows
from dlsched.core.cluster.occupancy import Occupancy, Placement
from dlsched.core.parts import part_of, parts_of
from dlsched.core.sharing.gpu_limits import ROUNDED, why_over
from dlsched.core.units import UnitTable

OVER_LIMIT = Refused("Quota", "a limit on GPUs has no room for it")  # `tell` says which, at the end


class RoomUnderLimits:
    """Counts the GPUs of holders in a walk."""

    def __init__(self, table: UnitTable, held: Mapping[int, Placement]) -> None:
        """Begin with the rows that have GPUs."""
        self._table, self._limits = table, table.gpu_limits
        self._set_of, self._sets = self._limits.set_of, self._limits.sets
        self._most: list[float] = (self._limits.most + ROUNDED).tolist()
        self._used = self._used_by(held).tolist()

    def _used_by(self, held: Mapping[int, Placement]) -> Floats:
        """GPUs of each holder."""
        rows = np.fromiter(held, np.int64, len(held))
        gpus = np.fromiter((each.gpus for each in held.values()), np.float64, len(held))
        gpus *= parts_of(self._table.gpu_share[rows])
        which = self._set_of[rows]
        of_sets = np.bincount(which[which >= 0], gpus[which >= 0], len(self._sets))
        used = np.zeros(len(self._most))
        for holders, each in zip(self._sets, of_sets.tolist(), strict=True):
            for holder in holders:
                used[holder] += each
        return used

    def count(self, row: int, gpus: int) -> None:
        """A row has so many GPUs more (or less, when negative)."""
        which = self._set_of.item(row)
        if which >= 0:
            counted = gpus * part_of(self._table.gpu_share.item(row))
            for holder in self._sets[which]:
                self._used[holder] += counted

    def is_over(self, row: int, gpus: int) -> bool:
        """Has one of a row's holders no room for so many GPUs more?"""
        which = self._set_of.item(row)
        if which < 0:
            return False
        needs = gpus * part_of(self._table.gpu_share.item(row))
        return any(self._used[h] + needs > self._most[h] for h in self._sets[which])

    def has_room(self, rows: Rows) -> Bools:
        """Has every holder room for each of some rows by itself?

        A row for which there is none gets none in the rest of the walk, except by a rollback.
        """
        which = self._set_of[rows]
        found: Bools = (which < 0) | (self._needs(rows) <= self._least(self._used)[which])
        return found

    def _needs(self, rows: Rows) -> Floats:
        needs: Floats = self._table.gang[rows] * parts_of(self._table.gpu_share[rows])
        return needs

    def _least(self, used: list[float]) -> Floats:
        """The room of the fullest holder of each set."""
        room = [most - now for most, now in zip(self._most, used, strict=True)]
        return np.array([min(room[holder] for holder in each) for each in self._sets])

    def chosen_by_count(
        self, rows: Rows, running: Bools, gangs: Ints, capacity: Mapping[int, int], *, stop: bool
    ) -> Bools:
        """Which rows of an order fit when nothing but the number of GPUs and limits count.

        Args:
            rows: best first.
            running: which of them run: limits stop none of these.
            gangs: the GPUs of each.
            capacity: GPUs to be given, by pool.
            stop: end a pool at its first row for which too few are left; else go on.
        """
        found = np.zeros(len(rows), np.bool_)
        used = list(self._used)
        places = np.flatnonzero(running | self.has_room(rows))
        which = np.where(running, -1, self._set_of[rows])[places].tolist()
        needs, asked = self._needs(rows[places]).tolist(), gangs[places].tolist()
        pools, left = self._table.pool[rows[places]].tolist(), dict(capacity)
        # one by one: whether a row has room depends on all before it, in its pool and in others
        for place, set_, counted, gang, pool in zip(
            places.tolist(), which, needs, asked, pools, strict=True
        ):
            if pool not in left:
                continue
            holders = self._sets[set_] if set_ >= 0 else ()
            if holders and any(used[h] + counted > self._most[h] for h in holders):
                continue
            if gang > left[pool]:
                if stop or not left[pool]:
                    del left[pool]  # no row after it gets GPUs of this pool
                    if not left:
                        break
                continue
            found[place] = True
            left[pool] -= gang
            for h in holders:
                used[h] += counted
        return found

    # -- rows that may start together --------------------------------------------------------------

    def chosen(self, rows: Rows, startable: Bools) -> Bools:
        """Which of some rows, in this order, all have room together.

        Those that can't start now, whatever a policy does, take no room from the others; they have
        room together too, so that a policy can plan for them.
        """
        found = self.has_room(rows)
        used = {True: list(self._used), False: list(self._used)}
        places = np.flatnonzero(found & (self._set_of[rows] >= 0))
        which, needs = self._set_of[rows[places]].tolist(), self._needs(rows[places]).tolist()
        can = startable[places].tolist()
        # one by one: whether a row has room depends on all before it
        for place, set_, gpus, starts in zip(places.tolist(), which, needs, can, strict=True):
            taken, holders = used[starts], self._sets[set_]
            if any(taken[h] + gpus > self._most[h] for h in holders):
                found[place] = False
            else:
                for h in holders:
                    taken[h] += gpus
        return found

    def bounds(self, rows: Rows) -> tuple[Rows, Rows]:
        """Elastic rows of some that may have GPUs together, and the most that each may have.

        What the rows' own numbers of GPUs leave of a limit is divided evenly among its elastic
        rows, so that no policy can give them more.
        """
        table = self._table
        rows = rows[self._set_of[rows] >= 0]
        base = np.where(table.gpus_now[rows] > 0, table.gpus_now[rows], table.gang[rows])
        used, count = list(self._used), [0] * len(self._most)
        elastic = table.max_gpus[rows] >= 0
        waits = table.gpus_now[rows] == 0
        for row, gpus, is_elastic, is_new in zip(
            rows.tolist(), base.tolist(), elastic.tolist(), waits.tolist(), strict=True
        ):
            for holder in self._sets[self._set_of.item(row)]:
                count[holder] += is_elastic
                used[holder] += gpus * part_of(table.gpu_share.item(row)) if is_new else 0.0
        more = [
            max(most - now, 0.0) // max(number, 1)
            for most, now, number in zip(self._most, used, count, strict=True)
        ]
        least = np.array([min(more[holder] for holder in each) for each in self._sets], np.int64)
        rows, base = rows[elastic], base[elastic]
        return rows, np.minimum(table.max_gpus[rows], base + least[self._set_of[rows]])

    # -- what users are told -----------------------------------------------------------------------

    def tell(self, waiting: Rows, occupancy: Occupancy) -> list[tuple[Refused, Rows]]:
        """Why rows wait for which the holders of GPUs leave no room, with the rows of each reason.

        Counted anew by what has GPUs now.
        """
        limits = self._limits
        used = self._used_by(occupancy.held)
        mine = waiting[self._set_of[waiting] >= 0]
        needs, which = self._needs(mine), self._set_of[mine]
        over = needs > self._least(used.tolist())[which]
        mine, needs, which = mine[over], needs[over], which[over]
        sizes, size = np.unique(needs, return_inverse=True)
        kinds, group = np.unique(which * len(sizes) + size, return_inverse=True)
        found: list[tuple[Refused, Rows]] = []
        for number, kind in enumerate(kinds.tolist()):
            gpus = sizes.item(kind % len(sizes))
            holders = self._sets[kind // len(sizes)]
            full = next(h for h in holders if used.item(h) + gpus > self._most[h])
            why = why_over(limits.holders[full], used.item(full), gpus, limits.most.item(full))
            found.append((Refused(*why.split(": ", 1)), mine[group == number]))
        return found
