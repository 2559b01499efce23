"""What came of jobs in a small world: when each ends under a discipline, and the figures of that.

Every world has the same: figures by name for JSON and tables, and the end of each job for a file.
Where there is nothing to take a mean of, as without jobs, a figure is None.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dlsched.core.arrays import Floats
from dlsched.core.errors import not_known


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What came of the jobs under one discipline.

    Attributes:
        discipline: its name.
        seed: of what is random.
        ends: of each job, when it ends; None: it does not.
        figures: by name; None: unknown.
    """

    discipline: str
    seed: int = 0
    ends: Mapping[Any, Any]
    figures: Mapping[str, Any]


def check_known(subject: str, names: Iterable[str], known: Collection[str]) -> None:
    """Refuse names that there are not.

    Raises:
        BadInput: for the first of them; `subject` says what it is a name of.
    """
    for name in names:
        if name not in known:
            raise not_known(subject, name, known)


def mean(values: Sequence[float] | Floats) -> float | None:
    """The mean; None: there are no values."""
    return float(np.mean(values)) if len(values) else None


def percentile(values: Sequence[float] | Floats, percent: float) -> float | None:
    """A percentile, linear between values; None: there are no values."""
    return float(np.percentile(np.asarray(values, np.float64), percent)) if len(values) else None
