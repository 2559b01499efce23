"""The same flows under several disciplines: deadlines met, and how long the others took."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dlsched.core.errors import not_known
from dlsched.policies.scheduling.karuna.queues import Sample, best_limits
from simulate.network.flows import CRUMB, Discipline, Flow, FlowId, Number
from simulate.network.fluid import follow
from simulate.network.ordering import EdfFirst, Fair, Srpt
from simulate.network.queueing import EdfFirstQueues, Karuna, Queues

DISCIPLINES = ("karuna", "edf-first-queues", "edf-first", "srpt", "fair")
MOST_LOAD = 0.95  # for which limits are made: beyond it there is no mean


def discipline_of(name: str, queues: Queues) -> Discipline:
    """A discipline by its name.

    Raises:
        BadInput: there is none of this name.
    """
    made: dict[str, Discipline] = {
        "karuna": Karuna(queues=queues),
        "edf-first-queues": EdfFirstQueues(queues=queues),
        "edf-first": EdfFirst(),
        "srpt": Srpt(),
        "fair": Fair(),
    }
    if name not in made:
        raise not_known("--discipline:", name, DISCIPLINES)
    return made[name]


def limits_of(flows: Sequence[Flow], links: Mapping[str, Number], queues: int) -> tuple[float, ...]:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What came of the flows under one discipline.

    Attributes:
        discipline: its name.
        ends: of each flow, in seconds.
        deadlines: flows that have one.
        missed: of these, the late ones.
        mean_late_s: of the late ones; None: there are none.
        mean_others_s: from arrival to end, of the flows without deadline; None: there are none.
        p95_others_s: their 95 % quantile.
        last_end_s: when the last one ends.
    """

    discipline: str
    ends: Mapping[FlowId, Number]
    deadlines: int
    missed: int
    mean_late_s: float | None
    mean_others_s: float | None
    p95_others_s: float | None
    last_end_s: float

    def figures(self) -> dict[str, Any]:
        """All but the ends, for JSON."""
        return {name: getattr(self, name) for name in self.__slots__ if name != "ends"}


def compare(
    flows: Sequence[Flow], links: Mapping[str, Number], names: Sequence[str], queues: Queues
) -> list[Result]:
    """Follow flows under each discipline.

    Raises:
        BadInput: an unknown discipline, or flows that never end.
    """
    disciplines = [discipline_of(name, queues) for name in names]
    return [
        _result(name, flows, follow(flows, links, each))
        for name, each in zip(names, disciplines, strict=True)
    ]


def _result(name: str, flows: Sequence[Flow], ends: Mapping[FlowId, Number]) -> Result:
    late = [
        float(ends[flow.id] - flow.deadline)
        for flow in flows
        if flow.deadline is not None
        and ends[flow.id] - flow.deadline > CRUMB * (flow.deadline - flow.arrival)
    ]
    took = [float(ends[flow.id] - flow.arrival) for flow in flows if flow.deadline is None]
    return Result(
        discipline=name,
        ends=ends,
        deadlines=sum(flow.deadline is not None for flow in flows),
        missed=len(late),
        mean_late_s=float(np.mean(late)) if late else None,
        mean_others_s=float(np.mean(took)) if took else None,
        p95_others_s=float(np.percentile(took, 95)) if took else None,
        last_end_s=float(max(ends.values())),
    )
