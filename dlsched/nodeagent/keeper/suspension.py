"""How a keeper suspends its job: at the level that was ordered, or the next that is possible.

Freezing keeps the memory of the GPUs. A CUDA checkpoint frees it, so it is made before the
suspension is reported; a child process makes it, and the keeper goes on obeying meanwhile. The
report says what was done.

Invariant: a job is reported to have released its GPUs only while all its processes stand still and
none of them has a GPU open, or after a CUDA checkpoint.
"""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING

from dlsched.nodeagent.gpus import cuda_checkpoint as cuda
from dlsched.nodeagent.json_values import dumps, value_of
from dlsched.protocol.keeper import JobSuspended
from dlsched.protocol.messages import SuspendLevel
from dlsched.system import clock

if TYPE_CHECKING:
    from dlsched.nodeagent.ranks.keeper_interface import KeeperInterface

LIMIT_S = 300.0  # for a whole suspension or resumption; then its child is killed
STILL_S = 1.0  # until all processes stand still


class Suspension:
    """The suspension of one run."""

    def __init__(self, keeper: KeeperInterface) -> None:
        """Suspend nothing yet."""
        self._keeper = keeper
        self.level = SuspendLevel.FREEZE  # that is ordered
        self.gpu_bytes = 0  # GPU memory of the job, as the agent knows
        self._reached = ""  # level; empty: not suspended
        self._why = ""  # the level reached is not the one ordered
        self.deadline: float | None = None
        self._pids: list[int] = []
        self._worker: int | None = None
        self._pipe: int | None = None
        self._resuming = False
        self._thaw_after = False

    @property
    def is_busy(self) -> bool:
        """Whether a checkpoint or a restore is under way."""
        return self._worker is not None

    def message(self) -> dict[str, object]:
        """Return what the agent gets beside the status; empty when the job is not suspended."""
        if not self._reached:
            return {}
        return {"suspended": {"level": self._reached, "why": self._why, "bytes": self.gpu_bytes}}

    def freeze(self) -> None:
        """Suspend the job at the level ordered, or the next that is possible."""
        keeper = self._keeper
        self._thaw_after = False
        if self.is_busy:
            return
        self._why = ""
        if keeper.state.suspended and self.level is not SuspendLevel.FREEZE and not self._reached:
            if self.level is SuspendLevel.COOPERATIVE:
                self._why = "a job that leaves cooperatively is stopped, not suspended"
            tool = keeper.spec.checkpoint_tool
            members = [each.pid for each in keeper.processes.containment.members()]
            pids = cuda.holders(members, keeper.spec.device_prefix)
            obstacle = "no cuda-checkpoint here" if not tool else ""
            obstacle = obstacle or cuda.may_suspend(pids, self.gpu_bytes, cuda.available_memory())
            if not obstacle:
                self._pids = pids
                self._work(resuming=False)
                return
            self._why = "; ".join(filter(None, (self._why, obstacle)))
        self._stand_still(SuspendLevel.FREEZE)

    def _stand_still(self, level: SuspendLevel) -> None:
        self._reached = self._reached or level.value
        self._keeper.processes.containment.freeze()
        self._keeper.feed_later(JobSuspended(clock.boottime(), self._has_released_gpus()))

    def _has_released_gpus(self) -> bool:
        """Whether other jobs may have the GPUs."""
        if not self._keeper.state.settling:
            return False  # it is not asked
        containment, prefix = self._keeper.processes.containment, self._keeper.spec.device_prefix
        if not containment.settles(STILL_S):
            return False
        if self._reached == SuspendLevel.CUDA.value:
            return True
        members = [each.pid for each in containment.members()]
        return self.gpu_bytes == 0 and cuda.none_holds(members, prefix)

    def thaw(self) -> None:
        """Let the job go on, after a checkpoint that is under way."""
        keeper = self._keeper
        if self.is_busy:
            self._thaw_after = not self._resuming
            return
        keeper.processes.containment.thaw()
        if self._reached == SuspendLevel.CUDA.value:
            self._work(resuming=True)
        else:
            self._reached = ""

    # -- the worker ----------------------------------------------------------------------------

    def _work(self, *, resuming: bool) -> None:
        self._resuming = resuming
        spec, pids = self._keeper.spec, self._pids
        tool, lock_s = spec.checkpoint_tool, spec.checkpoint_lock_s
        reading, writing = os.pipe2(os.O_CLOEXEC)
        pid = os.fork()
        if pid == 0:
            try:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                os.setsid()
                outcome = cuda.resume(tool, pids) if resuming else cuda.suspend(tool, pids, lock_s)
                os.write(writing, dumps(outcome))
            finally:
                os._exit(0)
        os.close(writing)
        self._worker, self._pipe = pid, reading
        self.deadline = clock.boottime() + LIMIT_S

    def wake(self, now: float) -> None:
        """Kill a worker that has had its time."""
        if self._worker is not None and self.deadline is not None and now >= self.deadline:
            self.deadline = None
            os.kill(self._worker, signal.SIGKILL)

    def ended(self, pid: int) -> bool:
        """Whether the process that has ended is the worker; if so, use its outcome."""
        if pid != self._worker:
            return False
        assert self._pipe is not None
        data = os.read(self._pipe, 65536)
        os.close(self._pipe)
        self._worker = self._pipe = self.deadline = None
        outcome = cuda.Outcome(done=False, why="cuda-checkpoint: its time is over", lost=True)
        if data:
            outcome = value_of(cuda.Outcome, json.loads(data))
        self._finish(outcome)
        return True

    def _finish(self, outcome: cuda.Outcome) -> None:
        keeper = self._keeper
        if self._resuming:
            self._reached = ""
            if not outcome.done:
                keeper.processes.fail_job(f"cannot be resumed: {outcome.why}")
            elif keeper.state.frozen:  # ordered meanwhile
                self.freeze()
            return
        if outcome.lost:
            keeper.processes.fail_job(f"cannot be suspended: {outcome.why}")
            return
        self._why = outcome.why
        self._reached = SuspendLevel.CUDA.value if outcome.done else ""
        self._stand_still(SuspendLevel.FREEZE)
        if self._thaw_after:
            self._thaw_after = False
            self.thaw()
        keeper.send_status()
