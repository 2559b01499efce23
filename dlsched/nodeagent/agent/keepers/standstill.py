"""Keepers that stand still: stopped by a signal, frozen, or stuck in the kernel.

Such a keeper sees neither its job's end nor its time limit. Each keeper is asked for a sign of life
every few seconds. One that gives none is sent SIGCONT and thawed, which ends most such states and
loses nothing. One that still gives none keeps new work from the node, and is killed when its job
has no process any more; it then counts as lost. A keeper in an uninterruptible call is not killed:
it may be writing down how its job has ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

from dlsched.nodeagent.agent.keepers.link import KeeperLink
from dlsched.nodeagent.host import cgroups, processes
from dlsched.protocol.messages import RunId

log = logging.getLogger(__name__)
LOOK_S = 5.0
CONTINUED, REPORTED, KILLED = 3, 6, 12  # looks in a row without a sign of life


@dataclass(eq=False, slots=True)
class StandstillWatch:
    """Watches the keepers of one node."""

    links: Mapping[RunId, KeeperLink]
    cgroup_of: Callable[[RunId], str]  # a run's cgroup; empty: none
    is_job_over: Callable[[RunId], Coroutine[Any, Any, bool]]  # no process of it is left
    problem: Callable[[str, str], None]  # takes why the node gets no new work, by source
    _reported: set[RunId] = field(default_factory=set, init=False)

    async def run(self) -> None:
        """Look again and again, for ever."""
        while True:
            await asyncio.sleep(LOOK_S)
            await self.look()

    async def look(self) -> None:
        """Ask every keeper once."""
        for run_id, link in list(self.links.items()):
            cgroup = self.cgroup_of(run_id)
            silent = link.look(cgroup)
            if silent == CONTINUED:
                log.warning("keeper-stands-still run=%s pid=%d", run_id, link.pid)
                self._continue(link, cgroup)
            elif silent >= REPORTED:
                self._reported.add(run_id)
                self.problem(f"keeper {run_id}", f"keeper process {link.pid} stands still")
            if silent >= KILLED and not _is_in_call(link.pid) and await self.is_job_over(run_id):
                log.error("keeper-killed run=%s pid=%d why=it stands still", run_id, link.pid)
                link.kill()
        for run_id in list(self._reported):
            link_ = self.links.get(run_id)
            if link_ is None or link_.silent < REPORTED:
                self._reported.discard(run_id)
                self.problem(f"keeper {run_id}", "")

    def _continue(self, link: KeeperLink, cgroup: str) -> None:
        if cgroup:
            leaf = os.path.join(cgroup, "keeper")
            with contextlib.suppress(OSError):  # of a kernel without it, or gone
                cgroups.write(leaf, "cgroup.freeze", "0")
        link.signal(signal.SIGCONT)


def _is_in_call(pid: int) -> bool:
    """Whether a process is in a call that no signal interrupts."""
    found = processes.stat(pid)
    return found is not None and found.state == "D"
