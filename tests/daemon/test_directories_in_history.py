"""Where a job ran is in the history of its owner and of operators, and in no other."""

from __future__ import annotations

import asyncio
from pathlib import Path

from dlsched.rpc.v1 import control_pb2 as c

from .cluster_of_tests import Caller, Running, job, settings_of
from .scripted_agent import ScriptedAgent
from .test_daily import ends, reaches


async def directories(caller: Caller) -> list[str]:
    """Of all jobs that a caller is told of, by id."""
    asked = c.HistoryRequest(filter=c.Filter(all_users=True), live_too=True)
    views = [view async for page in caller.control.History(asked) for view in page.jobs]
    return [view.working_directory for view in sorted(views, key=lambda view: view.job)]


def test_only_the_owner_and_operators_see_where_a_job_ran(tmp_path: Path) -> None:
    async def scene() -> None:
        async with (
            Running(settings_of(tmp_path)) as running,
            ScriptedAgent("n1", running.target) as agent,
        ):
            ann, bob = running.caller(), running.caller("bob", 1002)
            ended, _ = await ann.submit(
                job(working_directory="/data/ann"), job(working_directory="/data/next", held=True)
            )
            await reaches(ann, ended, "RUNNING")
            await ends(agent, ended)
            await reaches(ann, ended, "COMPLETED")
            for caller in (ann, running.caller("root", 0)):
                assert await directories(caller) == ["/data/ann", "/data/next"]
            assert await directories(bob) == ["", ""]
            queue, _, _ = await ann.queue()
            assert [view.working_directory for view in queue] == [""]  # a queue has no paths

    asyncio.run(scene())
