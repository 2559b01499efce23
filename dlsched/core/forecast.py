"""Forecasts: what would happen from here if nothing more arrived.

What-if choosers, admission by deadline, predicted starts and reverse plans all ask the same: take
the present state, perhaps with other parts, and run it on. Core only names the question; the
simulated world answers it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from dlsched.core.arrays import Floats, Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What one what-if run says.

    Attributes:
        rows: the units it speaks of.
        first_start: seconds, NaN for never.
        finish: seconds, NaN for never.
        progress: fraction of the work done when the forecast ends.
        mean_jct: mean of finish minus submit over those that finish; inf when none does.
    """

    rows: Rows
    first_start: Floats
    finish: Floats
    progress: Floats
    mean_jct: float


class Forecaster(Protocol):
    """Runs the present state on without further arrivals."""

    def __call__(
        self, overrides: Mapping[str, str] | None = None, *, horizon: float = ...
    ) -> Forecast:
        """Forecast the next `horizon` seconds, with some parts replaced.

        `overrides` has other parts by stage ("scheduling": "las", "admission": "load-threshold",
        "placement": "first-free") or their options ("admission.threshold": "1.2").
        """
        ...
