"""Axes: from values to places between 0 and 1, and the ticks that a reader can make sense of.

Both the page and the matplotlib files place everything through `Axis.fraction` and label through
`Axis.ticks`, so that their pictures agree.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from simulate.results.tables import Floats

Quantity = Literal["duration", "share", "number"]
Kind = Literal["linear", "log", "symlog"]

MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0

# On a logarithmic axis: few, well apart, and each a duration that people say.
LOG_DURATIONS: tuple[float, ...] = (
    *(10.0**k for k in range(-6, 1)),
    10.0,
    MINUTE,
    10 * MINUTE,
    HOUR,
    6 * HOUR,
    DAY,
    7 * DAY,
    30 * DAY,
    100 * DAY,
    365 * DAY,
    3650 * DAY,
)
# The same when the axis spans less than about a decade.
FINE_DURATIONS: tuple[float, ...] = tuple(
    sorted(
        [m * 10.0**k for k in range(-6, 1) for m in (1, 2, 5)]
        + [10.0, 20.0, 30.0]
        + [m * MINUTE for m in (1, 2, 5, 10, 20, 30)]
        + [m * HOUR for m in (1, 2, 3, 6, 12)]
        + [m * DAY for m in (1, 2, 4, 7, 14, 30, 60, 120, 240, 365, 730)]
    )
)
STEPS: tuple[float, ...] = tuple(
    [m * 10.0**k for k in range(-6, 1) for m in (1, 2, 5)]
    + [10.0, 15.0, 30.0]
    + [m * MINUTE for m in (1, 2, 5, 10, 15, 30)]
    + [m * HOUR for m in (1, 2, 3, 6, 12)]
    + [m * DAY for m in (1, 2, 3, 4, 5, 10, 20, 30, 50, 100, 200, 365, 730, 1825, 3650)]
)

# The part of a symlog axis that shows 0 up to the threshold.
LINEAR_PART = 0.06


class Tick(NamedTuple):
    """A place on an axis, 0 to 1, and what stands there."""

    at: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """A scale from `low` to `high`; `symlog` is linear from 0 to `threshold`, logarithmic after.

    Durations are in seconds, shares are of one.
    """

    label: str
    quantity: Quantity
    low: float
    high: float
    kind: Kind = "linear"
    threshold: float = 1.0
    step: float | None = None
    stops: tuple[float, ...] = ()  # the only values that ticks may stand at, where there are few

    def fraction(self, values: Floats | Iterable[float]) -> Floats:
        """Where values lie, clipped to 0 … 1; NaN stays NaN."""
        v = np.asarray(values, dtype=np.float64)
        if self.kind == "linear":
            place = (v - self.low) / (self.high - self.low)
        elif self.kind == "log":
            bottom = math.log(self.low)
            span = math.log(self.high) - bottom
            place = (np.log(np.maximum(v, self.low)) - bottom) / span
        else:
            span = math.log(self.high / self.threshold)
            logged = np.log(np.maximum(v, self.threshold) / self.threshold) / span
            place = np.where(
                v <= self.threshold,
                LINEAR_PART * np.maximum(v, 0.0) / self.threshold,
                LINEAR_PART + (1.0 - LINEAR_PART) * logged,
            )
        return np.clip(place, 0.0, 1.0)

    def ticks(self, length: float, apart: float = 64.0) -> list[Tick]:
        """Ticks for an axis of `length` pixels whose labels should be `apart` pixels apart."""
        if self.stops:
            step, values = 0.0, self._thinned(self.stops, length, 0.5 * apart)
        elif self.kind == "linear":
            step, values = self._linear_values(max(int(length / apart), 1))
        else:
            step = 0.0
            values = self._log_values(length, apart)
        places = self.fraction(values).tolist()
        return [Tick(p, self._text(v, step)) for p, v in zip(places, values, strict=True)]

    def _linear_values(self, most: int) -> tuple[float, list[float]]:
        span = self.high - self.low
        step = self.step or span
        if self.step is None or span / step > most + 1e-9:
            if self.quantity == "duration":
                step = nice_duration(span / most)
            else:
                step = nice_step(span / most)
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return step, [k * step for k in range(first, last + 1)]

    def _thinned(self, values: Iterable[float], length: float, room: float) -> list[float]:
        """Those of ascending values that stand at least `room` pixels after the last kept."""
        kept: list[float] = []
        before = -math.inf
        for value in values:
            place = float(self.fraction([value])[0]) * length
            if place - before >= room:
                kept.append(value)
                before = place
        return kept

    def _log_values(self, length: float, apart: float) -> list[float]:
        if self.quantity == "duration":
            coarse, fine = LOG_DURATIONS, FINE_DURATIONS
        else:
            coarse = tuple(10.0**k for k in range(-9, 13))
            fine = tuple(m * 10.0**k for k in range(-9, 13) for m in (1, 2, 5))
        start = self.threshold if self.kind == "symlog" else self.low
        inside = [v for v in coarse if start * (1 - 1e-9) <= v <= self.high * (1 + 1e-9)]
        if len(inside) < 4:
            inside = [v for v in fine if start * (1 - 1e-9) <= v <= self.high * (1 + 1e-9)]
        if not inside:
            inside = [start, self.high]
        kept: list[float] = [0.0] if self.kind == "symlog" else []
        # The "0" of a symlog axis is short: its neighbour may come closer.
        for value in inside:
            room = 0.4 * apart if kept == [0.0] else 0.75 * apart
            before = float(self.fraction([kept[-1]])[0]) if kept else -1.0
            if (float(self.fraction([value])[0]) - before) * length >= room:
                kept.append(value)
        return kept

    def _text(self, value: float, step: float) -> str:
        if value == 0:
            return "0"
        if self.quantity == "duration":
            linear = self.kind == "linear"
            return clock_text(value, step, self.high) if linear else tick_duration(value)
        if self.quantity == "share":
            return f"{plain(value * 100)} %"
        return plain(value)


def plain(value: float) -> str:
    """A tick's number without trailing zeros."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.6g}"


def clock_text(seconds: float, step: float, high: float) -> str:
    """A tick of a linear time axis, in the form that all its ticks have.

    Whole days read `3 d`; whole hours `30 h`, or `1 d 6 h` when the axis passes two days; finer
    steps `38:50 h`, `38:50:30` or `2:30 min` when the axis passes an hour or a minute.
    """
    if step % HOUR == 0:
        return day_text(seconds, step, high)
    hours, minutes, rest = seconds // HOUR, seconds % HOUR // MINUTE, seconds % MINUTE
    if high > HOUR and step % MINUTE == 0:
        return f"{hours:,.0f}:{minutes:02.0f} h"
    if high > HOUR and step % 1 == 0:
        return f"{hours:,.0f}:{minutes:02.0f}:{rest:02.0f}"
    if high > MINUTE and step % 1 == 0:
        return f"{minutes:.0f}:{rest:02.0f} min"
    return tick_duration(seconds)


def day_text(seconds: float, step: float, high: float) -> str:
    """A tick at a whole hour or day."""
    if step % DAY == 0:
        return f"{seconds / DAY:,.0f} d"
    days, rest = divmod(seconds, DAY)
    if high < 2 * DAY or not days:
        return f"{seconds / HOUR:,.0f} h"
    return f"{days:,.0f} d {rest / HOUR:.0f} h" if rest else f"{days:,.0f} d"


def tick_duration(seconds: float) -> str:
    """A round duration in its largest unit that keeps it whole: `90 min`, `36 h`, `1 d`."""
    for name, size in (("d", DAY), ("h", HOUR), ("min", MINUTE)):
        if seconds >= size and abs(seconds / size - round(seconds / size)) < 1e-6:
            return f"{seconds / size:,.0f} {name}"
    for name, size in (("d", DAY), ("h", HOUR), ("min", MINUTE)):
        if seconds >= size:
            return f"{seconds / size:,.6g} {name}"
    return f"{seconds:.6g} s"


def nice_step(rough: float) -> float:
    """The smallest 1, 2 or 5 times a power of ten that is at least `rough`."""
    if not rough > 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(rough))
    return next(m * power for m in (1, 2, 5, 10) if m * power >= rough * (1 - 1e-9))


def nice_duration(rough: float) -> float:
    """The smallest round duration that is at least `rough` seconds."""
    found = next((s for s in STEPS if s >= rough * (1 - 1e-9)), None)
    return found or nice_step(rough / DAY) * DAY


def finite(values: Iterable[Floats]) -> Floats:
    """All the known values of some columns as one."""
    columns = [np.asarray(v, dtype=np.float64).ravel() for v in values]
    together = np.concatenate(columns) if columns else np.empty(0)
    return together[np.isfinite(together)]


def nice_axis(label: str, quantity: Quantity, top: float, *, ticks: int = 4) -> Axis:
    """A linear axis from zero that ends on a tick at or above `top`.

    Args:
        label: its name.
        quantity: what it shows.
        top: the largest value; 1 where it is unknown or not positive.
        ticks: about how many it has.
    """
    if not (math.isfinite(top) and top > 0):
        top = 1.0
    step = nice_duration(top / ticks) if quantity == "duration" else nice_step(top / ticks)
    high = step * math.ceil(top / step - 1e-9)
    return Axis(label=label, quantity=quantity, low=0.0, high=high, step=step)


def time_axis(label: str, start: float, end: float) -> Axis:
    """A linear axis of the clock from `start` to `end` seconds."""
    return Axis(
        label=label, quantity="duration", low=start, high=end if end > start else start + 1.0
    )


def log_duration_axis(label: str, values: Iterable[Floats], *, zero: bool) -> Axis:
    """A logarithmic axis over durations in seconds; with `zero` it also shows 0 (symlog).

    Never starts below a seven-millionth of its top, so that one odd value can't flatten the rest.
    """
    known = finite(values)
    positive = known[known > 0]
    top = float(positive.max()) if positive.size else 60.0
    high = top * 1.02
    if zero:
        return Axis(
            label=label,
            quantity="duration",
            low=0.0,
            high=max(high, 60.0),
            kind="symlog",
            threshold=1.0 if top > 60.0 else 0.1,
        )
    low = max(float(positive.min()) if positive.size else 1.0, top / 7e6)
    low = max((v for v in FINE_DURATIONS if v <= low * (1 + 1e-9)), default=FINE_DURATIONS[0])
    return Axis(label=label, quantity="duration", low=low, high=max(high, low * 4.0), kind="log")


def log_number_axis(label: str, low: float, high: float) -> Axis:
    """A logarithmic axis over plain numbers from about `low` to about `high`."""
    low = low if math.isfinite(low) and low > 0 else 0.1
    high = high if math.isfinite(high) and high > low else low * 10
    return Axis(label=label, quantity="number", low=low, high=high * 1.02, kind="log")
