"""The users that submit jobs: by Zipf's law, in bursts, with habits.

Jobs are first laid out by user, each user's in the order of submission. Along that line a user
repeats the size of the job before more often than not, and, while doing so, tends to run as long.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from dlsched.core.sums import ordered_sum
from simulate.traces.trace import FloatColumn, TextColumn

ZIPF_EXPONENT = 1.4
BURST_PROBABILITY = 0.7  # that a user's next job belongs to the burst of the one before
BURST_GAP_S = (5.0, 600.0)  # log-uniform
REPEAT_PROBABILITY = 0.8  # that a job has the size of the user's job before
# Of ln(duration) between repeats. Over all of a user's neighbours that makes the measured 0.46.
REPEAT_CORRELATION = 0.575

Indices = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Bursts:
    """Jobs in bursts, each of one user.

    Attributes:
        user: by burst, from 0, the most active first.
        burst: by job, ascending.
        delay_s: by job, after the first of its burst.
    """

    user: Indices
    burst: Indices
    delay_s: FloatColumn


def draw_bursts(jobs: int, users: int, rng: np.random.Generator) -> Bursts:
    """Lay out `jobs` jobs in bursts of geometric length."""
    ends = np.cumsum(rng.geometric(1 - BURST_PROBABILITY, size=jobs))
    bursts = int(np.searchsorted(ends, jobs)) + 1
    lengths = np.diff(np.minimum(ends[:bursts], jobs), prepend=0)
    burst = np.repeat(np.arange(bursts), lengths)
    weight = np.arange(1, users + 1, dtype=np.float64) ** -ZIPF_EXPONENT
    user = np.searchsorted(np.cumsum(weight) / weight.sum(), rng.random(bursts), side="right")
    shortest, longest = BURST_GAP_S
    gaps = shortest * (longest / shortest) ** rng.random(jobs)
    since = np.cumsum(gaps)
    first = np.cumsum(lengths) - lengths
    return Bursts(
        user=np.minimum(user, users - 1), burst=burst, delay_s=since - since[first[burst]]
    )


def repeat_runs(user: Indices, rng: np.random.Generator) -> Indices:
    """Number the runs of jobs of one size along the users' lines (`user` is ascending)."""
    fresh = rng.random(len(user)) >= REPEAT_PROBABILITY
    fresh[0] = True
    fresh[1:] |= user[1:] != user[:-1]
    return np.cumsum(fresh) - 1


def runs_to_shares(run: Indices, shares: FloatColumn, rng: np.random.Generator) -> Indices:
    """Give each run one of the values 0..k-1, so that the *jobs'* shares come out as asked.

    The runs are shuffled and laid end to end; the line is then cut by the shares. So no share is
    off by more than a run's length.
    """
    lengths = np.bincount(run)
    order = rng.permutation(len(lengths))
    middle = np.cumsum(lengths[order]) - lengths[order] / 2
    cuts = np.cumsum(shares / shares.sum()) * len(run)
    value = np.empty(len(lengths), dtype=np.int64)
    value[order] = np.minimum(np.searchsorted(cuts, middle), len(shares) - 1)
    return value[run]


def latent_lengths(run: Indices, rng: np.random.Generator) -> FloatColumn:
    """Return standard normal numbers, each correlated with the one before it in its run."""
    latent = rng.standard_normal(len(run))
    starts = np.concatenate(([0], np.flatnonzero(np.diff(run)) + 1))
    place = np.arange(len(run)) - starts[run]
    by_place = np.argsort(place, kind="stable")
    ends = np.cumsum(np.bincount(place))
    scale = math.sqrt(1 - REPEAT_CORRELATION**2)
    # One step for each place in a run, over all runs at once: a few dozen steps.
    for first, last in pairwise(ends.tolist()):
        jobs = by_place[first:last]
        latent[jobs] = REPEAT_CORRELATION * latent[jobs - 1] + scale * latent[jobs]
    return latent


def vcs_of(user: Indices, vcs: Mapping[str, float]) -> TextColumn:
    """Give every user a virtual cluster, so that the jobs' shares come near those asked for."""
    if not vcs:
        return np.full(len(user), "", dtype=object)
    total = ordered_sum(vcs.values())
    wanted = {vc: len(user) * share / total for vc, share in vcs.items()}
    jobs_of_user = np.bincount(user)
    vc_of_user = np.empty(len(jobs_of_user), dtype=object)
    for one in np.argsort(-jobs_of_user, kind="stable"):
        vc = max(wanted, key=lambda name: wanted[name])
        vc_of_user[one] = vc
        wanted[vc] -= float(jobs_of_user[one])
    return vc_of_user[user]
