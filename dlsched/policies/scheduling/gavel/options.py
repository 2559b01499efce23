"""The options of the policy `gavel`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from dlsched.core.options import option

# a Literal must be written out; a test compares it with the solver's own list
ObjectiveName = Literal[
    "isolated", "isolated-plus", "max-min", "max-min-agnostic", "max-min-packed",
    "water-filling", "water-filling-agnostic", "water-filling-packed", "hierarchical",
    "hierarchical-agnostic",
    "hierarchical-packed", "ftf", "ftf-agnostic", "ftf-packed", "makespan", "makespan-agnostic",
    "makespan-packed", "max-throughput", "max-throughput-slo", "cost", "cost-slo", "fifo",
    "fifo-agnostic", "fifo-packed", "sjf", "allox", "gandiva",
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class GavelOptions:
    """Gavel."""

    objective: ObjectiveName = option("max-min", "the objective of the optimisation")
    mechanism: Literal["corrected", "plain"] = option(
        "corrected",
        "how the allocation X becomes leases: our rounds, or those of Gavel in Sia's simulator",
    )
    resolve_s: float = option(0.0, "least number of seconds between two solves", low=0.0)
    window_s: float = option(
        1920.0, "seconds after which received time is counted from 0 again (corrected)", low=1.0
    )
    prices: tuple[str, ...] = option(
        ("v100:0.74", "p100:0.43", "k80:0.135"),
        "TYPE:PRICE, $ per GPU-hour, for the objectives `cost` and `cost-slo`",
    )
    reference: str = option(
        "v100", "the only GPU type whose speeds `ftf-agnostic` and `makespan-agnostic` use"
    )
    settle: Literal["leximin", "centre"] = option(
        "leximin",
        "which of several optimal allocations: leximin with few changes, or the middle of all",
    )
    alpha: float = option(
        1.0,
        "part of the waiting jobs that `allox` considers, longest waiting first",
        low=0.0,
        high=1.0,
    )
    entity: Literal["vc", "user", "group"] = option(
        "vc", "the entities of `hierarchical`: virtual clusters, users or job groups"
    )
    inside: Literal["fairness", "fifo"] = option(
        "fairness", "how the jobs of one entity share under `hierarchical`"
    )
    entity_weights: tuple[str, ...] = option((), "NAME:WEIGHT of entities; others have weight 1")
    solve_limit_s: float = option(
        math.inf,
        "CPU seconds that one solve may take in a live cluster; then the last allocation stays",
        low=0.0,
    )
    seed: int = option(0, "seed of random choices; by default the run's seed", low=0)
