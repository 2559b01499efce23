"""How many replicas keep a service's promise, and how many requests are to be expected.

Gujarati, Elnikety, He, McKinley, Brandenburg, "Swayam: Distributed Autoscaling to Meet SLAs of
Machine Learning Inference Services with Resource Efficiency", Middleware 2017.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dlsched.core.arrays import Floats
from dlsched.core.errors import BadInput
from dlsched.policies.services.response_times import ResponseModel, one_queue
from dlsched.policies.services.service_times import ServiceTime

MOST_REPLICAS = 10_000  # that a search tries
BEST_EFFORT = 0.99  # of what is reachable, where the promise is not
PRECISE = 1e-10  # of a rate, relative
CALM = 0.8  # load of a replica at which random dispatch among several gateways keeps the promise


@dataclass(frozen=True, slots=True, kw_only=True)
class Sla:
    """What a service promises: a share of its requests is answered in time.

    Attributes:
        within_s: response time that counts as in time.
        share: part of the requests, above 0 and at most 1.
    """

    within_s: float
    share: float

    def __post_init__(self) -> None:
        """Refuse what cannot be.

        Raises:
            BadInput: says what is wrong.
        """
        if not 0 < self.within_s < math.inf:
            raise BadInput(f"SLA: {self.within_s:g} s; seconds above 0 are needed")
        if not 0 < self.share <= 1:
            raise BadInput(f"SLA: a share of {self.share:g}; above 0 and at most 1 is needed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizing:
    """How many replicas to run.

    Attributes:
        replicas: how many; at least 1.
        share: part of the requests that they answer in time, as the model says.
        feasible: does any number keep the promise? If not, this one comes near what is reachable.
    """

    replicas: int
    share: float
    feasible: bool


def fewest_replicas(
    rate: float,
    service: ServiceTime,
    sla: Sla,
    *,
    burst: float = 1.0,
    model: ResponseModel = one_queue,
    most: int = MOST_REPLICAS,
) -> Sizing:
    """The fewest replicas that keep the promise at `burst` times the rate.

    Where a single request may take too long by itself, no number does. Then it is the fewest that
    have 0.99 of the share that endless replicas would have, in one queue.

    Args:
        rate: requests per second that are expected; 0 or more.
        service: time of one request on one replica.
        sla: the promise.
        burst: at least 1.
        model: part of the requests in time.
        most: no more replicas; the promise is not kept where more would be needed.
    """
    peak = rate * burst
    reachable = service.done_by(sla.within_s)
    if reachable < sla.share:
        found = _search(peak, service, sla.within_s, BEST_EFFORT * reachable, one_queue, most)
        return Sizing(replicas=found[0], share=found[1], feasible=False)
    replicas, share = _search(peak, service, sla.within_s, sla.share, model, most)
    return Sizing(replicas=replicas, share=share, feasible=share >= sla.share)


def _search(
    rate: float,
    service: ServiceTime,
    within_s: float,
    share: float,
    model: ResponseModel,
    most: int,
) -> tuple[int, float]:
    """From the fewest that can carry the load upwards: near full load no model is smooth."""
    replicas = min(math.floor(rate * service.mean) + 1, most)
    while True:
        found = model(replicas, rate, service, within_s)
        if found >= share or replicas >= most:
            return replicas, found
        replicas += 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """A straight line through the rates that one gateway saw, one a window.

    Attributes:
        slope: requests per second, each second.
        intercept: requests per second in the first window.
        window_s: seconds between two rates.
        windows: how many there are.
    """

    slope: float
    intercept: float
    window_s: float
    windows: int

    def after(self, horizon_s: float) -> float:
        """The rate so many seconds after the last window; never below 0."""
        at = (self.windows - 1) * self.window_s + horizon_s
        return max(self.intercept + self.slope * at, 0.0)


def trend(rates: Sequence[float] | Floats, window_s: float) -> Trend:
    """Ordinary least squares through rates, the oldest first; one alone goes on as it is.

    Raises:
        BadInput: there are no rates.
    """
    seen = np.asarray(rates, np.float64)
    count = len(seen)
    if not count:
        raise BadInput("a trend needs the rate of at least one window")
    places = np.arange(count) - (count - 1) / 2
    mean = float(seen.mean())
    around = float((places * places).sum())
    by_window = float((places * (seen - mean)).sum()) / around if around else 0.0
    return Trend(
        slope=by_window / window_s,
        intercept=mean - by_window * (count - 1) / 2,
        window_s=window_s,
        windows=count,
    )


def expected_rate(
    rates: Sequence[float] | Floats, window_s: float, horizon_s: float, gateways: int = 1
) -> float:
    """The rate of all gateways that one of them expects, from what it saw itself.

    Requests are spread at random over the gateways, so each sees about the same, and all come to
    about the same answer without a word between them.

    Args:
        rates: that this gateway saw, one a window, the oldest first.
        window_s: length of a window.
        horizon_s: so far ahead: the time that a replica needs to start.
        gateways: how many there are.
    """
    return gateways * trend(rates, window_s).after(horizon_s)


def rates_kept(
    service: ServiceTime, sla: Sla, most: int, *, model: ResponseModel = one_queue
) -> Floats:
    """The highest rate at which 1, 2, … `most` replicas keep the promise, in requests per second.

    Where none can, the promise is what `fewest_replicas` keeps instead.
    """
    reachable = service.done_by(sla.within_s)
    share = sla.share
    if reachable < share:
        share, model = BEST_EFFORT * reachable, one_queue
    found = np.zeros(most)
    low = 0.0
    for replicas in range(1, most + 1):
        high = replicas / service.mean
        while high - low > PRECISE * high:
            middle = (low + high) / 2
            if model(replicas, middle, service, sla.within_s) >= share:
                low = middle
            else:
                high = middle
        found[replicas - 1] = low
    return found
