"""The transactional walk: from an order to GPUs.

Counting is not placing. The walk proposes a row, tries to place it, and commits or takes back, on
the very occupancy of the world; whatever it did can be rolled back to a mark. A static order whose
placement cannot fail is decided by counting, in a few vector operations; everything else tries row
by row. Both give the same selection (a test holds them against each other).

Invariant: between calls the occupancy is that of the start plus `suspended` and `launched`.
"""

from __future__ import annotations

from typing import NoReturn

import numpy as np

from dlsched.core.allocation import Allocation, Grant, Ranking, Refused
from dlsched.core.arrays import Bools, Floats, Ints, Rows
from dlsched.core.calendar import Booking
from dlsched.core.context import RoundContext
from dlsched.core.errors import PolicyFailed
from dlsched.core.free import Ask, FreeGpus, HostResources
from dlsched.core.occupancy import Placement
from dlsched.core.stage import Entitlements, PlacementPolicy
from dlsched.core.units import RUNNING, WAITING, Units

__all__ = ["Walk", "choose_by_count", "prefix_by_count"]


def choose_by_count(gangs: Ints, capacity: int) -> Bools:
    """Which rows of an order fit when each takes its GPUs in turn and misfits are skipped.

    Each pass takes the longest prefix that fits; what remains is smaller than the first misfit,
    so the number of passes is at most the number of distinct gang sizes.
    """
    if int(gangs.sum()) <= capacity:
        return np.ones(len(gangs), np.bool_)
    chosen = np.zeros(len(gangs), np.bool_)
    left = np.arange(len(gangs))
    while left.size and capacity > 0:
        left = left[gangs[left] <= capacity]
        if not left.size:
            break
        used = np.cumsum(gangs[left])
        fit = int(np.searchsorted(used, capacity, side="right"))
        chosen[left[:fit]] = True
        capacity -= int(used[fit - 1])
        left = left[fit + 1 :]
    return chosen


def prefix_by_count(gangs: Ints, capacity: int) -> Bools:
    """Which rows of an order fit before the first that does not."""
    return np.asarray(np.cumsum(gangs) <= capacity)


class Walk:
    """One decision's grants, on the world's occupancy.

    Attributes:
        ctx: the round's snapshot.
        suspended: rows that lost their GPUs, with where they were, in order.
        launched: rows that got GPUs, in order.
    """

    def __init__(
        self,
        ctx: RoundContext,
        placement: PlacementPolicy[object],
        *,
        preemptive: bool,
        entitlements: Entitlements | None = None,
    ) -> None:
        self.ctx = ctx
        self.table = ctx.table
        self.occupancy = ctx.occupancy
        self.placement = placement
        self.may_preempt = preemptive and ctx.mode == "full"
        self.entitlements = entitlements
        self.suspended: dict[int, Placement] = {}
        self.launched: dict[int, Placement] = {}
        self._answer = Allocation(suspended=self.suspended, launched=self.launched)
        self._journal: list[tuple[str, int, Placement]] = []
        self._anew = False  # a full rebuild: nobody has a claim to its old GPUs
        tracked = self.occupancy.cluster.tracks_host
        self._host = HostResources(self.occupancy, self.table) if tracked else None
        self._used = self._count_use() if entitlements is not None else None

    # -- what a policy may say --------------------------------------------------------------------

    def free_gpus(self, pool: int = 0) -> int:
        """Free GPUs of a pool, as of now in this walk."""
        occupancy = self.occupancy
        if self.ctx.pools.whole and not occupancy.draining:
            return occupancy.free_total
        return occupancy.free_in(self.ctx.pools.nodes[pool])

    def place(self, row: int, gang: int | None = None) -> Placement | Refused:
        """Try to give a waiting row its gang (or `gang` GPUs); commits when it succeeds."""
        want = int(self.table.gang[row]) if gang is None else gang
        self._check_may_start(row, want)
        refusal = self._over_ceiling(row, want)
        if refusal is not None:
            return refusal
        returns = row in self.suspended and row not in self.launched and self.ctx.semantics.rejoin
        if returns and not self._anew:
            back = self._rejoin(row, want)
            if back is not None:
                return back
        open_gpus = self.free_gpus(int(self.table.pool[row]))
        if want > open_gpus:
            return Refused("Resources", f"needs {want} GPUs, {open_gpus} are free")
        chosen = self.placement.place(Ask(row, want, self.table), self.free_for(row, want))
        if isinstance(chosen, Refused):
            return chosen
        if returns and chosen == self.suspended[row]:
            return self._rejoin(row, want) or chosen
        self._take(row, chosen)
        return chosen

    def free_for(self, row: int, gang: int | None = None) -> FreeGpus:
        """The free GPUs that a row may use now, for policies that choose exact ones."""
        free = FreeGpus(self.occupancy, self.ctx.pools.nodes[int(self.table.pool[row])])
        if self._host is not None:
            want = int(self.table.gang[row]) if gang is None else gang
            free.limit(Ask(row, want, self.table), self._host)
        return free

    def place_exactly(self, row: int, placement: Placement) -> None:
        """Give a waiting row exact GPUs.

        Raises:
            PolicyFailed: one of them is not free, the node may not be used, the row does not wait,
                or they are not its gang.
        """
        self._check_may_use(row, placement)
        self._check_may_start(row, placement.gpus)
        usable = None if self._host is None else self.free_for(row, placement.gpus)
        for node, mask in zip(placement.nodes, placement.masks, strict=True):
            if mask & ~self.occupancy.free[node]:
                self._may_not_use(row, node)
            if usable is not None and mask.bit_count() > usable.usable_on(node):
                name = self.occupancy.cluster.names[node]
                raise PolicyFailed(f"it gave unit {row} more than node {name}'s cores or memory")
        if self.ctx.semantics.rejoin and self.suspended.get(row) == placement:
            self._rejoin(row, placement.gpus)
        else:
            self._take(row, placement)

    def _check_may_start(self, row: int, gpus: int) -> None:
        if row in self.occupancy.held:
            raise PolicyFailed(f"it gave unit {row} GPUs twice")
        table = self.table
        if table.status[row] != WAITING and row not in self.suspended:
            raise PolicyFailed(f"it starts unit {row}, which is not waiting")
        gang = int(table.gang[row])
        if gpus != gang:
            low, high = int(table.min_gpus[row]), int(table.max_gpus[row])
            if not (low if low >= 0 else gang) <= gpus <= (high if high >= 0 else gang):
                raise PolicyFailed(f"it gave unit {row} {gpus} GPUs of a gang of {gang}")

    def _check_may_use(self, row: int, placement: Placement) -> None:
        nodes = self.ctx.pools.nodes[int(self.table.pool[row])] & self.occupancy.open_nodes
        for node, mask in zip(placement.nodes, placement.masks, strict=True):
            exist = (1 << int(self.occupancy.cluster.gpus[node])) - 1
            if not nodes >> node & 1 or mask & ~exist or not mask:
                self._may_not_use(row, node)
        if len(set(placement.nodes)) < len(placement.nodes):
            raise PolicyFailed(f"it named a node twice in the placement of unit {row}")

    def _may_not_use(self, row: int, node: int) -> NoReturn:
        name = self.occupancy.cluster.names[node]
        raise PolicyFailed(f"it gave unit {row} GPUs of node {name} that it may not use")

    def suspend(self, row: int) -> None:
        """Take all GPUs from a running row.

        Raises:
            PolicyFailed: the row holds none or has not run its minimum time, or the policy may not
                preempt now.
        """
        if not self.may_preempt:
            raise PolicyFailed(f"it suspends unit {row}, but running rows are frozen now")
        if row not in self.occupancy.held or row in self.launched:
            raise PolicyFailed(f"it suspends unit {row}, which does not run")
        if self.ctx.now - self.table.since[row] < self.ctx.min_run:
            raise PolicyFailed(
                f"it suspends unit {row} before its minimum of {self.ctx.min_run:g} s is over"
            )
        self._take_back(row)

    def reserve(self, row: int, placement: Placement) -> None:
        """Keep GPUs for a waiting row until their holders have left; nobody else gets them.

        The reservation stands until it is claimed or opened again, in this decision or a later one.

        Raises:
            PolicyFailed: the row does not wait, or may not use these GPUs.
            InvariantBroken: somebody has reserved one of them.
        """
        self._check_may_use(row, placement)
        self._check_may_start(row, placement.gpus)
        self.occupancy.reserve(row, placement)
        self._journal.append(("reserve", row, placement))

    def unreserve(self, row: int) -> Placement:
        """Open a row's reservation again; what nobody holds of it becomes free.

        Raises:
            PolicyFailed: the row has reserved nothing.
        """
        placement = self._reservation(row)
        self.occupancy.unreserve(row)
        self._journal.append(("unreserve", row, placement))
        return placement

    def claim(self, row: int) -> Placement | Refused:
        """Give a row its reserved GPUs if all their holders have left.

        Raises:
            PolicyFailed: the row has reserved nothing.
        """
        placement = self._reservation(row)
        self._check_may_start(row, placement.gpus)
        refusal = self._over_ceiling(row, placement.gpus)
        if refusal is not None:
            return refusal
        mark = self.mark()
        self.unreserve(row)
        for node, mask in zip(placement.nodes, placement.masks, strict=True):
            if mask & ~self.occupancy.free[node] or not self.occupancy.open_nodes >> node & 1:
                self.rollback(mark)
                return Refused("Resources", "its reserved GPUs are still held, or out of service")
        self._take(row, placement)
        return placement

    def _reservation(self, row: int) -> Placement:
        placement = self.occupancy.reserved.get(row)
        if placement is None:
            raise PolicyFailed(f"it uses a reservation of unit {row}, which has reserved nothing")
        return placement

    def grant(self, row: int, grant: Grant) -> None:
        """Give a row more than GPUs: batch size, CPUs, a share, a lease end."""
        self._answer.grants[row] = grant

    def plan_ahead(self, booking: Booking) -> None:
        """Enter a planned start in the calendar."""
        self._answer.future.append(booking)

    def refuse(self, row: int, why: Refused) -> None:
        """Say why a row got nothing."""
        self._answer.refused[row] = why

    def wake_at(self, time: float) -> None:
        """Ask to be called again at that time."""
        self._answer.wake_at = min(self._answer.wake_at, _a_time(time))

    def stable_until(self, time: float) -> None:
        """Declare that without changes nothing would be decided otherwise before that time."""
        self._answer.stable_until = _a_time(time)

    def output(self, column: str, row: int, value: float) -> None:
        """Set an extra output column of a row."""
        self._answer.columns.setdefault(column, {})[row] = value

    def runs(self, units: Units) -> Bools:
        """Which units hold GPUs as of now in this walk."""
        if not self.suspended and not self.launched:
            return units.running
        return self.table.marks(self.occupancy.held)[units.rows]

    def mark(self) -> int:
        """A point to roll back to."""
        return len(self._journal)

    def rollback(self, mark: int) -> None:
        """Undo everything after a mark."""
        while len(self._journal) > mark:
            kind, row, placement = self._journal.pop()
            if kind == "take":
                del self.launched[row]
                self._answer.grants.pop(row, None)
                self._give_back(row)
            elif kind == "rejoin":
                self._give_back(row)
                self.suspended[row] = placement
            elif kind == "reserve":
                self.occupancy.unreserve(row)
            elif kind == "unreserve":
                self.occupancy.reserve(row, placement)
            else:
                del self.suspended[row]
                self.occupancy.take_again(row, placement)
                self._count(row, placement, +1)

    def answer(self) -> Allocation:
        """What was decided."""
        self._answer.reserved = dict(self.occupancy.reserved)
        return self._answer

    # -- following a ranking ----------------------------------------------------------------------

    def follow(self, units: Units, ranking: Ranking) -> None:
        """Turn an order into grants, by the ranking's misfit and rebuild rules."""
        self.wake_at(ranking.wake_at)
        self.stable_until(ranking.stable_until)
        rows = units.rows[ranking.order]
        running = self.table.status[rows] == RUNNING
        if not self.may_preempt:
            self._fill(rows[~running], stop=ranking.misfit != "skip")
        elif ranking.misfit == "tail-preempt":
            self._preempt_from_tail(rows, running)
        else:
            rows, running = self._protected_first(rows, running)
            if ranking.rebuild == "full":
                kept = running & self._is_protected(rows)
                self._empty(rows[running & ~kept])
                self._anew = True
                self._fill(rows[~kept], stop=ranking.misfit == "stop")
            elif self._counting_decides():
                self._rebuild_by_count(rows, running, stop=ranking.misfit == "stop")
            else:
                self._rebuild_by_trying(rows, stop=ranking.misfit == "stop")

    def _counting_decides(self) -> bool:
        return (
            self.placement.spans
            and self.ctx.pools.disjoint
            and self._used is None
            and self._host is None
            and not self.occupancy.draining
            and not self.occupancy.reserved
        )

    def _protected_first(self, rows: Rows, running: Bools) -> tuple[Rows, Bools]:
        if self.ctx.min_run <= 0 or not running.any():
            return rows, running
        behind = ~(running & self._is_protected(rows))
        order = np.argsort(behind, kind="stable")
        until = self.table.since[rows[~behind]] + self.ctx.min_run
        if until.size and not running.all():
            self.wake_at(float(until.min()))
        return rows[order], running[order]

    def _by_pool(self, rows: Rows) -> list[tuple[int, Rows]]:
        """The rows of each pool, keeping their order."""
        if self.ctx.pools.whole:
            return [(0, np.arange(len(rows)))]
        pools = self.table.pool[rows]
        return [(int(pool), np.flatnonzero(pools == pool)) for pool in np.unique(pools)]

    def _fill(self, rows: Rows, *, stop: bool) -> None:
        """Give free GPUs to waiting rows in order; nobody is preempted."""
        if not rows.size:
            return
        if self._counting_decides():
            for pool, where in self._by_pool(rows):
                gangs = self.table.gang[rows[where]]
                choose = prefix_by_count if stop else choose_by_count
                self._launch(rows[where[choose(gangs, self.free_gpus(pool))]])
            return
        misfits = _Misfits(self, stop=stop)
        for row in self._entitled_first(rows).tolist():
            if misfits.rule_out(row):
                continue
            placed = self.place(row)
            if isinstance(placed, Refused):
                self.refuse(row, placed)
                misfits.add(row, placed)
            if not self.occupancy.free_total:
                break

    def _launch(self, rows: Rows) -> None:
        for row in rows.tolist():
            placed = self.place(row)
            if isinstance(placed, Refused):
                raise PolicyFailed(
                    f"placement {self.placement.name} says it always fits, but refused unit {row}: "
                    f"{placed}"
                )

    def _rebuild_by_count(self, rows: Rows, running: Bools, *, stop: bool) -> None:
        """Select by counting; then the others leave and the newly selected come."""
        chosen = np.zeros(len(rows), np.bool_)
        for pool, where in self._by_pool(rows):
            held = int(self.table.gpus_now[rows[where[running[where]]]].sum())
            choose = prefix_by_count if stop else choose_by_count
            gangs = self.table.gang[rows[where]]
            chosen[where[choose(gangs, self.free_gpus(pool) + held)]] = True
        for row in rows[running & ~chosen][::-1].tolist():
            self._take_back(row)
        self._launch(rows[chosen & ~running])

    def _rebuild_by_trying(self, rows: Rows, *, stop: bool) -> None:
        """Row by row: a running row stays, a waiting one may push out those ranked after it.

        With `stop`, running rows behind a misfit leave, as they would in a rebuild from empty.
        """
        rows = self._entitled_first(rows)
        ordered: list[int] = rows.tolist()
        misfits = _Misfits(self, stop=stop)
        for position, row in enumerate(ordered):
            if row in self.occupancy.held:
                if stop and misfits.rule_out(row) and self._is_victim(row, -1):
                    self._take_back(row)
                continue
            if misfits.rule_out(row):
                continue
            refusal = self._place_or_push(row, ordered, position)
            if refusal is not None:
                self.refuse(row, refusal)
                misfits.add(row, refusal)

    def _place_or_push(self, row: int, ordered: list[int], position: int) -> Refused | None:
        """Place a row, suspending rows from the tail until it fits; undone when it never does."""
        placed = self.place(row)
        if not isinstance(placed, Refused):
            return None
        start = self.mark()
        nodes = self.ctx.pools.nodes[int(self.table.pool[row])]
        for tail in range(len(ordered) - 1, position, -1):
            victim = ordered[tail]
            if not self._is_victim(victim, nodes):
                continue
            self._take_back(victim)
            again = self.place(row)
            if not isinstance(again, Refused):
                return None
            placed = again
        self.rollback(start)
        return placed

    def _is_victim(self, row: int, nodes: int) -> bool:
        held = self.occupancy.held.get(row)
        if held is None or row in self.launched:
            return False
        if self.ctx.min_run > 0 and self.ctx.now - self.table.since[row] < self.ctx.min_run:
            return False
        return any(nodes >> node & 1 for node in held.nodes)

    def _preempt_from_tail(self, rows: Rows, running: Bools) -> None:
        """Blox' strict walk: a row that does not fit suspends rows from the end, or ends the walk.

        Rows suspended for nothing stay suspended; one that is met later in the walk is tried again
        as a waiting row.
        """
        waiting: list[int] = np.flatnonzero(~running).tolist()
        victims: list[int] = np.flatnonzero(running & ~self._is_protected(rows)).tolist()
        emptied_from = len(rows)  # every row from here on waits, whether or not it ran before
        next_waiting = 0
        position = -1
        while True:
            while next_waiting < len(waiting) and waiting[next_waiting] <= position:
                next_waiting += 1
            upcoming = waiting[next_waiting] if next_waiting < len(waiting) else len(rows)
            position = min(upcoming, max(emptied_from, position + 1))
            if position >= len(rows):
                return
            row = int(rows[position])
            if row in self.occupancy.held:
                continue  # protected, or a row of another pool: it runs on
            placed = self.place(row)
            while isinstance(placed, Refused):
                if placed.reason == "Quota":
                    break  # others' GPUs would not help it
                if not victims or victims[-1] <= position:
                    self.refuse(row, placed)
                    return
                emptied_from = victims.pop()
                self._take_back(int(rows[emptied_from]))
                placed = self.place(row)
            if isinstance(placed, Refused):
                self.refuse(row, placed)

    def _is_protected(self, rows: Rows) -> Bools:
        """Rows that started so recently that they must not be preempted yet."""
        if self.ctx.min_run <= 0:
            return np.zeros(len(rows), np.bool_)
        return np.asarray(self.ctx.now - self.table.since[rows] < self.ctx.min_run)

    def _empty(self, rows: Rows) -> None:
        """Take everything back (full rebuild), except from rows that must not be preempted yet."""
        for row in rows.tolist():
            if self._is_victim(row, -1):
                self._take_back(row)

    # -- entitlements -----------------------------------------------------------------------------

    def _count_use(self) -> Ints:
        assert self.entitlements is not None
        used = np.zeros(len(self.entitlements.ceiling), np.int64)
        for row, placement in self.occupancy.held.items():
            if self.table.vc[row] >= 0:
                used[self.table.vc[row]] += placement.gpus
        return used

    def _over_ceiling(self, row: int, gang: int) -> Refused | None:
        account = int(self.table.vc[row])
        if self.entitlements is None or self._used is None or account < 0:
            return None
        ceiling = self.entitlements.ceiling[account]
        if self._used[account] + gang <= ceiling:
            return None
        name = self.table.names["vc"][account]
        return Refused("Quota", f"vc {name}: {self._used[account]} of {ceiling:g} GPUs used")

    def _entitled_first(self, rows: Rows) -> Rows:
        """Rows inside their account's entitlement before those that would borrow."""
        if self.entitlements is None:
            return rows
        entitlement: Floats = self.entitlements.entitlement
        taken = np.zeros(len(entitlement))
        if not self.may_preempt and self._used is not None:
            taken += self._used
        borrows = np.zeros(len(rows), np.bool_)
        for position, row in enumerate(rows.tolist()):
            account, gang = int(self.table.vc[row]), int(self.table.gang[row])
            if account < 0:
                continue
            if taken[account] + gang <= entitlement[account]:
                taken[account] += gang
            else:
                borrows[position] = True
        return rows[np.argsort(borrows, kind="stable")]

    # -- the journal ------------------------------------------------------------------------------

    def _rejoin(self, row: int, gang: int) -> Placement | None:
        """Undo a suspension made in this walk, if the row's own GPUs are still free."""
        old = self.suspended[row]
        nodes = self.ctx.pools.nodes[int(self.table.pool[row])] & self.occupancy.open_nodes
        if old.gpus != gang:
            return None
        for node, mask in zip(old.nodes, old.masks, strict=True):
            if not nodes >> node & 1 or mask & ~self.occupancy.free[node]:
                return None
        del self.suspended[row]
        self._occupy(row, old)
        self._journal.append(("rejoin", row, old))
        return old

    def _take(self, row: int, placement: Placement) -> None:
        self._occupy(row, placement)
        self.launched[row] = placement
        self._journal.append(("take", row, placement))

    def _take_back(self, row: int) -> None:
        placement = self._give_back(row)
        self.suspended[row] = placement
        self._journal.append(("suspend", row, placement))

    def _occupy(self, row: int, placement: Placement) -> None:
        self.occupancy.take(row, placement)
        self._count(row, placement, +1)

    def _give_back(self, row: int) -> Placement:
        placement = self.occupancy.release(row)
        self._count(row, placement, -1)
        return placement

    def _count(self, row: int, placement: Placement, sign: int) -> None:
        if self._used is not None and self.table.vc[row] >= 0:
            self._used[self.table.vc[row]] += sign * placement.gpus
        if self._host is not None:
            self._host.change(Ask(row, placement.gpus, self.table), placement, -sign)


class _Misfits:
    """Rows that need not be tried in a walk, because of a misfit before them.

    When a misfit stops the walk, it stops its own pool; one that is over its quota stops its own
    tenant only. When misfits are skipped, asks that are refused alike are not tried again.
    """

    def __init__(self, walk: Walk, *, stop: bool) -> None:
        self._walk = walk
        self._stop = stop
        self._alike = walk._used is None and walk._host is None  # refusals depend on the ask only
        self._closed: set[object] = set()

    def rule_out(self, row: int) -> bool:
        """Is there no point in trying this row?"""
        if not self._closed:
            return False
        if self._stop:
            table = self._walk.table
            return bool(
                ("pool", int(table.pool[row])) in self._closed
                or ("tenant", int(table.vc[row])) in self._closed
            )
        return self._alike and self._ask(row) in self._closed

    def add(self, row: int, refusal: Refused) -> None:
        """Remember that a row did not fit."""
        table = self._walk.table
        if not self._stop:
            self._closed.add(self._ask(row))
        elif refusal.reason == "Quota":
            self._closed.add(("tenant", int(table.vc[row])))
        else:
            self._closed.add(("pool", int(table.pool[row])))

    def _ask(self, row: int) -> object:
        table = self._walk.table
        ask = Ask(row, int(table.gang[row]), table)
        return (int(table.pool[row]), self._walk.placement.sameness(ask))


def _a_time(time: float) -> float:
    if time != time:  # noqa: PLR0124 - NaN
        raise PolicyFailed("it names a time that is not a number")
    return time
