"""Answers about many jobs with large scripts come in pages that are bounded in bytes."""

from __future__ import annotations

import asyncio
from pathlib import Path

from dlsched.rpc.v1 import control_pb2 as c

from .cluster_of_tests import Running, job, settings_of

SCRIPT = b"#!/bin/sh\n" + b"#" * (3 << 20)


def test_details_of_jobs_with_large_scripts_come_in_pages(tmp_path: Path) -> None:
    async def scene() -> None:
        async with Running(settings_of(tmp_path)) as running:
            caller = running.caller()
            jobs = []
            for _ in range(6):
                asked = c.JobRequest(name="large", script=SCRIPT, held=True)
                jobs += await caller.submit(asked)
            await caller.act(c.ACTION_CANCEL, *jobs[1:5:2])
            found: list[c.JobDetail] = []
            pages, total = 0, len(jobs)
            while len(found) < total:
                request = c.ShowRequest(filter=c.Filter(jobs=jobs), skip=len(found))
                reply = await caller.control.Show(request, timeout=60)
                assert reply.jobs
                assert reply.ByteSize() < 16 << 20
                assert reply.total == total
                found += reply.jobs
                pages += 1
            assert sorted(each.job.job for each in found) == jobs
            assert all(each.request.script == SCRIPT for each in found)
            assert pages == 3

    asyncio.run(scene())


def test_a_list_of_ended_jobs_with_large_scripts_has_none_of_them(tmp_path: Path) -> None:
    async def scene() -> None:
        async with Running(settings_of(tmp_path)) as running:
            caller = running.caller()
            jobs = []
            for _ in range(4):
                asked = c.JobRequest(name="large", script=SCRIPT, held=True)
                jobs += await caller.submit(asked, job(held=True))
            await caller.act(c.ACTION_CANCEL, *jobs)
            request = c.HistoryRequest(filter=c.Filter())
            pages = [page async for page in caller.control.History(request, timeout=60)]
            assert sorted(each.job for page in pages for each in page.jobs) == jobs
            assert sum(page.ByteSize() for page in pages) < 20_000

    asyncio.run(scene())
