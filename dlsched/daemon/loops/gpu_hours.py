"""GPU-hours that tenants have used within the windows of their quotas, summed every 30 seconds.

Ended runs come from the database, live ones from memory. That is often enough to say whether the
hours of a month are used up.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import chain

from dlsched.core.errors import DlschedError
from dlsched.core.sharing.gpu_limits import EVERY_USER, Holder
from dlsched.daemon.cluster import Cluster
from dlsched.daemon.leader_driver import LedgerFollower
from dlsched.daemon.rounds import Rounds
from dlsched.daemon.turns import in_turns
from dlsched.daemon.writer import TermBegun
from dlsched.db.reading.queries import RunUsage
from dlsched.db.records import TenantRemoved, TenantsConfigured, TenantSet
from dlsched.protocol.ledger import Changes
from dlsched.protocol.messages import JobId
from dlsched.system.clock import wall
from dlsched.tenants.fields import Quota

log = logging.getLogger("dlsched.daemon.loops.gpu_hours")
EVERY_S = 30.0


class GpuHours(LedgerFollower):
    """Keeps `TenantLimits.used_hours` up to date while there are quotas of GPU-hours."""

    def __init__(self, cluster: Cluster, rounds: Rounds, every_s: float = EVERY_S) -> None:
        """Make it; `start` starts it.

        The rounds are woken when a tenant's hours are used up, or no longer.
        """
        self._cluster = cluster
        self._rounds = rounds
        self._every_s = every_s
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        cluster.driver.follow(self)

    def term_began(self, term: TermBegun) -> None:
        """Sum soon: the limits are new."""
        self._wake.set()

    def committed(self, changed: set[JobId], changes: Changes) -> None:
        """Sum soon when a quota or another tenant has changed."""
        if changes.of(TenantSet, TenantRemoved, TenantsConfigured):
            self._wake.set()

    def start(self) -> None:
        """Start to sum."""
        self._task = asyncio.create_task(self._loop(), name="gpu-hours")

    async def stop(self) -> None:
        """Stop."""
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
            if not self._cluster.driver.leading:
                continue
            try:
                await self.refresh()
            except DlschedError as error:
                log.warning("event=gpu-hours-unknown why=%r", str(error))

    async def refresh(self) -> None:
        """Sum anew; a round follows when a tenant's jobs may start again, or no longer."""
        cluster = self._cluster
        limits = cluster.live.eligibility.tenant_limits
        quotas = {w: q for w, q in limits.quotas.items() if q.gpu_hours is not None}
        now = wall()
        spent: Iterable[RunUsage] = ()
        if quotas:
            longest = max(q.window_s or 0.0 for q in quotas.values())
            store = cluster.driver.store
            live = [each async for each in in_turns(self._live(now))]
            ended = await cluster.driver.read(partial(store.run_usage, now - longest))
            over = {each.run_id for each in ended}  # some may have ended meanwhile
            spent = chain(ended, (each for each in live if each.run_id not in over))
        hours: defaultdict[Holder, float] = defaultdict(float)
        async for each in in_turns(spent):
            for holder in limits.holders_of(each.user, each.account, each.vc):
                quota = limits.quota(holder)
                if quota.gpu_hours is not None:
                    hours[holder] += each.since(now - (quota.window_s or 0.0)) / 3600.0
        if dict(hours) != limits.used_hours:
            over_before = _over(limits.used_hours, limits.quotas)
            limits.used_hours = dict(hours)
            if _over(hours, limits.quotas) != over_before:
                cluster.live.request_round()
                self._rounds.wake()

    def _live(self, now: float) -> Iterator[RunUsage]:
        """What live runs have used so far."""
        ledger, table = self._cluster.driver.committed, self._cluster.driver.table
        jobs = {ledger.runs[run_id].key.job for run_id in chain(*ledger.held_by.values())}
        found = (table.live_usage(ledger, ledger.jobs[job], now) for job in jobs)
        return (each for each in found if each is not None)


def _over(hours: Mapping[Holder, float], quotas: Mapping[Holder, Quota]) -> set[Holder]:
    """The holders of quotas whose hours are used up."""
    found = set()
    for holder, used in hours.items():
        quota = quotas.get(holder) or quotas.get(("user", EVERY_USER))
        if quota is not None and quota.gpu_hours is not None and used >= quota.gpu_hours:
            found.add(holder)
    return found
