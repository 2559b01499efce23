"""A list by column is the list of views: the same jobs, fields and order."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from dlsched.client.job_reading import queue_of, queue_page_of
from dlsched.client.job_records import Queue
from dlsched.daemon.control import job_lists
from dlsched.rpc.v1 import control_pb2 as c

from .cluster_of_tests import Caller, Running, eventually, job, settings_of
from .scripted_agent import ScriptedAgent
from .test_daily import play, reaches
from .test_replayed import dlsched


async def asked(caller: Caller, **words: Any) -> Queue:
    request = c.QueueRequest(filter=c.Filter(all_users=True), **words)
    pages = [page async for page in caller.control.Queue(request, timeout=60)]
    return queue_of([queue_page_of(page) for page in pages])


def test_both_forms_of_a_list_have_the_same_jobs(tmp_path: Path) -> None:
    async def scene(running: Running, caller: Caller, agent: ScriptedAgent) -> None:
        runs, *_ = await caller.submit(
            job(gpus=2, name="runs", time_limit_s=600.0),
            job(held=True, name="held", comment="for later", gpus=1, share=0.5),
            job(array="0-5", held=True, name="elements"),
            job(gpus=4, name="waits", deadline_at=2e9),
        )
        [after] = await running.caller("bob", 1002).submit(
            job(name="after", dependencies=[c.Dependency(kind="afterok", job=runs)])
        )
        await reaches(caller, runs, "RUNNING")
        await eventually(lambda: running.daemon.cluster.live.reason(after))
        for words in ({"brief": True}, {}, {"unfold": True}, {"predict": True}):
            by_view, by_column = [
                await asked(caller, columns=columns, **words) for columns in (False, True)
            ]
            for found in (by_view, by_column):
                assert len(found.rows()) == (10 if "unfold" in words else 5)
            for one, other in zip(by_view.rows(), by_column.rows(), strict=True):
                fields = [vars(getattr(row, "first", row)) for row in (one, other)]
                moving = ("run_s", "gpu_s")  # with the clock
                assert all(fields[0].get(name) is not None for name in moving)
                for each in fields:
                    each.update(dict.fromkeys(moving))
                assert one == other

    play(tmp_path, scene)


def test_lists_of_several_pages_are_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    count = 170
    monkeypatch.setattr(job_lists, "PAGE", 20)
    monkeypatch.setattr(job_lists, "COLUMNS", 80)

    async def whole() -> None:
        async with Running(settings_of(tmp_path)) as running:
            names = [f"job{k}" for k in range(count)]
            await running.caller("root", 0).submit(*(job(held=True, name=name) for name in names))
            request = c.QueueRequest(filter=c.Filter(all_users=True), columns=True, brief=True)
            calls = running.caller().control.Queue(request, timeout=60)
            pages = [page async for page in calls]
            assert len(pages) == 3
            assert [job.name for job in queue_of([*map(queue_page_of, pages)]).jobs] == names
            assert sum(page.ByteSize() for page in pages) < 50 * count
            code, out, err = await dlsched(running, "queue", "-a", "--noheader", "-o", "id,name")
            assert (code, err) == (0, "")
            assert [line.split()[1] for line in out.splitlines()] == names
            _, out, _ = await dlsched(running, "queue", "-a", "--json")
            assert [each["name"] for each in json.loads(out)["jobs"]] == names

    asyncio.run(whole())
