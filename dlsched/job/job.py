"""A training job from the inside: steps, the agreed stop, checkpoints, reports.

All of it happens in `step()`, between two training steps, in the thread that trains; there is no
other thread. Without a scheduler, the parts that need one do nothing. A stop is the same on all
ranks after the same step: save, have the checkpoint committed, exit with 143.
"""

from __future__ import annotations

import math
import os
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from dlsched.job import messages as words
from dlsched.job.gang.agreement import Agreement, Exchange, Wish
from dlsched.job.gang.in_place import InPlace
from dlsched.job.gang.star import Star
from dlsched.job.keeper_link import KeeperLink
from dlsched.job.reported import ReportedValues
from dlsched.job.runtime import PREEMPTED, Runtime
from dlsched.job.sampler import ElasticSampler
from dlsched.job.saving.checkpoints import Checkpoints
from dlsched.job.saving.first_save import FirstSave
from dlsched.job.saving.save_signal import SaveSignal
from dlsched.job.step_signs import StepSigns
from dlsched.job.stop_signal import StopSignal
from dlsched.job.throttle import Throttle, percent_of
from dlsched.job.turns import Turns

REPORT_S = 1.0  # at least between two reports
RENDEZVOUS_S = 0.05  # about, between two rendezvous of the ranks
LONGEST_ERROR = 400  # characters of an exception's first line
ANSWER_S = 30.0  # that a stop without a deadline waits at most for its checkpoint's commit
ANSWER_SHARE = 0.8  # the same with a deadline, as a part of the time left
NO_STATE = "no state is registered with job.checkpoint"
NO_FOLDER = "there is no folder for checkpoints"
BEGINS_ANEW = "when the scheduler stops this job, it begins anew"
STANDS_STILL = "limit"  # what it does while its share is 0
LOOK_S = 0.1  # for a signal, while it pauses
TWICE = (
    "step() seems to be called twice after each training step: at every second call nothing has "
    "changed; steps and checkpoints are then counted twice"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The right to go on: true until this rank is asked to stop."""

    holds: bool = True
    reason: str = ""  # of the stop: preempt, migrate, cancel, signal, ...
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
        checkpoint: the states that are saved, and when.
        limit: the share of its GPUs that the job may use, if one is set.
        epoch: of the data that a ResumableLoader or AccelerateLoader gives, from 0.
        batch: how many batches of this epoch it has given, those before a restart included.
        preferred_batch: the size that the scheduler prefers here; None while it prefers none.
        steps: training steps done, including those before a restart.
        signs: of training steps, by which a `step` that is called twice is noticed.
        stopped: whether all ranks have agreed to stop after the present step.
    """

    def __init__(self, runtime: Runtime, *, folder: Path | None = None, gang: bool = True) -> None:
        """Connect to the keeper and handle SIGTERM; the arguments are those of `attach`."""
        self.runtime = runtime
        self.rank = runtime.rank
        self.world_size = runtime.world_size
        self.local_rank = runtime.local_rank
        self.steps = 0
        self.stopped = False
        self._lease = Lease()
        self._knows = False  # whether the script has seen that it is to stop
        self.limit = words.Limit()
        self.node_cpus = runtime.cpus
        self.epoch = self.batch = 0
        self.preferred_batch = (
            words.UseBatch(local=runtime.local_batch, accumulation=runtime.accumulation)
            if runtime.local_batch
            else None
        )
        self._gang = gang
        self._first = 0  # the step that this run began from
        self._link = KeeperLink(runtime.control_socket, runtime.rank, runtime.run_id)
        self._turns = Turns(self._link, is_on=runtime.gpu_share < 1)
        self.checkpoint = Checkpoints(runtime, runtime.checkpoint_folder or folder, self._link)
        self._in_place = InPlace(runtime, self._link, self.checkpoint.states)
        self._age_from: float | None = None  # when it took over; None: it has begun by itself
        self.signs = StepSigns()
        self._hook = sys.excepthook
        if self._link.is_open:
            sys.excepthook = self._tell_uncaught
        self._signal = StopSignal()
        self._signal.install()
        self._save_signal = SaveSignal(runtime.warn_signal)
        self._agreement: Agreement | None = None
        self._stop_at = 0
        self._closed = False
        self._last_step = time.monotonic()
        self._mean_step_s = 0.0
        self._reported_at = -REPORT_S
        self._values = ReportedValues()
        self._batches: list[float] = []  # seconds of each step since the last report
        self._throttle = Throttle()
        self._paused_s = 0.0  # before the present step, because of its share

    # -- what the training calls -------------------------------------------------------------------

    def restore(self) -> int:
        """Load the newest checkpoint; return the steps done by then, the number of the next step.

        Call it when all states are registered, before the first step.
        """
        if self.runtime.follows:
            self.steps = self._first = self._in_place.take_over(
                self._agree(), self._take_messages, lambda: not self._lease
            )
            self._age_from = time.monotonic()
        else:
            agreement = self._agree() if _has_group() else Agreement(None, 0)
            self.steps = self._first = self.checkpoint.restore(agreement)
            self.checkpoint.tidy()
        self._last_step = time.monotonic()
        return self.steps

    def step(
        self, *, loss: float | None = None, batch_s: float | None = None, **metrics: float
    ) -> bool:
        """Note that a training step is done; every rank calls it after every step.

        Args:
            loss: of this step; a tensor is kept without what its gradient needs.
            batch_s: seconds that it took; else the time since the last call.
            metrics: further numbers to be shown, by name; `samples` is the number of samples of
                this step on all ranks, from which samples a second are counted.

        Returns:
            Whether to go on, the same on all ranks after the same step. When not, the checkpoint
            has been written and the training leaves its loop.

        Raises:
            SystemExit: with 143, when it is called again after it has returned False.
        """
        if self.stopped:
            raise SystemExit(PREEMPTED)
        now = time.monotonic()
        self.steps += 1
        self._values.take({"loss": loss, **metrics})
        self.checkpoint.loss = self._values.newest["loss"]
        worked_s = now - self._last_step if batch_s is None else batch_s
        self._count(worked_s + self._paused_s)
        self._take_messages()
        self._report(now)
        if self.signs.show_twice() and self.rank == 0:
            print(f"dlsched.job: {TWICE}", file=sys.stderr)
        agreement = self._agree()
        verdict = agreement.after(self.steps, self._wish(now))
        self.checkpoint.advance(verdict.written)
        if verdict.stop and self.runtime.in_place and self._hand_over(agreement):
            self.stopped = True
            return False
        if verdict.stop:
            self._link.send(words.Leaving(finished=False), must_arrive=True)
        if verdict.stop or verdict.save or self.checkpoint.is_due_at(self.steps):
            self._save_signal.asked = False
            if verdict.stop:
                self._send_values()  # so that a save which is cut off is known by its step
            if self.checkpoint.is_active:
                self._doing("save")
            self.checkpoint.save(self.steps, agreement, wait=verdict.stop, at_stop=verdict.stop)
        if verdict.stop:
            self._stop(agreement, verdict.left_s)
            return False
        agreement.meet(self.steps, self._wish(time.monotonic()))
        self._pause(worked_s)
        self._last_step = time.monotonic()
        return True

    def step_begin(self, *, steps_left: int | None = None) -> None:
        """Wait for this job's turn on GPUs that it shares; every rank calls it before every step.

        A job that has its GPUs alone goes on at once. The model may be loaded in a turn of its own,
        before the first step.

        Args:
            steps_left: steps that the training still needs, this one included, if it knows.

        Raises:
            JobError: when the step before has not ended.
        """
        self._turns.begin(self._take_messages, steps_left)

    def step_end(self) -> None:
        """Give the turn back, before `step`, with what memory the step has used.

        Raises:
            JobError: when no step has begun.
        """
        self._turns.end()

    def step_or_leave(self, **numbers: float) -> None:
        """Note that a training step is done, as `step` does, for loops that cannot be left.

        Raises:
            SystemExit: with 143, on all ranks after the same step, when the job must stop.
        """
        if not self.step(**numbers):
            raise SystemExit(PREEMPTED)

    def all_succeeded(self, succeeded: bool) -> bool:
        """Wait until all ranks have called this; return whether all of them succeeded."""
        return self._agree().all_succeeded(succeeded)

    def handle_signals(self) -> None:
        """Handle SIGTERM again, where a framework has replaced the handler."""
        self._signal.handle_again()

    def save(self) -> None:
        """Write a checkpoint now; all ranks call it after the same step."""
        self._doing("save")
        self.checkpoint.save(self.steps, self._agree())

    @property
    def lease(self) -> Lease:
        """The right to go on, as this rank knows; reading it costs nothing."""
        self._knows = self._knows or not self._lease
        return self._lease

    def deadline(self) -> float | None:
        """Return the seconds left until this rank must have exited; None when that is not known."""
        self._take_messages()
        self._knows = self._knows or not self._lease
        return self._left_s()

    def finished(self) -> None:
        """Say that the whole job is done: exit code 0 then completes it, whatever stop may come.

        A script that leaves the `with` block by itself needs no such call.
        """
        self._link.send(words.Leaving(finished=True, job=True), must_arrive=True)

    def sampler(self, length: int, **options: Any) -> ElasticSampler:
        """Return an ElasticSampler for this rank; checkpoints hold it as the state `sampler`."""
        sampler = ElasticSampler(length, rank=self.rank, world_size=self.world_size, **options)
        self.checkpoint.register("sampler", save=sampler.save, load=sampler.load, try_load=False)
        self.signs.add(lambda: (sampler.epoch, sampler.consumed))
        return sampler

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Say that the ranks evaluate for a while, so that they do not seem to hang."""
        self._doing("evaluation")
        try:
            yield
        finally:
            self._doing("")
            self._last_step = time.monotonic()

    @property
    def resume_from(self) -> Path | None:
        """The folder of the checkpoint that `restore` tries first, for scripts that load it."""
        newest = self.checkpoint.newest()
        return newest.path if newest is not None else None

    def tell(self, trained: words.Trained, *, must_arrive: bool = False) -> None:
        """Send a report of an elastic training."""
        self._link.send(trained, must_arrive=must_arrive)

    @property
    def is_scheduled(self) -> bool:
        """Whether a scheduler runs this process."""
        return bool(self.runtime.control_socket)

    def close(self) -> None:
        """Close the connections; no more steps. Harmless when repeated."""
        if not self._closed:
            self._closed = True
            self._send_values(must_arrive=True)
            self._doing("end")
            self.checkpoint.close()
            if sys.excepthook == self._tell_uncaught:
                sys.excepthook = self._hook
            if self._agreement is not None:
                self._agreement.close()
            self._link.close()
            self._signal.remove()

    def __enter__(self) -> Job:
        """Use the job as a context: it is closed at the end, and a stopped job exits with 143."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close; exit with 143 after an agreed stop."""
        if error is not None:
            self._tell_error(error)
        if kind is None and not self.stopped and self.runtime.job:
            self._link.send(words.Leaving(finished=not self._knows), must_arrive=True)
            self._signal.let_finish()
        self.close()
        left = isinstance(error, SystemExit) and error.code == PREEMPTED
        if self.stopped and (kind is None or left):
            _leave_group()
            raise SystemExit(PREEMPTED)

    # -- inside ------------------------------------------------------------------------------------

    def _agree(self) -> Agreement:
        if self._agreement is None:
            self._agreement = Agreement(self._exchange(), self._first)
        return self._agreement

    def _exchange(self) -> Exchange | None:
        """Return the exchange: through PyTorch's process group if there is one, else a star."""
        if not self._gang or self.world_size == 1:
            return None
        if _has_group():
            from dlsched.job.gang.group_exchange import GroupExchange  # noqa: PLC0415  # only when it is used

            return GroupExchange()
        return Star(self.runtime)

    def _wish(self, now: float) -> Wish:
        stride = round(RENDEZVOUS_S / self._mean_step_s) if self._mean_step_s else 1
        stop_at = self._stop_at or int(not self._lease)
        return Wish(
            stop_at=stop_at,
            save=self.checkpoint.is_due(now) or self._save_signal.asked,
            stride=max(1, stride),
            written=self.checkpoint.written,
            left_s=self._left_s(),
        )

    def _left_s(self) -> float | None:
        until = self._lease.deadline
        return None if until is None else max(0.0, until - time.monotonic())

    def _take_messages(self) -> None:
        """Take the messages of the keeper, and note a signal."""
        for message in self._link.receive():
            match message:
                case words.Stop(reason=reason, deadline_s=left, hand_over=where):
                    self._in_place.hands_over_to = where
                    deadline = None if left is None else time.monotonic() + left
                    self._lease = Lease(holds=False, reason=reason, deadline=deadline)
                    self._signal.note()
                case words.TakeOver():
                    self._in_place.may_take_over = True
                case words.StopAt(step=step):
                    self._stop_at = max(1, step)
                    self._lease = Lease(
                        holds=False,
                        reason=self._lease.reason or "stop_at",
                        deadline=self._lease.deadline,
                    )
                case words.Limit():
                    self.limit = message
                case words.Turn():
                    self._turns.given(message)
                    _limit_memory(message.memory_bytes)
                case words.UseBatch():
                    self.preferred_batch = message
                case words.Processors(count=count):
                    self.node_cpus = count
                case words.CheckpointAnswer():
                    self.checkpoint.answered(message)
        if self._signal.asked and self._lease:
            self._lease = Lease(holds=False, reason="signal")

    def _pause(self, worked_s: float) -> None:
        """Stand still after a step for as long as the job's share of its GPUs asks for.

        A stop ends the pause, and so does a larger share when its own pause is over.
        """
        begun = time.monotonic()
        share, told = percent_of(self.limit.share), False
        pause_s = self._throttle.after_step(int(worked_s * 1e6), share) / 1e6
        self._paused_s = 0.0
        if share and not pause_s:
            return
        while self._link.is_open and self._lease:
            left = pause_s - (time.monotonic() - begun)
            if share and left <= 0:
                break
            if not share and not told:
                told = True
                self._send_values()
                self._doing(STANDS_STILL)
            self._link.wait(min(left, LOOK_S) if share else LOOK_S)
            self._take_messages()
            if share != percent_of(self.limit.share):
                share = percent_of(self.limit.share)
                pause_s = self._throttle.after_step(int(worked_s * 1e6), share) / 1e6
        if told:
            self._doing("")
        else:
            self._paused_s = time.monotonic() - begun

    def _count(self, batch_s: float) -> None:
        self._batches.append(batch_s)
        self._mean_step_s += (batch_s - self._mean_step_s) / min(self.steps - self._first, 20)

    def _report(self, now: float) -> None:
        if self.steps == self._first + 1:
            saves = self.checkpoint.is_active
            restart_s, first = self._start_s(), FirstSave()
            if self.is_scheduled and self.rank == 0:
                first = self.checkpoint.first_save()
            self._link.send(
                words.Restored(
                    step=self._first,
                    restart_s=restart_s,
                    saves=saves,
                    save_bytes=first.save_bytes,
                    room_bytes=first.room_bytes,
                    save_s=first.save_s,
                ),
                must_arrive=True,
            )
            if self.is_scheduled and not saves and self.rank == 0:
                why = NO_FOLDER if self.checkpoint.states.names else NO_STATE
                print(f"dlsched.job: {why}: {BEGINS_ANEW}", file=sys.stderr)
        is_rung = self.runtime.is_rung(self.steps)
        if is_rung or now - self._reported_at >= REPORT_S:
            self._reported_at = now
            self._send_values(must_arrive=is_rung)

    def _send_values(self, *, must_arrive: bool = False) -> None:
        """Report the values of the newest step, unless they are reported."""
        batches, self._batches = self._batches, []
        if batches and self._link.is_open:
            finite, not_finite = self._values.split()
            self._link.send(
                words.StepDone(
                    step=self.steps,
                    batch_s=math.fsum(batches) / len(batches),
                    loss=finite.pop("loss", None),
                    gpu_memory=_gpu_memory(),
                    metrics=finite,
                    not_finite=not_finite,
                ),
                must_arrive=must_arrive,
            )

    def _doing(self, what: str) -> None:
        """Say what the ranks do in place of steps."""
        self._link.send(words.Doing(what=what), must_arrive=True)

    def _tell_uncaught(
        self, kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        self._tell_error(error)
        self._hook(kind, error, trace)

    def _tell_error(self, error: BaseException) -> None:
        """Say with which exception this rank ends, so that `show` has the first one."""
        if isinstance(error, SystemExit | KeyboardInterrupt):
            return
        last = traceback.extract_tb(error.__traceback__)[-1:]
        where = "".join(f" ({Path(frame.filename).name}:{frame.lineno})" for frame in last)
        first = str(error).strip().partition("\n")[0][:LONGEST_ERROR]
        text = f"{type(error).__name__}: {first}{where}" if first else type(error).__name__ + where
        self._link.send(words.Failed(error=text, at=time.time()), must_arrive=True)

    def _start_s(self) -> float:
        """Return the seconds from the start of this process, or from when it took over."""
        if self._age_from is not None:
            return time.monotonic() - self._age_from
        return _age_s() or 0.0

    def _hand_over(self, agreement: Agreement) -> bool:
        """Hand over to the next run, if its ranks wait; returns whether they have the state."""
        self._doing("save")
        return self._in_place.hand_over(
            agreement, self.steps, self._take_messages, lambda: not self._lease
        )

    def _stop(self, agreement: Agreement, agreed_s: float | None) -> None:
        """Wait until the checkpoint is committed, or for so long, and stop with all ranks."""
        left = agreed_s if self._lease.deadline is None else self._left_s()
        until = time.monotonic() + (ANSWER_S if left is None else left * ANSWER_SHARE)
        while self.checkpoint.waits_for_answer and self._link.is_open:
            if time.monotonic() >= until:
                break
            self._link.wait(until - time.monotonic())
            self._take_messages()
        agreement.all_succeeded(True)
        self.stopped = True


def _leave_group() -> None:
    """End PyTorch's process group: its threads must not outlive the interpreter."""
    if _has_group():
        sys.modules["torch.distributed"].destroy_process_group()


def _has_group() -> bool:
    """Whether there is a process group of PyTorch."""
    torch = sys.modules.get("torch.distributed")
    return torch is not None and torch.is_available() and torch.is_initialized()


def _limit_memory(most: int | None) -> None:
    """Let PyTorch hold so many bytes of GPU memory at most, and give back what it does not use."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "cuda") or not torch.cuda.is_initialized():
        return
    total = torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory
    fraction = 1.0 if most is None else min(1.0, max(0.0, most / total))
    torch.cuda.set_per_process_memory_fraction(fraction)
    if most is not None and torch.cuda.memory_reserved() > most:
        torch.cuda.empty_cache()


def _gpu_memory() -> int | None:
    """Return the most GPU memory that PyTorch has held at once, in bytes; None without PyTorch."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "cuda") or not torch.cuda.is_initialized():
        return None
    return int(torch.cuda.max_memory_allocated())


def _age_s() -> float | None:
    """Return the seconds since the start of this process; None when /proc does not say."""
    try:
        after_name = Path("/proc/self/stat").read_text(encoding="ascii").rpartition(")")[2]
        started = int(after_name.split()[19]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return None
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - started)
