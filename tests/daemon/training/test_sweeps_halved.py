"""Halving in a daemon: decided from what is stored, also by the next daemon, and once."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import grpc

from dlsched.daemon.training.sweeps import judge_sweeps
from dlsched.protocol.messages import JobId
from dlsched.rpc.v1 import control_pb2 as c
from dlsched.rpc.v1 import run_pb2
from tests.daemon.cluster_of_tests import Caller, Running, eventually, job, settings_of
from tests.daemon.scripted_agent import ScriptedAgent

SWEEP = c.SweepTable(
    columns=["lr"],
    rows=[c.SweepRow(values=[rate]) for rate in ("0.1", "0.2", "0.3")],
    halving=c.Halving(metric="loss", mode="min", eta=3, rung=10, most=10),
)


class Scene:
    """One daemon of several on the same database, with one node."""

    def __init__(self, running: Running, agent: ScriptedAgent) -> None:
        self.running, self.agent = running, agent
        self.caller: Caller = running.caller()

    async def report(self, number: int, step: int, loss: float) -> None:
        """Report a step of a job as its rank 0 does."""
        [key] = [key for key in self.agent.running() if key.job == number]
        await self.agent.runs.Report(
            c.RunReport(
                node="n1",
                key=run_pb2.RunKey(job=key.job, run=key.run, run_id=key.run_id),
                step=step,
                loss=loss,
            ),
            timeout=10,
        )

    async def known(self, number: int, first: int) -> None:
        """Report until the daemon has read what the sweep's jobs have reached."""
        rungs = self.running.daemon.cluster.rungs
        while JobId(first) not in rungs.of:
            await self.report(number, 1, 9.0)
            await asyncio.sleep(0.01)

    async def has_ended(self, number: int) -> bool:
        """Whether a job is stopped, and its end stored."""
        return await self.caller.state(number) == "CANCELLED"

    async def values(self, first: int) -> list[tuple[int, int, float | None, bool]]:
        """What is stored, when everything decided so far is."""
        driver = self.running.daemon.driver
        await driver.attach()
        rows = await asyncio.to_thread(driver.store.rungs, JobId(first))
        return [(row.job - first, row.step, row.value, row.stopped) for row in rows]


@asynccontextmanager
async def daemon(folder: Path, before: ScriptedAgent | None = None) -> Any:
    """A daemon and its node, which may know the runs of an earlier one."""
    async with Running(settings_of(folder)) as running:
        agent = ScriptedAgent("n1", running.target, disk=before.disk if before else None)
        agent.keepers = before.keepers if before else {}
        async with agent:
            yield Scene(running, agent)


def test_the_next_daemon_decides_from_what_was_reached_before(tmp_path: Path) -> None:
    async def whole() -> None:
        async with daemon(tmp_path) as one:
            wanted = job("train", "--lr={lr}", name="lr-{lr}", array="1-3", sweep=SWEEP)
            [first] = await one.caller.submit(wanted)
            await eventually(lambda: len(one.agent.running()) == 3)
            spec = one.agent.launched[next(k.run_id for k in one.agent.running() if k.job == first)]
            assert (list(spec.argv), spec.job_name, spec.rungs) == (
                ["train", "--lr=0.1"], "lr-0.1", "10:3:10",
            )  # fmt: skip
            assert {each.name: each.value for each in spec.environment} == {"lr": "0.1"}
            await one.known(first, first)
            await one.report(first, 12, 0.5)
            await one.report(first + 1, 12, 0.6)
            judge_sweeps(one.running.daemon.cluster)
            assert await one.values(first) == [(0, 12, 0.5, False), (1, 12, 0.6, False)]
        async with daemon(tmp_path, one.agent) as two:
            await eventually(lambda: len(two.agent.running()) == 3)
            await two.known(first, first)
            await two.report(first, 50, 0.001)  # what they had at the rung stays
            await two.report(first + 1, 50, 0.001)
            await two.report(first + 2, 10, 0.55)
            for loser in (first + 1, first + 2):
                await eventually(partial(two.has_ended, loser))
            shown = await two.caller.show(first + 2)
            why = "stopped by successive halving at step 10: loss 0.55, rank 2 of 3"
            assert (shown.job.state, shown.job.reason) == ("CANCELLED", why)
            assert [e.text for e in shown.events if e.kind == "cancel"] == [why]
            assert await two.values(first) == [
                (0, 12, 0.5, False), (1, 12, 0.6, True), (2, 10, 0.55, True),
            ]  # fmt: skip
        async with daemon(tmp_path, two.agent) as three:
            await eventually(lambda: len(three.agent.running()) == 1)
            await three.known(first, first)
            judge_sweeps(three.running.daemon.cluster)
            # its owner wants it after all: it is not stopped again
            await three.caller.act(c.ACTION_REQUEUE, first + 2)
            await eventually(lambda: len(three.agent.running()) == 2)
            await three.report(first + 2, 10, 99.0)
            judge_sweeps(three.running.daemon.cluster)
            assert (await three.values(first))[2] == (2, 10, 0.55, True)
            assert sorted(key.job for key in three.agent.running()) == [first, first + 2]
            reply = await three.caller.control.Sweep(c.SweepRequest(job=first + 1), timeout=60)
            assert [each.state for each in reply.elements] == ["RUNNING", "CANCELLED", "RUNNING"]
            assert reply.job == first
            other = three.running.caller("eve", 1002)
            assert await refused(other, first) == f"job {first}_1 belongs to ann, not to eve"
            [plain] = await three.caller.submit(job("true"))
            assert (await refused(three.caller, plain)).startswith(f"job {plain}: not a sweep;")
            assert await refused(three.caller, 999) == "job 999: there is no such job"

    asyncio.run(whole())


async def refused(caller: Caller, number: int) -> str:
    """Why a listing is refused."""
    try:
        await caller.control.Sweep(c.SweepRequest(job=number), timeout=60)
    except grpc.aio.AioRpcError as error:
        return error.details() or ""
    return ""
