"""How much of a GPU counts that a unit holds: its part, where it says that it needs only one.

Service, usage, quotas and fairness count parts of GPUs, in both worlds. A unit that says nothing,
or that needs whole GPUs, counts as 1.
"""

from __future__ import annotations

import numpy as np

from dlsched.core.arrays import Floats


def part_of(share: float) -> float:
    """What each GPU of a unit counts that needs such a part; 0 is "not said"."""
    return share if 0.0 < share < 1.0 else 1.0


def parts_of(shares: Floats) -> Floats:
    """As `part_of`, by unit."""
    return np.where((shares > 0.0) & (shares < 1.0), shares, 1.0)
