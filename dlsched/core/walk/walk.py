"""The transactional walk: one decision's grants, row by row.

Counting is not placing. The walk proposes a row, tries to place it, and commits or takes back, on
the very occupancy of the world; whatever it did can be rolled back to a mark. A policy whose order
depends on what was placed drives the walk itself; others hand `follow` a ranking.

Invariant: between calls the occupancy is that of the start plus `suspended` and `launched`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import NoReturn, Protocol

import numpy as np

from dlsched.core.allocation import Allocation, Grant, HostShare, Refused
from dlsched.core.arrays import Bools, Floats, Rows
from dlsched.core.cluster.calendar import Booking
from dlsched.core.cluster.occupancy import Placement
from dlsched.core.context import RoundContext
from dlsched.core.errors import PolicyFailed, plural
from dlsched.core.gpu_request import FreeGpus, GpuRequest, HostResources
from dlsched.core.host_shares import HostPolicy
from dlsched.core.stage import ClaimingPlacement, Entitlements, PlacementPolicy
from dlsched.core.sums import ordered_sum
from dlsched.core.units import RUNNING, WAITING, Units
from dlsched.core.walk.claims import Claims
from dlsched.core.walk.host_sharing import HostSharing
from dlsched.core.walk.room_under_limits import OVER_LIMIT, RoomUnderLimits
from dlsched.core.walk.shape import fits_shape, place_shaped
from dlsched.core.walk.tenancy import Tenancy

ANYWHERE = -1  # every node, as bits
WHOLE = 1.0 + 1e-9  # of a GPU: three thirds must make it
NOWHERE = Placement((), ())
TOGETHER_UNKNOWN = "how fast they run together is not known"
UNSAID = 1e-6  # what a row counts for that says nothing: it fits beside any but a whole one


class Filling(Protocol):
    """Lets rows that need parts of GPUs fill GPUs that others hold."""

    def place(self, row: int, want: int, *, returns: bool) -> Placement | Refused:
        """Give a row the GPUs of others that leave room for it, else so many of its own."""
        ...


class Walk:
    """One decision's grants, on the world's occupancy.

    Attributes:
        ctx: the round's snapshot.
        suspended: rows that lost their GPUs, with where they were, in order.
        launched: rows that got GPUs, in order.
        claims: how rows get GPUs of a placement with a state of its own; None with others.
        host_sharing: how rows get processors and memory, where a part decides that; None: as they
            ask.
        limits: what limits on GPUs leave; None where no row counts against any.
        aside: rows that are set aside while the policy decides, by the GPUs that they had.
        filling: joins rows that need parts of GPUs to others, before they get GPUs of their own;
            None where they do so only when no GPU is free.
    """

    def __init__(
        self,
        ctx: RoundContext,
        placement: PlacementPolicy[object],
        *,
        preemptive: bool,
        entitlements: Entitlements | None = None,
        host: HostPolicy[object] | None = None,
    ) -> None:
        self.ctx = ctx
        self.table = ctx.table
        self.occupancy = ctx.occupancy
        self.placement = placement
        self.may_preempt = preemptive and ctx.mode == "full"
        self.suspended: dict[int, Placement] = {}
        self.launched: dict[int, Placement] = {}
        self.aside: dict[Placement, list[int]] = {}
        self.filling: Filling | None = None
        self._answer = Allocation(suspended=self.suspended, launched=self.launched)
        self._journal: list[tuple[str, int, Placement]] = []
        self._given_before: dict[int, HostShare] = {}  # of rows that were given another share
        self._shares: list[HostShare] = []  # of "give" in the journal
        self._anew = False  # a full rebuild: no row has a claim to its old GPUs
        self.tracks_host = self.occupancy.cluster.tracks_host  # are CPUs and memory counted?
        self._host: HostResources | None = None  # not yet counted
        self.claims = Claims(self, placement) if isinstance(placement, ClaimingPlacement) else None
        self.tenancy = (
            None if entitlements is None else Tenancy(entitlements, self.table, self.occupancy)
        )
        self.limits = (
            RoomUnderLimits(self.table, self.occupancy.held) if self.table.gpu_limits else None
        )
        self.host_sharing = (
            None if host is None or not self.tracks_host else HostSharing(self, host)
        )

    # -- what a policy may say --------------------------------------------------------------------

    def free_gpus(self, pool: int = 0) -> int:
        """Free GPUs of a pool, as of now in this walk."""
        occupancy = self.occupancy
        if self.ctx.pools.whole and not occupancy.draining:
            return occupancy.free_total
        return occupancy.free_in(self.ctx.pools.nodes[pool])

    def place(
        self, row: int, gang: int | None = None, *, nodes: int = ANYWHERE
    ) -> Placement | Refused:
        """Try to give a waiting row its gang (or `gang` GPUs); commits when it succeeds.

        Args:
            row: the unit.
            gang: how many GPUs; its gang when None.
            nodes: only on these nodes, as bits.
        """
        want = self.table.gang.item(row) if gang is None else gang
        self._check_may_start(row, want)
        refusal = OVER_LIMIT if self.is_over_limit(row, want) else None
        if refusal is None and self.tenancy is not None:
            refusal = self.tenancy.over_ceiling(row, want)
        if refusal is not None:
            return refusal
        if self.claims is not None:
            return self.claims.place(row, want, nodes)
        returns = self.may_return(row)
        if self.host_sharing is not None:
            return self.host_sharing.place(row, want, nodes, returns=returns)
        if returns and not self._anew:
            back = self.rejoin(row, want, nodes)
            if back is not None:
                return back
        if self.filling is not None and nodes == ANYWHERE:
            return self.filling.place(row, want, returns=returns)
        return self.place_anywhere(row, want, nodes, returns=returns)

    def is_over_limit(self, row: int, gang: int | None = None) -> bool:
        """Do limits leave a row no room for its gang (or `gang` GPUs)?

        A row that ran when the decision began has a right to what it had.
        """
        if self.limits is None or row in self.suspended:
            return False
        return self.limits.is_over(row, self.table.gang.item(row) if gang is None else gang)

    def within_limits(self, rows: Rows) -> Bools:
        """Which rows `place` may find room for under limits on GPUs; rows that run, and ran, too.

        The others get none in the rest of the walk, as waiting rows count for nothing.
        """
        if self.limits is None:
            return np.ones(len(rows), np.bool_)
        found: Bools = self.limits.has_room(rows) | (self.table.status[rows] == RUNNING)
        return found

    def may_return(self, row: int) -> bool:
        """Was a row suspended in this walk, so that it may have its own GPUs back?"""
        gone = row in self.suspended and row not in self.launched
        return gone and self.ctx.semantics.rejoin

    @property
    def is_anew(self) -> bool:
        """Has no row a claim to its old GPUs?"""
        return self._anew

    def place_anywhere(
        self, row: int, want: int, nodes: int, *, returns: bool
    ) -> Placement | Refused:
        """Give a row GPUs that the placement chooses, with the processors it is given or asks."""
        pool = self.table.pool.item(row)
        open_gpus = (
            self.free_gpus(pool)
            if nodes == ANYWHERE
            else self.occupancy.free_in(self.ctx.pools.nodes[pool] & nodes)
        )
        if want > open_gpus:
            return Refused.too_few_free(want, open_gpus)
        chosen = self._choose(row, want, nodes)
        if isinstance(chosen, Refused):
            return chosen
        if returns and chosen == self.suspended[row]:
            return self.rejoin(row, want) or chosen
        self.take(row, chosen)
        return chosen

    def place_fitting(self, rows: Rows) -> None:
        """As `place` for each of some rows, which fit, as `counting_decides` says.

        Raises:
            PolicyFailed: the placement refused one of them all the same.
        """
        table, occupancy, placement = self.table, self.occupancy, self.placement
        free: dict[int, FreeGpus] = {}  # by pool
        for row in rows.tolist():
            if row in self.suspended:  # it may take its own GPUs back
                placement.kept_promise(row, self.place(row))
                continue
            gang, pool = table.gang.item(row), table.pool.item(row)
            self._check_may_start(row, gang)
            if pool not in free:
                free[pool] = self.free_for(row)
            placed = placement.place(GpuRequest(row, gang, table), free[pool])
            where = placement.kept_promise(row, placed)
            occupancy.take(row, where)
            self._launch(row, where)

    def _choose(self, row: int, want: int, nodes: int) -> Placement | Refused:
        """Where the placement says; a row that has a home there or not at all."""
        home = self.table.homes.get(row)
        if home is not None:
            is_open = self.is_open(row, home, nodes)
            return home if is_open else Refused("Resources", "its own GPUs are not free")
        request = GpuRequest(row, want, self.table)
        free = self.free_for(row, want, nodes=nodes)
        if request.is_shaped:
            return place_shaped(self.placement, request, free)
        return self.placement.place(request, free)

    def free_for(self, row: int, gang: int | None = None, *, nodes: int = ANYWHERE) -> FreeGpus:
        """The free GPUs (of some nodes) that a row may use now, to choose exact ones."""
        free = FreeGpus(self.occupancy, self.ctx.pools.nodes[self.table.pool.item(row)] & nodes)
        if self.tracks_host:
            want = int(self.table.gang[row]) if gang is None else gang
            free.limit(GpuRequest(row, want, self.table), self.host)
        return free

    def place_exactly(self, row: int, placement: Placement) -> None:
        """Give a waiting row exact GPUs.

        Raises:
            PolicyFailed: one of them is not free, the node may not be used, the row does not wait,
                or they are not its gang.
        """
        self._check_may_use(row, placement)
        self._check_may_start(row, placement.gpus)
        if self.claims is not None:
            self.claims.check_exact()
        usable = self.free_for(row, placement.gpus) if self.tracks_host else None
        for node, mask in zip(placement.nodes, placement.masks, strict=True):
            if mask & ~self.occupancy.free[node]:
                self._may_not_use(row, node)
            if usable is not None and mask.bit_count() > usable.usable_on(node):
                name = self.occupancy.cluster.names[node]
                raise PolicyFailed(f"it gave unit {row} more than node {name}'s cores or memory")
        if self.ctx.semantics.rejoin and self.suspended.get(row) == placement:
            self.rejoin(row, placement.gpus)
        else:
            self.take(row, placement)

    def share(self, row: int, holder: int, *, returns: bool = False) -> Placement:
        """Give a waiting row the very GPUs that another holds; both run on them from now on.

        Args:
            row: the unit.
            holder: has the GPUs.
            returns: a row that lost these GPUs in this walk goes on as if nothing had happened.

        Raises:
            PolicyFailed: this world runs one job on a GPU, the row does not wait or may not use
                these GPUs, or they are not its gang.
        """
        self._check_sharing(f"lets unit {row} share GPUs")
        why = self.why_not_beside(row, holder)
        if why:
            raise PolicyFailed(f"it lets unit {row} share GPUs that {why}")
        placement = self.occupancy.held.get(holder)
        if placement is None:
            raise PolicyFailed(
                f"it lets unit {row} share the GPUs of unit {holder}, which has none"
            )
        self._check_may_use(row, placement)
        self._check_may_start(row, placement.gpus)
        self.occupancy.join(row, holder)
        self._count(row, placement, +1)
        if returns and self.may_return(row) and self.suspended[row] == placement:
            del self.suspended[row]
            self._journal.append(("rejoin", row, placement))
        else:
            self._launch(row, placement)
        return placement

    def _check_sharing(self, what: str) -> None:
        """Refuse what puts two jobs on a GPU where this world does not do that."""
        if self.claims is not None:
            self.claims.check_exact()
        if not self.ctx.may_share:
            raise PolicyFailed(f"it {what}, which this cluster does not do")

    def start_opportunistic(self, row: int, placement: Placement) -> None:
        """Let a waiting row use what the holders of exact GPUs leave; it counts for no quota.

        Raises:
            PolicyFailed: this world runs one job on a GPU, the row does not wait or may not use
                these GPUs, or they are not its gang.
        """
        self._check_sharing(f"runs unit {row} on GPUs of others")
        self._check_may_use(row, placement)
        self._check_may_start(row, placement.gpus)
        self.occupancy.add_opportunistic(row, placement)
        self._count(row, placement, +1)
        self._launch(row, placement)

    def promote(self, row: int) -> Refused | None:
        """Let a row that uses what others leave hold its GPUs, if they are free and in its quota.

        Returns:
            why not; None when it holds them now.
        """
        placement = self.occupancy.opportunistic[row]
        if not self.is_free(placement):
            return Refused("Resources", "another job holds its GPUs")
        refusal = None if self.tenancy is None else self.tenancy.over_ceiling(row, placement.gpus)
        if refusal is not None:
            return refusal
        self._count(row, placement, -1)
        self.occupancy.promote(row)
        self._count(row, placement, +1)
        self._journal.append(("promote", row, placement))
        return None

    def has_room(self, row: int, holder: int) -> bool:
        """May a row have the GPUs of a holder, beside it and its partners?"""
        return not self.why_not_beside(row, holder)

    def why_not_beside(self, row: int, holder: int) -> str:
        """Why a row may not have the GPUs of a holder, as the end of a sentence; "" if it may.

        Their parts come to no more than a GPU, the memory that is known to be needed is there, and
        it is known how fast they run together, where this world asks for it.
        """
        share, perf = self.table.gpu_share, self.ctx.perf
        placement = self.occupancy.held.get(holder)
        if placement is None:
            return ""
        there = (holder, *self.occupancy.beside.get(holder, ()), *self.aside.get(placement, ()))
        rows = (row, *there) if row not in there else there
        if ordered_sum(max(share.item(each), UNSAID) for each in rows) > WHOLE:
            return "have no room for it"
        if lacking := self.lacks_memory(rows, placement):
            return lacking
        types = {self.occupancy.type_of.item(node) for node in placement.nodes}
        cluster = self.occupancy.cluster
        if perf.sharing is not None:
            for code in types:
                speeds = perf.together(rows, cluster.gpu_types[code], placement.gpus)
                if np.isnan(speeds).any():
                    names = " and ".join(map(str, sorted(there)))
                    return f"unit {names} has, and {TOGETHER_UNKNOWN}"
        return ""

    def lacks_memory(self, rows: Sequence[int], placement: Placement) -> str:
        """How much memory GPUs lack for some rows together, as the end of a sentence; "" if none.

        What a row needs and does not say is not counted.
        """
        needed = float(np.nansum(self.table.gpu_memory[list(rows)]))
        has = self.occupancy.cluster.gpu_memory
        for code in {self.occupancy.type_of.item(node) for node in placement.nodes}:
            if needed > has[code]:
                return f"have {has[code]:.4g} GiB of memory; {needed:.4g} GiB are needed"
        return ""

    def has_host_for(self, row: int, placement: Placement) -> bool:
        """Are there cores and memory for a row on every node of a placement?"""
        if not self.tracks_host:
            return True
        return self.host.has_host_for(GpuRequest(row, placement.gpus, self.table), placement)

    def set_aside(self, row: int) -> None:
        """Take a row off its GPUs while a policy decides; what else it uses stays counted."""
        host = self.host if self.tracks_host else None  # what the row uses is counted before
        placement = self.occupancy.release(row)
        if host is not None:
            host.touch(placement)
        self.suspended[row] = placement
        self.aside.setdefault(placement, []).append(row)
        self._journal.append(("set aside", row, placement))

    def is_free(self, placement: Placement) -> bool:
        """Are these very GPUs free?"""
        return self.occupancy.is_free(placement)

    def put_back(self, row: int, beside: int | None = None) -> None:
        """Put a row that was set aside back on its GPUs, which are free or another row's."""
        placement = self.suspended.pop(row)
        if beside is None:
            self.occupancy.take(row, placement)
        else:
            self.occupancy.join(row, beside)
        self._touch(placement)
        self._journal.append(("put back", row, placement))

    def give_up(self, row: int) -> None:
        """A row that was set aside has lost its GPUs."""
        placement = self.suspended[row]
        self._count(row, placement, -1)
        self._journal.append(("give up", row, placement))

    def _check_may_start(self, row: int, gpus: int) -> None:
        if row in self.occupancy.held:
            raise PolicyFailed(f"it gave unit {row} GPUs twice")
        table = self.table
        if table.status.item(row) != WAITING and row not in self.suspended:
            raise PolicyFailed(f"it starts unit {row}, which is not waiting")
        gang = table.gang.item(row)
        if gpus != gang and not (row in table.whole_nodes and gpus > gang):
            low, high = int(table.min_gpus[row]), int(table.max_gpus[row])
            if not (low if low >= 0 else gang) <= gpus <= (high if high >= 0 else gang):
                raise PolicyFailed(f"it gave unit {row} {plural(gpus, 'GPU')} of a gang of {gang}")

    def _check_may_use(self, row: int, placement: Placement) -> None:
        nodes = self.ctx.pools.nodes[self.table.pool.item(row)] & self.occupancy.open_nodes
        gpus = self.occupancy.cluster.gpus
        for node, mask in zip(placement.nodes, placement.masks, strict=True):
            exist = (1 << gpus.item(node)) - 1
            if not nodes >> node & 1 or mask & ~exist or not mask:
                self._may_not_use(row, node)
        if len(placement.nodes) > 1 and len(set(placement.nodes)) < len(placement.nodes):
            raise PolicyFailed(f"it named a node twice in the placement of unit {row}")
        if row not in self.table.shapes and row not in self.table.whole_nodes:
            return
        request = GpuRequest(row, placement.gpus, self.table)
        if not fits_shape(request, placement, self.occupancy.cluster):
            raise PolicyFailed(f"it gave unit {row} GPUs that lie otherwise than it asked for")

    def is_open(self, row: int, placement: Placement, nodes: int = ANYWHERE) -> bool:
        """Are these very GPUs free, on nodes that the row may use?"""
        nodes &= self.ctx.pools.nodes[int(self.table.pool[row])] & self.occupancy.open_nodes
        return all(
            nodes >> node & 1 and not mask & ~self.occupancy.free[node]
            for node, mask in zip(placement.nodes, placement.masks, strict=True)
        )

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
        if self._is_protected(row):
            raise PolicyFailed(
                f"it suspends unit {row} before its minimum of {self.ctx.min_run:g} s is over"
            )
        self.take_back(row)

    def exchange(self, leaving: Sequence[int], coming: Mapping[int, Placement]) -> None:
        """Take all GPUs from running rows and give exact GPUs to others, all at once.

        The same as `suspend` and then `place_exactly` for each, for less; a row in both is moved
        to other GPUs than its own.

        Raises:
            PolicyFailed: as in those two.
        """
        table, occupancy = self.table, self.occupancy
        waiting = [row for row in coming if row not in occupancy.held]
        plain = (
            self.tenancy is None
            and self.limits is None
            and not self.tracks_host
            and self.ctx.pools.whole
            and self.ctx.min_run <= 0
            and not (occupancy.draining or occupancy.beside or table.shapes or table.whole_nodes)
            and (self.may_preempt or not leaving)
            and (table.status[waiting] == WAITING).all()
            and table.gang[list(coming)].tolist() == [each.gpus for each in coming.values()]
            and self.launched.keys().isdisjoint(leaving)
            and occupancy.held.keys() >= set(leaving)
        )
        if not plain:
            for row in leaving:
                self.suspend(row)
            for row, placement in coming.items():
                self.place_exactly(row, placement)
            return
        before = occupancy.exchange(leaving, coming)
        self.suspended.update(before)
        self.launched.update(coming)
        self._journal += [("suspend", row, had) for row, had in before.items()]
        self._journal += [("take", row, gets) for row, gets in coming.items()]

    def replace_all(
        self, placements: Mapping[int, Placement], shares: Mapping[int, HostShare]
    ) -> None:
        """Take all GPUs from rows and give these, with these shares; a row that stays is untouched.

        The GPUs are free, or were those of rows on GPUs, and nothing else stands in the way.
        """
        held = self.occupancy.held
        leaving = [row for row, had in held.items() if placements.get(row) != had]
        coming = {row: gets for row, gets in placements.items() if held.get(row) != gets}
        before = self.occupancy.exchange(leaving, coming)
        self.suspended.update(before)
        self.launched.update(coming)
        self._journal += [("suspend", row, had) for row, had in before.items()]
        self._journal += [("take", row, gets) for row, gets in coming.items()]
        self._anew = True
        self._host = None  # counted anew when it is asked for
        rows = list(shares)
        old = np.stack([self.table.gpu_cpus[rows], self.table.gpu_memory_gb[rows]], axis=1)
        new = np.fromiter(chain.from_iterable(shares.values()), np.float64, 2 * len(rows))
        changed = (old != new.reshape(-1, 2)).any(axis=1)
        for place in np.flatnonzero(changed).tolist():
            self.give(rows[place], shares[rows[place]])

    def free_masks(self, nodes: int) -> list[int]:
        """The free GPUs of each node of a set, as bits; none of other nodes."""
        return [
            mask if mask and nodes >> node & 1 else 0
            for node, mask in enumerate(self.occupancy.free)
        ]

    def reserve(self, row: int, placement: Placement, *, whole: bool = True) -> None:
        """Keep GPUs for a waiting row until their holders have left; no other row gets them.

        The reservation stands until it is claimed or opened again, in this decision or a later one.

        Args:
            row: the unit.
            placement: the GPUs.
            whole: they are its whole gang; else perhaps a part of it.

        Raises:
            PolicyFailed: the row does not wait, or may not use these GPUs.
            InvariantBroken: another row has reserved one of them.
        """
        self._check_may_use(row, placement)
        self._check_may_start(row, placement.gpus if whole else self.table.gang.item(row))
        self.occupancy.reserve(row, placement)
        self._journal.append(("reserve", row, placement))

    def unreserve(self, row: int) -> Placement:
        """Open a row's reservation again; those of its GPUs that are not held become free.

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
        refusal = None if self.tenancy is None else self.tenancy.over_ceiling(row, placement.gpus)
        if refusal is not None:
            return refusal
        mark = self.mark()
        self.unreserve(row)
        for node, mask in zip(placement.nodes, placement.masks, strict=True):
            if mask & ~self.occupancy.free[node] or not self.occupancy.open_nodes >> node & 1:
                self.rollback(mark)
                return Refused("Resources", "its reserved GPUs are still held, or out of service")
        self.take(row, placement)
        return placement

    def _reservation(self, row: int) -> Placement:
        placement = self.occupancy.reserved.get(row)
        if placement is None:
            raise PolicyFailed(f"it uses a reservation of unit {row}, which has reserved nothing")
        return placement

    def grant(self, row: int, grant: Grant) -> None:
        """Give a row more than GPUs: a batch size; or end it, because its target is reached."""
        self._answer.grants[row] = grant

    def plan_ahead(self, booking: Booking) -> None:
        """Enter a planned start in the calendar."""
        self._answer.future.append(booking)

    def refuse(self, row: int, why: Refused) -> None:
        """Say why a row got nothing."""
        self._answer.refused[row] = why

    def tell_limits(self, reasons: Sequence[tuple[Refused, Rows]]) -> None:
        """Say which limits rows wait for, in the place of what the walk said of limits."""
        refused = self._answer.refused
        for row in [row for row, why in refused.items() if why is OVER_LIMIT]:
            del refused[row]
        self._answer.over_limits = tuple(reasons)

    def wake_at(self, time: float) -> None:
        """Ask to be called again at that time."""
        self._answer.wake_at = min(self._answer.wake_at, _a_time(time))

    def want_nodes(self, count: int) -> None:
        """Say how many nodes the cluster should have (autoscaling)."""
        self._answer.nodes_wanted = count

    def ranked(self, rows: Rows, terms: Mapping[str, Floats] | None = None) -> None:
        """Say in which order the rows were considered, best first, and by which numbers."""
        self._answer.order = rows
        self._answer.terms = terms or {}

    def stable_until(self, time: float) -> None:
        """Declare that without changes nothing would be decided otherwise before that time."""
        self._answer.stable_until = _a_time(time)

    def output(self, column: str, row: int, value: float) -> None:
        """Set an extra output column of a row."""
        self._answer.columns.setdefault(column, {})[row] = value

    def runs(self, units: Units) -> Bools:
        """Which units hold GPUs as of now in this walk."""
        running = units.running
        if self.suspended:
            running = running & ~self.table.marks(self.suspended)[units.rows]
        if self.launched:  # after the suspended: a row in both was moved
            running = running | self.table.marks(self.launched)[units.rows]
        return running

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
                self._count_limits(row, placement, -1)
            elif kind == "rejoin":
                self._give_back(row)
                self.suspended[row] = placement
            elif kind == "set aside":
                del self.suspended[row]
                self.occupancy.take_again(row, placement)
                self._touch(placement)
            elif kind == "put back":
                self.suspended[row] = self.occupancy.release(row)
                self._touch(placement)
            elif kind == "give":
                self._set_share(row, self._shares.pop())
            elif kind == "give up":
                self._count(row, placement, +1)
            elif kind == "promote":
                self._count(row, placement, -1)
                self.occupancy.demote(row)
                self._count(row, placement, +1)
            elif kind == "reserve":
                self.occupancy.unreserve(row)
            elif kind == "unreserve":
                self.occupancy.reserve(row, placement)
            else:
                self._resume(kind, row, placement)

    def _resume(self, kind: str, row: int, placement: Placement) -> None:
        """Undo a suspension."""
        del self.suspended[row]
        if kind == "suspend opportunistic":
            self.occupancy.add_opportunistic(row, placement)
        else:
            self.occupancy.take_again(row, placement)
        self._count(row, placement, +1)

    def answer(self) -> Allocation:
        """What was decided."""
        self._answer.reserved = dict(self.occupancy.reserved)
        held = self.occupancy.held
        for row, before in self._given_before.items():
            if row in held and (share := self.share_of(row)) != before:
                self._answer.host_shares[row] = share
        return self._answer

    # -- processors and memory --------------------------------------------------------------------

    def share_of(self, row: int) -> HostShare:
        """What a row is given of its nodes for each GPU; NaN: as it asks."""
        return HostShare(self.table.gpu_cpus.item(row), self.table.gpu_memory_gb.item(row))

    def give(self, row: int, share: HostShare) -> None:
        """Give a row processors and memory for each of its GPUs from now on."""
        before = self.share_of(row)
        if share == before:
            return
        self._given_before.setdefault(row, before)
        self._set_share(row, share)
        self._shares.append(before)
        self._journal.append(("give", row, NOWHERE))

    def _set_share(self, row: int, share: HostShare) -> None:
        held = self.occupancy.held.get(row)
        if held is not None and self._host is not None:
            self._host.change(GpuRequest(row, held.gpus, self.table), held, +1)
        self.table.gpu_cpus[row], self.table.gpu_memory_gb[row] = share
        if held is not None and self._host is not None:
            self._host.change(GpuRequest(row, held.gpus, self.table), held, -1)

    def _touch(self, placement: Placement) -> None:
        """GPUs have come or gone, but not what their row uses beside."""
        if self._host is not None:
            self._host.touch(placement)

    # -- for following a ranking ------------------------------------------------------------------

    @property
    def counting_decides(self) -> bool:
        """Does counting GPUs by pool decide which rows fit?"""
        return (
            self.placement.spans
            and self.requests_are_alike
            and self.ctx.gpus_are_alike
            and self.filling is None
        )

    @property
    def order_so_far(self) -> Rows | None:
        """The rows as they were ranked, best first; None where they were not."""
        return self._answer.order

    @property
    def host(self) -> HostResources:
        """Free CPUs and memory of nodes, as of now in this walk."""
        if self._host is None:
            self._host = HostResources(self.occupancy, self.table)
        return self._host

    @property
    def requests_are_alike(self) -> bool:
        """Does a refusal depend on the request only, and not on the row?"""
        return self.tenancy is None and not self.tracks_host

    def is_protected(self, rows: Rows) -> Bools:
        """Rows that started so recently that they must not be preempted yet."""
        if self.ctx.min_run <= 0:
            return np.zeros(len(rows), np.bool_)
        return np.asarray(self.ctx.now - self.ctx.kept_since(rows) < self.ctx.min_run)

    def _is_protected(self, row: int) -> bool:
        ctx = self.ctx
        if ctx.min_run <= 0:
            return False
        since = max(self.table.since.item(row), ctx.joined_at.get(row, -np.inf))
        return ctx.now - since < ctx.min_run

    def is_victim(self, row: int, nodes: int) -> bool:
        """May this row be suspended now, and would that free GPUs of these nodes?"""
        held = self.occupancy.held.get(row)
        if held is None or row in self.launched:
            return False
        if self._is_protected(row):
            return False
        return any(nodes >> node & 1 for node in held.nodes)

    def forget_claims(self) -> None:
        """From now on no row suspended in this walk has a claim to its old GPUs."""
        self._anew = True

    # -- the journal ------------------------------------------------------------------------------

    def rejoin(self, row: int, gang: int, nodes: int = ANYWHERE) -> Placement | None:
        """Undo a suspension made in this walk, if the row's own GPUs are still free."""
        old = self.suspended[row]
        if old.gpus != gang and row not in self.table.whole_nodes:
            return None
        if not self.is_open(row, old, nodes):
            return None
        del self.suspended[row]
        self._occupy(row, old)
        self._journal.append(("rejoin", row, old))
        return old

    def take(self, row: int, placement: Placement) -> None:
        """Give a row GPUs that are free, without asking whether it may have them."""
        self._occupy(row, placement)
        self._launch(row, placement)

    def _launch(self, row: int, placement: Placement) -> None:
        """Note that a row starts, or goes on elsewhere."""
        self.launched[row] = placement
        self._journal.append(("take", row, placement))
        self._count_limits(row, placement, +1)

    def _count_limits(self, row: int, placement: Placement, sign: int) -> None:
        """Count what a row has beyond what it had when the decision began."""
        if self.limits is not None:
            had = self.suspended[row].gpus if row in self.suspended else 0
            self.limits.count(row, sign * max(placement.gpus - had, 0))

    def take_back(self, row: int) -> None:
        """Suspend a row without asking whether a policy may."""
        kind = "suspend opportunistic" if row in self.occupancy.opportunistic else "suspend"
        placement = self._give_back(row)
        self.suspended[row] = placement
        self._journal.append((kind, row, placement))

    def _occupy(self, row: int, placement: Placement) -> None:
        self.occupancy.take(row, placement)
        self._count(row, placement, +1)

    def _give_back(self, row: int) -> Placement:
        is_opportunistic = row in self.occupancy.opportunistic
        placement = self.occupancy.release(row)
        self._count(row, placement, -1, is_opportunistic=is_opportunistic)
        return placement

    def _count(
        self, row: int, placement: Placement, sign: int, *, is_opportunistic: bool | None = None
    ) -> None:
        """Count what a row uses, or no longer uses; what is opportunistic counts for none."""
        is_opportunistic = (
            row in self.occupancy.opportunistic if is_opportunistic is None else is_opportunistic
        )
        if self.tenancy is not None and not is_opportunistic:
            self.tenancy.count(row, sign * placement.gpus)
        if self._host is not None:
            self._host.change(GpuRequest(row, placement.gpus, self.table), placement, -sign)
        if self.host_sharing is not None:
            self.host_sharing.note(row, placement, sign)


def _a_time(time: float) -> float:
    if time != time:  # noqa: PLR0124 - NaN
        raise PolicyFailed("it names a time that is not a number")
    return time
