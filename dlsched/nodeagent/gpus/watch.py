"""Reads the GPUs again and again, and concludes which are healthy and which run uses them.

A problem makes a GPU unhealthy until a reading finds it healthy again. A GPU that has vanished
stays unhealthy until an operator restarts the agent. GPUs are read in a thread with a time limit: a
driver that hangs makes all GPUs unhealthy and does not stop the agent.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

from dlsched.nodeagent.gpus.backend import GpuBackend, GpuState, Inventory
from dlsched.nodeagent.gpus.cuda_checkpoint import may_resume
from dlsched.protocol.messages import GpuId, RunId

log = logging.getLogger(__name__)
RunsOf = Callable[[Iterable[int]], dict[int, RunId | None]]  # the run of each process


class GpuWatch:
    """The GPUs of one node over time."""

    def __init__(
        self,
        backend: GpuBackend,
        inventory: Inventory,
        *,
        every_s: float = 30.0,
        limit_s: float = 10.0,
        drain_foreign: bool = True,
    ) -> None:
        """Take all GPUs as healthy until the first reading.

        Args:
            backend: reads the GPUs.
            inventory: the GPUs when the agent started.
            every_s: seconds between two readings.
            limit_s: seconds for one reading.
            drain_foreign: give no job a GPU that a process of no run uses.
        """
        self._backend, self.inventory = backend, inventory
        self._every_s, self._limit_s = every_s, limit_s
        self._drain_foreign = drain_foreign
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="gpus")
        self._problems: dict[str, str] = {}  # of the node, by source
        self.node_faults: dict[GpuId, str] = {}  # of GPUs that need a boot of the whole node
        self._vanished: set[GpuId] = set()
        self._logged = ""
        self.states: dict[GpuId, GpuState] = {
            gpu.uuid: GpuState(uuid=gpu.uuid) for gpu in inventory.gpus
        }
        self.why: dict[GpuId, str] = {}  # unhealthy GPUs and the reason
        self.foreign: dict[GpuId, str] = {}
        self._memory_of: dict[RunId, int] = {}  # bytes of GPU memory, by run
        if inventory.problem:
            self._problems["gpus"] = inventory.problem

    def node_problem(self, source: str, why: str) -> None:
        """Note why this node should get no new work; an empty text withdraws the reason."""
        if why:
            if self._problems.get(source) != why:
                log.error("node-problem why=%s", why)
            self._problems[source] = why
        else:
            self._problems.pop(source, None)

    @property
    def problems(self) -> tuple[str, ...]:
        """Why this node should get no new work."""
        return tuple(self._problems.values())

    @property
    def unhealthy(self) -> tuple[GpuId, ...]:
        """The GPUs that no job may get."""
        return tuple(sorted({*self.why, *(self.foreign if self._drain_foreign else ())}))

    def used_by(self, run_id: RunId) -> int:
        """Return the bytes of GPU memory that a run holds, as far as they are known."""
        return self._memory_of.get(run_id, 0)

    def has_room(self, gpus: Iterable[GpuId], saved_bytes: int) -> bool:
        """Whether GPUs have room for the memory that a checkpoint has moved away."""
        free = [self.states[gpu].memory_free_bytes for gpu in gpus if gpu in self.states]
        if not saved_bytes or any(each is None for each in free):
            return True  # not known: the driver decides
        return may_resume(saved_bytes, sum(each or 0 for each in free))

    async def read(self, runs_of: RunsOf) -> None:
        """Read the GPUs once."""
        loop = asyncio.get_running_loop()
        try:
            found = await asyncio.wait_for(
                loop.run_in_executor(self._thread, self._backend.states), self._limit_s
            )
        except TimeoutError:
            self._hangs()
            return
        except Exception as error:  # a driver may raise anything
            if str(error) != self._logged:
                log.error("gpus-not-read why=%s", error)
            self._logged = str(error)
            self.why = {gpu.uuid: f"cannot be read: {error}" for gpu in self.inventory.gpus}
            return
        self._problems.pop("driver", None)
        self._logged = ""
        self._take(found, runs_of)

    def _hangs(self) -> None:
        self.node_problem("driver", "the GPU driver does not answer")
        self.why = {gpu.uuid: "the GPU driver does not answer" for gpu in self.inventory.gpus}
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="gpus")  # the old one is lost

    def _take(self, found: tuple[GpuState, ...], runs_of: RunsOf) -> None:
        by_id = {state.uuid: state for state in found}
        for gpu in self.inventory.gpus:
            if gpu.uuid not in by_id:
                self._vanished.add(gpu.uuid)
        unknown = [uuid for uuid in by_id if uuid not in self.states]
        if unknown:
            self.node_problem("gpus", f"GPU {unknown[0]} was not here when the agent started")
        self.why = {
            gpu.uuid: "fell off the bus"
            for gpu in self.inventory.gpus
            if gpu.uuid in self._vanished
        }
        self.node_faults = {}
        pids = {each.pid for state in found for each in state.processes or ()}
        run_of = runs_of(pids)
        index_of = {gpu.uuid: gpu.index for gpu in self.inventory.gpus}
        self.foreign, self._memory_of = {}, {}
        for state in found:
            if state.uuid not in self.states:
                continue
            self.states[state.uuid] = state
            if state.problem and state.uuid not in self.why:
                self.why[state.uuid] = state.problem
            if state.node_problem:
                self.node_problem("gpus", state.node_problem)
                number = index_of[state.uuid]
                self.node_faults[state.uuid] = f"GPU {number}: {state.node_problem}"
            runs_here = [run_of.get(each.pid) for each in state.processes or ()]
            if state.after_job and state.uuid not in self.why and not any(runs_here):
                self.why[state.uuid] = state.after_job
            for each, run in zip(state.processes or (), runs_here, strict=True):
                if run is None:
                    self.foreign[state.uuid] = f"foreign process {each.pid}"
                else:
                    self._memory_of[run] = self._memory_of.get(run, 0) + (each.memory_bytes or 0)

    async def run(self, runs_of: RunsOf, changed: Callable[[], None]) -> None:
        """Read the GPUs again and again, for ever."""
        while True:
            await self.read(runs_of)
            changed()
            await asyncio.sleep(self._every_s)

    def close(self) -> None:
        """Stop reading."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        self._backend.close()
