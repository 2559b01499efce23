"""Which failed work ends an agent."""

from __future__ import annotations

import asyncio

import pytest

from dlsched.nodeagent.agent.tasks import AgentTasks


async def failing() -> None:
    raise OverflowError("a number that no message can hold")


def test_work_of_a_job_is_logged_when_it_fails_and_other_work_ends_the_agent(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def whole() -> None:
        tasks = AgentTasks()
        await tasks.of_job(failing())
        assert not tasks.failed.done()
        [line] = [each.getMessage() for each in caplog.records]
        assert line == "of-job-failed why=OverflowError: a number that no message can hold"
        with pytest.raises(OverflowError):
            await tasks.start(failing())
        with pytest.raises(OverflowError):
            await asyncio.wait_for(tasks.failed, 10)

    asyncio.run(whole())
