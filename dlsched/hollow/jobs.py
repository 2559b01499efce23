"""Simulated jobs: how long a run executes and with what it exits, though nothing is executed.

A job says so in its own environment (`HOLLOW_SECONDS`, `HOLLOW_EXIT`); for the others the time is
drawn from a range by the number of the job, so that it is the same at every start.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass

from dlsched.core.errors import BadInput
from dlsched.protocol.messages import JobId

SECONDS, EXIT = "HOLLOW_SECONDS", "HOLLOW_EXIT"
_LARGEST_CODE = 255


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedEnd:
    """The end of a job that is left alone.

    Attributes:
        executes_s: seconds of execution over all of its runs.
        code: its exit code.
    """

    executes_s: float
    code: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedJobs:
    """The times of jobs that name none: between `least_s` and `most_s` seconds, evenly."""

    least_s: float
    most_s: float
    seed: int = 0

    @classmethod
    def parse(cls, text: str, seed: int = 0) -> SimulatedJobs:
        """Read `60`, or `60:600` for a range.

        Raises:
            BadInput: when the text is anything else.
        """
        least, _, most = text.partition(":")
        try:
            low = float(least)
            high = float(most) if most else low
        except ValueError:
            low = high = math.nan
        if not 0 <= low <= high < math.inf:
            raise BadInput(f"--seconds {text!r}: expected seconds, as 60, or a range, as 60:600")
        return cls(least_s=low, most_s=high, seed=seed)

    def end_of(self, job: JobId, environment: Mapping[str, str]) -> SimulatedEnd:
        """Return how a job with this environment ends.

        Raises:
            BadInput: when its environment names a time or a code that is none.
        """
        drawn = random.Random(f"{self.seed}/{job}").uniform(self.least_s, self.most_s)
        return SimulatedEnd(
            executes_s=_seconds(environment[SECONDS]) if SECONDS in environment else drawn,
            code=_code(environment[EXIT]) if EXIT in environment else 0,
        )


def _seconds(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not 0 <= found < math.inf:
        raise BadInput(f"{SECONDS}={text}: expected seconds, 0 or more")
    return found


def _code(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) <= _LARGEST_CODE):
        raise BadInput(f"{EXIT}={text}: expected an exit code, 0 to {_LARGEST_CODE}")
    return int(text)
