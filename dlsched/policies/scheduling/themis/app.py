"""An app as a bidder: its jobs, the machines on offer, and its finish time with given GPUs.

    T_sh(G) = now − start + remaining · S(G) / |G|       remaining in seconds on one GPU
    ρ(G) = T_sh(G) / T_id,   V(G) = 1 / ρ(G)

S is the slowdown of a job that is spread: 1 on one machine, more within a rack, more over racks. An
app with several jobs places them within its bundle itself, those with the least work left first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from dlsched.core.sums import ordered_sum
from dlsched.policies.scheduling.themis.auction import Bundle, minus, plus

Ends = Literal["last", "first"]
MOVE_S = 1.0  # least cost of a move in seconds, so that equal offers leave jobs where they are


@dataclass(frozen=True, slots=True)
class Machines:
    """The machines on offer.

    Attributes:
        racks: the rack of each machine.
        in_rack: S on several machines of one rack.
        across: S over racks.
    """

    racks: tuple[int, ...]
    in_rack: float = 1.0
    across: float = 1.0

    def slowdown(self, bundle: Bundle) -> float:
        """S of a bundle."""
        racks = [rack for rack, count in zip(self.racks, bundle, strict=True) if count]
        if len(racks) <= 1:
            return 1.0
        return self.in_rack if len(set(racks)) == 1 else self.across


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job that holds no lease.

    Attributes:
        row: its row.
        remaining: seconds of work left, on one GPU of the fastest type.
        least, most: GPUs that it can use at once.
        speed: speed on each machine relative to the fastest type; 0 where it cannot run; empty
            means 1 everywhere.
        now: GPUs by machine that it holds now; empty for none.
        curve: speedup over one GPU on 0, 1, 2, … GPUs; empty means linear.
    """

    row: int
    remaining: float
    least: int = 1
    most: int = 1
    speed: tuple[float, ...] = ()
    now: Bundle = ()
    curve: tuple[float, ...] = ()

    def speedup(self, gpus: int) -> float:
        """Speedup over one GPU on so many GPUs."""
        return self.curve[gpus] if gpus < len(self.curve) else float(gpus)


class JobPlacement(NamedTuple):
    """A job on some GPUs, and its rate there, in GPUs of the fastest type."""

    job: Job
    bundle: Bundle
    rate: float


class App:
    """An app, as `auction.Bidder`."""

    def __init__(
        self,
        jobs: Sequence[Job],
        machines: Machines,
        *,
        elapsed: float,
        ideal: float,
        leased: Sequence[tuple[float, float]] = (),
        ends: Ends = "last",
        move_s: float = MOVE_S,
    ) -> None:
        """Describe an app.

        Args:
            jobs: its jobs without a lease.
            machines: the machines on offer.
            elapsed: seconds since its first submission.
            ideal: T_id, seconds.
            leased: (seconds of work left, rate) of its jobs that keep their GPUs.
            ends: whether it ends with its last job, or with the first (as a search may).
            move_s: seconds that a move costs.
        """
        self._jobs = sorted(jobs, key=lambda job: (job.remaining, job.row))
        self._machines, self._ends, self._move_s = machines, ends, max(move_s, MOVE_S)
        self._elapsed, self._ideal, self._leased = elapsed, ideal, tuple(leased)
        self._values: dict[Bundle, float] = {}

    @property
    def least(self) -> int:
        """GPUs of its smallest job."""
        return min((job.least for job in self._jobs), default=0)

    def rho_at_best(self, gpus: int) -> float:
        """ρ if it had all GPUs that its jobs can use, in a cluster of so many."""
        if self._ends == "first":
            left = min(
                (job.remaining / max(job.speedup(min(job.most, gpus)), 1e-9) for job in self._jobs),
                default=0.0,
            )
        else:
            work = ordered_sum(job.remaining for job in self._jobs)
            wide = [min(job.most, gpus) for job in self._jobs]
            speedup = ordered_sum(
                job.speedup(size) for job, size in zip(self._jobs, wide, strict=True)
            )
            left = work / max(speedup * min(1.0, gpus / max(sum(wide), 1)), 1e-9)
        return max(self._elapsed + left, 1e-9) / self._ideal

    # -- its bids ----------------------------------------------------------------------------------

    def value(self, bundle: Bundle) -> float:
        """1/ρ with these GPUs in addition to its own."""
        known = self._values.get(bundle)
        if known is None:
            rho = self.rho(self.pack(bundle))
            known = self._values[bundle] = 1.0 / rho if rho < math.inf else 0.0
        return known

    def step(self, have: Bundle, free: Bundle) -> Bundle | None:
        """GPUs of one more job, or one more GPU for a job that can use it; None if none helps."""
        placed = self.pack(have)
        rows_placed = {spot.job.row for spot in placed}
        best: tuple[float, Bundle] | None = None
        for job in self._jobs:
            if job.row not in rows_placed:
                spot = self._best_placement(job, free, job.least)
                if spot is not None:
                    return spot.bundle
        before = self.value(have)
        if all(spot.job.least == spot.job.most for spot in placed):
            return None
        for machine, count in enumerate(free):
            if count:
                one = tuple(int(k == machine) for k in range(len(free)))
                value = self.value(plus(have, one))
                if value > before and (best is None or value > best[0]):
                    best = (value, one)
        return None if best is None else best[1]

    # -- placing its own jobs ----------------------------------------------------------------------

    def pack(self, bundle: Bundle) -> list[JobPlacement]:
        """Its jobs on these GPUs, those with the least work left first; the others do not fit."""
        placed, free = [], bundle
        for job in self._jobs:
            if not any(free):
                break
            most = min(job.most, sum(free))
            found = [
                self._best_placement(job, free, size) for size in range(most, job.least - 1, -1)
            ]
            fits = [spot for spot in found if spot is not None]
            if fits:
                spot = max(fits, key=lambda spot: (spot.rate, -sum(spot.bundle)))
                placed.append(spot)
                free = minus(free, spot.bundle)
        return placed

    def rho(self, placed: Sequence[JobPlacement]) -> float:
        """ρ, the shared over the ideal finish time; infinite when none of its jobs would run."""
        runs = [(spot.job.remaining, spot.rate, self._moves(spot)) for spot in placed]
        runs += [(remaining, rate, 0.0) for remaining, rate in self._leased]
        rates = ordered_sum(rate for _, rate, _ in runs)
        if rates <= 0:
            return math.inf
        if self._ends == "first":
            left = min(remaining / rate + moved for remaining, rate, moved in runs)
        else:
            waiting = {spot.job.row for spot in placed}
            left = ordered_sum(remaining for remaining, _, _ in runs)
            left += ordered_sum(job.remaining for job in self._jobs if job.row not in waiting)
            left = left / rates + max(moved for _, _, moved in runs)
        return max(self._elapsed + left, 1e-9) / self._ideal

    def _moves(self, spot: JobPlacement) -> float:
        return self._move_s if spot.job.now and spot.bundle != spot.job.now else 0.0

    def _best_placement(self, job: Job, free: Bundle, size: int) -> JobPlacement | None:
        """A job on so many GPUs, where it is fastest; of equals where it is now."""
        here: Bundle = ()
        if job.now and sum(job.now) == size:
            fits = all(n <= m for n, m in zip(job.now, free, strict=True))
            here = job.now if fits else ()
        found = [bundle for bundle in (here, *self._spots(job, free, size)) if bundle]
        if not found:
            return None
        placed = [JobPlacement(job, bundle, self._rate(job, bundle)) for bundle in found]
        best = max(placed, key=lambda spot: (spot.rate, spot.bundle == here))
        return best if best.rate > 0 else None

    def _rate(self, job: Job, bundle: Bundle) -> float:
        speeds = [s for s, n in zip(job.speed, bundle, strict=True) if n] if job.speed else [1.0]
        return job.speedup(sum(bundle)) * min(speeds) / self._machines.slowdown(bundle)

    def _spots(self, job: Job, free: Bundle, size: int) -> list[Bundle]:
        """Candidate bundles: for each speed, on one machine, in one rack, or anywhere."""
        speed = job.speed or (1.0,) * len(free)
        spots = []
        for least in sorted({s for s, n in zip(speed, free, strict=True) if s > 0 and n}):
            able = [m for m, n in enumerate(free) if n and speed[m] >= least]
            one = [m for m in able if free[m] >= size]
            if one:
                machine = min(one, key=lambda m: (free[m], m))
                spots.append(tuple(size if m == machine else 0 for m in range(len(free))))
                continue
            racks: dict[int, list[int]] = {}
            for m in able:
                racks.setdefault(self._machines.racks[m], []).append(m)
            groups = [g for g in racks.values() if sum(free[m] for m in g) >= size]
            group = min(groups, key=lambda g: (len(g), g), default=able)
            spread = _spread(group, free, size)
            if spread is not None:
                spots.append(spread)
        return spots


def _spread(machines: Sequence[int], free: Bundle, size: int) -> Bundle | None:
    """So many GPUs on few machines, those with most free GPUs first; None if there are too few."""
    chosen = [0] * len(free)
    for machine in sorted(machines, key=lambda m: (-free[m], m)):
        chosen[machine] = min(free[machine], size)
        size -= chosen[machine]
        if not size:
            return tuple(chosen)
    return None
