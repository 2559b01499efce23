"""Used GPU time while jobs end: each run counts once, in the store or in memory."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dlsched.daemon.loops.gpu_hours import GpuHours
from dlsched.rpc.v1 import control_pb2 as c

from .cluster_of_tests import Caller, Running, eventually, job
from .scripted_agent import ScriptedAgent
from .test_daily import ends, play, reaches
from .test_tenants import Operator

HOUR_S = 3600.0


class Halt:
    """Two places of a read of the store, just before it and just after it, where it is held."""

    def __init__(self, read: Callable[..., Any]) -> None:
        self._read = read
        self.before, self.after = threading.Event(), threading.Event()
        self.go_on = {self.before: threading.Event(), self.after: threading.Event()}

    def __call__(self, *args: Any, **named: Any) -> Any:
        self._stop(self.before)
        found = self._read(*args, **named)
        self._stop(self.after)
        return found

    def _stop(self, place: threading.Event) -> None:
        place.set()
        self.go_on[place].wait()


async def one_ends_before_and_one_after(
    halt: Halt, caller: Caller, agent: ScriptedAgent, first: int, second: int
) -> None:
    for place, number in ((halt.before, first), (halt.after, second)):
        await asyncio.to_thread(place.wait)
        await ends(agent, number)
        await reaches(caller, number, "COMPLETED")
        halt.go_on[place].set()


def test_a_run_that_ends_while_usage_is_asked_for_counts_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, later: Any
) -> None:
    async def scene(running: Running, caller: Caller, agent: ScriptedAgent) -> None:
        first, second = await caller.submit(job(gpus=1), job(gpus=2))
        for number in (first, second):
            await reaches(caller, number, "RUNNING")
        later(HOUR_S)
        store = running.daemon.driver.store
        halt = Halt(store.usage)
        monkeypatch.setattr(store, "usage", halt)
        asked = caller.control.Usage(c.UsageRequest(by_user=True))
        asking = asyncio.ensure_future(asked)
        await one_ends_before_and_one_after(halt, caller, agent, first, second)
        [mine] = (await asking).usage
        assert (mine.name, mine.gpus_now, mine.gpu_parts_now) == ("ann", 2, 2.0)
        assert 3 * HOUR_S <= mine.gpu_s < 4 * HOUR_S, "the hour of the first, two of the second"

    play(tmp_path, scene)


def test_a_run_that_ends_while_gpu_hours_are_summed_counts_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, later: Any
) -> None:
    async def scene(running: Running, caller: Caller, agent: ScriptedAgent) -> None:
        await Operator(running).set("quota", kind="user", name="ann", gpus=4, gpu_hours=100.0)
        limits = running.daemon.cluster.live.eligibility.tenant_limits
        await eventually(lambda: limits.quotas)
        [own] = [each for each in asyncio.all_tasks() if each.get_name() == "gpu-hours"]
        own.cancel()  # it would read, too
        first, second = await caller.submit(job(gpus=1), job(gpus=2))
        for number in (first, second):
            await reaches(caller, number, "RUNNING")
        later(2 * HOUR_S)
        store = running.daemon.driver.store
        halt = Halt(store.run_usage)
        monkeypatch.setattr(store, "run_usage", halt)
        hours = GpuHours(running.daemon.cluster, running.daemon.rounds)
        summing = asyncio.create_task(hours.refresh())
        await one_ends_before_and_one_after(halt, caller, agent, first, second)
        await summing
        used = limits.used_hours["user", "ann"]
        assert 6.0 <= used < 7.0, "two hours of one GPU, and two of two"

    play(tmp_path, scene)
