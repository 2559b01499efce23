"""Row A16 of the fault matrix: a million ended jobs are in the database and not in memory.

Of those, the last ones that have completed are there for policies to learn from.
"""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path

import pytest

from dlsched.daemon.live.live_columns import LEARN_FROM
from dlsched.db.store import Store
from tests.daemon.cluster_of_tests import Running, job, settings_of
from tests.db.histories import add_history

LIVE = 40
SOME_OBJECTS = 3_000  # a started daemon differs by a few hundred from one start to the next


def objects_of_a_daemon(folder: Path) -> int:
    """How many objects a daemon adds to the process by starting on its database."""
    added = 0

    async def script() -> None:
        nonlocal added
        gc.collect()
        before = len(gc.get_objects())
        async with Running(settings_of(folder)) as running:
            cluster = running.daemon.cluster
            gc.collect()
            added = len(gc.get_objects()) - before
            ledger, facts = cluster.driver.committed, cluster.driver.table.facts
            assert (len(ledger.jobs), len(ledger.runs)) == (LIVE, 0)
            assert (len(facts), cluster.live.jobs.count) == (LIVE, LIVE + LEARN_FROM)
            jobs, _, _ = await running.caller().queue()
            assert len(jobs) == LIVE

    asyncio.run(script())
    return added


@pytest.mark.timeout(600)
@pytest.mark.parametrize("ended", [8_000, pytest.param(1_000_000, marks=pytest.mark.exhaustive)])
def test_a_history_takes_no_memory_of_a_daemon_that_starts_on_it(
    tmp_path: Path, ended: int
) -> None:
    async def submitted(folder: Path) -> None:
        async with Running(settings_of(folder)) as running:
            await running.caller().submit(*[job(held=True) for _ in range(LIVE)])

    folders = {LEARN_FROM: tmp_path / "short", ended: tmp_path / "long"}
    for count, folder in folders.items():
        folder.mkdir()
        asyncio.run(submitted(folder))
        with Store.open(settings_of(folder).daemon.database) as store:
            add_history(store, count)
    short, long = folders.values()
    objects_of_a_daemon(short)  # the first start also imports
    assert objects_of_a_daemon(long) < objects_of_a_daemon(short) + SOME_OBJECTS
