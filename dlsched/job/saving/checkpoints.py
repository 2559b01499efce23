"""When the checkpoints of a training are written and read, and how they are handed in.

All ranks save their `states` after the same step, as the agreement decides; when one of them fails,
there is no checkpoint. The daemon is asked to commit each checkpoint.
"""

from __future__ import annotations

import contextlib
import math
import sys
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from dlsched.job.errors import DamagedCheckpoint, JobError
from dlsched.job.gang.agreement import NOT_WRITTEN, WRITTEN, Agreement
from dlsched.job.keeper_link import KeeperLink
from dlsched.job.messages import CheckpointAnswer, CheckpointMade, SaveFailed
from dlsched.job.runtime import Runtime
from dlsched.job.saving.background import InBackground
from dlsched.job.saving.checkpoint_folder import Checkpoint, CheckpointFolder, Part
from dlsched.job.saving.first_save import FirstSave, foresee
from dlsched.job.saving.save_errors import why_not_saved
from dlsched.job.saving.states import States

LONGEST_WHY = 400  # characters of why a save has failed
TRIAL_AT_END_S = 5.0  # that a training waits at its end for the states that are tried


@dataclass(frozen=True, slots=True)
class _Behind:
    """A save of this rank in the background."""

    step: int
    loss: float | None  # of that step
    writes: InBackground[list[Part]]


class Checkpoints:
    """The checkpoints of a job; `job.checkpoint`.

    Attributes:
        every_s: seconds between two periodic checkpoints; None: save only when asked to stop.
        every_steps: steps between two periodic checkpoints; None: by the clock alone.
        keep: how many checkpoints are kept at least.
        background: periodic checkpoints are written while the training goes on.
        states: that checkpoints hold.
        register: makes a state part of each checkpoint: see `States.register`.
        register_shards: the same, of which each rank holds a part: see `States.register_shards`.
    """

    def __init__(self, runtime: Runtime, folder: Path | None, link: KeeperLink) -> None:
        """Know no state yet; without a folder, nothing is saved."""
        self.every_s: float | None = 600.0
        self.every_steps: int | None = None
        self.keep = 2
        self.background = False
        self._behind: _Behind | None = None  # on all ranks, or on none
        self._finishing: tuple[_Behind, InBackground[list[Checkpoint]]] | None = None  # of rank 0
        self._restored_bytes = 0  # of the checkpoint at which this run has begun
        self.saved_step = -1  # of the newest checkpoint of this run
        self.loss: float | None = None  # of the last step; a tensor on a GPU is read on saving
        self._runtime = runtime
        self._link = link
        self.states = States(runtime)
        self.register, self.register_shards = self.states.register, self.states.register_shards
        self._told_grace = False
        self._tries = True  # to load what is saved for the first time
        self._folder = CheckpointFolder(folder) if folder is not None else None
        self._saved_at = time.monotonic()
        self._unanswered: dict[str, Checkpoint] = {}
        self.run = runtime.run or self._local_run()

    # -- what the script calls ---------------------------------------------------------------------

    @property
    def folder(self) -> Path | None:
        """The folder of the checkpoints; None: nothing is saved."""
        return self._folder.root if self._folder is not None else None

    @property
    def is_active(self) -> bool:
        """Whether there is a state to save and a folder for it."""
        return self._folder is not None and bool(self.states.names)

    def newest(self) -> Checkpoint | None:
        """Return the checkpoint that `restore` would try first; None without any."""
        return next(iter(self._candidates()), None)

    # -- what the job calls ------------------------------------------------------------------------

    def first_save(self) -> FirstSave:
        """Foresee what the first checkpoint of this run needs."""
        if self._folder is None or not self.is_active:
            return FirstSave()
        try:
            return foresee(self._folder, self.states, self.run, self._restored_bytes)
        except Exception as error:  # the script's own code can raise any
            print(f"dlsched.job: the first checkpoint is not foreseen: {error}", file=sys.stderr)
            return FirstSave()

    def is_due(self, now: float) -> bool:
        """Whether a periodic checkpoint is due by the clock."""
        if not self.is_active or self.every_s is None or self._behind is not None:
            return False
        return now - self._saved_at >= self.every_s

    def is_due_at(self, step: int) -> bool:
        """Whether a periodic checkpoint is due by the steps; the same on all ranks."""
        return self.is_active and bool(self.every_steps) and step % (self.every_steps or 1) == 0

    def save(
        self, step: int, agreement: Agreement, *, wait: bool = True, at_stop: bool = False
    ) -> None:
        """Write a checkpoint; all ranks call it after the same step.

        An error on any rank, such as a full disk, is printed, not raised: there is no checkpoint,
        the one before stays, and the training goes on.

        Args:
            step: the number of steps done.
            agreement: of the ranks.
            wait: until it is complete; else it may be written in the background.
            at_stop: the training ends with it, so nothing is tried with what it has written.
        """
        if at_stop:
            self._tries = False
            self.states.stop_trial()
        if self.background and not wait and self.is_active and not self.states.shards:
            self._begin(step)
            return
        self._settle(agreement)
        self._saved_at = time.monotonic()
        if not self.is_active or self._folder is None or step == self.saved_step:
            return
        folder, states, run, rank = self._folder, self.states, self.run, self._runtime.rank
        parts: list[Part] = []
        made: list[Checkpoint] = []

        def add_shards(name: str) -> None:
            parts.extend(folder.write_shards(run, step, name, rank, states.shards[name].save))

        stages: list[Callable[[], object]] = [
            lambda: folder.begin(run, step) if rank == 0 else None,
            lambda: parts.extend(states.write(folder, run, step, states.writers())),
            *(partial(add_shards, name) for name in states.shards),
            lambda: folder.leave_parts(run, step, rank, parts) if rank and states.by_all else None,
            lambda: made.extend(self._finish(folder, step, parts)),
        ]
        if not all(self._attempt(stage, step, agreement) for stage in stages):
            if rank == 0:
                folder.abandon(run, step)
            return
        self.saved_step = step
        for checkpoint in made:
            self._hand_in(checkpoint, time.monotonic() - self._saved_at, self.loss)

    @property
    def written(self) -> int:
        """How the save of this rank in the background has ended; 0: there is none, or not yet."""
        if self._behind is None or not self._behind.writes.is_done:
            return 0
        return NOT_WRITTEN if self._behind.writes.error else WRITTEN

    def advance(self, written: int) -> None:
        """Finish a save in the background that all ranks have written, as the verdict says."""
        self.states.tell_trial()
        if written and self._behind is not None:
            behind, self._behind = self._behind, None
            self._finish_behind(behind, written == WRITTEN)
        if self._finishing is not None and self._finishing[1].is_done:
            self._end_finishing()

    def close(self) -> None:
        """Wait for the threads; a process that is alone finishes its checkpoint."""
        if self._runtime.world_size == 1:
            self._settle(Agreement(None, 0))
        if self._behind is not None:
            self._behind.writes.wait()
        self._end_finishing()
        self.states.tell_trial(TRIAL_AT_END_S)
        self.states.stop_trial()

    def restore(self, agreement: Agreement) -> int:
        """Load the newest undamaged checkpoint; return the steps done by then, 0 without any.

        Args:
            agreement: of the ranks that load the same checkpoint.

        Raises:
            JobError: the job is to begin at the checkpoint of another job, and cannot read it.
        """
        why = ""
        for checkpoint in self._candidates():
            undamaged = True
            try:
                parts = self.states.verified(checkpoint, agreement)
            except DamagedCheckpoint as error:
                why = str(error)
                print(f"dlsched.job: {why}; trying the one before", file=sys.stderr)
                undamaged = False
            if not agreement.all_succeeded(undamaged):
                continue
            self.states.load(checkpoint, parts)
            if self._runtime.rank == 0:
                with contextlib.suppress(DamagedCheckpoint):  # it was whole a moment ago
                    self._restored_bytes = sum(part.bytes for part in checkpoint.parts())
            return checkpoint.step
        given = self._runtime.resume_from
        if given is not None and given.parent != self.folder:
            raise JobError(f"cannot begin where another job was: {why or 'a rank cannot read it'}")
        return 0

    def tidy(self) -> None:
        """Delete what killed runs have left unfinished, and pass by what is before a new beginning.

        A run that the daemon gives no checkpoint begins anew; if a checkpoint of it is damaged, no
        earlier one may take its place.
        """
        if self._folder is None or self._runtime.rank != 0:
            return
        self._folder.discard_unfinished(self.run)
        if self._runtime.control_socket and self._runtime.resume_from is None:
            try:
                self._folder.pass_by(self.run)
            except OSError as error:
                print(f"dlsched.job: {self.folder}: {error.strerror}", file=sys.stderr)

    def answered(self, answer: CheckpointAnswer) -> None:
        """Take the daemon's answer about a checkpoint."""
        checkpoint = self._unanswered.pop(answer.path, None)
        if checkpoint is None and not answer.path and self._unanswered:
            checkpoint = self._unanswered.pop(next(iter(self._unanswered)))
        if checkpoint is None:
            return
        if answer.accepted:
            self._commit(checkpoint, answer.held)
        else:
            print(
                f"dlsched.job: checkpoint {checkpoint.path} refused: {answer.why}", file=sys.stderr
            )

    @property
    def waits_for_answer(self) -> bool:
        """Whether the newest checkpoint is not committed yet."""
        return bool(self._unanswered)

    # -- inside ------------------------------------------------------------------------------------

    def _local_run(self) -> int:
        found = self._folder.newest_first() if self._folder is not None else []
        return max((each.run for each in found), default=0) + 1

    def _candidates(self) -> list[Checkpoint]:
        """Return the checkpoints to resume from, best first.

        Under a daemon these are the one that it recorded, later ones of the same run, then earlier
        committed ones.
        """
        given = self._runtime.resume_from
        if given is None:
            if self._runtime.control_socket or self._folder is None:
                return []
            return self._folder.newest_first()
        best = CheckpointFolder.at(given)
        if best is None:
            raise JobError(f"DLSCHED_RESUME_FROM={given} is not a checkpoint of this library")
        others = CheckpointFolder(given.parent).newest_first()
        later = [each for each in others if each.run == best.run and each.step > best.step]
        earlier = [
            each
            for each in others
            if each.is_committed and (each.run, each.step) < (best.run, best.step)
        ]
        return [best, *later, *earlier]

    def _attempt(self, stage: Callable[[], object], step: int, agreement: Agreement) -> bool:
        """Carry out a stage of a save; return whether it succeeded on all ranks that take part."""
        error: Exception | None = None
        try:
            stage()
        except Exception as found:  # the script's own code can raise any
            error = found
            self._tell_failure(step, error)
        done = error is None
        if self.states.by_all:
            done = agreement.all_succeeded(done)
        if error is None and not done and self._runtime.rank == 0:
            self._tell_failure(step, None)
        return done

    def _finish(self, folder: CheckpointFolder, step: int, parts: list[Part]) -> list[Checkpoint]:
        """Return the finished checkpoint on rank 0, nothing on the others."""
        if self._runtime.rank != 0:
            return []
        size = self._runtime.world_size
        if self.states.by_all:
            parts += folder.left_parts(self.run, step, range(1, size))
        about = {"job": self._runtime.job, "world_size": size}
        return [folder.finish(self.run, step, parts, about)]

    # -- in the background -------------------------------------------------------------------------

    def _begin(self, step: int) -> None:
        """Copy the states of this rank, and begin to write them; not while others are written."""
        if self._behind is not None or self._folder is None:
            return
        self._end_finishing()
        self._saved_at = time.monotonic()
        folder, rank, error, writers = self._folder, self._runtime.rank, None, {}
        try:
            writers = self.states.copies()
        except Exception as found:  # the script's own code can raise any
            error = found

        def write() -> list[Part]:
            if error is not None:
                raise error
            parts = self.states.write(folder, self.run, step, writers)
            if rank and self.states.by_all:
                folder.leave_parts(self.run, step, rank, parts)
            return parts

        self._behind = _Behind(step, self.loss, InBackground(write))

    def _finish_behind(self, behind: _Behind, written: bool) -> None:
        """Finish, on rank 0 and in the background, what all ranks have written; or abandon it."""
        folder = self._folder
        if folder is None or not written:
            if behind.writes.error is not None or self._runtime.rank == 0:
                self._tell_failure(behind.step, behind.writes.error)
            if folder is not None and self._runtime.rank == 0:
                folder.abandon(self.run, behind.step)
        elif self._runtime.rank == 0:
            parts = behind.writes.result or []
            work = partial(self._finish, folder, behind.step, parts)
            self._finishing = (behind, InBackground(work))

    def _end_finishing(self) -> bool:
        """Wait until the checkpoint is finished, and hand it in; return whether it succeeded."""
        if self._finishing is None or self._folder is None:
            return True
        (behind, work), self._finishing = self._finishing, None
        work.wait()
        if work.error is not None:
            self._tell_failure(behind.step, work.error)
            self._folder.abandon(self.run, behind.step)
        for checkpoint in work.result or []:
            self._hand_in(checkpoint, time.monotonic() - behind.writes.began_at, behind.loss)
        return work.error is None

    def _settle(self, agreement: Agreement) -> None:
        """Wait for the save in the background and finish it; all ranks call it together."""
        behind, self._behind = self._behind, None
        if behind is not None:
            behind.writes.wait()
            written = agreement.all_succeeded(behind.writes.error is None)
            self._finish_behind(behind, written)
            if agreement.all_succeeded(self._end_finishing()) and written:
                self.saved_step = behind.step
        self._end_finishing()

    def _tell_failure(self, step: int, error: Exception | None) -> None:
        """Say that there is no checkpoint; without an error another rank has failed, and says it.

        It is called before what was written is deleted, so that a full disk is seen to be full.
        """
        why = "another rank has failed"
        if error is not None and self._folder is not None:
            why = why_not_saved(error, self._folder.root)
            many = self._runtime.world_size > 1
            said = f"rank {self._runtime.rank}: {why}" if many else why
            self._link.send(SaveFailed(step=step, why=said[:LONGEST_WHY]), must_arrive=True)
        print(f"dlsched.job: no checkpoint after step {step}: {why}", file=sys.stderr)

    def _hand_in(self, made: Checkpoint, save_s: float, last_loss: float | None) -> None:
        self._ask_to_commit(made, save_s, last_loss)
        if self._tries:
            self.states.try_loads(made)

    def _ask_to_commit(self, made: Checkpoint, save_s: float, last_loss: float | None) -> None:
        if not self._link.is_open:
            self._commit(made)
            return
        if not self._told_grace and 0 < self._runtime.grace_s < save_s:
            self._told_grace = True
            print(
                f"dlsched.job: a checkpoint took {save_s:.3g} s, longer than the grace of "
                f"{self._runtime.grace_s} s at the start: the scheduler gives more, up to the "
                "site's limit; dlsched show has it",
                file=sys.stderr,
            )
        if self._folder is not None:
            self._folder.prune_waiting(self.run, self.keep)
        loss = None if last_loss is None else float(last_loss)
        self._unanswered = {str(made.path): made}  # the answer to an older one no longer matters
        self._link.send(
            CheckpointMade(
                path=str(made.path),
                step=made.step,
                bytes=sum(part.bytes for part in made.parts()),
                sha256=made.manifest_sha256,
                save_s=save_s,
                loss=loss if loss is not None and math.isfinite(loss) else None,
                keep=self.keep,
            ),
            must_arrive=True,
        )

    def _commit(self, checkpoint: Checkpoint, held: Collection[str] = ()) -> None:
        try:
            checkpoint.mark_committed()
        except OSError as error:
            print(f"dlsched.job: {checkpoint.path}: {error.strerror}", file=sys.stderr)
        if self._folder is not None:
            self._folder.prune_committed(self.keep, held)
