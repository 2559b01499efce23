"""What is known of the GPUs from one look to the next, and what follows from it.

A problem that a look finds makes a GPU unhealthy until a look finds it well again; a GPU that had
vanished stays so until an operator restarts the agent. Looks happen in a thread with a time limit:
a driver that hangs makes all GPUs unhealthy, not the agent.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

from dlsched.nodeagent.cuda import may_resume
from dlsched.nodeagent.gpus.backend import GpuBackend, GpuState, Inventory
from dlsched.protocol.messages import GpuId, RunId

log = logging.getLogger(__name__)
Owners = Callable[[Iterable[int]], dict[int, RunId | None]]


class GpuWatch:
    """One node's GPUs over time."""

    def __init__(
        self,
        backend: GpuBackend,
        inventory: Inventory,
        *,
        every_s: float = 30.0,
        limit_s: float = 10.0,
        drain_foreign: bool = True,
    ) -> None:
        self._backend, self.inventory = backend, inventory
        self._every_s, self._limit_s = every_s, limit_s
        self._drain_foreign = drain_foreign
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="gpus")
        self._problems: dict[str, str] = {}  # of the node, by where they come from
        self._vanished: set[GpuId] = set()
        self._said = ""
        self.states: dict[GpuId, GpuState] = {
            gpu.uuid: GpuState(uuid=gpu.uuid) for gpu in inventory.gpus
        }
        self.why: dict[GpuId, str] = {}  # unhealthy
        self.foreign: dict[GpuId, str] = {}
        self.uses: dict[RunId, int] = {}  # bytes on GPUs by run
        if inventory.problem:
            self._problems["gpus"] = inventory.problem

    def node_problem(self, source: str, why: str) -> None:
        """Note why this node should get nothing new, or that this reason is gone."""
        if why:
            if self._problems.get(source) != why:
                log.error("node-problem why=%s", why)
            self._problems[source] = why
        else:
            self._problems.pop(source, None)

    @property
    def problems(self) -> tuple[str, ...]:
        """Why this node should get nothing new."""
        return tuple(self._problems.values())

    @property
    def unhealthy(self) -> tuple[GpuId, ...]:
        """GPUs that no job is to be given."""
        return tuple(sorted({*self.why, *(self.foreign if self._drain_foreign else ())}))

    def used_by(self, run_id: RunId) -> int:
        """The GPU memory that a run holds, as far as it is known."""
        return self.uses.get(run_id, 0)

    def has_room(self, gpus: Iterable[GpuId], saved_bytes: int) -> bool:
        """Whether what a checkpoint has put aside fits back."""
        free = [self.states[gpu].memory_free_bytes for gpu in gpus if gpu in self.states]
        if not saved_bytes or any(each is None for each in free):
            return True  # not known: the driver decides
        return may_resume(saved_bytes, sum(each or 0 for each in free))

    async def look(self, owners: Owners) -> None:
        """Look once."""
        loop = asyncio.get_running_loop()
        try:
            found = await asyncio.wait_for(
                loop.run_in_executor(self._thread, self._backend.states), self._limit_s
            )
        except TimeoutError:
            self._hangs()
            return
        except Exception as error:  # a driver may say anything
            if str(error) != self._said:
                log.error("gpus-not-read why=%s", error)
            self._said = str(error)
            self.why = {gpu.uuid: f"cannot be read: {error}" for gpu in self.inventory.gpus}
            return
        self._problems.pop("driver", None)
        self._said = ""
        self._take(found, owners)

    def _hangs(self) -> None:
        self.node_problem("driver", "the GPU driver does not answer")
        self.why = {gpu.uuid: "the GPU driver does not answer" for gpu in self.inventory.gpus}
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="gpus")  # the old one is lost

    def _take(self, found: tuple[GpuState, ...], owners: Owners) -> None:
        by_id = {state.uuid: state for state in found}
        for gpu in self.inventory.gpus:
            if gpu.uuid not in by_id:
                self._vanished.add(gpu.uuid)
        strangers = [uuid for uuid in by_id if uuid not in self.states]
        if strangers:
            self.node_problem("gpus", f"GPU {strangers[0]} was not here when the agent started")
        self.why = {
            gpu.uuid: "fell off the bus"
            for gpu in self.inventory.gpus
            if gpu.uuid in self._vanished
        }
        pids = {each.pid for state in found for each in state.processes or ()}
        whose = owners(pids)
        self.foreign, self.uses = {}, {}
        for state in found:
            if state.uuid not in self.states:
                continue
            self.states[state.uuid] = state
            if state.problem and state.uuid not in self.why:
                self.why[state.uuid] = state.problem
            if state.node_problem:
                self.node_problem("gpus", state.node_problem)
            for each in state.processes or ():
                run = whose.get(each.pid)
                if run is None:
                    self.foreign[state.uuid] = f"foreign process {each.pid}"
                else:
                    self.uses[run] = self.uses.get(run, 0) + (each.memory_bytes or 0)

    async def run(self, owners: Owners, changed: Callable[[], None]) -> None:
        """Look, for ever."""
        while True:
            await self.look(owners)
            changed()
            await asyncio.sleep(self._every_s)

    def close(self) -> None:
        """No more looks."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        self._backend.close()
