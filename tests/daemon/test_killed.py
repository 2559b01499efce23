"""The daemon is killed at every fault point: its answers hold, and nothing runs twice."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from dlsched.rpc.v1 import control_pb2 as c
from dlsched.system.fault_points import DAEMON

from .cluster_of_tests import Caller, eventually, job
from .scripted_agent import ScriptedAgent

pytestmark = pytest.mark.slow

CONFIG = """
[daemon]
database = "sqlite:///{folder}/d.db"
listen = ["unix:{folder}/d.sock"]
metrics = ""
[round]
interval_s = 30.0
[timing]
beat_s = 0.4
"""


class Process:
    """A daemon in a process of its own, which can be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.target = f"unix:{folder}/d.sock"
        (folder / "d.toml").write_text(CONFIG.format(folder=folder))
        self.process: asyncio.subprocess.Process | None = None

    async def start(self, faultpoint: str = "") -> None:
        environment = {**os.environ, "DLSCHED_FAULTPOINT": faultpoint}
        with (self.folder / "log").open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "dlsched.daemon", "--insecure-loopback",
                "--config", str(self.folder / "d.toml"), env=environment, stderr=log,
            )  # fmt: skip

    async def kill(self) -> None:
        assert self.process is not None
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGKILL)
        await self.process.wait()

    async def died(self) -> None:
        """It has killed itself at its faultpoint."""
        assert self.process is not None
        assert await asyncio.wait_for(self.process.wait(), 60) == -signal.SIGKILL

    async def leads(self) -> Caller:
        """A caller of a daemon that leads; a fresh one, as the socket may be another's."""

        async def answer() -> bool:
            with contextlib.suppress(grpc.aio.AioRpcError):
                status = await caller.control.Status(c.StatusRequest(), timeout=2)
                return bool(status.leader) and not status.standby
            return False

        caller = Caller(self.target)
        await eventually(answer)
        return caller


@contextlib.asynccontextmanager
async def a_process() -> AsyncIterator[Process]:
    with tempfile.TemporaryDirectory(prefix="dls") as folder:
        process = Process(Path(folder))
        try:
            yield process
        finally:
            if process.process is not None and process.process.returncode is None:
                await process.kill()


async def tried(call: Awaitable[Any]) -> Any:
    """The answer, or None when the daemon died meanwhile."""
    with contextlib.suppress(grpc.aio.AioRpcError):
        return await call
    return None


async def all_jobs(caller: Caller) -> list[int]:
    jobs, folded, _ = await caller.queue()
    return sorted(view.job for view in jobs) + [line.first.job for line in folded]


def play(scene: Callable[[Process], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with a_process() as process:
            await scene(process)

    asyncio.run(whole())


@pytest.mark.parametrize(
    ("point", "stored"), [("after-submit-read", False), ("before-commit", False),
                          ("after-commit-before-answer", True)],
)  # fmt: skip
def test_a_submission_that_was_cut_short_is_repeated_safely(point: str, stored: bool) -> None:
    """Rows A1 and A2."""

    async def scene(process: Process) -> None:
        await process.start(point)
        caller = await process.leads()
        assert await tried(caller.submit(job(held=True), request_id="r")) is None
        await process.died()
        await caller.close()
        await process.start()
        caller = await process.leads()
        assert await all_jobs(caller) == ([1] if stored else [])
        assert await caller.submit(job(held=True), request_id="r") == [1]
        assert await all_jobs(caller) == [1]
        await caller.close()

    play(scene)


def test_after_a_kill_right_after_each_submission_no_job_is_lost_and_no_id_is_used_twice() -> None:
    """Row A3."""

    async def scene(process: Process) -> None:
        told: list[int] = []
        for turn in range(4):
            await process.start()
            caller = await process.leads()
            for k in range(5):
                told += await caller.submit(job(held=True), request_id=f"r{turn}-{k}")
            await process.kill()
            await caller.close()
        await process.start()
        caller = await process.leads()
        assert sorted(set(told)) == sorted(told) == await all_jobs(caller)
        await caller.close()

    play(scene)


@pytest.mark.parametrize("point", [p for p in DAEMON if p != "after-submit-read"])
def test_jobs_run_once_and_end_at_whatever_point_the_daemon_dies(point: str) -> None:
    """Rows A4, A5, A6 and A11: every place, with work under way."""

    async def scene(process: Process) -> None:
        agents = [ScriptedAgent(f"n{k}", process.target) for k in (1, 2)]
        await process.start(f"{point}:3")
        caller = await process.leads()
        ids: list[int] = []
        async with agents[0], agents[1]:
            jobs = [job(gpus=2), job(nodes=2, gpus_per_node=1), job(gpus=1)]
            for k, each in enumerate(jobs):
                # a daemon that has died is asked again when it is back, under the same id
                ids += await repeated(process, each, f"r{k}")
            if process.process is not None and process.process.returncode is None:
                await process.kill()
            await caller.close()
            await process.start()
            caller = await process.leads()

            def held() -> list[Any]:
                return [key for agent in agents for key in agent.running()]

            # four members: a gang's two begin one after the other
            await eventually(lambda: [key.job for key in held()].count(ids[1]) == 2)
            await eventually(lambda: {key.job for key in held()} == set(ids))
            started = [key for agent in agents for key in agent.executed]
            assert len({(key.job, key.run) for key in started}) == 3
            for number in ids:
                for agent in agents:
                    for key in [key for key in agent.running() if key.job == number]:
                        agent.end(key.run_id)
            for number in ids:

                async def over(number: int = number) -> bool:
                    return await caller.state(number) == "COMPLETED"

                await eventually(over)
            await caller.close()

    play(scene)


async def repeated(process: Process, wanted: c.JobRequest, name: str) -> list[int]:
    """Submit until there is an answer, starting the daemon again when it has died."""

    async def answer() -> list[int] | None:
        assert process.process is not None
        if process.process.returncode is not None:
            await process.start()
            await (await process.leads()).close()
        caller = Caller(process.target)
        ids = await tried(caller.submit(wanted, request_id=name))
        await caller.close()
        if ids is None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.process.wait(), 0.5)
        return ids

    return list(await eventually(answer))


def test_jobs_run_on_without_the_daemon_and_their_ends_are_delivered_later() -> None:
    async def scene(process: Process) -> None:
        await process.start()
        caller = await process.leads()
        async with ScriptedAgent("n1", process.target) as agent:
            one, two = await caller.submit(job(), job())
            await eventually(lambda: len(agent.running()) == 2)
            await process.kill()
            agent.end_job(one, code=7)
            await caller.close()
            await process.start()
            caller = await process.leads()

            async def over() -> bool:
                return await caller.state(one) == "FAILED"

            await eventually(over)
            assert (await caller.show(one)).job.code == 7
            assert await caller.state(two) == "RUNNING"
            assert len(agent.executed) == 2
            await caller.close()

    play(scene)
