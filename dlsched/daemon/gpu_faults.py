"""Faults of GPUs that run jobs: each is told once to its owner, and the site may have it move.

How often a job may go on after such faults is counted where ends are judged.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from dlsched.daemon.leader_driver import LeaderDriver
from dlsched.daemon.nodes.agents import Described
from dlsched.daemon.settings import FaultsSection
from dlsched.db.records import Event
from dlsched.protocol import leader
from dlsched.protocol.ledger import Run
from dlsched.protocol.messages import GpuId, NodeName, StopReason
from dlsched.rpc.v1 import node_pb2
from dlsched.system.clock import boottime, wall

log = logging.getLogger("dlsched.daemon")


def _faults(use: node_pb2.GpuUse) -> list[str]:
    """What is wrong with a GPU; a foreign process, which a node tells last, is no fault of it."""
    told = use.problem.split("; ") if use.problem else []
    return told[:-1] if use.foreign else told


class GpuFaults:
    """What the GPUs of nodes suffer from, as far as owners know it."""

    def __init__(self, driver: LeaderDriver, settings: Callable[[], FaultsSection]) -> None:
        """Know of none; `settings` returns the section that is in force now."""
        self._driver, self._settings = driver, settings
        self._known: dict[NodeName, dict[GpuId, list[str]]] = {}

    def note(self, name: NodeName, described: Described) -> None:
        """Take what a node reports of its GPUs."""
        known = self._known.get(name, {})
        now = {GpuId(use.uuid): _faults(use) for use in described.uses.values()}
        if now == known:
            return
        self._known[name] = now
        news = {
            gpu: [each for each in faults if each not in known.get(gpu, ())]
            for gpu, faults in now.items()
        }
        usable = {GpuId(use.uuid) for use in described.uses.values() if use.usable}
        index_of = {gpu.uuid: gpu.index for gpu in described.facts.gpus}
        for run in self._driver.committed.runs_on(name):
            mine = [gpu for gpu in run.members[name].gpus if news.get(gpu)]
            for gpu in mine:
                text = f"GPU {index_of.get(gpu, gpu)} of {name}: {'; '.join(news[gpu])}"
                self._tell(run, name, text)
                log.warning("event=gpu-fault run=%s text=%r", run.key, text)
            if not usable.issuperset(mine):
                self._requeue(run)

    def _tell(self, run: Run, name: NodeName, text: str) -> None:
        self._driver.note(
            Event(
                at=wall(), kind="gpu-fault", actor=f"node {name}", job=run.key.job,
                run_id=run.key.run_id, node=name, text=text,
            )
        )  # fmt: skip

    def _requeue(self, run: Run) -> None:
        """Have a job go on elsewhere, if the site wants that and the job may start again."""
        job = self._driver.committed.jobs[run.key.job]
        if self._settings().action != "requeue" or run.stop is not None or not job.request.requeue:
            return
        why = Event(
            at=wall(), kind="requeue", actor="daemon", job=job.job, text="a GPU of it has a fault"
        )
        now = boottime()
        stop = leader.StopAsked(now, job.job, StopReason.MIGRATE)
        self._driver.step(leader.Together(now, (leader.AttachAsked(now, (why,)), stop)))
