"""Notices of jobs that have used a part of their time limit.

Each is told once a run: it is stored together with an event that says so, and a new leader looks at
the job's events before it tells anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from functools import partial

from dlsched.core.errors import DlschedError
from dlsched.daemon.cluster import Cluster
from dlsched.db.notices import Notice, asked_events
from dlsched.db.records import Event
from dlsched.protocol.messages import JobId, RunId
from dlsched.system.clock import boottime, wall

PARTS = {"time_limit_50": 0.5, "time_limit_80": 0.8, "time_limit_90": 0.9}
EVERY_S = 1.0
KIND = "time-limit"  # of the event


def asking(cluster: Cluster, jobs: Iterable[JobId]) -> dict[JobId, str]:
    """What the users of some jobs want to be told, where they want anything."""
    rows, field = cluster.driver.committed.jobs, cluster.driver.table.field
    found: dict[JobId, str] = {}
    for job in jobs:  # of a large array at its submission: a plain loop, for the fewest calls
        row = rows.get(job)
        if row is not None and (events := field(row, "notify")):
            found[job] = events
    return found


class TimeWarnings:
    """Watches the jobs whose users want to be told before a time limit."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._watched: set[JobId] = set()
        self._warned: set[tuple[RunId, str]] = set()

    def term_began(self) -> None:
        """Watch every job of a new term."""
        self._watched, self._warned = set(), set()
        jobs = set(self._cluster.driver.committed.jobs)
        self.committed(jobs, asking(self._cluster, jobs))

    def committed(self, changed: set[JobId], wishes: Mapping[JobId, str]) -> None:
        """Watch changed jobs that want it, and no longer those that do not."""
        self._watched -= changed
        self._watched.update(job for job, events in wishes.items() if "time_limit_" in events)

    async def watch_for_ever(self) -> None:
        """Look again and again while this daemon leads."""
        while True:
            await asyncio.sleep(EVERY_S)
            try:
                if self._watched and self._cluster.driver.leading:
                    await self.look()
            except DlschedError:
                continue  # the database is away

    async def look(self) -> None:
        """Tell of each part of a limit that a run has used since the last look."""
        driver, now = self._cluster.driver, boottime()
        live: set[tuple[RunId, str]] = set()
        for job in sorted(self._watched):
            row, run = driver.committed.jobs.get(job), driver.committed.live_run(job)
            if row is None or run is None or not run.released or run.stop is not None:
                continue
            limit_s = row.terms.limits.time_s
            wanted = asked_events(driver.table.field(row, "notify"))
            for event in sorted(wanted & PARTS.keys()):
                this = (run.key.run_id, event)
                live.add(this)
                used_s = driver.table.of(job).clock.seconds(now)
                if limit_s is None or this in self._warned or used_s < PARTS[event] * limit_s:
                    continue
                if not await self._was_told(job, *this):
                    text = f"{used_s:.0f} s of {limit_s:.0f} s"
                    note = Event(
                        at=wall(), kind=KIND, actor="daemon", job=job, run_id=run.key.run_id,
                        text=f"{event}: {text}",
                    )  # fmt: skip
                    notice = Notice(
                        job=job, event=event, state="RUNNING", run=run.key.run, text=text,
                        at=wall(), user=row.request.user,
                    )  # fmt: skip
                    await driver.attach(note, notice)
                self._warned.add(this)
        self._warned &= live

    async def _was_told(self, job: JobId, run_id: RunId, event: str) -> bool:
        """Whether the events of a job say that its user was told in this run."""
        driver, after = self._cluster.driver, 0
        while page := await driver.read(partial(driver.store.events, job, after=after)):
            after = page[-1].id
            for stored in page:
                known = stored.event
                if (known.kind, known.run_id) == (KIND, run_id) and known.text.startswith(
                    f"{event}:"
                ):
                    return True
        return False
