"""How a keeper suspends its job: the level that was asked for, or the next that can be had.

Freezing keeps the GPUs' memory. A CUDA checkpoint frees it, so it is done before the suspension is
told; the work is a child's, and the keeper goes on obeying meanwhile. What was done is told.

Invariant: a job is said to have let its GPUs go only while all of it stands still and none of its
processes has a GPU open, or after a CUDA checkpoint.
"""

from __future__ import annotations

import json
import os
import signal
import time
from typing import TYPE_CHECKING

from dlsched.nodeagent import clock, cuda
from dlsched.nodeagent.plainjson import plain, value_of
from dlsched.protocol.keeper import StoodStill
from dlsched.protocol.messages import SuspendLevel

if TYPE_CHECKING:
    from dlsched.nodeagent.kept_run import KeptRun

LIMIT_S = 300.0  # of a whole suspension or resumption; then its child is killed
STILL_S = 1.0  # until all processes stand still


class Suspension:
    """The suspension of one run."""

    def __init__(self, keeper: KeptRun) -> None:
        self._keeper = keeper
        self.level = SuspendLevel.FREEZE  # asked for
        self.gpu_bytes = 0  # that the job holds, as the agent knows
        self.done = ""  # level that stands
        self.why = ""  # it is not the one asked for
        self.deadline: float | None = None
        self._pids: list[int] = []
        self._worker: int | None = None
        self._pipe: int | None = None
        self._resuming = False
        self._thaw_after = False

    @property
    def busy(self) -> bool:
        """Whether a checkpoint or a restore is under way."""
        return self._worker is not None

    def said(self) -> dict[str, object]:
        """For the agent, beside the status."""
        if not self.done:
            return {}
        return {"suspended": {"level": self.done, "why": self.why, "bytes": self.gpu_bytes}}

    def freeze(self) -> None:
        """Suspend."""
        keeper = self._keeper
        self._thaw_after = False
        if self.busy:
            return
        self.why = ""
        if keeper.state.suspended and self.level is not SuspendLevel.FREEZE and not self.done:
            if self.level is SuspendLevel.COOPERATIVE:
                self.why = "a job that leaves cooperatively is stopped, not suspended"
            tool = keeper.spec.checkpoint_tool
            members = [each.pid for each in keeper.containment.members()]
            pids = cuda.holders(members, keeper.spec.device_prefix)
            obstacle = "no cuda-checkpoint here" if not tool else ""
            obstacle = obstacle or cuda.may_suspend(pids, self.gpu_bytes, cuda.available_memory())
            if not obstacle:
                self._pids = pids
                self._work(resuming=False)
                return
            self.why = "; ".join(filter(None, (self.why, obstacle)))
        self._stand_still(SuspendLevel.FREEZE)

    def _stand_still(self, level: SuspendLevel) -> None:
        self.done = self.done or level.value
        self._keeper.containment.freeze()
        self._keeper.soon(StoodStill(clock.now(), self._has_let_go()))

    def _has_let_go(self) -> bool:
        """Whether others may have the GPUs."""
        if not self._keeper.state.settling:
            return False  # nobody asks
        containment, prefix = self._keeper.containment, self._keeper.spec.device_prefix
        deadline = clock.now() + STILL_S
        while not containment.stands_still():
            if clock.now() > deadline:
                return False
            time.sleep(0.002)
        if self.done == SuspendLevel.CUDA.value:
            return True
        members = [each.pid for each in containment.members()]
        return self.gpu_bytes == 0 and cuda.none_holds(members, prefix)

    def thaw(self) -> None:
        """Let the job go on."""
        keeper = self._keeper
        if self.busy:
            self._thaw_after = not self._resuming
            return
        keeper.containment.thaw()
        if self.done == SuspendLevel.CUDA.value:
            self._work(resuming=True)
        else:
            self.done = ""

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
                os.write(writing, json.dumps(plain(outcome)).encode())
            finally:
                os._exit(0)
        os.close(writing)
        self._worker, self._pipe = pid, reading
        self.deadline = clock.now() + LIMIT_S

    def wake(self, now: float) -> None:
        """The worker has had its time."""
        if self._worker is not None and self.deadline is not None and now >= self.deadline:
            self.deadline = None
            os.kill(self._worker, signal.SIGKILL)

    def ended(self, pid: int, _status: int) -> bool:
        """Whether it was the worker that ended; what follows from it."""
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
            self.done = ""
            if not outcome.done:
                keeper.give_up_on_job(f"cannot be resumed: {outcome.why}")
            elif keeper.state.frozen:  # asked for meanwhile
                self.freeze()
            return
        if outcome.lost:
            keeper.give_up_on_job(f"cannot be suspended: {outcome.why}")
            return
        self.why = outcome.why
        self.done = SuspendLevel.CUDA.value if outcome.done else ""
        self._stand_still(SuspendLevel.FREEZE)
        if self._thaw_after:
            self._thaw_after = False
            self.thaw()
        keeper.tell_status()
