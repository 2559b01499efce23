"""What a job has executed, saved and lost is the same for policies after a restart."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from dlsched.protocol.messages import RunKey
from dlsched.rpc.conversion import to_wire
from dlsched.rpc.v1 import control_pb2 as c

from .cluster_of_tests import Running, eventually, job, settings_of
from .scripted_agent import ScriptedAgent
from .test_daily import reaches
from .test_recorded_predictions import begins

READ = ("executed", "saved", "lost_s", "held_s", "attained", "overhead_s", "restart_s")
NEAR_S = 100.0  # a step of the scenes is ten times as long


def columns_of(running: Running, number: int) -> dict[str, float]:
    """What a policy would read now, of a job that waits or runs."""
    live = running.daemon.cluster.live
    row = live.jobs.row_of[number]
    return {name: float(live.jobs.get(name, row)) for name in READ}


async def commit(agent: ScriptedAgent, key: RunKey, step: int) -> None:
    made = c.CheckpointCommit(
        node=agent.name, key=to_wire(key), path=f"/c/{step}", step=step, bytes=1, sha256="a"
    )
    answer = await agent.runs.CommitCheckpoint(made, timeout=60)
    assert answer.accepted


async def leaves(running: Running, agent: ScriptedAgent, number: int, ran_s: float) -> None:
    """A job is queued again after `ran_s` seconds, and cannot start."""
    caller = running.caller("root", 0)
    drain = c.NODE_ACTION_DRAIN
    request = c.SetNodesRequest(names=[agent.name], action=drain, reason="so that it waits")
    await caller.control.SetNodes(request, timeout=60)
    await caller.act(c.ACTION_REQUEUE, number)
    agent.end_job(number, 143, ran_s=ran_s)
    await reaches(caller, number, "PENDING")


def test_a_restart_does_not_change_what_a_waiting_job_has_saved(tmp_path: Path, later: Any) -> None:
    async def before() -> tuple[int, dict[str, float]]:
        async with (
            Running(settings_of(tmp_path)) as running,
            ScriptedAgent("n1", running.target) as agent,
        ):
            caller = running.caller()
            [number] = await caller.submit(job(gpus=1))
            key = await begins(agent, 1)
            later(3000.0)
            await commit(agent, key, 3)
            later(2000.0)
            await leaves(running, agent, number, 5000.0)
            return number, columns_of(running, number)

    async def after(number: int) -> dict[str, float]:
        async with Running(settings_of(tmp_path)) as running:
            await eventually(lambda: number in running.daemon.cluster.live.jobs.row_of)
            return columns_of(running, number)

    number, was = asyncio.run(before())
    assert (was["executed"], was["lost_s"]) == pytest.approx((3000.0, 2000.0), abs=NEAR_S)
    assert asyncio.run(after(number)) == pytest.approx(was, abs=NEAR_S)


def test_a_restart_does_not_change_what_a_running_job_has_saved(tmp_path: Path, later: Any) -> None:
    async def before() -> tuple[int, dict[str, float]]:
        async with (
            Running(settings_of(tmp_path)) as running,
            ScriptedAgent("n1", running.target) as agent,
        ):
            [number] = await running.caller().submit(job(gpus=1))
            key = await begins(agent, 1)
            later(3000.0)
            await commit(agent, key, 3)
            later(2000.0)
            return number, columns_of(running, number)

    async def after(number: int) -> dict[str, float]:
        async with Running(settings_of(tmp_path)) as running:
            await eventually(lambda: number in running.daemon.cluster.live.jobs.row_of)
            return columns_of(running, number)

    number, was = asyncio.run(before())
    assert was["saved"] == pytest.approx(3000.0, abs=NEAR_S)
    assert asyncio.run(after(number)) == pytest.approx(was, abs=NEAR_S)
