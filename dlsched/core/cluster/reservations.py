"""Reservations: nodes that are kept for some jobs, or for maintenance, from one moment to another.

A row whose time limit would reach into a reservation does not start on its nodes. A row that names
a reservation runs on its nodes only, within its time. Rows without a time limit count as endless.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dlsched.core.arrays import Bools, Floats, Ints
from dlsched.core.cluster.pools import Pools

NOWHERE = -2  # the code of a reservation that there is not


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """Nodes that are kept.

    Attributes:
        name: as jobs name it.
        nodes: the names of its nodes.
        start: seconds.
        end: seconds.
        maintenance: for no job at all.
    """

    name: str
    nodes: tuple[str, ...]
    start: float
    end: float
    maintenance: bool = False

    def blocks(self, now: float, until: float) -> bool:
        """May a row that names it not have its nodes from now until then?"""
        return self.end > now and until > self.start

    def admits(self, now: float, until: float) -> bool:
        """May a row that names it run from now until then?"""
        return not self.maintenance and self.start <= now < self.end and until <= self.end


class Reserved:
    """Reservations on the nodes of a cluster, and the pools that they leave to rows.

    Attributes:
        all: the reservations, by their code.
    """

    def __init__(self, reservations: Sequence[Reservation], pools: Pools) -> None:
        """Keep reservations; the pools get more, after those that they have."""
        self.all = tuple(reservations)
        self._pools = pools
        self._base = list(pools.nodes)
        self._origin = list(range(len(pools.nodes)))  # the pool of which each was made
        number = {name: k for k, name in enumerate(pools.cluster.names)}
        self._nodes = [
            pools.cluster.nodes_mask(number[name] for name in each.nodes if name in number)
            for each in self.all
        ]
        self._derived: dict[tuple[int, int], int] = {}

    def next_moment(self, now: float) -> float:
        """When a reservation begins or ends next; infinite when none does."""
        moments = [time for each in self.all for time in (each.start, each.end) if time > now]
        return min(moments, default=math.inf)

    def pools_at(
        self, now: float, base: Ints, limits: Floats, own: Ints, held: Sequence[int]
    ) -> Ints:
        """The pool of each row now.

        Args:
            now: seconds.
            base: the pool of each row without reservations.
            limits: the time limit of each row, in seconds; NaN: none.
            own: the code of the reservation that each row names; −1: none.
            held: the nodes that each row has already, as bits; it may keep them.
        """
        until = now + np.where(np.isnan(limits), np.inf, limits)
        out = np.zeros((len(self.all), len(base)), np.bool_)  # which must a row keep off
        for k, each in enumerate(self.all):
            if each.end > now:
                out[k] = (until > each.start) & (own != k)
        inside = self._admitted(now, until, own)
        found, known = np.empty(len(base), np.int64), dict[tuple[int, int, bool, bytes, int], int]()
        keys = zip(base.tolist(), own.tolist(), inside.tolist(), out.T, held, strict=True)
        for row, (pool, code, admitted, kept_off, mine) in enumerate(keys):
            key = pool, code, admitted, kept_off.tobytes(), mine
            if key in known:
                found[row] = known[key]
                continue
            mask = self._base[pool]
            if code != -1:
                mask = mask & self._nodes[code] if admitted else 0
            else:
                for k in np.flatnonzero(kept_off).tolist():
                    mask &= ~self._nodes[k]
            mask |= mine
            same = mask == self._base[pool]
            known[key] = found[row] = pool if same else self._pool(pool, mask)
        return found

    def without(self, pools: Ints) -> Ints:
        """The pools that rows have without reservations, from those that they have now."""
        found: Ints = np.array(self._origin, np.int64)[pools]
        return found

    def _admitted(self, now: float, until: Floats, own: Ints) -> Bools:
        found: Bools = own == -1
        for k, each in enumerate(self.all):
            if not each.maintenance and each.start <= now < each.end:
                found |= (own == k) & (until <= each.end)
        return found

    def _pool(self, pool: int, mask: int) -> int:
        number = self._derived.get((pool, mask))
        if number is None:
            number = self._derived[pool, mask] = self._pools.add(self._pools.keys[pool], mask)
            self._origin.append(pool)
        return number

    def refresh(self) -> None:
        """The pools were made anew, with other nodes."""
        self._base = list(self._pools.nodes[: len(self._base)])
        self._derived.clear()

    def why(self, now: float, limit: float, own: int, base: int) -> tuple[str, str] | None:
        """Why reservations keep a row from nodes of its pool: Slurm's word and a sentence.

        Args:
            now: seconds.
            limit: of the row, in seconds; NaN: none.
            own: the code of its reservation; −1: none.
            base: its pool.
        """
        until = math.inf if math.isnan(limit) else now + limit
        if own != -1:
            if own == NOWHERE:
                return "Reservation", "the one that the job names is over"
            return self._why_outside(self.all[own], now, until)
        for each, nodes in zip(self.all, self._nodes, strict=True):
            if nodes & self._base[base] and each.blocks(now, until):
                return "ReqNodeNotAvail", self._why_blocked(each, now, math.isinf(until))
        return None

    @staticmethod
    def _why_outside(mine: Reservation, now: float, until: float) -> tuple[str, str] | None:
        if mine.admits(now, until):
            return None
        if mine.start > now:
            return "Reservation", f"{mine.name} begins in {minutes(mine.start - now)}"
        return "Reservation", f"{mine.name} ends before the job would"

    @staticmethod
    def _why_blocked(each: Reservation, now: float, endless: bool) -> str:
        what = "maintenance" if each.maintenance else "reserved"
        some = ", ".join(each.nodes[:3]) + (" and more" if len(each.nodes) > 3 else "")
        if each.start <= now:
            return f"{some}: {what} ({each.name}) for {minutes(each.end - now)} more"
        limit = "a job without a time limit" if endless else "the job's time limit"
        begins = f"{some}: {what} ({each.name}) in {minutes(each.start - now)}"
        return f"{begins}, into which {limit} reaches"


def minutes(seconds: float) -> str:
    """A span of time for users, in whole minutes."""
    return f"{max(math.ceil(seconds / 60), 1):,} min"
