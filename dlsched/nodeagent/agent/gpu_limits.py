"""The node policy of an agent: it divides this node's GPUs among the jobs on them.

What jobs report and what the GPUs say goes into the policy's step; the limits that come out go to
the keepers, which remember them. The states are on disk, so that an agent that was killed goes on
where it was. A policy that fails, or a report that cannot be, costs no job anything but its limit.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from dlsched.core.node_policy import DividedGpus, Limit, MemoryRead, NodePolicy, Resident, Stepped
from dlsched.nodeagent.gpus.backend import GpuState
from dlsched.nodeagent.gpus.watch import GpuWatch
from dlsched.nodeagent.json_values import UNCLEAR, dumps, value_of
from dlsched.protocol import messages as m
from dlsched.protocol.agent.state import Held
from dlsched.system import clock, files

log = logging.getLogger(__name__)
T = TypeVar("T")
FILE = "gpu-limits.json"
HELLO_S = 60.0  # in which a job's processes should have said that they obey limits
_LOOK_S = 1.0  # at which runs are on the GPUs
_ON_GPU = (m.Phase.RUNNING, m.Phase.STOPPING)
Send = Callable[[m.RunId, dict[str, Any]], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class _OnGpus:
    """A run on this node's GPUs, as the policy knows it."""

    run_id: str
    since: float
    obeys: bool = False  # its processes have said so
    stands_still: bool = False  # they have not said so in time


@dataclass(eq=False, slots=True)
class GpuLimits:
    """The limits of the jobs on this node.

    Attributes:
        decided: how many limits were sent, since this process began.
        has_failed: whether the policy has raised; nothing is limited from then on.
    """

    policy: NodePolicy[Any, Any]
    state_dir: str
    send: Send
    gpus: GpuWatch
    decided: int = 0
    has_failed: bool = False
    _divided: DividedGpus[Any] = field(init=False)
    _runs: dict[int, _OnGpus] = field(default_factory=dict, init=False)  # by job
    _steps: dict[int, int] = field(default_factory=dict, init=False)  # the newest that was reported
    _readings: dict[m.GpuId, GpuState] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._divided = DividedGpus(self.policy)

    # -- what happens ------------------------------------------------------------------------------

    def follow(self, held: Mapping[m.RunId, Held], now: float) -> None:
        """Tell the policy which runs have come to the GPUs and which have left them."""
        here = {
            run_id: each.desired
            for run_id, each in held.items()
            if each.phase in _ON_GPU and each.desired.gpus and not each.let_go
        }
        for job, known in list(self._runs.items()):
            if m.RunId(known.run_id) not in here:
                self._leave(job, now)
        for run_id, desired in here.items():
            job = int(desired.key.job)
            if job not in self._runs:
                self._runs[job] = _OnGpus(run_id=run_id, since=now)
                self._come(desired, now)
            elif self._is_deaf(job, desired, now):
                self._divided.leave(now, job)
                self._runs[job] = _OnGpus(run_id=run_id, since=now, stands_still=True)
                self._come(desired, now)

    def _is_deaf(self, job: int, desired: m.DesiredRun, now: float) -> bool:
        """Is it time to conclude that an opportunistic job obeys no share?"""
        known = self._runs[job]
        waits = not known.obeys and not known.stands_still and _is_opportunistic(desired)
        return waits and now - known.since > HELLO_S

    def _come(self, desired: m.DesiredRun, now: float) -> None:
        job = int(desired.key.job)
        resident = Resident(
            job=job,
            guaranteed=not _is_opportunistic(desired),
            can_throttle=not self._runs[job].stands_still,
        )
        self._carry(self._divided.come(now, resident, desired.gpus))

    def _leave(self, job: int, now: float) -> None:
        self._runs.pop(job)
        self._steps.pop(job, None)
        self._carry(self._divided.leave(now, job))

    def reported(self, key: m.RunKey | None, values: Mapping[str, Any]) -> None:
        """Take a report of a rank; the first one of a step speaks for its job."""
        job = int(key.job) if key is not None else -1
        batch_s, step = values.get("batch_s"), values.get("step")
        if job not in self._runs or batch_s is None or step is None:
            return
        before, self._steps[job] = self._steps.get(job), int(step)
        done = 1 if before is None else int(step) - before
        if done <= 0:
            return  # another rank's report of the same step
        memory = values.get("gpu_memory_bytes")
        event = Stepped(
            now=clock.boottime(),
            job=job,
            duration_s=float(batch_s),
            steps=done,
            memory_bytes=None if memory is None else int(memory),
        )
        self._carry(self._divided.report(event))

    def obeys(self, key: m.RunKey | None) -> None:
        """A rank of a run has said that it obeys limits."""
        known = self._runs.get(int(key.job)) if key is not None else None
        if key is None or known is None or known.run_id != key.run_id or known.obeys:
            return
        job = int(key.job)
        self._runs[job] = _OnGpus(run_id=known.run_id, since=known.since, obeys=True)
        if known.stands_still:  # it was slow to say so
            gpus, now = self._divided.gpus_of(job), clock.boottime()
            self._divided.leave(now, job)
            self._carry(self._divided.come(now, Resident(job=job, guaranteed=False), gpus))

    def look(self, held: Mapping[m.RunId, Held], now: float) -> None:
        """See what has changed, and wake the policy where its time has come."""
        self.follow(held, now)
        for gpu, state in self.gpus.states.items():
            if self._readings.get(gpu) is state:
                continue
            self._readings[gpu] = state
            used, free = state.memory_used_bytes, state.memory_free_bytes
            if used is not None and free is not None:
                read = MemoryRead(now=now, total_bytes=used + free, free_bytes=free)
                self._carry(self._divided.read(gpu, read))
        self._carry(self._divided.wake(now))

    def _carry(self, changed: Mapping[int, Limit]) -> None:
        """Tell the keepers of jobs whose limits have changed."""
        for job, limit in changed.items():
            known = self._runs.get(job)
            if known is None:
                continue
            self.decided += 1
            log.info(
                "limit job=%d share=%d memory=%s leaves=%s",
                job, limit.share, limit.memory_bytes, limit.leaves,
            )  # fmt: skip
            self.send(m.RunId(known.run_id), {"limit": _message(limit, known)})

    # -- for ever ----------------------------------------------------------------------------------

    async def run(self, held: Callable[[], Mapping[m.RunId, Held]]) -> None:
        """Look again and again, until the policy fails."""
        while not self.has_failed:
            decided = self.decided
            self.guard(lambda: self.look(held(), clock.boottime()))
            if self.decided != decided:
                self.store()
            wait_s = min(_LOOK_S, max(0.01, self._divided.next_wake - clock.boottime()))
            await asyncio.sleep(wait_s)

    def guard(self, call: Callable[[], None]) -> None:
        """Do a step of the policy, which may be another package's: the agent goes on without it.

        A policy that fails limits nothing from then on.
        """
        if self.has_failed:
            return
        try:
            call()
        except Exception:
            log.exception("node-policy-failed name=%s", self.policy.name)
            self.has_failed = True
            for known in self._runs.values():
                self.send(m.RunId(known.run_id), {"limit": _message(Limit(), known)})

    # -- the disk ----------------------------------------------------------------------------------

    def store(self) -> None:
        """Write down what the next agent needs to go on; a full disk is told in the log."""
        kept = {"policy": self.policy.name, "runs": self._runs, **self._divided.state_dict()}
        try:
            files.replace_file(os.path.join(self.state_dir, FILE), dumps(kept), durable=False)
        except OSError as error:
            log.warning("limits-not-stored why=%s", error.strerror)

    def restore(self) -> None:
        """Go on from what an earlier process has stored; what cannot be read is forgotten."""
        data = files.read_if_there(os.path.join(self.state_dir, FILE))
        if data is None:
            return
        try:
            self._load(json.loads(data))
        except UNCLEAR as error:
            log.warning("limits-forgotten why=%.300s", error)
            self._divided, self._runs = DividedGpus(self.policy), {}

    def _load(self, kept: dict[str, Any]) -> None:
        if kept["policy"] != self.policy.name:
            return
        state, per_gpu = self.policy.State, kept["limits"].items()
        self._divided.load_state_dict(
            {
                "states": {gpu: value_of(state, each) for gpu, each in kept["states"].items()},
                "wake_at": {gpu: float(at) for gpu, at in kept["wake_at"].items()},
                "limits": {gpu: _by_job(Limit, limits) for gpu, limits in per_gpu},
                "gpus": {int(job): tuple(gpus) for job, gpus in kept["gpus"].items()},
            }
        )
        self._runs = _by_job(_OnGpus, kept["runs"])


def _by_job(kind: type[T], kept: Mapping[str, Any]) -> dict[int, T]:
    return {int(job): value_of(kind, each) for job, each in kept.items()}


def _is_opportunistic(desired: m.DesiredRun) -> bool:
    """Whether a run uses what others leave: it needs no part of its GPUs."""
    return desired.gpu_share == 0


def _message(limit: Limit, known: _OnGpus) -> dict[str, Any]:
    return {
        "share": limit.share,
        "memory_bytes": limit.memory_bytes,
        "leaves": limit.leaves,
        "stand_still": known.stands_still,
    }
