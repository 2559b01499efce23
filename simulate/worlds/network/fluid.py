"""Flows followed to their ends: rates stay as they are between two events.

Events are arrivals, ends, deadlines that pass, and flows of unknown size that reach a limit. At
each the discipline is asked anew.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace

from dlsched.core.errors import BadInput
from simulate.worlds.network.flows import CRUMB, Discipline, Flow, FlowId, Links, Number


def follow(flows: Iterable[Flow], links: Links, discipline: Discipline) -> dict[FlowId, Number]:
    """When each flow ends, in seconds.

    Args:
        flows: to come; they are not changed.
        links: capacity of each, in units of the sizes a second.
        discipline: decides their rates.

    Raises:
        BadInput: flows stand for ever, because a link of theirs carries nothing.
    """
    coming = sorted((replace(flow) for flow in flows), key=lambda flow: (flow.arrival, flow.id))
    coming.reverse()
    present: list[Flow] = []
    ends: dict[FlowId, Number] = {}
    now: Number = coming[-1].arrival if coming else 0
    while coming or present:
        while coming and coming[-1].arrival <= now:
            present.append(coming.pop())
        rates = discipline.share(present, links, now).rate
        following = _next_event(present, coming, rates, discipline, now)
        if following is None:
            names = ", ".join(str(flow.id) for flow in present[:5])
            raise BadInput(f"flows {names} never end: a link of their path carries nothing")
        for flow in present:
            _send(flow, rates[flow.id] * (following - now), discipline)
        now = following
        for flow in present:
            if flow.remaining <= CRUMB * flow.size:
                ends[flow.id] = now
        present = [flow for flow in present if flow.id not in ends]
    return ends


def _send(flow: Flow, amount: Number, discipline: Discipline) -> None:
    """Send so much; a limit that is a crumb away counts as reached."""
    flow.sent += amount
    for limit in discipline.limits:
        if flow.kind == "unknown" and flow.sent < limit <= flow.sent + CRUMB * flow.size:
            flow.sent = limit


def _next_event(
    present: list[Flow],
    coming: list[Flow],
    rates: Mapping[FlowId, Number],
    discipline: Discipline,
    now: Number,
) -> Number | None:
    """When anything changes next; None: never."""
    times: list[Number] = [coming[-1].arrival] if coming else []
    for flow in present:
        due, rate = flow.due(now), rates[flow.id]
        if due is not None:
            times.append(due)
        if not rate > 0:
            continue
        times.append(now + flow.remaining / rate)
        if flow.kind == "unknown":
            ahead = [limit for limit in discipline.limits if flow.sent < limit < flow.size]
            times.extend(now + (limit - flow.sent) / rate for limit in ahead[:1])
    found = min(times, default=None)
    return None if found is None or found == math.inf else found
