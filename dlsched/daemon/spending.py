"""GPU-hours that tenants have used within the windows of their quotas, added up now and then.

Ended runs come from the database, live ones from memory. Sums that are half a minute old are good
enough to say whether a month's hours are used up.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Mapping
from functools import partial

from dlsched.core.errors import DlschedError
from dlsched.daemon.clock import wall
from dlsched.daemon.cluster import Cluster
from dlsched.daemon.round.tenant_limits import Ward
from dlsched.db.reading import Spent
from dlsched.db.tenants import EVERYBODY, Quota

__all__ = ["Spending"]

log = logging.getLogger("dlsched.daemon.spending")
EVERY_S = 30.0


class Spending:
    """Keeps the limits' `used_hours` fresh while there are quotas of GPU-hours."""

    def __init__(self, cluster: Cluster, every_s: float = EVERY_S) -> None:
        self._cluster = cluster
        self._every_s = every_s
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        cluster.on_govern = self._wake.set

    def start(self) -> None:
        """Begin."""
        self._task = asyncio.create_task(self._loop(), name="spending")

    async def stop(self) -> None:
        """End."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _loop(self) -> None:
        while True:
            try:
                async with asyncio.timeout(self._every_s):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()
            if not self._cluster.shell.leading:
                continue
            try:
                await self.refresh()
            except DlschedError as error:
                log.warning("event=spending-unknown why=%r", str(error))

    async def refresh(self) -> None:
        """Add up anew; whoever may start again is looked at by a round."""
        cluster = self._cluster
        limits = cluster.board.eligibility.tenant_limits
        quotas = {w: q for w, q in limits.quotas.items() if q.gpu_hours is not None}
        now = wall()
        spent: list[Spent] = []
        if quotas:
            longest = max(q.window_s or 0.0 for q in quotas.values())
            store = cluster.shell.store
            spent = await cluster.shell.read(partial(store.spent, now - longest))
            spent += self._live(now)
        hours: defaultdict[Ward, float] = defaultdict(float)
        for each in spent:
            for ward in limits.wards_of(each.user, each.account, each.vc):
                quota = limits.quota(ward)
                if quota.gpu_hours is not None:
                    hours[ward] += _within(each, quota, now)
        if dict(hours) != limits.used_hours:
            over_before = _over(limits.used_hours, limits.quotas)
            limits.used_hours = dict(hours)
            if _over(hours, limits.quotas) != over_before:
                cluster.board.stir()
                if cluster.rounds is not None:
                    cluster.rounds.nudge()

    def _live(self, now: float) -> list[Spent]:
        """What runs that have not ended have used so far."""
        shell, table = self._cluster.shell, self._cluster.shell.table
        found: list[Spent] = []
        for ids in shell.committed.held_by.values():
            for run_id in ids:
                run = shell.committed.runs[run_id]
                row = shell.committed.jobs.get(run.key.job)
                facts = table.of(run.key.job)
                if row is None or facts.started_at is None or not run.released:
                    continue
                gpus = sum(len(member.gpus) for member in run.members.values())
                share = gpus / max(len(run.members), 1)  # it is met once a node
                found.append(
                    Spent(
                        user=row.request.user,
                        account=table.field(row, "account") or "",
                        vc=table.field(row, "vc") or "",
                        began_at=facts.started_at,
                        ended_at=now,
                        gpu_s=share * max(now - facts.started_at, 0.0),
                    )
                )
        return found


def _within(spent: Spent, quota: Quota, now: float) -> float:
    """GPU-hours of a run within a quota's window."""
    begin = now - (quota.window_s or 0.0)
    took = spent.ended_at - spent.began_at
    if took <= 0 or spent.ended_at <= begin:
        return 0.0
    return spent.gpu_s / 3600.0 * min((spent.ended_at - begin) / took, 1.0)


def _over(hours: Mapping[Ward, float], quotas: Mapping[Ward, Quota]) -> set[Ward]:
    """Who has used up what they have."""
    found = set()
    for ward, used in hours.items():
        quota = quotas.get(ward) or quotas.get(("user", EVERYBODY))
        if quota is not None and quota.gpu_hours is not None and used >= quota.gpu_hours:
            found.add(ward)
    return found
