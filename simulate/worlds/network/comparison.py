"""The same flows under several disciplines: deadlines met, and how long the others took."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from dlsched.policies.scheduling.karuna.queues import Sample, best_limits
from simulate.worlds.network.disciplines import DISCIPLINES, Queues
from simulate.worlds.network.flows import CRUMB, Flow, FlowId, Links, Number
from simulate.worlds.network.fluid import follow
from simulate.worlds.results import Result, check_known, mean, percentile

MOST_LOAD = 0.95  # for which limits are made: beyond it there is no mean


def limits_of(flows: Sequence[Flow], links: Links, queues: int) -> tuple[float, ...]:
    """Limits between so many queues that suit the sizes of flows without deadline.

    The load is that of the busiest link.
    """
    sizes = [float(flow.size) for flow in flows if flow.deadline is None]
    if queues == 1 or not sizes:
        return ()
    span = max(float(flow.arrival) for flow in flows) - min(float(flow.arrival) for flow in flows)
    brought = dict.fromkeys(links, 0.0)
    for flow in flows:
        for link in flow.path:
            brought[link] += float(flow.size) / float(links[link])
    load = max(brought.values()) / span if span > 0 else MOST_LOAD
    rate = min(load, MOST_LOAD) / float(np.mean(sizes))
    return best_limits(Sample(sizes), rate, queues)[0]


def compare(
    flows: Sequence[Flow], links: Links, names: Sequence[str], queues: Queues
) -> list[Result]:
    """Follow flows under each discipline.

    Raises:
        BadInput: an unknown discipline, or flows that never end.
    """
    check_known("--discipline:", names, DISCIPLINES)
    found = {name: follow(flows, links, DISCIPLINES[name](queues)) for name in names}
    return [
        Result(discipline=name, ends=ends, figures=_figures(flows, ends))
        for name, ends in found.items()
    ]


def _figures(flows: Sequence[Flow], ends: Mapping[FlowId, Number]) -> dict[str, float | None]:
    late = [
        float(ends[flow.id] - flow.deadline)
        for flow in flows
        if flow.deadline is not None
        and ends[flow.id] - flow.deadline > CRUMB * (flow.deadline - flow.arrival)
    ]
    took = [float(ends[flow.id] - flow.arrival) for flow in flows if flow.deadline is None]
    return {
        "deadlines": sum(flow.deadline is not None for flow in flows),
        "missed": len(late),
        "mean_late_s": mean(late),  # of those that are late
        "mean_others_s": mean(took),  # from arrival to end, without deadline
        "p95_others_s": percentile(took, 95),
        "last_end_s": float(max(ends.values())) if ends else None,
    }
