"""When a task would be done on each node, and what is known of its run time.

    E = I + W + R          fetching its inputs, waiting, running
    C = P·E + K·(1 − P)·E  with probability P of success, and a penalty K for a failure

Paper: section 3.3. Formulas take arrays of floats, or of exact fractions.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any


def completion(init: Any, wait: Any, run: Any, success: Any, penalty: Any) -> Any:
    """Weighted seconds until a task is done.

    Args:
        init: seconds to fetch inputs, image and data.
        wait: seconds until it starts.
        run: seconds that it runs.
        success: probability that it does not fail.
        penalty: how many times its time a failure costs.
    """
    estimate = init + wait + run
    return success * estimate + penalty * (1 - success) * estimate


def success_rate(succeeded: Any, tried: Any) -> Any:
    """The probability of success after few tries: (succeeded + 1) / (tried + 2)."""
    return (succeeded + 1) / (tried + 2)


@dataclass(slots=True)
class RunTimes:
    """Run times of the tasks of each stage: what was expected, until the first one has finished.

    Attributes:
        counts: finished tasks, by stage.
        sums: their seconds.
    """

    counts: dict[Hashable, int] = field(default_factory=dict)
    sums: dict[Hashable, float] = field(default_factory=dict)

    def finished(self, stage: Hashable, seconds: float) -> None:
        """Count a task that has succeeded."""
        self.counts[stage] = self.counts.get(stage, 0) + 1
        self.sums[stage] = self.sums.get(stage, 0.0) + seconds

    def estimate(self, stage: Hashable, expected: float) -> float:
        """The mean of the stage; `expected` while there is none."""
        count = self.counts.get(stage, 0)
        return self.sums[stage] / count if count else expected
