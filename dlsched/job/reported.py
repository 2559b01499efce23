"""The numbers of a step as they are reported: finite ones, and the names of the others."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping
from typing import Any

MOST_VALUES = 24  # of one step
LONGEST_NAME = 64  # of a value


class ReportedValues:
    """The values that a training passes to `step`.

    Attributes:
        newest: of the newest step, by name: whatever `float` takes, such as a tensor with one
            element; None is left out.
    """

    def __init__(self) -> None:
        """Know no step yet."""
        self.newest: dict[str, Any] = {}
        self._has_said = False

    def take(self, values: Mapping[str, Any]) -> None:
        """Take the values of a step; what a tensor's gradient needs is not kept with it."""
        self.newest = {
            name: value.detach() if hasattr(value, "detach") else value
            for name, value in values.items()
        }

    def split(self) -> tuple[dict[str, float], tuple[str, ...]]:
        """Return the finite values by name, and the names of values that are NaN or infinite.

        The first time that a value is not reported, a message on stderr says so.
        """
        given = {name: value for name, value in self.newest.items() if value is not None}
        kept = set(known_names(given))
        left_out = [name[:LONGEST_NAME] for name in given if name not in kept]
        if left_out and not self._has_said:
            self._has_said = True
            print(
                f"dlsched.job: not reported: {left_out[0]}: a step has at most {MOST_VALUES} "
                f"values, with names of at most {LONGEST_NAME} characters",
                file=sys.stderr,
            )
        numbers = {name: _float(given[name]) for name in given if name in kept}
        finite = {name: value for name, value in numbers.items() if math.isfinite(value)}
        return finite, tuple(name for name in numbers if name not in finite)


def known_names(names: Iterable[str]) -> list[str]:
    """Return those of some names that are reported: not too long, and not too many."""
    return [name for name in names if len(name) <= LONGEST_NAME][:MOST_VALUES]


def _float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:  # a whole number of hundreds of digits
        return math.inf
