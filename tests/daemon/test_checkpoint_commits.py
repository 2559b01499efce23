"""Commits of a job's checkpoints that arrive at the same time."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from dlsched.rpc.conversion import to_wire
from dlsched.rpc.v1 import control_pb2 as c

from .cluster_of_tests import Caller, Running, job
from .scripted_agent import ScriptedAgent
from .test_daily import play
from .test_recorded_predictions import begins


def test_the_newest_of_checkpoints_that_arrive_together_is_the_jobs(tmp_path: Path) -> None:
    async def scene(running: Running, caller: Caller, agent: ScriptedAgent) -> None:
        [number] = await caller.submit(job(gpus=1))
        key = await begins(agent, 1)

        async def commit(step: int) -> Any:
            made = c.CheckpointCommit(
                node=agent.name, key=to_wire(key), path=f"/c/{step}", step=step, bytes=1, sha256="a"
            )
            return await agent.runs.CommitCheckpoint(made, timeout=60)

        answers = await asyncio.gather(*(commit(step) for step in (4, 2, 8, 6)))
        accepted = [
            step for step, answer in zip((4, 2, 8, 6), answers, strict=True) if answer.accepted
        ]
        assert accepted == sorted(accepted)
        assert accepted[-1] == 8
        [wanted] = await caller.submit(job(gpus=1, held=True, resume_from=str(number)))
        found = await caller.show(wanted)
        assert found.last_checkpoint_step == 8

    play(tmp_path, scene)
