"""From submission to the end, over real gRPC and a real database, with a scripted node."""

from __future__ import annotations

import asyncio
from pathlib import Path

from .cluster_of_tests import Running, eventually, job, settings_of
from .scripted_agent import ScriptedAgent


def test_a_job_is_submitted_started_and_ends(tmp_path: Path) -> None:
    async def scene() -> None:
        async with Running(settings_of(tmp_path)) as running:
            caller = running.caller()
            async with ScriptedAgent("n1", running.target) as agent:
                [number] = await caller.submit(job("python", "train.py", gpus=2))
                await eventually(agent.running)
                assert await caller.state(number) == "RUNNING"
                agent.end_job(number, code=7)
                await eventually(lambda: ended(caller, number, "FAILED"))
                view = (await caller.show(number)).job
                assert (view.code, view.signal, list(view.nodes)) == (7, 0, ["n1"])

    asyncio.run(scene())


async def ended(caller: object, number: int, state: str) -> bool:
    return await caller.state(number) == state  # type: ignore[attr-defined]
