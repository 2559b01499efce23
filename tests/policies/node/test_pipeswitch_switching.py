"""When a GPU switches between a training and requests, and what that costs."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dlsched.policies.node.pipeswitch.grouping import Model
from dlsched.policies.node.pipeswitch.switching import STOP, TRAIN, Do, SwitchedGpu
from tests.policies.node.switched_run import (
    Costs,
    System,
    Training,
    run_switched,
    service_time,
)

MODEL = Model(
    size=np.full(50, 4.0), compute=np.full(50, 0.7), bandwidth=12.0, call=0.02, sync=0.02
)  # 200 MB, 35 ms
COSTS = Costs(clean=0.18, restart=5.6)


def test_a_request_stops_the_training_and_waits_until_it_has_let_go() -> None:
    gpu = SwitchedGpu(trains=True, idle_s=0.5)
    assert gpu.woke(0.0) == [TRAIN]
    assert gpu.requested(1, "a") == [STOP]
    assert gpu.requested(2, "b") == []  # nothing starts before the training has let go
    assert gpu.ended(1.0) == [Do("start", 1, "a")]
    assert gpu.requested(3, "a") == []  # no request interrupts another
    assert gpu.ended(2.0) == [Do("start", 2, "b")]
    assert gpu.ended(3.0) == [Do("start", 3, "a")]
    assert gpu.ended(4.0) == []
    assert gpu.wake_at == 4.5
    assert gpu.woke(4.4) == []
    assert gpu.woke(4.5) == [TRAIN]


def test_a_request_within_the_idle_time_keeps_the_training_away() -> None:
    gpu = SwitchedGpu(trains=True, idle_s=0.5)
    assert gpu.requested(1, "a") == [Do("start", 1, "a")]
    gpu.ended(1.0)
    assert gpu.requested(2, "a") == [Do("start", 2, "a")]
    assert gpu.woke(2.0) == []
    assert gpu.ended(3.0) == []
    assert gpu.woke(3.5) == [TRAIN]
    assert gpu.training_ended(4.0) == []
    assert gpu.wake_at == math.inf
    assert gpu.requested(3, "b") == [Do("start", 3, "b")]


def run(system: System, training: Training | None = None) -> float:
    requests = [1.0 + 7.0 * n for n in range(20)]
    given = training or Training(iteration_s=0.2, layer_s=0.004, load_s=0.01)
    found = run_switched(requests, MODEL, given, system, COSTS, until=160.0)
    assert found.switches == (0 if system == "ready" else 20)
    return float(np.mean(found.latencies))


def test_the_ways_to_switch_are_in_the_published_order() -> None:
    latency = {
        system: run(system) for system in ("ready", "pipelined", "grouped", "stop-next", "restart")
    }
    assert list(latency) == sorted(latency, key=latency.__getitem__)
    assert 4 <= latency["stop-next"] / latency["pipelined"] <= 6
    assert service_time(MODEL, "ready", COSTS) == pytest.approx(0.035)


def test_the_training_keeps_whole_iterations_only() -> None:
    training = Training(iteration_s=0.4)
    found = run_switched([1.0], MODEL, training, "pipelined", until=2.2, idle_s=0.1)
    takes = service_time(MODEL, "pipelined", Costs())
    assert found.latencies == pytest.approx([takes])
    rest = 2.2 - (1.0 + takes + 0.1)
    assert found.iterations == 2 + math.floor(rest / 0.4)
    assert found.lost_s == pytest.approx(0.2 + rest % 0.4)


def test_requests_that_come_together_wait_for_each_other() -> None:
    found = run_switched([1.0, 1.0, 1.0], MODEL, None, "ready", until=5.0)
    assert found.latencies == pytest.approx([0.035, 0.07, 0.105])
