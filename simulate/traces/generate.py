"""A synthetic trace in the likeness of a real one.

Sizes, durations, rhythm, users and failures follow a `Profile`; a load is met by stretching the
arrivals, nothing else. The same arguments and seed give the same trace, byte for byte.
"""

from __future__ import annotations

import math

import numpy as np

from dlsched.core.errors import BadInput, plural
from simulate.traces.synthetic.arrivals import HOUR_S, arrival_times, hourly_rates
from simulate.traces.synthetic.failures import draw_attempts, draw_statuses
from simulate.traces.synthetic.profiles import Profile, profile_named
from simulate.traces.synthetic.quantiles import mixture_seconds, stratified
from simulate.traces.synthetic.users import (
    Indices,
    draw_bursts,
    latent_lengths,
    repeat_runs,
    runs_to_shares,
    vcs_of,
)
from simulate.traces.trace import FloatColumn, Trace


def generate_trace(
    profile: str, *, jobs: int, seed: int, gpus: int | None = None, load: float | None = None
) -> Trace:
    """Generate a trace.

    Args:
        profile: "philly" or "venus".
        jobs: how many.
        seed: of all randomness.
        gpus: of the cluster; no gang is larger. None means any size goes.
        load: the offered load to reach, that is the sum of GPUs times duration over the cluster's
            GPUs times the time from first to last submit. None means the source's own rate.

    Raises:
        BadInput: an unknown profile, fewer than two jobs, a load that isn't positive or comes
            without a cluster.
    """
    shape = profile_named(profile)
    _check(jobs, seed, gpus, load)
    rng = np.random.default_rng(seed)

    bursts = draw_bursts(jobs, shape.users, rng)
    # From here on jobs stand by user and, within a user, in order of submission.
    user = np.sort(bursts.user[bursts.burst])
    run = repeat_runs(user, rng)
    num_gpus, notes = _draw_sizes(shape, run, gpus, rng)
    duration = _draw_durations(shape, num_gpus, run, rng)
    status = draw_statuses(shape, jobs, rng)
    attempts, attempt_durations = draw_attempts(shape, status, duration, rng)

    span_s = jobs / shape.jobs_per_hour * HOUR_S
    if load is not None and gpus is not None:
        span_s = float(num_gpus @ duration) / (gpus * load)
    rates = hourly_rates(shape, math.ceil(span_s / HOUR_S) + 1, rng)
    begin = arrival_times(rates, len(bursts.user), rng)
    when = begin[bursts.burst] + bursts.delay_s
    when = when[np.lexsort((when, bursts.user[bursts.burst]))]
    when -= when.min()
    when = np.rint(when * (span_s / when.max()))

    order = np.argsort(when, kind="stable")
    name_of_user = np.array([f"u{number}" for number in range(1, shape.users + 1)], dtype=object)
    return Trace(
        name=f"{profile}-{jobs}-{seed}",
        source="synthetic",
        job_id=np.array(list(map(str, range(jobs))), dtype=object),
        submit_time=when[order],
        num_gpus=num_gpus[order],
        duration=duration[order],
        user=name_of_user[user[order]],
        vc=vcs_of(user, shape.vcs)[order],
        status=status[order],
        columns={
            "attempts": attempts[order],
            "attempt_durations": attempt_durations[order],
        },
        notes=notes,
    )


def _check(jobs: int, seed: int, gpus: int | None, load: float | None) -> None:
    if jobs < 2:
        raise BadInput(f"a trace needs 2 jobs or more to have a rate, not {jobs}")
    if seed < 0:
        raise BadInput(f"the seed must be 0 or more, not {seed}")
    if gpus is not None and gpus < 1:
        raise BadInput(f"the cluster needs 1 GPU or more, not {gpus}")
    if load is not None and not (load > 0 and math.isfinite(load)):
        raise BadInput(f"the load must be above 0, not {load}")
    if load is not None and gpus is None:
        raise BadInput("a load is a share of a cluster: name the cluster too")


def _draw_sizes(
    profile: Profile, run: Indices, gpus: int | None, rng: np.random.Generator
) -> tuple[FloatColumn, tuple[str, ...]]:
    """Draw GPUs by job; gangs above the cluster become the largest size that fits."""
    sizes = np.array(list(profile.sizes), dtype=np.float64)
    shares = np.array(list(profile.sizes.values()))
    drawn = sizes[runs_to_shares(run, shares, rng)]
    if gpus is None or drawn.max() <= gpus:
        return drawn, ()
    largest = sizes[sizes <= gpus].max()
    cut = drawn > gpus
    note = (
        f"{plural(cut.sum(), 'job')} drawn larger than the cluster's {gpus} GPUs: got {largest:g}"
    )
    return np.where(cut, largest, drawn), (note,)


def _draw_durations(
    profile: Profile, num_gpus: FloatColumn, run: Indices, rng: np.random.Generator
) -> FloatColumn:
    latent = latent_lengths(run, rng)
    duration = np.empty(len(num_gpus))
    bucket = np.searchsorted([each.max_gpus for each in profile.buckets], num_gpus)
    for number, each in enumerate(profile.buckets):
        jobs = bucket == number
        duration[jobs] = mixture_seconds(stratified(latent[jobs], rng), each.durations)
    return duration
