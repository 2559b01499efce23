"""The options of the policy `pollux`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dlsched.core.options import option


@dataclass(frozen=True, slots=True, kw_only=True)
class PolluxOptions:
    """The options of Pollux."""

    variant: Literal["published", "library"] = option(
        "published",
        "published: power mean of speedups over a fair share; library: sum, over one GPU",
    )
    p: float = option(
        -1.0, "power of the mean: 1 for the sum, 0 for the geometric mean, far below 0 for max-min"
    )
    restart_s: float | None = option(
        None, "assumed seconds of a restart; none: as measured by the jobs", low=0
    )
    keep: float = option(
        0.9, "library: part of its value that a changed row keeps, from 0 to 1", low=0, high=1
    )
    avoid_interference: bool = option(True, "do not let two jobs that span nodes share a node")
    widest: int = option(16, "most nodes of a job", low=1)
    most_gpus: int = option(64, "most GPUs of a job", low=1)
    growth: float = option(2.0, "how many times the GPUs of its largest run a job may get", low=1)
    interval_s: float = option(60.0, "seconds between decisions where there are no rounds", low=1)
    effort: int = option(50, "steps of the search; more steps find better states", low=0)
    autoscale: Literal["none", "rolling", "every-round"] = option(
        "none", "requests for a cluster size: by the mean utility of some rounds, or in every round"
    )
    low_utility: float = option(0.35, "below this utility the cluster is too large", low=0, high=1)
    high_utility: float = option(0.65, "above this utility the cluster is too small", low=0, high=1)
    window: int = option(15, "rounds of the mean utility", low=1)
    least_nodes: int = option(1, "nodes of the smallest cluster that is requested", low=1)
    most_nodes: int = option(
        0, "nodes of the largest cluster that is requested; 0 means twice the present", low=0
    )
