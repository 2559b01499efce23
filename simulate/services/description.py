"""A service of a replay: what it promises, how many requests come, what its replicas are."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dlsched.core.arrays import Floats, Ints
from dlsched.policies.services.service_times import ServiceTime
from dlsched.policies.services.sizing import Sla


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """A rate that changes in steps: `rates[k]` requests per second from `times[k]` on.

    Attributes:
        times: seconds from the trace's start, ascending, the first is 0.
        rates: requests per second.
        period_s: the steps come again after so long; None: the last one stays.
    """

    times: tuple[float, ...]
    rates: tuple[float, ...]
    period_s: float | None = None

    def expected(self, until: Floats) -> Floats:
        """How many requests come from 0 to each moment, on average."""
        edges = np.array(self.times)
        if self.period_s is None:
            whole, inside, end = np.zeros_like(until), until, max(float(until.max()), edges[-1])
        else:
            whole, inside = np.divmod(until, self.period_s)
            end = self.period_s
        steps = np.append(edges, end)
        total = np.concatenate([[0.0], np.cumsum(np.array(self.rates) * np.diff(steps))])
        found: Floats = whole * total[-1] + np.interp(inside, steps, total)
        return found

    def in_windows(self, first: int, count: int, window_s: float) -> Floats:
        """Mean rates of `count` windows from the one with number `first` on, 0 before time 0."""
        places: Ints = np.arange(first, first + count + 1)
        rates: Floats = np.diff(self.expected(np.maximum(places, 0) * window_s)) / window_s
        return rates

    @property
    def steady_from(self) -> float:
        """From when on the rate stays; inf where it comes again and again."""
        return self.times[-1] if self.period_s is None else math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A service with an SLA.

    Attributes:
        name: of the service.
        sla: what it promises.
        service_time: of one request on one replica.
        requests: how many come.
        least, most: replicas; `least` are always warm.
        gpus: of each replica, all on one node.
        setup_s: from the request for a replica until it is warm, trainings that give way included.
        idle_s: a replica ends itself after so long without requests.
        reserve: warm replicas beyond those needed.
        burst: replicas suffice for so many times the expected rate.
        window_s: length of the windows in which requests are counted.
        windows: so many are looked back on.
        gateways: how many spread the requests.
        noise: requests come at random (Poisson); else evenly.
    """

    name: str
    sla: Sla
    service_time: ServiceTime
    requests: Requests
    least: int = 1
    most: int
    gpus: int = 1
    setup_s: float = 60.0
    idle_s: float = 600.0
    reserve: int = 0
    burst: float = 1.0
    window_s: float = 10.0
    windows: int = 10
    gateways: int = 1
    noise: bool = False
