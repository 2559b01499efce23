"""The states of a training that checkpoints hold: their names, and how each is saved and loaded.

Rank 0 saves the states that are the same on all ranks, and all ranks load them; each rank saves and
loads its own states. All ranks together save and load a state in *shards*, of which each rank holds
a part.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO

from dlsched.job.errors import JobError
from dlsched.job.gang.agreement import Agreement
from dlsched.job.runtime import Runtime
from dlsched.job.saving.background import Writer, copy_of
from dlsched.job.saving.checkpoint_folder import (
    COMMITTED,
    MANIFEST,
    Checkpoint,
    CheckpointFolder,
    Part,
)
from dlsched.job.saving.read_back import Trial

STATE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
RESERVED = {MANIFEST, COMMITTED}


@dataclass(frozen=True, slots=True)
class _State:
    save: Callable[[BinaryIO], object]
    load: Callable[[BinaryIO], object]
    each_rank: bool
    try_load: bool
    copy: Callable[[], Writer]
    size: Callable[[], int] | None = None  # about how many bytes `save` writes


@dataclass(frozen=True, slots=True)
class Shards:
    """How all ranks together save and load one state."""

    save: Callable[[Path], Iterable[str]]
    load: Callable[[Path], object]


class States:
    """The registered states, as one rank saves and loads them.

    Attributes:
        shards: states in shards, by name, in the order in which all ranks write them.
    """

    def __init__(self, runtime: Runtime) -> None:
        """Know no state yet."""
        self._rank, self._world_size = runtime.rank, runtime.world_size
        self._states: dict[str, _State] = {}
        self.shards: dict[str, Shards] = {}
        self._tried: set[str] = set()  # states of which a save has been loaded, or is
        self._trial: Trial | None = None

    def register(
        self,
        name: str,
        *,
        save: Callable[[BinaryIO], object],
        load: Callable[[BinaryIO], object],
        each_rank: bool = False,
        try_load: bool = True,
        copy: Callable[[], Writer] | None = None,
        size: Callable[[], int] | None = None,
    ) -> None:
        """Make a state part of each checkpoint.

        Args:
            name: its file name; unique.
            save: writes it to a binary file that is open for writing.
            load: reads it back from a binary file.
            each_rank: each rank has its own state (else rank 0's is that of all). A rank that the
                checkpoint does not have, because there were fewer ranks then, loads none.
            try_load: load the first save in a copy of this process, to see that a restore can.
            copy: copies the state for a save in the background; returns what writes the copy, in
                another thread. Without it, `save` writes to memory.
            size: returns about how many bytes it will write, so that the first save is held
                against the room and the grace beforehand.

        Raises:
            JobError: when the name is not a file name or is taken.
        """
        self._check_name(name)
        copy = copy or partial(copy_of, save)
        self._states[name] = _State(save, load, each_rank, try_load, copy, size)

    def register_shards(
        self,
        name: str,
        *,
        save: Callable[[Path], Iterable[str]],
        load: Callable[[Path], object],
    ) -> None:
        """Make a state part of each checkpoint of which each rank holds a part.

        All ranks call `save` and `load` at the same time, so that they may use collectives. The
        folder has to be one that all nodes share.

        Args:
            name: unique; that of a folder.
            save: writes the files of this rank durably to a folder; returns their names.
            load: reads the state from a folder with the files of all ranks, of any number of them.

        Raises:
            JobError: when the name is not a file name or is taken.
        """
        self._check_name(name)
        self.shards[name] = Shards(save, load)

    def _check_name(self, name: str) -> None:
        if not STATE_NAME.fullmatch(name) or name in RESERVED:
            raise JobError(f"checkpoint state {name!r}: letters, digits, '.', '_', '-' make a name")
        if name in self.names:
            raise JobError(f"checkpoint state {name!r} is registered twice")

    @property
    def names(self) -> set[str]:
        """The names of all registered states."""
        return {*self._states, *self.shards}

    @property
    def by_all(self) -> bool:
        """Whether every rank writes a part of each checkpoint."""
        return bool(self.shards) or any(state.each_rank for state in self._states.values())

    # -- saving ------------------------------------------------------------------------------------

    def writers(self) -> dict[str, Writer]:
        """Return what writes the states that this rank saves, by name."""
        return {name: state.save for name, state in self._own().items()}

    def known_bytes(self) -> int | None:
        """Return about how many bytes the states of rank 0 need; None: they do not say."""
        if self.shards:
            return None
        sizes = [state.size() for state in self._own().values() if state.size is not None]
        return sum(sizes) if sizes else None

    def copies(self) -> dict[str, Writer]:
        """Copy the states that this rank saves; return what writes the copies, by name."""
        return {name: state.copy() for name, state in self._own().items()}

    def _own(self) -> dict[str, _State]:
        every = self._rank == 0
        return {name: state for name, state in self._states.items() if every or state.each_rank}

    def write(
        self, folder: CheckpointFolder, run: int, step: int, writers: Mapping[str, Writer]
    ) -> list[Part]:
        """Write states of this rank to a checkpoint that has begun; return its parts.

        Args:
            folder: of the checkpoints.
            run: number of the run.
            step: number of the step.
            writers: what writes each state, by name.
        """
        return [
            folder.write_part(
                run, step, name, self._rank if self._states[name].each_rank else None, writer
            )
            for name, writer in writers.items()
        ]

    def try_loads(self, made: Checkpoint) -> None:
        """Begin to load the states that are saved for the first time, beside the training.

        `tell_trial` prints those that a restore could not load.
        """
        untried = {name for name, state in self._states.items() if state.try_load} - self._tried
        if not untried or self._trial is not None:
            return
        mine = [each for each in made.parts() if each.rank in (None, self._rank)]
        found = {each.state: made.path / each.file for each in mine if each.state in untried}
        self._tried |= found.keys()
        self._trial = Trial((name, at, self._states[name].load) for name, at in found.items())

    def tell_trial(self, within_s: float = 0.0) -> None:
        """Print which states could not be loaded, if that is known after so many seconds."""
        if self._trial is not None and self._trial.is_over(within_s):
            trial, self._trial = self._trial, None
            for name, why in trial.unreadable():
                complaint = f"a restore could not load the state {name!r}: {why}"
                print(f"dlsched.job: {complaint}", file=sys.stderr)

    def stop_trial(self) -> None:
        """End the trial that is under way."""
        trial, self._trial = self._trial, None
        if trial is not None:
            trial.stop()

    # -- from rank to rank -------------------------------------------------------------------------

    def contents(self, *, each_rank: bool) -> dict[str, bytes]:
        """Return the states that each rank has of its own, or those of all ranks, as bytes."""
        found: dict[str, bytes] = {}
        for name, state in self._states.items():
            if state.each_rank == each_rank:
                with _in_memory() as file:
                    state.save(file)
                    file.seek(0)
                    found[name] = file.read()
        return found

    def load_contents(self, contents: Mapping[str, bytes]) -> None:
        """Load states that another rank has given.

        Raises:
            JobError: there is nothing of a state.
        """
        for name, state in self._states.items():
            if name in contents:
                with _in_memory() as file:
                    file.write(contents[name])
                    file.seek(0)
                    state.load(file)
            elif not state.each_rank:
                raise JobError(f"the run before has no state {name!r}")

    # -- loading -----------------------------------------------------------------------------------

    def verified(self, checkpoint: Checkpoint, agreement: Agreement) -> list[Part]:
        """Read the files that this rank answers for; return the parts that it loads by itself.

        Of the files in shards, each rank reads a part before all ranks load them; all of them,
        where the ranks cannot tell each other what they have found.

        Raises:
            DamagedCheckpoint: when a file is not as it was written.
            JobError: when the checkpoint has nothing of a state.
        """
        parts = checkpoint.parts()
        found = {(part.state, part.rank): part for part in parts}
        wanted = []
        for name, state in self._states.items():
            part = found.get((name, self._rank if state.each_rank else None))
            if part is not None:
                wanted.append(part)
            elif not state.each_rank:
                raise _lacks(checkpoint, name, parts)
        for name in self.shards:
            if not any(part.file.startswith(f"{name}/") for part in parts):
                raise _lacks(checkpoint, name, parts)
        shards = [part for part in parts if part.state in self.shards]
        own = slice(None) if agreement.is_alone else slice(self._rank, None, self._world_size)
        checkpoint.verify([*wanted, *shards[own]])
        return wanted

    def load(self, checkpoint: Checkpoint, parts: Sequence[Part]) -> None:
        """Load the parts that `verified` has returned, and, with all ranks, the shards."""
        for part in parts:
            with (checkpoint.path / part.file).open("rb") as file:
                self._states[part.state].load(file)
        for name, shards in self.shards.items():
            shards.load(checkpoint.path / name)


@contextmanager
def _in_memory() -> Iterator[BinaryIO]:
    """Give a file in memory that has a path, as the files of checkpoints have."""
    fd = os.memfd_create("dlsched-state", os.MFD_CLOEXEC)
    try:
        with open(f"/proc/self/fd/{fd}", "w+b") as file:
            yield file
    finally:
        os.close(fd)


def _lacks(checkpoint: Checkpoint, name: str, parts: Sequence[Part]) -> JobError:
    has = ", ".join(sorted({part.state for part in parts}))
    return JobError(f"checkpoint {checkpoint.path} has no state {name!r}; it has {has}")
