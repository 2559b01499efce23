"""The integer program of a round, which chooses at most one configuration for each job.

With G_ij the value of configuration j for job i (normalised, with the cost of a restart),

    A_ij = G_ij ^ p
    p < 0:  minimise  Σ A_ij X_ij + λ Σ_i (1 − Σ_j X_ij)        p > 0:  maximise, with −λ for λ
    s.t.    Σ_j X_ij ≤ 1;   Σ_ij r_j X_ij ≤ GPUs of t, for each type t;   X_ij in {0, 1}

A job that is still restarting is pinned: X_i,now = 1. λ > 1 makes the worst configuration better
than none. Both cases are solved as a maximal gain over the choice of nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dlsched.core.arrays import Bools, Floats, Ints
from dlsched.policies.scheduling.sia.configurations import NONE, Configurations

MISSING = 1e-4  # stands in G for a configuration that a job cannot have


class Terms:
    """How A, the weight of each configuration in the objective, is computed, [job, configuration].

    Attributes:
        step: A is a multiple of it; 0: it is not rounded.
    """

    step: float = 0.0

    def powers(self, worth: Floats, power: float) -> Floats:
        """A, from G, with `MISSING` where a job cannot run, and p."""
        return np.asarray(worth**power)

    def charged(self, worth: Floats, scale: Floats) -> Floats:
        """G with each job's row scaled."""
        return worth * scale


EXACT = Terms()


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One round's program.

    Attributes:
        configurations: the columns.
        values: A.
        usable: which of A may be chosen.
        power: p, for its sign.
        penalty: λ, the cost of a job without GPUs.
        now: by job, its present configuration or NONE.
        pinned: jobs that keep their configuration.
        terms: how A was computed.
        must: jobs that come before all others; None for no job.
        weight: weight of each job's term.
    """

    configurations: Configurations
    values: Floats
    usable: Bools
    power: float
    penalty: float
    now: Ints
    pinned: Bools
    terms: Terms = EXACT
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
        terms: Terms = EXACT,
        now: Ints | None = None,
        pinned: Bools | None = None,
        must: Bools | None = None,
        weight: Floats | None = None,
    ) -> Program:
        """The program for a matrix G.

        Args:
            configurations: the columns of G.
            worth: G; `MISSING` or less where a job cannot have a configuration.
            power: p.
            penalty: λ.
            terms: how A is computed.
            now: by job, its present configuration or NONE.
            pinned: jobs that keep their configuration.
            must: jobs that come before all others.
            weight: weight of each job's term.
        """
        jobs = len(worth)
        return cls(
            configurations=configurations,
            values=terms.powers(worth, power),
            usable=worth > MISSING * (1 + 1e-6),
            power=power,
            penalty=penalty,
            now=np.full(jobs, NONE, np.int64) if now is None else now,
            pinned=np.zeros(jobs, np.bool_) if pinned is None else pinned,
            terms=terms,
            must=must,
            weight=weight,
        )

    @property
    def gains(self) -> Floats:
        """The gain of each choice over nothing; −inf where it is not possible."""
        better = self.penalty - self.values if self.power < 0 else self.values + self.penalty
        if self.weight is not None:
            better = better * self.weight[:, None]
        gains = np.where(self.usable, better, -np.inf)
        for job in np.flatnonzero(self.pinned & (self.now != NONE)).tolist():
            gains[job] = -np.inf  # its own configuration is forced, whatever its value
            gains[job, self.now[job]] = better[job, self.now[job]]
        if self.must is not None and self.must.any():
            most = float(np.max(gains, initial=1.0, where=np.isfinite(gains)))
            gains[self.must] += (len(gains) + 1) * most  # more than all other jobs gain
        return gains

    def objective(self, choice: Ints) -> float:
        """The objective of a choice."""
        weight = np.ones(len(choice)) if self.weight is None else self.weight
        some = choice != NONE
        chosen = self.values[np.flatnonzero(some), choice[some]]
        nothing = math.copysign(self.penalty, -self.power)
        return float((chosen * weight[some]).sum() + nothing * weight[~some].sum())

    def uses(self, choice: Ints) -> Ints:
        """GPUs of each type that a choice takes."""
        some = choice[choice != NONE]
        room = self.configurations
        counts = np.bincount(room.gpu_type[some], room.gpus[some], len(room.types))
        return counts.astype(np.int64)
