"""`history --live` while jobs end: each job is in the list once."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from dlsched.rpc.v1 import control_pb2 as c

from .cluster_of_tests import Caller, Running, job
from .scripted_agent import ScriptedAgent
from .test_daily import ends, play, reaches
from .test_usage_with_live_jobs import Halt, one_ends_before_and_one_after

EVERYTHING = c.HistoryRequest(filter=c.Filter(all_users=True), live_too=True)


class HaltAtLast(Halt):
    """The second place is after the last page, which is empty."""

    def __call__(self, *args: Any, **named: Any) -> Any:
        self._stop(self.before)
        found = self._read(*args, **named)
        if not found:
            self._stop(self.after)
        return found


async def listed(caller: Caller, asked: c.HistoryRequest) -> list[tuple[int, str]]:
    return [
        (view.job, view.state) async for page in caller.control.History(asked) for view in page.jobs
    ]


def test_a_job_that_ends_while_the_store_is_read_is_in_the_list_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(running: Running, caller: Caller, agent: ScriptedAgent) -> None:
        ids = await caller.submit(*(job("train", gpus=1) for _ in range(4)))
        for number in ids:
            await reaches(caller, number, "RUNNING")
        first, second, third, fourth = ids
        await ends(agent, first)
        await reaches(caller, first, "COMPLETED")

        store = running.daemon.driver.store
        halt = HaltAtLast(store.history)
        monkeypatch.setattr(store, "history", halt)
        asking = asyncio.create_task(listed(caller, EVERYTHING))
        await one_ends_before_and_one_after(halt, caller, agent, second, third)
        over = "COMPLETED"
        assert await asking == [(first, over), (second, over), (fourth, "RUNNING"), (third, over)]

        running_ones = c.HistoryRequest(filter=c.Filter(states=["RUNNING"]), live_too=True)
        assert await listed(caller, running_ones) == [(fourth, "RUNNING")]

    play(tmp_path, scene)
