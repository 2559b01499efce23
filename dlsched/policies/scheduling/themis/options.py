"""The options of the policies `themis` and `themis-greedy`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dlsched.core.options import option

__all__ = ["ThemisGreedyOptions", "ThemisOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ThemisGreedyOptions:
    """Themis without the auction."""

    lease_s: float = option(1200.0, "seconds for which a job keeps its GPUs", low=1.0)
    ends: Literal["last", "first"] = option(
        "last", "an app ends with its last job, or with its first (a search for the best trial)"
    )
    slowdown_rack: float = option(1.0, "S: work takes so much longer over machines", low=1.0)
    slowdown_cross: float = option(1.0, "S over racks (leaf switches)", low=1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ThemisOptions(ThemisGreedyOptions):
    """Themis."""

    knob: float = option(
        0.8, "f: GPUs are offered to the worst-off 1 − f of the apps", low=0.0, high=1.0
    )
    payment: Literal["gpus", "time"] = option(
        "gpus", "what is paid with: GPUs of the bundle, or time of the lease"
    )
    leftovers: Literal["rho", "random"] = option(
        "rho", "who is asked first about what is left: the worst-off, or by lot"
    )
    most_bidders: int = option(8, "with more bidders an auction is greedy", low=0)
    most_bundles: int = option(200, "with more different bundles an auction is greedy", low=1)
