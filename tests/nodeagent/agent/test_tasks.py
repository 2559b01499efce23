"""Which failed work ends an agent, and how much work one run can make."""

from __future__ import annotations

import asyncio

import pytest

from dlsched.nodeagent.agent.tasks import AgentTasks, NewestOfRun
from dlsched.protocol.messages import JobId, RunId, RunKey, RunNumber


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


def test_a_run_has_one_message_answered_at_a_time_and_the_newest_follows() -> None:
    async def whole() -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        answered: list[tuple[int, int]] = []
        may_go_on = asyncio.Event()

        async def answer(key: RunKey, message: int) -> None:
            answered.append((int(key.job), message))
            await may_go_on.wait()

        tasks = AgentTasks()
        newest = NewestOfRun(tasks, answer)
        keys = [RunKey(JobId(job), RunNumber(1), RunId(f"r{job}")) for job in (1, 2)]
        for message in range(1000):
            for key in keys:
                newest.take(key, message)
            await asyncio.sleep(0)
        before = list(answered)
        may_go_on.set()
        for _ in range(20):
            await asyncio.sleep(0)
        newest.take(keys[0], 7)
        for _ in range(20):
            await asyncio.sleep(0)
        await tasks.close()
        return before, answered[2:]

    assert asyncio.run(whole()) == ([(1, 0), (2, 0)], [(1, 999), (2, 999), (1, 7)])
