"""Whether jobs use the GPUs that they hold, by what the nodes' drivers say of them.

A job whose GPUs have done next to nothing for long is named to its owner and to operators; nothing
is taken from it. Jobs whose nodes cannot say how busy their GPUs are (pretended ones) are unknown.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from dlsched.core.cluster.description import GIB
from dlsched.core.errors import plural
from dlsched.daemon.cluster import Cluster
from dlsched.daemon.reported.idle_gpus import IdleGpus
from dlsched.daemon.training.current import gpu_use
from dlsched.db.gpu_work import GpuWork
from dlsched.db.records import Event
from dlsched.protocol.ledger import Run
from dlsched.protocol.messages import JobId
from dlsched.system.clock import wall

LOOK_S = 5.0
STORED_S = 300.0  # between two rows of a running job


@dataclass(slots=True)
class _Sums:
    """What is not stored yet of one job."""

    seen_gpu_s: float = 0.0
    busy_gpu_s: float = 0.0
    since_s: float = 0.0  # since its last row


class GpuWatch:
    """Watches the use of the GPUs of all running jobs."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._sums: dict[JobId, _Sums] = {}
        self._passed_s = 0.0

    def look(self, passed_s: float) -> None:
        """Look at all running jobs, `passed_s` seconds after the last time."""
        self._passed_s += passed_s
        if self._passed_s < LOOK_S:
            return
        passed_s, self._passed_s = self._passed_s, 0.0
        driver, idle = self._cluster.driver, self._cluster.idle_gpus
        running: set[JobId] = set()
        rows: list[object] = []
        for run in self._watched():
            now = gpu_use(self._cluster, run)
            use = now.get("gpu_utilization")
            if use is None:
                continue
            memory_gib = now.get("gpu_memory_bytes", math.nan) / GIB
            self._cluster.live.note_gpu_use(run.key.job, use, memory_gib, passed_s)
            job = run.key.job
            running.add(job)
            gpus = sum(len(member.gpus) for member in run.members.values())
            sums = self._sums.setdefault(job, _Sums())
            sums.seen_gpu_s += gpus * passed_s
            sums.busy_gpu_s += gpus * passed_s * use
            sums.since_s += passed_s
            if idle.note(job, run.key.run_id, use, passed_s, self._cluster.settings.idle):
                rows.append(self._idle_event(run, gpus, idle))
        idle.keep(running)
        rows += self._due(running)
        if rows:
            driver.note(*rows)

    def _watched(self) -> Iterator[Run]:
        """Runs that execute on nodes which say how busy their GPUs are."""
        agents = self._cluster.agents.described
        if not any(described.uses for described in agents.values()):
            return
        ledger = self._cluster.driver.committed
        for job in ledger.jobs:
            run = ledger.live_run(job)
            if run is not None and run.released and not run.suspended and run.stop is None:
                yield run

    def _idle_event(self, run: Run, gpus: int, idle: IdleGpus) -> Event:
        job, rule = run.key.job, self._cluster.settings.idle
        minutes = idle.idle_s(job) / 60.0
        text = (
            f"its {plural(gpus, 'GPU')} have been less than {rule.below:.0%} busy for "
            f"{minutes:.0f} min"
        )
        return Event(
            at=wall(), kind="idle-gpus", actor="daemon", job=job, run_id=run.key.run_id, text=text
        )

    def _due(self, running: set[JobId]) -> Iterator[GpuWork]:
        """Rows of jobs that do not run any more, and from time to time of those that do."""
        for job, sums in list(self._sums.items()):
            if job in running and sums.since_s < STORED_S:
                continue
            del self._sums[job]
            yield GpuWork(job=job, seen_gpu_s=sums.seen_gpu_s, busy_gpu_s=sums.busy_gpu_s)
