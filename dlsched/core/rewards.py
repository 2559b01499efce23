"""Reward curves: what it is worth to end a job so long after its submit.

A curve is a list of points (time since the submit, value), linear between them and constant
outside. Two points at one time are a jump; there the value is the left one, so that a job which
ends exactly at its deadline is on time. As a text it is `TIME:VALUE TIME:VALUE …`, or a preset:

    step:D,V        V until D, then nothing
    soft:D,V,G      V until D, then falling to 0 within G
    penalty:D,V,N   V until D, then N, which is below 0
    asap:V,H        falling from V at once to 0 at H

After Betser, "Improving Service Level Agreements for a Job Scheduler by Visualizing Simulations",
MIT 2012, of which the idea is known to us, and not the curves.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

Number = float | Fraction
MOST_POINTS = 32
FORM = "TIME:VALUE TIME:VALUE …, step:D,V, soft:D,V,G, penalty:D,V,N or asap:V,H"


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a number") from None


@dataclass(frozen=True, slots=True)
class RewardCurve:
    """A reward curve.

    Attributes:
        points: times [s since the submit], ascending, and values; at most two at one time.
    """

    points: tuple[tuple[Number, Number], ...]

    def __post_init__(self) -> None:
        """Check that it is a function.

        Raises:
            ValueError: it is none; says why.
        """
        if not self.points:
            raise ValueError("a curve has at least one point")
        for time, value in self.points:
            if not (math.isfinite(time) and math.isfinite(value)):
                raise ValueError(f"{time:g}:{value:g} is not a point")
        times = [time for time, _ in self.points]
        if times[0] < 0:
            raise ValueError(f"it begins at {times[0]:g} s, before the submit")
        for before, after in pairwise(times):
            if after < before:
                raise ValueError(f"no function of time: {after:g} s comes after {before:g} s")
        for time in times:
            if times.count(time) > 2:  # before and after a jump
                raise ValueError(f"no function of time: it has three values at {time:g} s")

    @classmethod
    def of_text(cls, text: str, seconds: Callable[[str], float] = _number) -> RewardCurve:
        """Read a curve.

        Args:
            text: as this module says.
            seconds: reads a time; raises ValueError.

        Raises:
            ValueError: it is none; says why.
        """
        word, _, rest = text.strip().partition(":")
        if word.isalpha():
            return cls(_preset(word, [each.strip() for each in rest.split(",")], seconds))
        points = []
        if len(text.split()) > MOST_POINTS:
            raise ValueError(f"a curve has at most {MOST_POINTS} points")
        for each in text.split():
            time, colon, value = each.rpartition(":")
            if not colon or "," in each:
                raise ValueError(f"{each!r} is not TIME:VALUE; points are separated by spaces")
            points.append((seconds(time), _number(value)))
        return cls(tuple(points))

    def to_text(self) -> str:
        """The points, with times in seconds."""
        return " ".join(f"{float(t):.15g}:{float(value):.15g}" for t, value in self.points)

    def at(self, time: Number) -> Number:
        """The value of an end so long after the submit; infinite: never."""
        if time <= self.points[0][0]:
            return self.points[0][1]
        for (start, value), (end, last) in pairwise(self.points):
            if time <= end and end > start:
                return value + (last - value) * (time - start) / (end - start)
        return self.points[-1][1]

    @property
    def worth(self) -> Number:
        """The most that can be earned."""
        return max(value for _, value in self.points)

    @property
    def never(self) -> Number:
        """The value of a job that does not end: nothing, or a penalty."""
        return min(self.points[-1][1], 0)

    def earned(self, took: float) -> float:
        """What a job has earned that ended so long after its submit; NaN: it did not."""
        return float(self.never if math.isnan(took) else self.at(took))

    @property
    def deadline(self) -> Number | None:
        """Until when all of it can be earned; None: it falls at once, or never."""
        last = max(place for place, (_, value) in enumerate(self.points) if value == self.worth)
        found = self.points[last][0]
        return found if found > 0 and last < len(self.points) - 1 else None

    @property
    def steps(self) -> tuple[tuple[float, float], ...]:
        """Deadlines of falling value in its place: the ends of level parts, and middles of slopes.

        For policies that plan by deadlines; none where it has none.
        """
        if self.deadline is None:
            return ()
        found = [(float(self.deadline), float(self.at(self.deadline)))]
        for (start, value), (end, last) in pairwise(self.points):
            at = end if last == value else (start + end) / 2
            worth = float(self.at(at))
            if start < end and at > found[-1][0] and 0 < worth <= found[-1][1]:
                found.append((float(at), worth))
        return tuple(found)

    @property
    def rises(self) -> bool:
        """Is ending later anywhere worth more?"""
        return any(after > before for (_, before), (_, after) in pairwise(self.points))

    @property
    def is_strict(self) -> bool:
        """Is all lost at once after the deadline, and nothing more than that?"""
        due = self.deadline
        after = [value for time, value in self.points if due is not None and time >= due][1:]
        at_due = [value for time, value in self.points if time == due]
        return len(at_due) > 1 and all(value == 0 for value in after)


def _preset(
    word: str, given: list[str], seconds: Callable[[str], float]
) -> tuple[tuple[float, float], ...]:
    forms = {"step": "D,V", "soft": "D,V,G", "penalty": "D,V,N", "asap": "V,H"}
    if word not in forms:
        raise ValueError(f"no preset {word!r}; there are {', '.join(forms)}")
    if len(given) != len(forms[word].split(",")):
        raise ValueError(f"{word} is {word}:{forms[word]}")
    if word == "asap":
        value, until = _number(given[0]), _positive(word, "H", seconds(given[1]))
        return ((0.0, value), (until, 0.0))
    due, value = _positive(word, "D", seconds(given[0])), _number(given[1])
    kept = ((0.0, value), (due, value))
    if word == "step":
        return (*kept, (due, 0.0))
    if word == "soft":
        return (*kept, (due + _positive(word, "G", seconds(given[2])), 0.0))
    after = _number(given[2])
    if not after < 0:
        raise ValueError(f"penalty: N is below 0, not {after:g}")
    return (*kept, (due, after))


def _positive(word: str, name: str, value: float) -> float:
    if not value > 0:
        raise ValueError(f"{word}: {name} is a time after the submit, not {value:g} s")
    return value
