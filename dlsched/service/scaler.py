"""How many replicas a live service needs, from the requests that came and their answers."""

from __future__ import annotations

import json
import math
from collections import deque
from dataclasses import dataclass, field
from typing import BinaryIO

import numpy as np

from dlsched.client.submission.services import Terms
from dlsched.policies.services.correction import LOOK_S, Correction
from dlsched.policies.services.service_times import Measured
from dlsched.policies.services.sizing import Sla, expected_rate, fewest_replicas

FEWEST_TIMES = 10  # measured service times before anything is concluded from them
MOST_TIMES = 500  # the newest are kept
MOST_ANSWERS = 100_000  # of the last minute


@dataclass(slots=True)
class Scaler:
    """Counts requests and answers of one service; times are given by the caller, in seconds.

    Attributes:
        terms: of the service.
        needed: replicas, as of the last window.
        expected: requests per second that are expected, as of the last window.
    """

    terms: Terms
    needed: int = 1
    expected: float = math.nan
    _rates: deque[float] = field(default_factory=deque)
    _count: int = 0
    _window_end: float = math.nan
    _looked_at: float = math.nan
    _times: deque[float] = field(default_factory=lambda: deque(maxlen=MOST_TIMES))
    _answers: deque[tuple[float, float]] = field(  # when, and after how long
        default_factory=lambda: deque(maxlen=MOST_ANSWERS)
    )
    _correction: Correction = field(init=False)

    def __post_init__(self) -> None:
        """Begin with the fewest replicas."""
        self.needed = self.terms.least
        self._correction = Correction(share=self.terms.share)

    def arrived(self) -> None:
        """A request has come."""
        self._count += 1

    def served(self, seconds: float) -> None:
        """A replica has worked for so long on one request."""
        self._times.append(max(seconds, 1e-6))

    def answered(self, seconds: float, now: float) -> None:
        """A request was answered after so long; inf: it was not."""
        self._answers.append((now, seconds))

    def go_on(self, now: float) -> bool:
        """Close the windows that have ended; says whether the number was computed anew."""
        if math.isnan(self._window_end):
            self._window_end, self._looked_at = now + self.terms.window, now
            return False
        if now < self._window_end:
            return False
        passed = now - self._window_end + self.terms.window
        self._rates.append(self._count / passed)
        while len(self._rates) > self.terms.windows:
            self._rates.popleft()
        self._count, self._window_end = 0, now + self.terms.window
        self._decide(now)
        return True

    def _decide(self, now: float) -> None:
        terms = self.terms
        self.expected = expected_rate(list(self._rates), terms.window, terms.setup)
        if len(self._times) < FEWEST_TIMES:
            return
        # a replica with several slots is as many replicas with one
        sizing = fewest_replicas(
            self.expected,
            Measured(list(self._times)),
            Sla(within_s=terms.within, share=terms.share),
            burst=terms.burst,
            most=terms.most * terms.slots,
        )
        replicas = math.ceil(sizing.replicas / terms.slots)
        share = self.in_time(now)
        if now - self._looked_at >= LOOK_S and not math.isnan(share):
            self._looked_at = now
            self._correction.measured(share, replicas, now)
        self.needed = min(max(replicas + self._correction.extra, terms.least), terms.most)

    def in_time(self, now: float) -> float:
        """The share of the last minute's requests in time; NaN where there were none."""
        seconds = self._last(now)
        return float((seconds <= self.terms.within).mean()) if seconds.size else math.nan

    def save(self, file: BinaryIO) -> None:
        """Write what was measured of requests, for the leader's next run."""
        file.write(json.dumps({"rates": [*self._rates], "times": [*self._times]}).encode())

    def load(self, file: BinaryIO) -> None:
        """Go on from what `save` has written."""
        found = json.loads(file.read())
        self._rates.extend(found["rates"])
        self._times.extend(found["times"])

    def figures(self, now: float) -> dict[str, float]:
        """What `show` has of a service, over the last minute; unknown figures are left out."""
        seconds = self._last(now)
        found = {
            "sla_s": self.terms.within,
            "requests_s": len(seconds) / LOOK_S,
            "in_time": self.in_time(now),
            "expected_s": self.expected,
            "needed": float(self.needed),
        }
        if seconds.size:
            p50, p99 = np.percentile(seconds, [50, 99], method="inverted_cdf").tolist()
            found |= {"p50_s": p50, "p99_s": p99}
        return {name: value for name, value in found.items() if math.isfinite(value)}

    def _last(self, now: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        while self._answers and self._answers[0][0] < now - LOOK_S:
            self._answers.popleft()
        return np.array([seconds for _, seconds in self._answers], np.float64)
