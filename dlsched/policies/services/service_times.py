"""How long a replica works on one request: distributions of service times.

Three moments of a distribution are all that the response-time models need: its mean, its spread,
and the part of requests that are done by a moment, each weighted by how long ago it was done.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.polynomial.legendre import leggauss

from dlsched.core.arrays import Floats
from dlsched.core.errors import BadInput, not_known, shorten

_TAIL = 9.0  # standard deviations beyond which a normal distribution has nothing left
_NODES, _WEIGHTS = leggauss(24)


class ServiceTime(ABC):
    """The service time S of one request on one replica, in seconds."""

    @property
    @abstractmethod
    def mean(self) -> float:
        """E[S], in seconds."""

    @property
    @abstractmethod
    def spread(self) -> float:
        """Var S / E[S]², the squared coefficient of variation."""

    @abstractmethod
    def done_by(self, time: float) -> float:
        """Prob(S ≤ time)."""

    @abstractmethod
    def decayed(self, time: float, rate: float) -> float:
        """E[exp(−rate·(time − S)) if S ≤ time, else 0]; `rate` is above 0, in 1/s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exponential(ServiceTime):
    """Exponential service times."""

    average: float

    @property
    def mean(self) -> float:
        """E[S], in seconds."""
        return self.average

    @property
    def spread(self) -> float:
        """Var S / E[S]², which is 1."""
        return 1.0

    def done_by(self, time: float) -> float:
        """Prob(S ≤ time)."""
        return -math.expm1(-max(time, 0.0) / self.average)

    def decayed(self, time: float, rate: float) -> float:
        """E[exp(−rate·(time − S)) if S ≤ time, else 0]."""
        if time <= 0:
            return 0.0
        pace = 1.0 / self.average
        gap = (rate - pace) * time
        # (e^(−pace·t) − e^(−rate·t)) / (rate − pace), without the loss of digits near rate = pace
        part = -math.expm1(-gap) / gap if gap > 0 else (math.expm1(gap) / gap if gap < 0 else 1.0)
        return pace * time * math.exp(-min(pace, rate) * time) * part


@dataclass(frozen=True, slots=True, kw_only=True)
class Lognormal(ServiceTime):
    """ln S is normal: the times of a model's inference are close to it."""

    mu: float  # of ln(seconds)
    sigma: float

    @property
    def mean(self) -> float:
        """E[S], in seconds."""
        return math.exp(self.mu + self.sigma**2 / 2)

    @property
    def spread(self) -> float:
        """Var S / E[S]²."""
        return math.expm1(self.sigma**2)

    def done_by(self, time: float) -> float:
        """Prob(S ≤ time)."""
        if time <= 0:
            return 0.0
        return 0.5 * math.erfc((self.mu - math.log(time)) / (self.sigma * math.sqrt(2)))

    def decayed(self, time: float, rate: float) -> float:
        """E[exp(−rate·(time − S)) if S ≤ time, else 0], by quadrature.

        Over z with S = exp(mu + sigma·z). The pieces are short where the density is large, and,
        since the weight falls from `time` backwards, at the times that lie few 1/rate before it.
        """
        if time <= 0:
            return 0.0
        end = (math.log(time) - self.mu) / self.sigma
        start = min(-_TAIL, end - 1.0)
        last = min(end, _TAIL)
        cuts = np.arange(start, last, 0.5)
        back = time - np.geomspace(0.25, 48.0, 24) / rate
        before = (np.log(back[back > 0]) - self.mu) / self.sigma
        cuts = np.unique(np.concatenate([cuts, before[(before > start) & (before < last)], [last]]))
        half = np.diff(cuts)[:, None] / 2
        z = (cuts[:-1, None] + half) + half * _NODES
        weight = np.exp(-rate * (time - np.exp(self.mu + self.sigma * z)) - z * z / 2)
        return float((half * weight * _WEIGHTS).sum()) / math.sqrt(2 * math.pi)


class Measured(ServiceTime):
    """Service times that were seen, each as likely as the others; one alone is a constant."""

    def __init__(self, seconds: Sequence[float]) -> None:
        """Take times in seconds, in any order.

        Raises:
            BadInput: there are none, or one is not above 0.
        """
        times: Floats = np.sort(np.asarray(seconds, np.float64))
        if not times.size or not (np.isfinite(times) & (times > 0)).all():
            raise BadInput("measured service times: at least one is needed, each above 0 s")
        self._times = times

    def __repr__(self) -> str:
        return f"Measured({self._times.tolist()})"

    @property
    def mean(self) -> float:
        """E[S], in seconds."""
        return float(self._times.mean())

    @property
    def spread(self) -> float:
        """Var S / E[S]²."""
        return float(self._times.var()) / self.mean**2

    def done_by(self, time: float) -> float:
        """Prob(S ≤ time)."""
        return float(np.searchsorted(self._times, time, "right")) / len(self._times)

    def decayed(self, time: float, rate: float) -> float:
        """E[exp(−rate·(time − S)) if S ≤ time, else 0]."""
        done = self._times[: np.searchsorted(self._times, time, "right")]
        return float(np.exp(-rate * (time - done)).sum()) / len(self._times)


_KEYS: Mapping[str, tuple[str, ...]] = {
    "lognormal": ("mu", "sigma"),
    "exponential": ("mean",),
    "deterministic": ("value",),
    "empirical": ("quantiles",),
}


def service_time(given: Mapping[str, object]) -> ServiceTime:
    """Read a distribution: `dist` and its parameters, in seconds (a lognormal's of ln seconds).

    Raises:
        BadInput: an unknown `dist`, a parameter that is missing, unknown or impossible.
    """
    kind = str(given.get("dist", "lognormal"))
    if kind not in _KEYS:
        raise not_known("dist", kind, _KEYS)
    for name in given:
        if name not in ("dist", *_KEYS[kind]):
            raise not_known(f"{kind}: parameter", name, _KEYS[kind])
    if kind == "empirical":
        quantiles = given.get("quantiles")
        if not isinstance(quantiles, list | tuple):
            raise BadInput("empirical: quantiles must be a list of seconds")
        return Measured([_number("empirical: quantiles", each) for each in quantiles])
    values = [_number(f"{kind}: {name}", given.get(name)) for name in _KEYS[kind]]
    if values[-1] <= 0:
        raise BadInput(f"{kind}: {_KEYS[kind][-1]} must be above 0, not {values[-1]:g}")
    if kind == "lognormal":
        return Lognormal(mu=values[0], sigma=values[1])
    return Exponential(average=values[0]) if kind == "exponential" else Measured(values)


def _number(name: str, value: object) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    raise BadInput(f"{name} must be a number, not {shorten(repr(value))}")
