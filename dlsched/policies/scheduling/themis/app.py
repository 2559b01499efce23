"""An app as it bids: jobs, the machines on offer, and what GPUs would do to its finish time.

    T_sh(G) = now − start + remaining · S(G) / |G|       remaining in seconds on one GPU
    ρ(G) = T_sh(G) / T_id,   V(G) = 1 / ρ(G)

S is what spreading costs: 1 on one machine, more in a rack, more over racks. An app of several jobs
packs them into its bundle itself, those with least left first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from dlsched.policies.scheduling.themis.auction import Bundle, minus, plus

__all__ = ["App", "Ends", "Job", "Machines", "Seat"]

Ends = Literal["last", "first"]
MOVE_S = 1.0  # a move counts for at least so much, so that equal offers leave jobs where they are


@dataclass(frozen=True, slots=True)
class Machines:
    """What is on offer.

    Attributes:
        racks: of each machine.
        in_rack: S on several machines of one rack.
        across: S over racks.
    """

    racks: tuple[int, ...]
    in_rack: float = 1.0
    across: float = 1.0

    def slowdown(self, bundle: Bundle) -> float:
        """S of GPUs."""
        racks = [rack for rack, count in zip(self.racks, bundle, strict=True) if count]
        if len(racks) <= 1:
            return 1.0
        return self.in_rack if len(set(racks)) == 1 else self.across


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job that holds no lease.

    Attributes:
        row: who.
        remaining: seconds of work left, on one GPU of the fastest type.
        least, most: GPUs that it can use at once.
        speed: of each machine, against the fastest type; 0 where it cannot run. Empty: all 1.
        now: GPUs by machine that it has while it is asked; empty for none.
        curve: GPUs' worth of work that it does on 0, 1, 2, … GPUs; empty: as many.
    """

    row: int
    remaining: float
    least: int = 1
    most: int = 1
    speed: tuple[float, ...] = ()
    now: Bundle = ()
    curve: tuple[float, ...] = ()

    def does(self, gpus: int) -> float:
        """GPUs' worth of work on so many."""
        return self.curve[gpus] if gpus < len(self.curve) else float(gpus)


class Seat(NamedTuple):
    """A job on some GPUs, and how many GPUs' worth of work it does there."""

    job: Job
    bundle: Bundle
    rate: float


class App:
    """A bidder."""

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
            jobs: those without a lease.
            machines: what is on offer.
            elapsed: seconds since it began.
            ideal: T_id, seconds.
            leased: (remaining, rate) of jobs that keep their GPUs.
            ends: it ends with its last job, or with the first (a search for the best trial).
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
        """ρ if it had all the GPUs that its jobs can use, of so many."""
        if self._ends == "first":
            left = min(
                (job.remaining / max(job.does(min(job.most, gpus)), 1e-9) for job in self._jobs),
                default=0.0,
            )
        else:
            work = sum(job.remaining for job in self._jobs)
            wide = [min(job.most, gpus) for job in self._jobs]
            does = sum(job.does(size) for job, size in zip(self._jobs, wide, strict=True))
            left = work / max(does * min(1.0, gpus / max(sum(wide), 1)), 1e-9)
        return max(self._elapsed + left, 1e-9) / self._ideal

    # -- what others ask ---------------------------------------------------------------------------

    def value(self, bundle: Bundle) -> float:
        """1/ρ with these GPUs."""
        known = self._values.get(bundle)
        if known is None:
            rho = self.rho(self.pack(bundle))
            known = self._values[bundle] = 1.0 / rho if rho < math.inf else 0.0
        return known

    def step(self, have: Bundle, free: Bundle) -> Bundle | None:
        """One more job, or one more GPU for a job that can use it."""
        seats = self.pack(have)
        seated = {seat.job.row for seat in seats}
        best: tuple[float, Bundle] | None = None
        for job in self._jobs:
            if job.row not in seated:
                seat = self._best_seat(job, free, job.least)
                if seat is not None:
                    return seat.bundle
        before = self.value(have)
        if all(seat.job.least == seat.job.most for seat in seats):
            return None
        for machine, count in enumerate(free):
            if count:
                one = tuple(int(k == machine) for k in range(len(free)))
                value = self.value(plus(have, one))
                if value > before and (best is None or value > best[0]):
                    best = (value, one)
        return None if best is None else best[1]

    # -- its own scheduler -------------------------------------------------------------------------

    def pack(self, bundle: Bundle) -> list[Seat]:
        """Its jobs on these GPUs, those with least left first; those that do not fit are left."""
        seats, free = [], bundle
        for job in self._jobs:
            if not any(free):
                break
            most = min(job.most, sum(free))
            found = [self._best_seat(job, free, size) for size in range(most, job.least - 1, -1)]
            fits = [seat for seat in found if seat is not None]
            if fits:
                seat = max(fits, key=lambda seat: (seat.rate, -sum(seat.bundle)))
                seats.append(seat)
                free = minus(free, seat.bundle)
        return seats

    def rho(self, seats: Sequence[Seat]) -> float:
        """Shared over ideal finish time; infinite when none of its jobs would run."""
        runs = [(seat.job.remaining, seat.rate, self._moves(seat)) for seat in seats]
        runs += [(remaining, rate, 0.0) for remaining, rate in self._leased]
        rates = sum(rate for _, rate, _ in runs)
        if rates <= 0:
            return math.inf
        if self._ends == "first":
            left = min(remaining / rate + moved for remaining, rate, moved in runs)
        else:
            waiting = {seat.job.row for seat in seats}
            left = sum(remaining for remaining, _, _ in runs)
            left += sum(job.remaining for job in self._jobs if job.row not in waiting)
            left = left / rates + max(moved for _, _, moved in runs)
        return max(self._elapsed + left, 1e-9) / self._ideal

    def _moves(self, seat: Seat) -> float:
        return self._move_s if seat.job.now and seat.bundle != seat.job.now else 0.0

    def _best_seat(self, job: Job, free: Bundle, size: int) -> Seat | None:
        """So many GPUs where it does most; then where it is, on few machines, with little left."""
        here: Bundle = ()
        if job.now and sum(job.now) == size:
            fits = all(n <= m for n, m in zip(job.now, free, strict=True))
            here = job.now if fits else ()
        found = [bundle for bundle in (here, *self._spots(job, free, size)) if bundle]
        if not found:
            return None
        seats = [Seat(job, bundle, self._rate(job, bundle)) for bundle in found]
        best = max(seats, key=lambda seat: (seat.rate, seat.bundle == here))
        return best if best.rate > 0 else None

    def _rate(self, job: Job, bundle: Bundle) -> float:
        speeds = [s for s, n in zip(job.speed, bundle, strict=True) if n] if job.speed else [1.0]
        return job.does(sum(bundle)) * min(speeds) / self._machines.slowdown(bundle)

    def _spots(self, job: Job, free: Bundle, size: int) -> list[Bundle]:
        """Candidates: for each speed, one machine, one rack, or any."""
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
    """GPUs of few machines, the fullest first."""
    chosen = [0] * len(free)
    for machine in sorted(machines, key=lambda m: (-free[m], m)):
        chosen[machine] = min(free[machine], size)
        size -= chosen[machine]
        if not size:
            return tuple(chosen)
    return None
