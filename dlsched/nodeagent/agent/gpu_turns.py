"""The turns of runs on GPUs that they share: one gate for each set of GPUs, and its clock."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dlsched.nodeagent.agent.settings import TurnSettings
from dlsched.nodeagent.gpus.backend import Inventory
from dlsched.policies.node.salus.gate import Gate, Turn
from dlsched.protocol.messages import DesiredRun, GpuId, RunId
from dlsched.system import clock

log = logging.getLogger(__name__)
RESERVED = 300 * 1024**2  # bytes of each GPU that no job gets
SETTLES_S = 1.0  # after the start of an agent, in which the keepers say which runs have turns

Gpus = tuple[GpuId, ...]


@dataclass(eq=False, slots=True)
class GpuTurns:
    """The gates of one node."""

    settings: TurnSettings
    inventory: Inventory
    held: Callable[[RunId], DesiredRun | None]  # a run that the agent holds
    send_to_keeper: Callable[[RunId, dict[str, Any]], bool]
    _gates: dict[Gpus, Gate] = field(default_factory=dict, init=False)
    _of: dict[RunId, Gpus] = field(default_factory=dict, init=False)  # the gate of each run
    _timers: dict[Gpus, asyncio.TimerHandle] = field(default_factory=dict, init=False)
    _late: dict[Gpus, set[str]] = field(default_factory=dict, init=False)
    _opens: float = field(default_factory=lambda: clock.boottime() + SETTLES_S, init=False)

    def from_keeper(self, run_id: RunId, said: Mapping[str, Any]) -> None:
        """Take what a run says of its turns."""
        desired = self.held(run_id)
        if desired is None:
            return
        gpus = self._of.setdefault(run_id, tuple(sorted(desired.gpus)))
        gate = self._gates.get(gpus)
        if gate is None:
            gate = self._gates[gpus] = self._new_gate(gpus)
        now = clock.boottime()
        held = _bytes(said.get("held"))
        turns: list[Turn] = []
        if said.get("resumes"):
            ephemeral = said.get("ephemeral")
            needed = math.nan if ephemeral is None else _bytes(ephemeral)
            runs = bool(said.get("runs"))
            turns += gate.resumes(run_id, now, runs=runs, persistent=held, ephemeral=needed)
        if said.get("wants"):
            left = said.get("left_s")
            left_s = float(left) if left is not None else math.inf
            turns += gate.wants(run_id, now, persistent=held, left=left_s)
        if said.get("urgent"):
            turns += gate.must_stop(run_id, now)
        if said.get("ended"):
            turns += gate.ended(run_id, now, held, _bytes(said.get("most")))
        if said.get("frozen"):
            turns += gate.freezes(run_id, now)
        if said.get("gone"):
            self.gone(run_id)
        self._give(gpus, turns)

    def gone(self, run_id: RunId) -> None:
        """A run has ended, or takes no turns any more."""
        gpus = self._of.pop(run_id, None)
        if gpus is None:
            return
        gate = self._gates[gpus]
        self._give(gpus, gate.gone(run_id, clock.boottime()))
        if gate.is_empty():
            del self._gates[gpus]
            self._late.pop(gpus, None)
            self._cancel(gpus)

    def _new_gate(self, gpus: Gpus) -> Gate:
        settings = self.settings
        capacity = settings.memory_gb * 1e9
        if not capacity:
            memory = [gpu.memory_bytes for gpu in self.inventory.gpus if gpu.uuid in gpus]
            capacity = min(memory, default=0) - RESERVED
        return Gate(
            capacity,
            settings.order,
            conserves_work=settings.conserves_work,
            patience_s=settings.patience_s,
            opens=self._opens,
        )

    def _give(self, gpus: Gpus, turns: list[Turn]) -> None:
        """Tell runs that they have their turn, and look again when a turn may last too long."""
        for turn in turns:
            given = {"memory": int(turn.memory), "shared": turn.shared}
            self.send_to_keeper(RunId(turn.session), {"turn": given})
        gate = self._gates.get(gpus)
        if gate is None:
            return
        late = set(gate.late())
        for run_id in late - self._late.get(gpus, set()):
            log.warning("turn-taken-away run=%s", run_id)
        self._late[gpus] = late
        self._cancel(gpus)
        if gate.wake_at < math.inf:
            wait = max(0.0, gate.wake_at - clock.boottime())
            loop = asyncio.get_running_loop()
            self._timers[gpus] = loop.call_later(wait, self._look, gpus)

    def _look(self, gpus: Gpus) -> None:
        gate = self._gates.get(gpus)
        if gate is not None:
            self._give(gpus, gate.look(clock.boottime()))

    def _cancel(self, gpus: Gpus) -> None:
        timer = self._timers.pop(gpus, None)
        if timer is not None:
            timer.cancel()


def _bytes(value: object) -> int:
    return max(0, value) if isinstance(value, int) else 0
