"""The registry of what a training consists of, and when it is written and read.

Named states with `save(file)` and `load(file)`. Those that are the same on all ranks are saved by
rank 0 and loaded by all; those of every rank are saved and loaded by each. All ranks save after the
same step, which the agreement sees to.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from dlsched.job.agreement import Agreement
from dlsched.job.checkpoint_folder import Checkpoint, CheckpointFolder, Part
from dlsched.job.errors import DamagedCheckpoint, JobError
from dlsched.job.keeper_link import KeeperLink
from dlsched.job.messages import CheckpointAnswer, CheckpointMade
from dlsched.job.runtime import Runtime

__all__ = ["Checkpoints"]

STATE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
RESERVED = {"manifest.json", "committed"}


@dataclass(frozen=True, slots=True)
class _State:
    save: Callable[[BinaryIO], object]
    load: Callable[[BinaryIO], object]
    each_rank: bool


class Checkpoints:
    """What is saved; `job.checkpoint`.

    Attributes:
        every_s: seconds between two periodic checkpoints; None: only when asked to stop.
        every_steps: steps between two; None: by the clock alone.
        keep: how many checkpoints are kept at least.
    """

    def __init__(self, runtime: Runtime, folder: Path | None, link: KeeperLink) -> None:
        self.every_s: float | None = 600.0
        self.every_steps: int | None = None
        self.keep = 2
        self.saved_step = -1  # of the newest checkpoint of this run
        self._runtime = runtime
        self._link = link
        self._states: dict[str, _State] = {}
        self._folder = CheckpointFolder(folder) if folder is not None else None
        self._saved_at = time.monotonic()
        self._unanswered: dict[str, Checkpoint] = {}
        self.run = runtime.run or self._local_run()

    # -- what the script calls ---------------------------------------------------------------------

    def register(
        self,
        name: str,
        *,
        save: Callable[[BinaryIO], object],
        load: Callable[[BinaryIO], object],
        each_rank: bool = False,
    ) -> None:
        """Make something part of each checkpoint.

        Args:
            name: its file name; unique.
            save: writes it to a binary file that is open for writing.
            load: reads it back from a binary file.
            each_rank: each rank has its own (else rank 0's is everybody's). A rank that has no
                counterpart in the checkpoint, as there were fewer ranks then, does not load.
        """
        if not STATE_NAME.fullmatch(name) or name in RESERVED:
            raise JobError(f"checkpoint state {name!r}: letters, digits, '.', '_', '-' make a name")
        if name in self._states:
            raise JobError(f"checkpoint state {name!r} is registered twice")
        self._states[name] = _State(save, load, each_rank)

    @property
    def folder(self) -> Path | None:
        """Where the checkpoints are; None: nothing is saved."""
        return self._folder.root if self._folder is not None else None

    @property
    def is_active(self) -> bool:
        """Whether there is something to save and a place for it."""
        return self._folder is not None and bool(self._states)

    def newest(self) -> Checkpoint | None:
        """What `restore` would begin with."""
        return next(iter(self._candidates()), None)

    # -- what the job calls ------------------------------------------------------------------------

    def is_due(self, now: float) -> bool:
        """Whether the clock asks for one."""
        return self.is_active and self.every_s is not None and now - self._saved_at >= self.every_s

    def is_due_at(self, step: int) -> bool:
        """Whether the count of steps asks for one; the same on all ranks."""
        return self.is_active and bool(self.every_steps) and step % (self.every_steps or 1) == 0

    def save(self, step: int, agreement: Agreement) -> None:
        """Write one; all ranks call it after the same step. A full disk is told, not raised."""
        self._saved_at = time.monotonic()
        if not self.is_active or self._folder is None or step == self.saved_step:
            return
        try:
            made = self._write(self._folder, step, agreement)
        except (OSError, DamagedCheckpoint) as error:
            print(f"dlsched.job: no checkpoint after step {step}: {error}", file=sys.stderr)
            return
        self.saved_step = step
        if made is not None:
            self._hand_in(made, time.monotonic() - self._saved_at)

    def restore(self) -> int:
        """Load the newest one that is whole; the number of steps done then, 0 without any."""
        for checkpoint in self._candidates():
            try:
                parts = self._wanted(checkpoint)
                checkpoint.verify([part for _, part in parts])
            except DamagedCheckpoint as error:
                print(f"dlsched.job: {error}; trying the one before", file=sys.stderr)
                continue
            for state, part in parts:
                with (checkpoint.path / part.file).open("rb") as file:
                    state.load(file)
            return checkpoint.step
        return 0

    def tidy(self) -> None:
        """Forget what killed runs have left half-written."""
        if self._folder is not None and self._runtime.rank == 0:
            self._folder.discard_unfinished(self.run)

    def answered(self, answer: CheckpointAnswer) -> None:
        """The daemon has decided on a checkpoint."""
        checkpoint = self._unanswered.pop(answer.path, None)
        if checkpoint is None and not answer.path and self._unanswered:
            checkpoint = self._unanswered.pop(next(iter(self._unanswered)))
        if checkpoint is None:
            return
        if answer.accepted:
            self._commit(checkpoint)
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
        """What may be resumed from, best first: under a daemon what it recorded, and its past."""
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

    def _wanted(self, checkpoint: Checkpoint) -> list[tuple[_State, Part]]:
        parts = {(part.state, part.rank): part for part in checkpoint.parts()}
        found = []
        for name, state in self._states.items():
            part = parts.get((name, self._runtime.rank if state.each_rank else None))
            if part is not None:
                found.append((state, part))
            elif not state.each_rank:
                raise JobError(
                    f"checkpoint {checkpoint.path} has no state {name!r}; it has "
                    + ", ".join(sorted({state for state, _ in parts}))
                )
        return found

    def _write(
        self, folder: CheckpointFolder, step: int, agreement: Agreement
    ) -> Checkpoint | None:
        rank, run = self._runtime.rank, self.run
        by_all = any(state.each_rank for state in self._states.values())
        failure: OSError | None = None
        parts: list[Part] = []
        try:
            if rank == 0:
                folder.begin(run, step)
        except OSError as error:
            failure = error
        if by_all:
            agreement.barrier()  # each barrier in any case: the others wait there
        try:
            if failure is None:
                parts += self._own_parts(folder, step)
                if by_all and rank != 0:
                    folder.leave_parts(run, step, rank, parts)
        except OSError as error:
            failure = error
        if by_all:
            agreement.barrier()
        if failure is not None:
            raise failure
        if rank != 0:
            return None
        if by_all:
            parts += folder.left_parts(run, step, range(1, self._runtime.world_size))
        about = {"job": self._runtime.job, "world_size": self._runtime.world_size}
        return folder.finish(run, step, parts, about)

    def _own_parts(self, folder: CheckpointFolder, step: int) -> list[Part]:
        rank = self._runtime.rank
        return [
            folder.write_part(self.run, step, name, rank if state.each_rank else None, state.save)
            for name, state in self._states.items()
            if state.each_rank or rank == 0
        ]

    def _hand_in(self, made: Checkpoint, save_s: float) -> None:
        if not self._link.is_open:
            self._commit(made)
            return
        if self._folder is not None:
            self._folder.prune_waiting(self.run, self.keep)
        self._unanswered = {str(made.path): made}  # an older one does not matter any more
        self._link.send(
            CheckpointMade(
                path=str(made.path),
                step=made.step,
                bytes=sum(part.bytes for part in made.parts()),
                sha256=made.manifest_sha256,
                save_s=save_s,
            ),
            must_arrive=True,
        )

    def _commit(self, checkpoint: Checkpoint) -> None:
        try:
            checkpoint.mark_committed()
        except OSError as error:
            print(f"dlsched.job: {checkpoint.path}: {error.strerror}", file=sys.stderr)
        if self._folder is not None:
            self._folder.prune_committed(self.keep)
