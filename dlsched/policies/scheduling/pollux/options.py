"""Options of `pollux`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dlsched.core.options import option

__all__ = ["PolluxOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PolluxOptions:
    """What may be chosen."""

    variant: Literal["published", "library"] = option(
        "published",
        "published: power mean of speedups over a fair share; library: their sum, over one GPU",
    )
    p: float = option(
        -1.0, "power of the mean: 1 for the sum, 0 for fairness by products, far below for max-min"
    )
    restart_s: float | None = option(
        None, "seconds that a restart is believed to cost; none: what jobs measured", low=0
    )
    keep: float = option(
        0.9, "library: what a changed row keeps of its worth, from 0 to 1", low=0, high=1
    )
    avoid_interference: bool = option(True, "never two jobs that span nodes on the same node")
    widest: int = option(16, "nodes that a job may span", low=1)
    most_gpus: int = option(64, "GPUs that a job may have", low=1)
    growth: float = option(
        2.0, "a job gets at most so many times the GPUs that it ever ran on", low=1
    )
    interval_s: float = option(60.0, "seconds between decisions where the run has no rounds", low=1)
    effort: int = option(
        50, "how often the search hands out some jobs' GPUs anew; more is better", low=0
    )
    autoscale: Literal["none", "rolling", "every-round"] = option(
        "none", "ask for a cluster size: by the mean utility of some rounds, or in every round"
    )
    low_utility: float = option(0.35, "below it the cluster is too large", low=0, high=1)
    high_utility: float = option(0.65, "above it the cluster is too small", low=0, high=1)
    window: int = option(15, "rounds of the mean", low=1)
    least_nodes: int = option(1, "nodes of the smallest cluster to ask for", low=1)
    most_nodes: int = option(
        0, "nodes of the largest cluster to ask for; 0: twice those there are", low=0
    )
