"""When jobs arrive: a weekly rhythm times hourly noise that lasts for some hours."""

from __future__ import annotations

import math
from itertools import accumulate

import numpy as np

from simulate.traces.synthetic.profiles import Profile
from simulate.traces.synthetic.quantiles import gamma_values, stratified
from simulate.traces.trace import FloatColumn

HOUR_S = 3600.0
# From one hour to the next: of six months of Venus' counts, after dividing by the mean of the hour
# of the week.
NOISE_CORRELATION = 0.54
_STRATA = (1 / 6, 2 / 6, 3 / 6, 4 / 6, 5 / 6)


def hourly_rates(profile: Profile, hours: int, rng: np.random.Generator) -> FloatColumn:
    """Return relative arrival rates by hour, from a Monday 00:00 on."""
    day = np.array(profile.days_of_week) / np.mean(profile.days_of_week)
    hour = np.array(profile.hours_of_day) / np.mean(profile.hours_of_day)
    week = np.outer(day, hour).ravel()
    steps = rng.standard_normal(hours)
    steps[1:] *= math.sqrt(1 - NOISE_CORRELATION**2)
    latent = np.fromiter(
        accumulate(steps.tolist(), lambda last, step: NOISE_CORRELATION * last + step),
        np.float64,
        hours,
    )
    rhythm = np.resize(week, hours)
    # Quiet and busy hours get the same noise, stratum by stratum: in a short trace the largest
    # noise would else meet the busiest hours, or miss them, by chance.
    stratum = np.searchsorted(np.quantile(week, _STRATA), rhythm)
    rates = np.empty(hours)
    for each in range(len(_STRATA) + 1):
        alike = stratum == each
        noise = gamma_values(stratified(latent[alike], rng), profile.noise_shape)
        rates[alike] = rhythm[alike] * noise
    return rates


def arrival_times(rates: FloatColumn, count: int, rng: np.random.Generator) -> FloatColumn:
    """Return `count` ascending times [s], Poisson within each hour given their number."""
    cumulative = np.concatenate(([0.0], np.cumsum(rates)))
    at = np.sort(rng.random(count)) * cumulative[-1]
    times: FloatColumn = np.interp(at, cumulative, np.arange(len(cumulative)) * HOUR_S)
    return times
