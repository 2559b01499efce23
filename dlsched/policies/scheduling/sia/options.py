"""The options of the policy `sia`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from dlsched.core.options import option


@dataclass(frozen=True, slots=True, kw_only=True)
class SiaOptions:
    """Sia."""

    power: float = option(-0.5, "p, the exponent of goodputs: below 0 is fair; must not be 0")
    penalty: float = option(
        1.1,
        "λ, the cost of a job without GPUs; above 1, any GPUs are better than none",
        low=1.0,
    )
    jobs: Literal["asked", "fixed-batch", "rigid"] = option(
        "asked",
        "choices of elastic jobs: as submitted, with a fixed batch, or only the type",
    )
    placing: Literal["keep", "fast"] = option(
        "keep", "keep: move as few jobs as possible; fast: place all again, where a move is free"
    )
    share_largest: bool = option(
        True, "a job that ran on many GPUs of one type may have as many of every type"
    )
    most_nodes: int = option(16, "most nodes of one job", low=1)
    most_gpus: int = option(64, "most GPUs of one job", low=1)
    gap: float = option(1e-4, "relative distance from the optimum that is accepted", low=0.0)
    nodes: int = option(20_000, "most nodes of the search tree of one solve", low=1)
    solve_limit_s: float = option(
        math.inf,
        "seconds of one solve in a live cluster; then the best choice is used",
        low=0.0,
    )
