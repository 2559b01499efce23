"""What a list of waiting jobs costs the daemon: calls and bytes a job, and no memory."""

from __future__ import annotations

import asyncio
from pathlib import Path

from dlsched.client.job_reading import job_of
from dlsched.daemon.control.views import View, Views, message
from dlsched.rpc.v1 import control_pb2 as c
from tests.counting import python_calls
from tests.daemon.cluster_of_tests import Running, job, settings_of

CALLS, BYTES = 35, 80  # of Python functions and on the wire, for a job without any wish
COUNT = 300


async def listed(running: Running, *, brief: bool) -> list[c.JobView]:
    asked = c.QueueRequest(filter=c.Filter(all_users=True), brief=brief)
    pages = [page async for page in running.caller().control.Queue(asked, timeout=60)]
    return [view for page in pages for view in page.jobs]


def test_a_brief_list_lacks_what_was_asked_for_and_nothing_else(tmp_path: Path) -> None:
    async def whole() -> None:
        async with Running(settings_of(tmp_path)) as running:
            wishes = {"memory_bytes": 2**30, "time_limit_s": 60.0, "comment": "mine"}
            ids = await running.caller().submit(job("one"), job("two", held=True, **wishes))
            found = {brief: await listed(running, brief=brief) for brief in (True, False)}
            assert [view.job for view in found[True]] == [view.job for view in found[False]]
            for brief, whole in zip(found[True], found[False], strict=True):
                assert whole.HasField("asked")
                assert not brief.HasField("asked")
                whole.ClearField("asked")
                assert brief == whole
            wished = {view.job: job_of(view) for view in found[True]}[ids[1]]
            assert (wished.time_limit_s, wished.comment, wished.held) == (60.0, "mine", True)

    asyncio.run(whole())


def test_views_of_waiting_jobs_are_cheap_small_and_not_kept(tmp_path: Path) -> None:
    async def whole() -> None:
        async with Running(settings_of(tmp_path)) as running:
            await running.caller().submit(*(job(f"job{k}", held=True) for k in range(COUNT)))
            cluster = running.daemon.cluster
            views, rows = Views(cluster), list(cluster.driver.committed.jobs.values())
            made: list[View] = []
            calls = python_calls(lambda: made.extend(views.of(row, brief=True) for row in rows))
            assert calls <= CALLS * COUNT
            assert sum(message(view).ByteSize() for view in made) <= BYTES * COUNT
            assert views.of(rows[0]) is not views.of(rows[0])

    asyncio.run(whole())
