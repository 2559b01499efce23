"""How many replicas the gateways of a service need, from the requests of the windows before."""

from __future__ import annotations

import math

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from dlsched.core.arrays import Floats, Ints
from dlsched.policies.services.sizing import CALM, expected_rate, rates_kept
from simulate.services.description import Service

TOGETHER = 4096  # windows that are looked at in one go
FAR = 64  # times as many without a change: none is to come
STREAM = 0x73776179  # keeps these draws apart from others of the same seed ("sway")


class Demand:
    """What the gateways of one service need, as time goes on.

    Each gateway sees the requests that come to it, and nothing of the others.
    """

    def __init__(self, service: Service, seed: int, place: int) -> None:
        """Begin at time 0.

        Args:
            service: whose requests come.
            seed: of the run.
            place: of the service among those of the run.
        """
        self._service = service
        self.kept = rates_kept(service.service_time, service.sla, service.most)
        planned = self.kept / service.burst
        if service.gateways > 1:  # they dispatch at random
            calm = CALM * np.arange(1, service.most + 1) / service.service_time.mean
            planned = np.minimum(planned, calm / service.burst)
        self._planned = planned
        self._rng = np.random.default_rng([seed, STREAM, place])
        self._seen: Floats = np.zeros((service.gateways, service.windows))  # the last windows
        self._coming: list[tuple[float, tuple[int, ...]]] = [(0.0, (1,) * service.gateways)]
        self._next = 1  # the first window's end that was not looked at
        self._last = self._coming[0][1]
        self._looks = 0  # without a change

    def next_change(self) -> float:
        """When a gateway next needs another number; inf: never again."""
        service = self._service
        steady = service.requests.steady_from / service.window_s + service.windows + 1
        while not self._coming and self._looks < FAR and (self._next <= steady or service.noise):
            self._look_on()
            self._looks += 1
        if self._coming:
            self._looks = 0
        return self._coming[0][0] if self._coming else math.inf

    def take(self) -> tuple[int, ...]:
        """What each gateway needs from the next change on."""
        return self._coming.pop(0)[1]

    def _look_on(self) -> None:
        service, first = self._service, self._next
        rates = service.requests.in_windows(first - 1, TOGETHER, service.window_s)
        each = np.broadcast_to(rates / service.gateways, (service.gateways, TOGETHER))
        if service.noise:
            each = self._rng.poisson(each * service.window_s) / service.window_s
        seen = np.concatenate([self._seen, each], axis=1)
        needed = np.stack([self._needed(one, first) for one in seen], axis=1)
        self._seen, self._next = seen[:, -service.windows :], first + TOGETHER
        before = np.concatenate([[self._last], needed[:-1]])
        for place in np.flatnonzero((needed != before).any(axis=1)).tolist():
            change = tuple(needed[place].tolist())
            self._coming.append(((first + place) * service.window_s, change))
        self._last = tuple(needed[-1].tolist())

    def _needed(self, seen: Floats, first: int) -> Ints:
        """What one gateway needs at the ends of windows, from the windows up to then."""
        service = self._service
        back, windows = service.windows, sliding_window_view(seen[1:], service.windows)
        # the line through a window's rates, as weights of them
        places = np.arange(back) - (back - 1) / 2
        ahead = (back - 1) / 2 + service.setup_s / service.window_s
        around = float((places * places).sum())
        weights = 1.0 / back + (places * (ahead / around) if around else 0.0 * places)
        expected = service.gateways * np.maximum(windows @ weights, 0.0)
        for place in range(max(back - first, 0)):  # fewer windows have been seen yet
            known = seen[back : back + first + place]
            expected[place] = expected_rate(
                known, service.window_s, service.setup_s, service.gateways
            )
        found: Ints = np.searchsorted(self._planned, expected) + 1
        return np.minimum(found, service.most)
