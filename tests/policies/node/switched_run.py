"""One GPU with a training and inference requests over time, under several ways to switch.

ready      the model is on the GPU already, and there is no training: the lower bound
pipelined  PipeSwitch: the old task lets go after a layer; copies and computing overlap
grouped    the same, but all is copied before anything is computed
stop-next  the old worker cleans up before the next one may start
restart    the old process ends, and a new one starts for the request
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from dlsched.core.errors import BadInput
from dlsched.policies.node.pipeswitch.grouping import Model, best_groups
from dlsched.policies.node.pipeswitch.switching import IDLE_S, TRAINING, SwitchedGpu

System = Literal["ready", "pipelined", "grouped", "stop-next", "restart"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """The training of the GPU, which saves at the end of each iteration only.

    Attributes:
        iteration_s: of one iteration.
        layer_s: of its longest layer: it lets the GPU go at the end of one.
        load_s: until its first iteration begins after a switch.
    """

    iteration_s: float
    layer_s: float = 0.0
    load_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """What a switch costs beside copies, in seconds.

    Attributes:
        clean: that a worker needs to clean up, where the next one waits for it.
        restart: that a process needs to end, and another to start and to load its model.
    """

    clean: float = 0.0
    restart: float = 0.0


@dataclass(slots=True)
class SwitchedRun:
    """What became of it.

    Attributes:
        latencies: seconds from each request to its answer, in order of the requests.
        iterations: that the training has completed.
        lost_s: seconds of iterations that were cut short.
        switches: how often a request stopped the training.
    """

    latencies: list[float] = field(default_factory=list)
    iterations: int = 0
    lost_s: float = 0.0
    switches: int = 0


def service_time(model: Model, system: System, costs: Costs) -> float:
    """Seconds from the moment that the GPU is free for a request to its answer."""
    computed = float(model.compute.sum()) / 1000.0
    if system == "ready":
        return computed
    if system == "grouped":
        return finish_time(model, one_group(model)) / 1000.0
    pipelined = finish_time(model, best_groups(model)) / 1000.0
    if system == "stop-next":
        return costs.clean + pipelined
    return costs.restart + computed if system == "restart" else pipelined


def run_switched(
    requests: Sequence[float],
    model: Model,
    training: Training | None,
    system: System,
    costs: Costs = Costs(),
    *,
    until: float,
    seed: int = 0,
    idle_s: float = IDLE_S,
) -> SwitchedRun:
    """Serve requests for one model beside a training.

    Args:
        requests: when they come, ascending, in seconds.
        model: that answers them.
        training: what has the GPU else; None: nothing.
        system: how it switches; `ready` has no training.
        costs: of the system.
        until: when the run ends; requests that have come by then are served.
        seed: of the time that a layer of the training still needs when it is told to stop.
        idle_s: without a request, before the training goes on.
    """
    chance, found = np.random.default_rng(seed), SwitchedRun(latencies=[math.nan] * len(requests))
    trains = training if system != "ready" else None
    gpu = SwitchedGpu(trains=trains is not None, idle_s=idle_s)
    takes = service_time(model, system, costs)
    agenda: list[tuple[float, int, str]] = [(at, n, "request") for n, at in enumerate(requests)]
    heapq.heapify(agenda)
    begun = 0.0  # when the training may begin its first iteration since the last switch
    now = 0.0
    while agenda or gpu.wake_at <= until:
        if gpu.wake_at <= (agenda[0][0] if agenda else until):
            now = max(now, gpu.wake_at)
            todo = gpu.woke(now)
        else:
            now, task, what = heapq.heappop(agenda)
            if what == "request":
                todo = gpu.requested(task, "service")
            else:
                if task >= 0:
                    found.latencies[task] = now - requests[task]
                todo = gpu.ended(now)
        for each in todo:
            if each.verb == "start" and each.service == TRAINING and trains is not None:
                begun = now + (costs.restart if system == "restart" else trains.load_s)
            elif each.verb == "start":
                heapq.heappush(agenda, (now + takes, each.task, "end"))
            elif trains is not None:
                _cut(found, trains, now - begun)
                found.switches += 1
                ends = now + float(chance.uniform(0.0, trains.layer_s))
                heapq.heappush(agenda, (ends, -1, "end"))
    if trains is not None and gpu.active == TRAINING:
        _cut(found, trains, until - begun)
    return found


def _cut(found: SwitchedRun, training: Training, worked: float) -> None:
    """The training has worked for so long since its switch: whole iterations count."""
    whole = max(math.floor(worked / training.iteration_s), 0)
    found.iterations += whole
    found.lost_s += max(worked - whole * training.iteration_s, 0.0)


def finish_time(model: Model, ends: Sequence[int]) -> float:
    """When the first pass ends, in ms, with groups that end at these layers (0-based, ascending).

    Raises:
        BadInput: the groups are not those of the model's layers.
    """
    last = len(model.size) - 1
    if list(ends) != sorted({*ends}) or not ends or ends[0] < 0 or ends[-1] != last:
        raise BadInput(f"groups {list(ends)}: layers in ascending order are needed, up to {last}")
    copied = np.cumsum(model.size)
    computed = np.concatenate([[0.0], np.cumsum(model.compute)])
    done, before = 0.0, 0
    for number, end in enumerate(ends, 1):
        arrived = number * model.call + float(copied[end]) / model.bandwidth
        done = max(done, arrived) + model.sync + float(computed[end + 1] - computed[before])
        before = end + 1
    return done


def one_group(model: Model) -> list[int]:
    """No pipelining: all layers are copied, then computed."""
    return [len(model.size) - 1]


def per_layer(model: Model) -> list[int]:
    """Each layer is copied by itself."""
    return list(range(len(model.size)))
