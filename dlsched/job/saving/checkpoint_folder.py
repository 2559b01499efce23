"""Numbered checkpoints in a folder: whole or not there, whichever process dies during the writing.

A checkpoint is a folder `RUN-STEP` with one file for each state and a manifest of their SHA-256. It
is written as `RUN.tmp/STEP`, made durable, and then renamed: a name without `.tmp` means complete.
The file `committed` says that the daemon has recorded it (or that there is no daemon to ask). A run
that has been replaced may still write; its checkpoints are not committed, so no run resumes from
them.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO

from dlsched.job.errors import DamagedCheckpoint
from dlsched.job.saving.hashed_file import digest_of, write_hashed

MANIFEST = "manifest.json"
COMMITTED = "committed"
NAME = re.compile(r"(\d+)-(\d+)")
FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One state of one rank in a checkpoint."""

    state: str
    rank: int | None  # None: the same for all ranks
    file: str
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A complete checkpoint."""

    path: Path
    run: int
    step: int

    @property
    def manifest_sha256(self) -> str:
        """The SHA-256 of the manifest, which has the sums of all files."""
        return hashlib.sha256((self.path / MANIFEST).read_bytes()).hexdigest()

    @property
    def is_committed(self) -> bool:
        """Whether a run may resume from it."""
        return (self.path / COMMITTED).exists()

    def mark_committed(self) -> None:
        """Record durably that runs may resume from it."""
        with (self.path / COMMITTED).open("wb") as file:
            os.fsync(file.fileno())
        _sync_folder(self.path)

    def parts(self) -> list[Part]:
        """Return its parts.

        Raises:
            DamagedCheckpoint: when the manifest is not as it was written.
        """
        try:
            manifest = json.loads((self.path / MANIFEST).read_bytes())
            found = [Part(**entry) for entry in manifest["parts"]]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DamagedCheckpoint(f"checkpoint {self.path}: no manifest: {error}") from None
        if manifest.get("format") != FORMAT:
            raise DamagedCheckpoint(f"checkpoint {self.path}: of an unknown format")
        return found

    def verify(self, parts: Sequence[Part]) -> None:
        """Read the files of these parts and compare them with the manifest.

        Raises:
            DamagedCheckpoint: when a file is not as it was written.
        """
        for part in parts:
            try:
                file = self.path / part.file
                size, digest = file.stat().st_size, digest_of(file)
            except OSError as error:
                raise DamagedCheckpoint(
                    f"checkpoint {self.path}: {part.file}: {error.strerror}"
                ) from None
            if (size, digest) != (part.bytes, part.sha256):
                raise DamagedCheckpoint(f"checkpoint {self.path}: {part.file} is damaged")


class CheckpointFolder:
    """The checkpoints of one job."""

    def __init__(self, root: Path) -> None:
        """Name the folder; nothing is read or made."""
        self.root = root

    # -- finding -----------------------------------------------------------------------------------

    def newest_first(self) -> list[Checkpoint]:
        """Return all complete checkpoints: the latest run first, its latest step first."""
        try:
            names = os.listdir(self.root)
        except OSError:
            return []
        found = [self.at(self.root / name) for name in names]
        return sorted(
            (each for each in found if each is not None),
            key=lambda each: (each.run, each.step),
            reverse=True,
        )

    @staticmethod
    def at(path: Path) -> Checkpoint | None:
        """Return the checkpoint in a folder, or None when its name is not that of a checkpoint."""
        match = NAME.fullmatch(path.name)
        if match is None:
            return None
        return Checkpoint(path=path, run=int(match[1]), step=int(match[2]))

    # -- writing -----------------------------------------------------------------------------------

    def write_part(
        self, run: int, step: int, state: str, rank: int | None, save: Callable[[BinaryIO], object]
    ) -> Part:
        """Write one state durably.

        Args:
            run: number of the run.
            step: number of the step.
            state: its name.
            rank: that it belongs to; None: it is the same for all ranks.
            save: writes it to a binary file.
        """
        folder = self._unfinished(run, step)
        folder.mkdir(parents=True, exist_ok=True)
        name = state if rank is None else f"{state}.rank{rank}"
        size, digest = write_hashed(folder / name, save)
        return Part(state=state, rank=rank, file=name, bytes=size, sha256=digest)

    def write_shards(
        self, run: int, step: int, state: str, rank: int, save: Callable[[Path], Iterable[str]]
    ) -> list[Part]:
        """Write the part of one rank of a state that all ranks write together.

        Args:
            run: number of the run.
            step: number of the step.
            state: its name, and that of a folder with the files of all ranks.
            rank: this rank.
            save: writes the files of this rank durably to a folder, and returns their names.
        """
        folder = self._unfinished(run, step) / state
        folder.mkdir(parents=True, exist_ok=True)
        names = list(save(folder))
        _sync_folder(folder)
        files = [(f"{state}/{name}", folder / name) for name in names]
        return [
            Part(
                state=state, rank=rank, file=name, bytes=file.stat().st_size, sha256=digest_of(file)
            )
            for name, file in files
        ]

    def leave_parts(self, run: int, step: int, rank: int, parts: Sequence[Part]) -> None:
        """Write down, for the rank that finishes the checkpoint, the parts of this rank.

        Args:
            run: number of the run.
            step: number of the step.
            rank: this rank.
            parts: that it has written.
        """
        text = json.dumps([asdict(part) for part in parts])
        _write_durably(self._unfinished(run, step) / f".rank{rank}.json", text)

    def left_parts(self, run: int, step: int, ranks: range) -> Iterator[Part]:
        """Give the parts that the other ranks have written.

        Raises:
            DamagedCheckpoint: when a rank has left none in this folder.
        """
        for rank in ranks:
            note = self._unfinished(run, step) / f".rank{rank}.json"
            try:
                entries = json.loads(note.read_bytes())
            except OSError:
                raise DamagedCheckpoint(
                    f"rank {rank} left nothing in {note.parent}: "
                    "states of every rank need a folder that all nodes share"
                ) from None
            note.unlink()
            yield from (Part(**entry) for entry in entries)

    def finish(
        self, run: int, step: int, parts: Sequence[Part], about: dict[str, object]
    ) -> Checkpoint:
        """Make a checkpoint of the parts that are written, durably and by one rename.

        Args:
            run: number of the run.
            step: number of the step.
            parts: of all ranks.
            about: further entries of the manifest.
        """
        folder = self._unfinished(run, step)
        manifest = {
            "format": FORMAT,
            "run": run,
            "step": step,
            "written_at": time.time(),
            **about,
            "parts": [asdict(part) for part in parts],
        }
        _write_durably(folder / MANIFEST, json.dumps(manifest, indent=1))
        _sync_folder(folder)
        path = self.root / f"{run:04d}-{step:09d}"
        folder.rename(path)
        _sync_folder(self.root)
        with contextlib.suppress(OSError):  # another step of this run is being written
            folder.parent.rmdir()
        return Checkpoint(path=path, run=run, step=step)

    def seconds_to_write(self, run: int, size: int) -> float:
        """Write so many bytes durably, delete them, and return how long the writing took.

        Raises:
            OSError: they cannot be written.
        """
        folder = self.root / f"{run}.tmp"
        folder.mkdir(parents=True, exist_ok=True)
        path, began, piece = folder / "trial", time.monotonic(), os.urandom(1 << 20)
        try:
            with path.open("wb") as file:
                for _ in range(-(-size // len(piece))):
                    file.write(piece)
                file.flush()
                os.fsync(file.fileno())
            return time.monotonic() - began
        finally:
            path.unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # a checkpoint is being written
                folder.rmdir()

    # -- tidying -----------------------------------------------------------------------------------

    def prune_committed(self, keep: int, held: Collection[str] = ()) -> None:
        """Delete all committed checkpoints of all runs but the newest `keep` and those held.

        Called when the daemon has just committed one: then no later run has begun.
        """
        for old in [each for each in self.newest_first() if each.is_committed][keep:]:
            if str(old.path) not in held:
                self._discard(old.path)

    def prune_waiting(self, run: int, keep: int) -> None:
        """Delete all uncommitted checkpoints of this run but the newest `keep`."""
        own = [each for each in self.newest_first() if each.run == run and not each.is_committed]
        for old in own[keep:]:
            self._discard(old.path)

    @classmethod
    def delete(cls, path: str) -> None:
        """Delete one complete checkpoint, and its folder when that is empty then."""
        folder = Path(path)
        if cls.at(folder) is not None and (folder / MANIFEST).exists():
            cls._discard(folder)
            with contextlib.suppress(OSError):
                folder.parent.rmdir()

    def discard_unfinished(self, before_run: int) -> None:
        """Delete checkpoints that earlier runs have begun and not finished."""
        for folder in self.root.glob("*.tmp"):
            if folder.stem.isdigit() and int(folder.stem) < before_run:
                shutil.rmtree(folder, ignore_errors=True)

    def pass_by(self, before_run: int) -> None:
        """Let no later run resume from checkpoints of earlier runs, unless the daemon names one."""
        for each in self.newest_first():
            if each.run < before_run and each.is_committed:
                (each.path / COMMITTED).unlink()
                _sync_folder(each.path)

    def begin(self, run: int, step: int) -> None:
        """Make an empty folder for a new checkpoint."""
        self.abandon(run, step)
        self._unfinished(run, step).mkdir(parents=True)

    def abandon(self, run: int, step: int) -> None:
        """Delete what has been written of a checkpoint that is not finished."""
        folder = self._unfinished(run, step)
        shutil.rmtree(folder, ignore_errors=True)
        with contextlib.suppress(OSError):  # another step of this run is being written
            folder.parent.rmdir()

    def _unfinished(self, run: int, step: int) -> Path:
        return self.root / f"{run}.tmp" / str(step)

    @staticmethod
    def _discard(path: Path) -> None:
        doomed = path.with_name(f"{path.name}.old")  # no longer the name of a checkpoint
        try:
            path.rename(doomed)
        except OSError:
            return
        shutil.rmtree(doomed, ignore_errors=True)


def _write_durably(path: Path, text: str) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
