"""What real traces look like, in the few numbers the generator needs.

Measured on public excerpts (CC-BY-4.0): Philly, Microsoft (Jeon et al., ATC'19), its successful
jobs of 2017-09..12; Venus, one of the Helios clusters, SenseTime / S-Lab (Hu et al., SC'21),
2020-05..06 and its arrival counts of six months.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dlsched.core.errors import not_known


@dataclass(frozen=True, slots=True)
class Lognormal:
    """A part of a mixture: its share, and mean and standard deviation of ln(seconds)."""

    weight: float
    mu: float
    sigma: float


@dataclass(frozen=True, slots=True)
class SizeBucket:
    """Jobs of at most `max_gpus` GPUs (and more than the bucket before): how long they run."""

    max_gpus: float
    durations: tuple[Lognormal, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One cluster's habits.

    Attributes:
        name: as `--profile` names it.
        sizes: share of the jobs by GPUs asked for; normalised when used.
        buckets: durations by size, ascending.
        jobs_per_hour: the source's own mean rate, used when no load is asked for.
        hours_of_day: relative rate by hour 0..23.
        days_of_week: relative rate Monday..Sunday.
        noise_shape: of the gamma distributed noise on the hourly rates; smaller is wilder.
        users: how many there are.
        vcs: share of the jobs by virtual cluster; empty when the source doesn't tell.
        statuses: share of the jobs by how they end.
        failed_attempts: share of the failed jobs by number of attempts, 1, 2, ….
    """

    name: str
    sizes: Mapping[int, float]
    buckets: tuple[SizeBucket, ...]
    jobs_per_hour: float
    hours_of_day: tuple[float, ...]
    days_of_week: tuple[float, ...]
    noise_shape: float
    users: int
    vcs: Mapping[str, float]
    statuses: Mapping[str, float]
    failed_attempts: tuple[float, ...]


PHILLY = Profile(
    name="philly",
    sizes={1: 93.2, 2: 2.2, 4: 2.3, 8: 2.0, 16: 0.24, 32: 0.08},
    buckets=(
        SizeBucket(
            1,
            (
                Lognormal(0.2148, 4.172, 0.213),
                Lognormal(0.5581, 7.345, 1.132),
                Lognormal(0.2271, 7.589, 2.465),
            ),
        ),
        SizeBucket(
            4,
            (
                Lognormal(0.3164, 2.893, 0.354),
                Lognormal(0.2692, 5.127, 1.761),
                Lognormal(0.4144, 10.982, 1.332),
            ),
        ),
        SizeBucket(
            8,
            (
                Lognormal(0.2769, 5.884, 1.374),
                Lognormal(0.2923, 9.480, 0.924),
                Lognormal(0.4308, 12.195, 0.828),
            ),
        ),
        SizeBucket(
            float("inf"),
            (
                Lognormal(0.2380, 4.814, 1.954),
                Lognormal(0.2344, 7.246, 1.378),
                Lognormal(0.5275, 11.560, 1.024),
            ),
        ),
    ),
    jobs_per_hour=76.04,
    # 2017-10-02..22: three weeks without a clean day cycle, taken as they were.
    hours_of_day=(
        *(1.62, 1.36, 1.55, 0.89, 0.39, 1.20, 1.84, 2.66, 1.03, 0.94, 0.73, 0.58),
        *(0.66, 0.40, 0.43, 0.31, 0.94, 0.71, 0.52, 0.47, 1.34, 0.92, 1.37, 1.13),
    ),
    days_of_week=(0.73, 0.94, 1.03, 1.32, 1.54, 0.77, 0.67),
    # Venus' 0.95 would leave the hours too even: their counts' variance over mean is 198 here.
    noise_shape=0.8,
    users=136,
    vcs={
        "6214e9": 50.1,
        "11cb48": 19.6,
        "6c71a0": 12.1,
        "b436b2": 9.0,
        "103959": 2.4,
        "ee9e8c": 1.8,
        "0e4a51": 1.7,
        "ed69ec": 1.4,
        "7f04ca": 0.9,
        "2869ce": 0.5,
        "e13805": 0.45,
    },
    statuses={"completed": 71.0, "failed": 16.0, "cancelled": 13.0},
    # Most fail once or use up the five attempts they are given; the mean is 2.66.
    failed_attempts=(0.525, 0.048, 0.032, 0.029, 0.366),
)

# Above 32 GPUs 3.0 % in all, shared out as in the excerpt's first 10,000 rows.
_VENUS_SIZES = (1, 2, 4, 8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 88, 112, 160)
_VENUS_SHARES = (
    *(55.0, 5.0, 6.0, 22.1, 5.4, 1.0, 2.3),
    *(0.71, 1.21, 0.25, 0.04, 0.13, 0.51, 0.06, 0.04, 0.05),
)
_VENUS_DURATIONS = (
    Lognormal(0.2382, 2.599, 1.418),
    Lognormal(0.4082, 5.358, 1.233),
    Lognormal(0.3537, 8.894, 1.809),
)
VENUS = Profile(
    name="venus",
    sizes=dict(zip(_VENUS_SIZES, _VENUS_SHARES, strict=True)),
    buckets=(SizeBucket(float("inf"), _VENUS_DURATIONS),),
    jobs_per_hour=28.8,
    hours_of_day=(
        *(26, 19, 17, 11, 8, 6, 5, 6.5, 11, 23, 37, 42.5),
        *(34, 37, 45, 48, 50, 50, 37, 38, 39, 39, 33, 30),
    ),
    days_of_week=(708, 765, 882, 831, 656, 471, 533),
    noise_shape=0.95,
    users=94,
    vcs={},
    statuses={"completed": 50.0, "cancelled": 31.0, "failed": 19.0},
    failed_attempts=(1.0,),
)
PROFILES = {profile.name: profile for profile in (PHILLY, VENUS)}


def profile_named(name: str) -> Profile:
    """Return a profile.

    Raises:
        BadInput: there is none of this name.
    """
    profile = PROFILES.get(name)
    if profile is None:
        raise not_known("profile", name, PROFILES)
    return profile
