"""A daemon lets go of old jobs in small transactions, and keeps the record of what was done."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from dlsched.daemon.loops import retention
from dlsched.db.store import Store
from dlsched.rpc.v1 import control_pb2 as c
from tests.daemon.cluster_of_tests import Running, eventually, job, settings_of
from tests.db.histories import add_history


async def ended(caller: object, **words: object) -> list[int]:
    asked = c.HistoryRequest(filter=c.Filter(all_users=True), **words)  # type: ignore[arg-type]
    return [view.job async for page in caller.control.History(asked) for view in page.jobs]  # type: ignore[attr-defined]


def test_old_jobs_leave_and_new_ones_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = settings_of(tmp_path, history={"keep_days": 1, "prune_every_s": 0.05})
    with Store.open(settings.daemon.database) as store:
        add_history(store, 450)
    monkeypatch.setattr(retention, "PAUSE_S", 0.0)

    async def script() -> None:
        async with Running(settings) as running:
            ann = running.caller()
            (new,) = await ann.submit(job(held=True))
            await ann.act(c.ACTION_CANCEL, new)
            before = running.daemon.driver.transactions
            await eventually(lambda: only(ann, [new]))
            lines = retention.LINES
            # three parts of at most 200 jobs, one of lines, and a few of the daemon's own
            assert running.daemon.driver.transactions - before <= 3 + 450 // lines + 1 + 6
            reply = await ann.act(c.ACTION_REQUEUE, 1_000_007)
            assert [each.why for each in reply.failed] == ["there is no such job"]
            assert await ended(ann, limit=5) == [new]

    async def only(caller: object, jobs: list[int]) -> bool:
        return await ended(caller) == jobs

    asyncio.run(script())


def test_a_job_that_is_leaving_is_not_queued_again(tmp_path: Path) -> None:
    async def script() -> None:
        async with Running(settings_of(tmp_path)) as running:
            ann = running.caller()
            (number,) = await ann.submit(job(held=True))
            await ann.act(c.ACTION_CANCEL, number)
            running.daemon.cluster.leaving.add(number)  # type: ignore[arg-type]
            reply = await ann.act(c.ACTION_REQUEUE, number)
            assert [each.why for each in reply.failed] == ["it is being removed from the history"]
            running.daemon.cluster.leaving.clear()
            reply = await ann.act(c.ACTION_REQUEUE, number)
            assert not reply.failed

    asyncio.run(script())


def test_a_limited_history_has_the_last_jobs_in_their_order(tmp_path: Path) -> None:
    settings = settings_of(tmp_path)
    with Store.open(settings.daemon.database) as store:
        add_history(store, 1_200)

    async def script() -> None:
        async with Running(settings) as running:
            ann = running.caller()
            newest = list(range(1_000_001 + 1_200 - 700, 1_000_001 + 1_200))
            assert await ended(ann, limit=700) == newest
            assert await ended(ann, limit=5_000) == await ended(ann)
            some = await ended(ann, limit=3, since=100.0, until=200.0)
            assert some == [1_000_197, 1_000_198, 1_000_199]

    asyncio.run(script())
