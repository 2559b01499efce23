"""The options of the policy `gavel`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from dlsched.core.options import option

__all__ = ["GavelOptions", "ObjectiveName"]

# a Literal must be written out; a test holds it against the solver's own list
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

    objective: ObjectiveName = option("max-min", "what is optimised")
    mechanism: Literal["corrected", "published", "plain"] = option(
        "corrected",
        "how X becomes leases: ours, the published simulator's, or that of Sia's simulator",
    )
    resolve_s: float = option(0.0, "seconds between two X, at least", low=0.0)
    window_s: float = option(
        1920.0, "seconds after which received time is counted anew (corrected)", low=1.0
    )
    queue: Literal["by-type", "one"] = option(
        "by-type", "types one after the other, or one queue over all of them (published)"
    )
    prices: tuple[str, ...] = option(
        ("v100:0.74", "p100:0.43", "k80:0.135"),
        "TYPE:PRICE, $ per GPU-hour, for the objectives of cost",
    )
    reference: str = option(
        "v100", "GPU type whose speeds `ftf-agnostic` and `makespan-agnostic` look at"
    )
    settle: Literal["leximin", "centre", "published"] = option(
        "leximin",
        "what the objective leaves open: leximin and stay, the middle of all optima, or where the "
        "published solver ends",
    )
    alpha: float = option(1.0, "part of the waiting jobs that `allox` looks at", low=0.0, high=1.0)
    entity: Literal["vc", "user", "group"] = option(
        "vc", "what `hierarchical` shares between: virtual clusters, users or job groups"
    )
    inside: Literal["fairness", "fifo"] = option(
        "fairness", "how jobs of one entity share under `hierarchical`"
    )
    entity_weights: tuple[str, ...] = option((), "NAME:WEIGHT of entities; others have 1")
    solve_limit_s: float = option(
        math.inf, "CPU seconds of one solve in a live cluster; after it the last X stays", low=0.0
    )
    seed: int = option(0, "of the lots; the run's unless given", low=0)
