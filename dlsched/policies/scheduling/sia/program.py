"""Who gets which configuration: the integer program of a round.

With G_ij what configuration j is worth to job i (normalised, restart taken into account),

    A_ij = G_ij ^ p
    p < 0:  minimise  Σ A_ij X_ij + λ Σ_i (1 − Σ_j X_ij)        p > 0:  maximise, with −λ for λ
    s.t.    Σ_j X_ij ≤ 1;   Σ_ij r_j X_ij ≤ GPUs of t, for each type t;   X_ij in {0, 1}

A job that is still restarting is pinned: X_i,now = 1. λ > 1 makes the worst configuration better
than none. Both cases are solved as "maximise the gain over giving nothing".
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from dlsched.core.arrays import Bools, Floats, Ints
from dlsched.policies.scheduling.sia.configurations import NONE, Configurations

__all__ = ["MISSING", "Program", "Rounding", "powers"]

Rounding = Literal["none", "artifact"]

MISSING = 1e-4  # stands in G for what a job cannot have
MOST = 3000.0  # the published code cuts A there
STEP = 0.01  # and rounds it to this


def powers(worth: Floats, power: float, rounding: Rounding) -> Floats:
    """A: what each configuration counts in the objective, [job, configuration].

    Args:
        worth: G, with `MISSING` where a job cannot run.
        power: p.
        rounding: `artifact` does as the published code: single precision, two decimals, at most
            3000.
    """
    if rounding == "none":
        return np.asarray(worth**power)
    single = np.power(worth.astype(np.float32), np.float32(power))
    return np.minimum(np.round(single, 2), np.float32(MOST)).astype(np.float64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One round's program.

    Attributes:
        configurations: what can be given.
        values: A.
        usable: which of it may be chosen.
        power: p, for its sign.
        penalty: λ, what a job without anything costs.
        now: by job, the configuration it has, NONE for none.
        pinned: jobs that keep what they have.
        rounding: how A was made.
        must: jobs that get something before anybody else does; None: no job.
        weight: of each job's term.
    """

    configurations: Configurations
    values: Floats
    usable: Bools
    power: float
    penalty: float
    now: Ints
    pinned: Bools
    rounding: Rounding = "none"
    must: Bools | None = None
    weight: Floats | None = None

    @classmethod
    def of(
        cls,
        configurations: Configurations,
        worth: Floats,
        *,
        power: float = -0.5,
        penalty: float = 1.1,
        rounding: Rounding = "none",
        now: Ints | None = None,
        pinned: Bools | None = None,
        must: Bools | None = None,
        weight: Floats | None = None,
    ) -> Program:
        """From G, in which `MISSING` or less says that a job cannot have a configuration."""
        jobs = len(worth)
        return cls(
            configurations=configurations,
            values=powers(worth, power, rounding),
            usable=worth > MISSING * (1 + 1e-6),
            power=power,
            penalty=penalty,
            now=np.full(jobs, NONE, np.int64) if now is None else now,
            pinned=np.zeros(jobs, np.bool_) if pinned is None else pinned,
            rounding=rounding,
            must=must,
            weight=weight,
        )

    @property
    def gains(self) -> Floats:
        """What each choice is better than nothing; −inf where it is none."""
        better = self.penalty - self.values if self.power < 0 else self.values + self.penalty
        if self.weight is not None:
            better = better * self.weight[:, None]
        gains = np.where(self.usable, better, -np.inf)
        for job in np.flatnonzero(self.pinned & (self.now != NONE)).tolist():
            gains[job] = -np.inf  # its own is forced, whatever it is worth
            gains[job, self.now[job]] = better[job, self.now[job]]
        if self.must is not None and self.must.any():
            most = float(np.max(gains, initial=1.0, where=np.isfinite(gains)))
            gains[self.must] += (len(gains) + 1) * most  # more than all others are together
        return gains

    def objective(self, choice: Ints) -> float:
        """The value of one choice, as the formula has it."""
        weight = np.ones(len(choice)) if self.weight is None else self.weight
        some = choice != NONE
        chosen = self.values[np.flatnonzero(some), choice[some]]
        nothing = math.copysign(self.penalty, -self.power)
        return float((chosen * weight[some]).sum() + nothing * weight[~some].sum())

    def uses(self, choice: Ints) -> Ints:
        """GPUs of each type that a choice takes."""
        some = choice[choice != NONE]
        room = self.configurations
        counts = np.bincount(room.kind[some], room.gpus[some], len(room.types))
        return counts.astype(np.int64)
