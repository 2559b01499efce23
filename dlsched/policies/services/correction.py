"""Replicas beyond the model's number, from the share of requests that were really in time."""

from __future__ import annotations

import math
from dataclasses import dataclass

LOOK_S = 60.0  # over which the share is measured
CALM_S = 600.0  # so long above the promise, until one is taken back
MOST_PART = 0.25  # of the model's number


@dataclass(slots=True, kw_only=True)
class Correction:
    """One more replica for each minute that breaks the promise, one less after ten calm ones.

    Attributes:
        share: what is promised.
        extra: replicas beyond the model's number.
    """

    share: float
    extra: int = 0
    _well_since: float = math.nan

    def measured(self, share: float, replicas: int, now: float) -> int:
        """The share in time over the last minute, and the model's number; returns what to run."""
        if share < self.share:
            self.extra += 1
            self._well_since = math.nan
        elif share > self.share + (1.0 - self.share) / 2:
            if math.isnan(self._well_since):
                self._well_since = now
            elif now - self._well_since >= CALM_S:
                self.extra -= 1
                self._well_since = now
        else:
            self._well_since = math.nan
        self.extra = min(max(self.extra, 0), math.floor(MOST_PART * replicas))
        return replicas + self.extra
