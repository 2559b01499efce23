"""The options of the policy `sia`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from dlsched.core.options import option

__all__ = ["SiaOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SiaOptions:
    """Sia."""

    power: float = option(-0.5, "p, to which goodputs are raised: fairness below 0; not 0")
    penalty: float = option(
        1.1, "what a job without GPUs costs; above 1, the worst GPUs beat none", low=1.0
    )
    rounding: Literal["none", "artifact"] = option(
        "none", "round the terms of the objective to two decimals, as the published code does"
    )
    jobs: Literal["asked", "fixed-batch", "rigid"] = option(
        "asked", "what may be chosen for elastic jobs: all, all but the batch, or the type only"
    )
    placing: Literal["keep", "fast"] = option(
        "keep", "nodes: move as few jobs as possible, or lay all out anew where moving is free"
    )
    share_largest: bool = option(
        True, "having run on many GPUs of one type lets a job have as many on all"
    )
    most_nodes: int = option(16, "nodes that one job spans at most", low=1)
    most_gpus: int = option(64, "GPUs that one job gets at most", low=1)
    gap: float = option(1e-4, "distance from the optimum that is near enough", low=0.0)
    nodes: int = option(20_000, "nodes of the search tree of one solve, at most", low=1)
    solve_limit_s: float = option(
        math.inf, "seconds of one solve in a live cluster; then the best so far counts", low=0.0
    )
