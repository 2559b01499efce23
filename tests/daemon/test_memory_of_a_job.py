"""What a waiting job takes in the daemon's memory, as Python counts it."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from pathlib import Path

import pytest

from dlsched.daemon import contents
from tests.daemon.cluster_of_tests import Running, job, settings_of

BYTES = 3600  # with its rows in two ledgers, its body and the policies' columns
COUNT = 150


def test_a_waiting_job_takes_few_bytes_and_shares_what_others_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contents, "KEPT_BYTES", 0)  # of jobs that start at once; it is bounded

    async def whole() -> None:
        async with Running(settings_of(tmp_path)) as running:
            caller, driver = running.caller(), running.daemon.driver

            async def submit() -> int:
                await caller.submit(*(job(name=f"job{k}", held=True) for k in range(COUNT)))
                gc.collect()
                return tracemalloc.get_traced_memory()[0]

            tracemalloc.start()
            before = await submit()  # with what is made once
            taken = await submit() - before
            tracemalloc.stop()
            assert taken < BYTES * COUNT
            committed, reserved = driver.committed.jobs, driver.reserved.jobs
            rows = list(committed.values())
            assert all(reserved[row.job] is row for row in rows)
            bodies = [row.request.spec.body for row in rows]  # type: ignore[attr-defined]
            assert len({id(body.program) for body in bodies}) == 1
            assert len({id(body.extra) for body in bodies}) == 1
            assert len({id(driver.table.of(row.job).updated) for row in rows}) == 1

    try:
        asyncio.run(whole())
    finally:
        tracemalloc.stop()
