"""Metrics of one node for Prometheus, taken from the agent every few seconds.

GPUs have their index as their label, not the job that has them: the daemon has metrics of jobs.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from prometheus_client.metrics_core import Metric

from dlsched.protocol.messages import ExitReason, Phase
from dlsched.rpc.metrics_port import (
    MetricsPort,
    Moment,
    Values,
    certificate_metric,
    counter,
    gauge,
    new_registry,
)
from dlsched.system.clock import boottime

if TYPE_CHECKING:
    from dlsched.nodeagent.agent.agent_driver import AgentDriver

GATHER_S = 2.0


class AgentMetrics:
    """The metrics of one agent."""

    def __init__(
        self, driver: AgentDriver, expires_at: Callable[[], float | None] = lambda: None
    ) -> None:
        """Make them for an agent; `run` keeps them up to date.

        `expires_at` says when its certificate does, in seconds since the epoch; None: it has none.
        """
        registry = new_registry()
        self._driver = driver
        self._expires_at = expires_at
        self._moment = Moment(registry)
        self._port = MetricsPort(registry)

    def listen(self, where: str) -> int:
        """Listen at HOST:PORT; returns the port.

        Raises:
            BadInput: for an address that is malformed or in use.
        """
        return self._port.listen(where, "metrics")

    async def run(self) -> None:
        """Take the metrics again and again, for ever."""
        try:
            while True:
                self._moment.families = [
                    *_of_agent(self._driver),
                    *_of_gpus(self._driver),
                    *certificate_metric("dlsched_agent", self._expires_at()),
                ]
                await asyncio.sleep(GATHER_S)
        finally:
            await asyncio.to_thread(self._port.close)


def _of_agent(driver: AgentDriver) -> Iterator[Metric]:
    state, leader = driver.state, driver.leader
    phases = Counter(held.phase for held in state.held.values())
    yield gauge(
        "dlsched_agent_runs", "Runs on this node by phase",
        {(phase.value,): phases[phase] for phase in Phase}, ["phase"],
    )  # fmt: skip
    yield counter("dlsched_agent_run_starts", "Runs that were started", driver.starts)
    yield counter(
        "dlsched_agent_run_ends", "Runs that have ended, by how",
        {(reason.value.replace("-", "_"),): driver.ends[reason] for reason in ExitReason},
        ["reason"],
    )  # fmt: skip
    connected = float(leader.connected.is_set())
    yield gauge("dlsched_agent_connected", "1 while a daemon answers", connected)
    yield counter("dlsched_agent_syncs_answered", "Syncs that a daemon answered", leader.answered)
    yield counter("dlsched_agent_daemon_failures", "Failures to reach one", leader.failures)
    if math.isfinite(state.lease_until):
        left = max(0.0, state.lease_until - boottime())
        yield gauge("dlsched_agent_lease_seconds", "What is left of the node's lease", left)
    problems = len(driver.gpus.problems)
    yield gauge("dlsched_agent_problems", "Reasons why the node gets no new runs", problems)


def _of_gpus(driver: AgentDriver) -> Iterator[Metric]:
    watch, label = driver.gpus, ["gpu"]
    gpus = {(str(gpu.index),): gpu for gpu in watch.inventory.gpus}
    bad = set(watch.unhealthy)
    held = {gpu for run in driver.state.held.values() for gpu in run.desired.gpus}
    yield gauge(
        "dlsched_agent_gpu_memory_bytes", "Size of the GPU's memory",
        {key: gpu.memory_bytes for key, gpu in gpus.items()}, label,
    )  # fmt: skip
    yield gauge(
        "dlsched_agent_gpu_held", "1 while a run has the GPU",
        {key: gpu.uuid in held for key, gpu in gpus.items()}, label,
    )  # fmt: skip
    yield gauge(
        "dlsched_agent_gpu_healthy", "1 while runs may get the GPU",
        {key: gpu.uuid not in bad for key, gpu in gpus.items()}, label,
    )  # fmt: skip
    for name, text, field in (
        ("utilization", "How busy the GPU is, from 0 to 1", "utilization"),
        ("memory_used_bytes", "GPU memory in use", "memory_used_bytes"),
        ("temperature_celsius", "Temperature of the GPU", "temperature_c"),
    ):
        states = {key: getattr(watch.states[gpu.uuid], field) for key, gpu in gpus.items()}
        known: Values = {key: value for key, value in states.items() if value is not None}
        yield gauge(f"dlsched_agent_gpu_{name}", text, known, label)
