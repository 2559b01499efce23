"""What a list of waiting jobs costs the daemon: calls and bytes a job, and no memory."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

from dlsched.client.job_reading import job_of
from dlsched.daemon.control.views import LiveViews
from dlsched.protocol.messages import JobId
from dlsched.rpc.columns import pack
from dlsched.rpc.v1 import control_pb2 as c
from tests.counting import python_calls
from tests.daemon.cluster_of_tests import Running, eventually, job, settings_of

CALLS, COMMON_CALLS = 10, 500  # of Python functions: for each waiting job, and for all of them
BYTES, BYTES_BY_COLUMN = 80, 40  # on the wire, for a job without any wish
COUNT = 300


class Looks(set[int]):
    """Counts how often all of the values are looked at."""

    looks = 0

    def __iter__(self) -> Iterator[int]:
        self.looks += 1
        return super().__iter__()


async def listed(running: Running, *, brief: bool) -> list[c.JobView]:
    asked = c.QueueRequest(filter=c.Filter(all_users=True), brief=brief)
    pages = [page async for page in running.caller().control.Queue(asked, timeout=60)]
    return [view for page in pages for view in page.jobs]


def test_a_brief_list_lacks_what_was_asked_for_and_nothing_else(tmp_path: Path) -> None:
    async def whole() -> None:
        async with Running(settings_of(tmp_path)) as running:
            wishes = {"memory_bytes": 2**30, "time_limit_s": 60.0, "comment": "mine"}
            ids = await running.caller().submit(job("one"), job("two", held=True, **wishes))

            async def decided() -> bool:  # the round gives a position and a reason
                return bool((await listed(running, brief=True))[0].position)

            await eventually(decided)
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


def test_reasons_of_jobs_that_depend_on_others_cost_no_look_at_all_of_them(tmp_path: Path) -> None:
    async def whole() -> None:
        async with Running(settings_of(tmp_path)) as running:
            [first] = await running.caller().submit(job("first", held=True))
            after = [c.Dependency(kind="afterok", job=first)]
            ids = await running.caller().submit(*[job(dependencies=after)] * COUNT)
            live = running.daemon.cluster.live
            dependents = live.eligibility._dependents = Looks(live.eligibility._dependents)
            assert dependents == {*ids}
            reasons = live.reasons(ids)
            assert dependents.looks <= 1
            assert {why.partition(":")[0] for why in reasons} == {"Dependency"}
            assert [live.reason(JobId(job)) for job in ids] == reasons
            assert dependents.looks <= 1

    asyncio.run(whole())


def test_views_of_waiting_jobs_are_cheap_small_and_not_kept(tmp_path: Path) -> None:
    async def whole() -> None:
        async with Running(settings_of(tmp_path)) as running:
            await running.caller().submit(*(job(f"job{k}", held=True) for k in range(COUNT)))
            cluster = running.daemon.cluster
            views, rows = LiveViews(cluster), list(cluster.driver.committed.jobs.values())
            page = c.JobColumns()
            calls = python_calls(lambda: pack(COUNT, views.of(rows, brief=True), page))
            assert calls <= CALLS * COUNT + COMMON_CALLS
            assert page.count == COUNT
            assert page.ByteSize() <= BYTES_BY_COLUMN * COUNT
            made = views.of(rows, brief=True).messages()
            assert sum(each.ByteSize() for each in made) <= BYTES * COUNT

    asyncio.run(whole())
