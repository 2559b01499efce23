"""A training job seen from inside: steps, the agreed stop, checkpoints, what it reports.

All of it happens in `step()`, at the boundary between two training steps, in the thread that
trains; nothing runs beside it. Without a scheduler everything works that can and the rest does
nothing. A stop is the same on all ranks after the same step: save, hand in, leave with 143.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from dlsched.job.agreement import Agreement, Exchange, Wish
from dlsched.job.checkpoints import Checkpoints
from dlsched.job.keeper_link import KeeperLink
from dlsched.job.messages import (
    CheckpointAnswer,
    Limit,
    Restored,
    StepDone,
    Stop,
    StopAt,
    Trained,
    UseBatch,
)
from dlsched.job.runtime import Runtime
from dlsched.job.sampler import ElasticSampler
from dlsched.job.star import Star
from dlsched.job.stop_signal import StopSignal

__all__ = ["PREEMPTED", "Job", "Lease"]

PREEMPTED = 143  # the exit code of a job that left because it was asked to: 128 + SIGTERM
REPORT_S = 1.0  # at least, between two reports
RENDEZVOUS_S = 0.05  # about, between two rendezvous of the ranks
ANSWER_S = 30.0  # at most, that a stop without a deadline waits for its checkpoint's commit
ANSWER_SHARE = 0.8  # of the time left, with a deadline


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The right to go on: true until somebody has asked this rank to stop."""

    holds: bool = True
    reason: str = ""  # why not: preempt, migrate, cancel, signal, ...
    deadline: float | None = None  # on the monotonic clock; None: not known

    def __bool__(self) -> bool:
        """Whether it holds."""
        return self.holds


class Job:
    """This process as a rank of a job; made by `attach`.

    Attributes:
        rank: of this process.
        world_size: how many ranks there are.
        local_rank: rank among those of this node.
        checkpoint: what is saved, when and where.
        lease: the right to go on, as this rank knows; a look costs nothing.
        limit: what share of its GPUs the job may use, as far as somebody has set one.
        batch: the batch size that the scheduler thinks best here; None while it has no idea.
        steps: training steps done, those before a restart included.
        stopped: all ranks have agreed to stop after the present step.
    """

    def __init__(self, runtime: Runtime, *, folder: Path | None = None, gang: bool = True) -> None:
        self.runtime = runtime
        self.rank = runtime.rank
        self.world_size = runtime.world_size
        self.local_rank = runtime.local_rank
        self.steps = 0
        self.stopped = False
        self.lease = Lease()
        self.limit = Limit()
        self.batch = (
            UseBatch(local=runtime.local_batch, accumulation=runtime.accumulation)
            if runtime.local_batch
            else None
        )
        self._gang = gang
        self._first = 0  # the step that this run began from
        self._link = KeeperLink(runtime.control_socket, runtime.rank, runtime.run_id)
        self.checkpoint = Checkpoints(runtime, runtime.checkpoint_folder or folder, self._link)
        self._signal = StopSignal()
        self._signal.install()
        self._agreement: Agreement | None = None
        self._stop_at = 0
        self._closed = False
        self._last_step = time.monotonic()
        self._mean_step_s = 0.0
        self._reported_at = -REPORT_S
        self._batches: list[float] = []  # seconds of each step since the last report

    # -- what the training calls -------------------------------------------------------------------

    def restore(self) -> int:
        """Load the newest checkpoint; the number of steps done by then, so the next one's number.

        To be called when all states are registered, before the first step.
        """
        self.steps = self._first = self.checkpoint.restore()
        self.checkpoint.tidy()
        self._last_step = time.monotonic()
        return self.steps

    def step(
        self, *, loss: float | None = None, batch_s: float | None = None, **metrics: float
    ) -> bool:
        """A training step is done; whether to go on. Every rank calls it after every step.

        When it says no, the checkpoint has been written: leave the loop. It is the same answer on
        all ranks after the same step. Whoever calls it once more leaves the program here.

        Args:
            loss: of this step.
            batch_s: seconds that it took; else the time since the last call.
            metrics: further numbers to be shown.
        """
        if self.stopped:
            raise SystemExit(PREEMPTED)
        now = time.monotonic()
        self.steps += 1
        self._count(now - self._last_step if batch_s is None else batch_s)
        self._listen()
        self._report(now, loss, metrics)
        agreement = self._agree()
        verdict = agreement.after(self.steps, self._wish(now))
        if verdict.stop or verdict.save or self.checkpoint.is_due_at(self.steps):
            self.checkpoint.save(self.steps, agreement)
        if verdict.stop:
            self._stop(agreement, verdict.left_s)
            return False
        agreement.meet(self.steps, self._wish(time.monotonic()))
        self._last_step = time.monotonic()
        return True

    def save(self) -> None:
        """Write a checkpoint now; all ranks call it after the same step."""
        self.checkpoint.save(self.steps, self._agree())

    def deadline(self) -> float | None:
        """Seconds left to leave in; None when nobody has asked, or said no time."""
        self._listen()
        if self.lease.deadline is None:
            return None
        return max(0.0, self.lease.deadline - time.monotonic())

    def sampler(self, length: int, **options: Any) -> ElasticSampler:
        """An ElasticSampler for this rank that is part of the checkpoint, as state `sampler`."""
        sampler = ElasticSampler(length, rank=self.rank, world_size=self.world_size, **options)
        self.checkpoint.register("sampler", save=sampler.save, load=sampler.load)
        return sampler

    @property
    def resume_from(self) -> Path | None:
        """The folder of the checkpoint that `restore` begins with, for scripts that load it."""
        newest = self.checkpoint.newest()
        return newest.path if newest is not None else None

    def tell(self, trained: Trained, *, must_arrive: bool = False) -> None:
        """Report how an elastic training goes."""
        self._link.send(trained, must_arrive=must_arrive)

    @property
    def is_scheduled(self) -> bool:
        """Whether a scheduler runs this."""
        return bool(self.runtime.control_socket)

    def close(self) -> None:
        """No more steps; harmless when repeated."""
        if not self._closed:
            self._closed = True
            if self._agreement is not None:
                self._agreement.close()
            self._link.close()
            self._signal.remove()

    def __enter__(self) -> Job:
        """Use it as a context: it is closed at the end, and a stopped job leaves with 143."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close; leave with 143 after an agreed stop."""
        if kind is None and not self.stopped and self.runtime.job:
            self._signal.let_finish()
        self.close()
        if kind is None and self.stopped:
            _leave_group()
            raise SystemExit(PREEMPTED)

    # -- inside ------------------------------------------------------------------------------------

    def _agree(self) -> Agreement:
        if self._agreement is None:
            self._agreement = Agreement(self._exchange(), self._first)
        return self._agreement

    def _exchange(self) -> Exchange | None:
        """With a process group of PyTorch through that, else through a star of our own."""
        if not self._gang or self.world_size == 1:
            return None
        distributed = sys.modules.get("torch.distributed")
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            from dlsched.job.group_exchange import GroupExchange  # noqa: PLC0415  # only when it is used

            return GroupExchange()
        return Star(self.runtime)

    def _wish(self, now: float) -> Wish:
        stride = round(RENDEZVOUS_S / self._mean_step_s) if self._mean_step_s else 1
        stop_at = self._stop_at or int(not self.lease)
        return Wish(
            stop_at=stop_at,
            save=self.checkpoint.is_due(now),
            stride=max(1, stride),
            left_s=None if self.lease.deadline is None else max(0.0, self.lease.deadline - now),
        )

    def _listen(self) -> None:
        """Take in what the keeper and the kernel have said."""
        for message in self._link.receive():
            match message:
                case Stop(reason=reason, deadline_s=left):
                    deadline = None if left is None else time.monotonic() + left
                    self.lease = Lease(holds=False, reason=reason, deadline=deadline)
                    self._signal.note()
                case StopAt(step=step):
                    self._stop_at = max(1, step)
                    self.lease = Lease(
                        holds=False,
                        reason=self.lease.reason or "stop_at",
                        deadline=self.lease.deadline,
                    )
                case Limit():
                    self.limit = message
                case UseBatch():
                    self.batch = message
                case CheckpointAnswer():
                    self.checkpoint.answered(message)
        if self._signal.asked and self.lease:
            self.lease = Lease(holds=False, reason="signal")

    def _count(self, batch_s: float) -> None:
        self._batches.append(batch_s)
        self._mean_step_s += (batch_s - self._mean_step_s) / min(self.steps - self._first, 20)

    def _report(self, now: float, loss: float | None, metrics: dict[str, float]) -> None:
        if self.steps == self._first + 1:
            self._link.send(Restored(step=self._first, restart_s=_age_s() or 0.0), must_arrive=True)
        if now - self._reported_at < REPORT_S:
            return
        self._reported_at = now
        batches, self._batches = self._batches, []
        if self._link.is_open:
            self._link.send(
                StepDone(
                    step=self.steps,
                    batch_s=sum(batches) / len(batches),
                    loss=None if loss is None else float(loss),
                    gpu_memory=_gpu_memory(),
                    metrics={name: float(value) for name, value in metrics.items()},
                )
            )

    def _stop(self, agreement: Agreement, told_s: float | None) -> None:
        """The checkpoint is written: have it committed, and leave together."""
        left = told_s if self.lease.deadline is None else self.deadline()
        until = time.monotonic() + (ANSWER_S if left is None else left * ANSWER_SHARE)
        while self.checkpoint.waits_for_answer and self._link.is_open:
            if time.monotonic() >= until:
                break
            self._link.wait(until - time.monotonic())
            self._listen()
        agreement.barrier()
        self.stopped = True


def _leave_group() -> None:
    """End PyTorch's process group: its threads must not meet the end of the interpreter."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        distributed.destroy_process_group()


def _gpu_memory() -> int | None:
    """Bytes of GPU memory that this process has held at once, as PyTorch counts them."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "cuda") or not torch.cuda.is_initialized():
        return None
    return int(torch.cuda.max_memory_allocated())


def _age_s() -> float | None:
    """Seconds since this process was started, before there was any Python in it."""
    try:
        after_name = Path("/proc/self/stat").read_text(encoding="ascii").rpartition(")")[2]
        started = int(after_name.split()[19]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return None
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - started)
