"""What can be chosen of MLFS."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dlsched.core.options import NETWORK, option
from dlsched.policies.learning.network import Network
from dlsched.policies.scheduling.mlfs.priorities import Weights


@dataclass(frozen=True, slots=True, kw_only=True)
class MlfsOptions(Weights):
    """Priorities, placement, relief of overloaded servers, and load control."""

    model: Network | None = option(
        None, "a network of `dlsched train mlfs` (MLF-RL); none: MLF-H", from_file=NETWORK
    )
    time_unit_s: float = option(60.0, "seconds of a unit of time in the priorities", low=1e-9)
    urgency: float = option(1.0, "urgency of a job that has no priority of its own", low=0.0)
    normalise: bool = option(
        False,
        "divide the learning and the time priorities by the largest ones before they are mixed",
    )
    hosts: Literal["nearest", "placement"] = option(
        "nearest",
        "nearest: each GPU on the server nearest to the ideal one; placement: as --placement says",
    )
    misfit: Literal["skip", "stop"] = option(
        "skip", "behind a job that does not fit: start what fits (skip), or nothing (stop)"
    )
    overload: float = option(
        0.9, "a server is overloaded above this part of a resource", low=0.0, high=1.0
    )
    relieve: bool = option(True, "move jobs out of overloaded servers")
    candidates: float = option(
        0.1,
        "part of the jobs on overloaded GPUs, of least priority, that may move",
        low=0.0,
        high=1.0,
    )
    load_control: bool = option(True, "end trainings as their users allow it (MLF-C)")
    gain: float = option(
        0.001, "a training gains no more below this part of its best accuracy", low=0.0
    )
    points: int = option(5, "reports of accuracy before a curve is trusted", low=1)
    confidence: float = option(
        1.0,
        "end a training that may end at `best` and misses its target this surely; 1: never",
        low=0.5,
        high=1.0,
    )
    cluster_load: float = option(
        0.9, "the cluster is overloaded above this load, and while any job waits", low=0.0
    )
