"""Jobs that ended long ago, and old events, leave the database, a few hundred a transaction.

A job that is about to leave cannot be queued again: its number is in `leaving` until it is gone.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial

from dlsched.core.errors import DlschedError
from dlsched.daemon.cluster import Cluster
from dlsched.db.retention import JobsRemoved, LinesRemoved
from dlsched.system.clock import wall

log = logging.getLogger("dlsched.daemon.loops.retention")
JOBS, LINES = 200, 5_000  # of one transaction
PAUSE_S = 0.1  # between two, so that other writes come first
DAY_S = 86_400.0


async def forget_for_ever(cluster: Cluster) -> None:
    """Remove what is too old, again and again while this daemon leads."""
    while True:
        await asyncio.sleep(cluster.settings.history.prune_every_s)
        if not cluster.driver.leading:
            continue
        try:
            await forget(cluster)
        except DlschedError as error:
            log.warning("event=history-not-pruned why=%r", str(error))


async def forget(cluster: Cluster) -> int:
    """Remove what is too old now; returns the number of jobs."""
    days = cluster.settings.history.keep_days
    if days is None:
        return 0
    driver, before, gone = cluster.driver, wall() - days * DAY_S, 0
    while True:
        found = await driver.read(partial(driver.store.removable_jobs, before, JOBS))
        jobs = tuple(job for job in found if job not in driver.reserved.jobs)
        if not jobs:
            break
        cluster.leaving.update(jobs)  # no other task has run since the look at what is in memory
        try:
            await driver.attach(JobsRemoved(jobs=jobs))
        finally:
            cluster.leaving.difference_update(jobs)
        gone += len(jobs)
        await asyncio.sleep(PAUSE_S)
    while await driver.read(partial(driver.store.has_old_lines, before)):
        await driver.attach(LinesRemoved(before=before, most=LINES))
        await asyncio.sleep(PAUSE_S)
    if gone:
        log.info("event=history-pruned jobs=%s keep_days=%g", gone, days)
    return gone
