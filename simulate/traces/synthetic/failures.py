"""How jobs end, and the attempts of those that fail."""

from __future__ import annotations

import numpy as np

from simulate.traces.synthetic.profiles import Profile
from simulate.traces.trace import FloatColumn, TextColumn


def draw_statuses(profile: Profile, jobs: int, rng: np.random.Generator) -> TextColumn:
    """Draw how every job ends, whatever its size and length."""
    words = np.array(list(profile.statuses), dtype=object)
    shares = np.array(list(profile.statuses.values()))
    return words[np.searchsorted(np.cumsum(shares / shares.sum())[:-1], rng.random(jobs), "right")]


def draw_attempts(
    profile: Profile, status: TextColumn, duration: FloatColumn, rng: np.random.Generator
) -> tuple[FloatColumn, TextColumn]:
    """Cut the failed jobs' durations into their attempts.

    Args:
        profile: how many attempts failed jobs have.
        status: how each job ends.
        duration: of each job, in seconds.
        rng: the source of chance.

    Returns:
        The number of attempts of every job, and their lengths [s] as "40+30+10" where there are
        several. Attempts last 1 s or more and add up to the duration.
    """
    attempts = np.ones(len(status))
    texts = np.full(len(status), "", dtype=object)
    failed = np.flatnonzero(np.asarray(status == "failed", dtype=np.bool_))
    shares = np.cumsum(profile.failed_attempts)
    drawn = 1 + np.searchsorted(shares[:-1] / shares[-1], rng.random(len(failed)), "right")
    count = np.minimum(drawn, duration[failed]).astype(np.int64)
    most = len(profile.failed_attempts)
    parts = rng.exponential(size=(len(failed), most))
    parts[np.arange(most) >= count[:, np.newaxis]] = 0
    ends = np.cumsum(parts, axis=1)
    # Every attempt gets its second first; the rest is cut at random places.
    spare = duration[failed] - count
    cuts = np.floor(ends / ends[:, -1:] * spare[:, np.newaxis])
    seconds = (np.diff(cuts, axis=1, prepend=0) + 1).astype(np.int64)
    attempts[failed] = count
    several = count > 1
    texts[failed[several]] = [
        "+".join(map(str, row[:many]))
        for row, many in zip(seconds[several].tolist(), count[several].tolist(), strict=True)
    ]
    return attempts, texts
