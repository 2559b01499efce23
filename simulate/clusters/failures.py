"""Nodes that fail by chance and are repaired: exponential times, one generator a node.

The failures of a node depend on the seed and its number only: they stay the same when the cluster
gets another node. Events are made one by one and never end; a replay takes as many as it needs.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Sequence

import numpy as np

from dlsched.core.cluster.description import Cluster
from simulate.clusters.cluster_events import ClusterEvent

STREAM = 0x6D746266  # keeps these draws apart from others of the same seed ("mtbf")


def with_failures(
    cluster: Cluster,
    scripted: Sequence[ClusterEvent],
    *,
    mtbf_s: float,
    mttr_s: float,
    seed: int,
) -> Iterator[ClusterEvent]:
    """Scripted events, and failures by chance between them, by time; they never end.

    A node fails only while the script has it in service, and a repair never brings back a node
    that the script has taken away, nor opens one that the script drains.

    Args:
        cluster: the nodes.
        scripted: the user's events, by time; a node whose first is a join is absent before.
        mtbf_s: mean time from a node's return to its next failure, above 0.
        mttr_s: mean time from a failure to the return, at least 0.
        seed: of the run.
    """
    own: dict[int, list[ClusterEvent]] = {}
    for event in scripted:
        own.setdefault(event.node, []).append(event)
    by_node = [
        _events_of(
            node,
            own.get(node, ()),
            np.random.default_rng([seed, STREAM, node]),
            mtbf_s=mtbf_s,
            mttr_s=mttr_s,
        )
        for node in range(len(cluster))
    ]
    return heapq.merge(*by_node, key=lambda event: event.time)


def _events_of(
    node: int,
    scripted: Sequence[ClusterEvent],
    rng: np.random.Generator,
    *,
    mtbf_s: float,
    mttr_s: float,
) -> Iterator[ClusterEvent]:
    """One node's events.

    Exponential times have no memory, so drawing anew after each scripted event changes nothing.
    """
    serving = not (scripted and scripted[0].kind == "join")  # as far as the script knows
    draining = broken = False
    now = 0.0
    for upcoming in (*scripted, None):
        until = math.inf if upcoming is None else upcoming.time
        while serving:
            now += rng.exponential(mttr_s if broken else mtbf_s)
            if now >= until:
                break
            yield ClusterEvent(time=now, kind="join" if broken else "fail", node=node)
            if broken and draining:
                yield ClusterEvent(time=now, kind="drain", node=node)
            broken = not broken
        if upcoming is None:
            return
        yield upcoming
        now = until
        match upcoming.kind:
            case "join":
                serving, draining, broken = True, False, False
            case "leave" | "fail":
                serving = broken = False
            case "drain":
                draining = True
            case "undrain":
                draining = False
            case "retype":
                pass
