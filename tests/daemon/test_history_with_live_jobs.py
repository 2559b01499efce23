"""`history --live` while jobs end: each job is in the list once."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from dlsched.db.reading.queries import StoredJob
from dlsched.rpc.v1 import control_pb2 as c

from .cluster_of_tests import Caller, Running, job
from .scripted_agent import ScriptedAgent
from .test_daily import ends, play, reaches

EVERYTHING = c.HistoryRequest(filter=c.Filter(all_users=True), live_too=True)


async def listed(caller: Caller, asked: c.HistoryRequest) -> list[tuple[int, str]]:
    return [
        (view.job, view.state) async for page in caller.control.History(asked) for view in page.jobs
    ]


def test_a_job_that_ends_while_the_store_is_read_is_in_the_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(running: Running, caller: Caller, agent: ScriptedAgent) -> None:
        first, second, third = await caller.submit(*(job("train", gpus=1) for _ in range(3)))
        for number in (first, second, third):
            await reaches(caller, number, "RUNNING")
        await ends(agent, first)
        await reaches(caller, first, "COMPLETED")

        store, read, go_on = running.daemon.driver.store, threading.Event(), threading.Event()
        history = store.history

        def held(*args: Any, **named: Any) -> list[StoredJob]:
            found = history(*args, **named)
            read.set()
            go_on.wait()
            return found

        monkeypatch.setattr(store, "history", held)
        asking = asyncio.create_task(listed(caller, EVERYTHING))
        await asyncio.to_thread(read.wait)
        await ends(agent, second)
        await reaches(caller, second, "COMPLETED")
        go_on.set()
        assert await asking == [(first, "COMPLETED"), (third, "RUNNING"), (second, "COMPLETED")]

        running_ones = c.HistoryRequest(filter=c.Filter(states=["RUNNING"]), live_too=True)
        assert await listed(caller, running_ones) == [(third, "RUNNING")]

    play(tmp_path, scene)
