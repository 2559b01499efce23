"""The throughput of two jobs on the same GPUs, estimated from a few measured pairs.

For some *reference* jobs every pair is known. A new job is profiled with some of them, each type
and reference with probability p. The missing entries of its row are completed from the rows of
the references (which have nearly low rank), and the job is matched with the reference that has the
most similar direction of its row. From then on its pairs are those of the reference, scaled by its
own throughput alone. Pairs that really ran are stored as measured.

Rows are normalised: throughput together with another job, over throughput alone, from 0 to 1.

Source: Gavel (OSDI 2020), section 6, with matrix completion as in Quasar (ASPLOS 2014). The
published code reads the profile of a new job at the wrong columns as soon as there are fewer
references than kinds of jobs; here it reads the profiled ones.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dlsched.core.arrays import Floats
from dlsched.core.errors import BadInput

RANK = 10
REGULARISATION = 1e-2
ROUNDING_DIGITS = 12  # distances are compared with so many digits
SWEEPS = 50  # of alternating least squares; it converges in far fewer


@dataclass(frozen=True, slots=True)
class Match:
    """The reference that a job is matched with.

    Attributes:
        reference: its number.
        distance: 1 − cosine of the angle between the rows; NaN when it was drawn at random.
        runner_up: the distance of the second nearest reference.
    """

    reference: int
    distance: float
    runner_up: float


def tried(profile: Floats, probability: float, rng: np.random.Generator) -> Floats:
    """A random part of a profile: every entry with this probability, else NaN."""
    return np.where(rng.random(profile.shape) < probability, profile, np.nan)


def completed(
    rows: Floats,
    rng: np.random.Generator,
    *,
    rank: int = RANK,
    regularisation: float = REGULARISATION,
) -> Floats:
    """Complete NaN entries by probabilistic matrix factorisation, and clip them to [0, 1].

    Minimises Σ_known (M − U Vᵀ)² + μ (‖U‖² + ‖V‖²) by alternating least squares. Known entries are
    not changed.
    """
    known = ~np.isnan(rows)
    if known.all():
        return np.clip(rows, 0.0, 1.0)
    values = np.where(known, rows, 0.0)
    left = rng.standard_normal((rows.shape[0], rank)) / np.sqrt(rank)
    right = rng.standard_normal((rows.shape[1], rank)) / np.sqrt(rank)
    for _ in range(SWEEPS):
        left = _fitted(values, known, right, regularisation)
        right = _fitted(values.T, known.T, left, regularisation)
    filled: Floats = np.clip(np.where(known, rows, left @ right.T), 0.0, 1.0)
    return filled


def _fitted(values: Floats, known: Any, factors: Floats, regularisation: float) -> Floats:
    """The best factors of every row for fixed factors of the columns."""
    rank = factors.shape[1]
    normal = np.einsum("rc,ci,cj->rij", known.astype(np.float64), factors, factors)
    normal += regularisation * np.eye(rank)
    wanted = (values * known) @ factors
    solved: Floats = np.linalg.solve(normal, wanted[:, :, None])[:, :, 0]
    return solved


def nearest(row: Floats, references: Floats, rng: np.random.Generator) -> Match:
    """The reference with the least cosine distance; a random one for a row of zeros."""
    sizes = np.linalg.norm(references, axis=1) * np.linalg.norm(row)
    if not (sizes > 0).any():
        return Match(int(rng.integers(len(references))), np.nan, np.nan)
    with np.errstate(divide="ignore", invalid="ignore"):
        distance = np.where(sizes > 0, 1.0 - references @ row / sizes, np.inf)
    order = np.argsort(np.round(distance, ROUNDING_DIGITS), kind="stable")
    best, next_one = int(order[0]), order[1] if len(order) > 1 else order[0]
    return Match(best, float(distance[best]), float(distance[next_one]))


class CoLocation:
    """Estimated and measured throughputs of pairs."""

    def __init__(self, references: Floats, probability: float = 1.0) -> None:
        """Start with the references.

        `references` is the normalised throughput of the first together with the last, [reference,
        type, reference], all known; `probability` is that of profiling a new job with each of them.

        Raises:
            BadInput: a value is not from 0 to 1, or there is no reference.
        """
        if not references.size:
            raise BadInput("co-location needs at least one reference job")
        if not ((references >= 0) & (references <= 1)).all():
            raise BadInput("throughputs together with another job must be 0 to 1 times those alone")
        if not 0 <= probability <= 1:
            raise BadInput(f"profiling must have a probability from 0 to 1, not {probability:g}")
        self._references = references
        self._probability = probability
        self._matches: dict[Hashable, int] = {}
        self._measured: dict[tuple[Hashable, Hashable, int], float] = {}

    def arrive(self, job: Hashable, profile: Floats, rng: np.random.Generator) -> Match:
        """Profile a new job and match it.

        `profile` is its full profile, [type, reference], NaN where it cannot be measured; `rng`
        draws the measured entries and the start of the completion.
        """
        rows = self._references.reshape(len(self._references), -1)
        seen = tried(profile, self._probability, rng).reshape(1, -1)
        row = np.zeros(rows.shape[1])
        if not np.isnan(seen).all():
            row = completed(np.concatenate([rows, seen]), rng)[-1]
        match = nearest(row, rows, rng)
        self._matches[job] = match.reference
        return match

    def beside(self, job: Hashable, other: Hashable, alone: Floats) -> Floats:
        """Throughput of a job together with another, [type], from its throughputs alone."""
        mine, theirs = self._matches[job], self._matches[other]
        guess: Floats = self._references[mine, :, theirs] * alone
        for gpu_type in range(len(guess)):
            guess[gpu_type] = self._measured.get((job, other, gpu_type), guess[gpu_type])
        return guess

    def measured(self, job: Hashable, other: Hashable, gpu_type: int, rate: float) -> None:
        """Enter a measurement of a pair.

        Args:
            job: the measured job.
            other: its partner.
            gpu_type: the GPU type.
            rate: steps/s of the job; 0 if it failed.
        """
        self._measured[job, other, gpu_type] = rate

    def state_dict(self) -> dict[str, Any]:
        """Matches and measurements."""
        return {
            "matches": [[job, reference] for job, reference in self._matches.items()],
            "measured": [[*key, rate] for key, rate in self._measured.items()],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state_dict`."""
        self._matches = {job: int(reference) for job, reference in state["matches"]}
        self._measured = {(a, b, int(gpu_type)): rate for a, b, gpu_type, rate in state["measured"]}
