"""Numbered checkpoints in a folder: whole or not there, whatever dies while one is written.

A checkpoint is a folder `RUN-STEP` with one file a state and a manifest of their SHA-256. It is
written as `RUN.tmp/STEP`, made durable, and then renamed: a name without `.tmp` means complete.
The file `committed` says that the daemon has recorded it (or that there is no daemon to ask). A run
that has been replaced may still write; nothing of it is committed, so nothing resumes from it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

from dlsched.job.errors import DamagedCheckpoint

__all__ = ["MANIFEST", "Checkpoint", "CheckpointFolder", "Part"]

MANIFEST = "manifest.json"
COMMITTED = "committed"
NAME = re.compile(r"(\d+)-(\d+)")
FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One state of one rank, as it lies in a checkpoint."""

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
        """Names the whole content: the manifest has the sums of the files."""
        return hashlib.sha256((self.path / MANIFEST).read_bytes()).hexdigest()

    @property
    def is_committed(self) -> bool:
        """Whether it may be resumed from."""
        return (self.path / COMMITTED).exists()

    def mark_committed(self) -> None:
        """It may be resumed from, from now on."""
        with (self.path / COMMITTED).open("wb") as file:
            os.fsync(file.fileno())
        _sync_folder(self.path)

    def parts(self) -> list[Part]:
        """What it holds; raises DamagedCheckpoint when it is not as it was written."""
        try:
            manifest = json.loads((self.path / MANIFEST).read_bytes())
            found = [Part(**entry) for entry in manifest["parts"]]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DamagedCheckpoint(f"checkpoint {self.path}: no manifest: {error}") from None
        if manifest.get("format") != FORMAT:
            raise DamagedCheckpoint(f"checkpoint {self.path}: of an unknown format")
        return found

    def verify(self, parts: Sequence[Part]) -> None:
        """Read what is to be loaded and compare it with the manifest."""
        for part in parts:
            try:
                size, digest = _digest(self.path / part.file)
            except OSError as error:
                raise DamagedCheckpoint(
                    f"checkpoint {self.path}: {part.file}: {error.strerror}"
                ) from None
            if (size, digest) != (part.bytes, part.sha256):
                raise DamagedCheckpoint(f"checkpoint {self.path}: {part.file} is damaged")


class CheckpointFolder:
    """The checkpoints of one job."""

    def __init__(self, root: Path) -> None:
        self.root = root

    # -- finding -----------------------------------------------------------------------------------

    def newest_first(self) -> list[Checkpoint]:
        """All complete checkpoints, the furthest one of the latest run first."""
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
        """The checkpoint in a folder, None when its name is not that of one."""
        match = NAME.fullmatch(path.name)
        if match is None:
            return None
        return Checkpoint(path=path, run=int(match[1]), step=int(match[2]))

    # -- writing -----------------------------------------------------------------------------------

    def write_part(
        self, run: int, step: int, state: str, rank: int | None, save: Callable[[BinaryIO], object]
    ) -> Part:
        """Write one state, durably."""
        folder = self._unfinished(run, step)
        folder.mkdir(parents=True, exist_ok=True)
        name = state if rank is None else f"{state}.rank{rank}"
        with (folder / name).open("wb") as file:
            save(file)
            file.flush()
            os.fsync(file.fileno())
        size, digest = _digest(folder / name)
        return Part(state=state, rank=rank, file=name, bytes=size, sha256=digest)

    def leave_parts(self, run: int, step: int, rank: int, parts: Sequence[Part]) -> None:
        """Say to the rank that finishes the checkpoint what this rank has written."""
        text = json.dumps([asdict(part) for part in parts])
        _write_durably(self._unfinished(run, step) / f".rank{rank}.json", text)

    def left_parts(self, run: int, step: int, ranks: range) -> Iterator[Part]:
        """What the other ranks have written."""
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
        self, run: int, step: int, parts: Sequence[Part], about: dict[str, Any]
    ) -> Checkpoint:
        """Turn what was written into a checkpoint, durably and at once."""
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

    # -- tidying -----------------------------------------------------------------------------------

    def prune_committed(self, keep: int) -> None:
        """Keep the newest committed ones of all runs.

        To be called when the daemon has just committed one: then no later run has begun.
        """
        for old in [each for each in self.newest_first() if each.is_committed][keep:]:
            self._discard(old.path)

    def prune_waiting(self, run: int, keep: int) -> None:
        """Keep the newest ones of this run that nobody has committed yet."""
        own = [each for each in self.newest_first() if each.run == run and not each.is_committed]
        for old in own[keep:]:
            self._discard(old.path)

    def discard_unfinished(self, before_run: int) -> None:
        """Forget what earlier runs have begun and not finished."""
        for folder in self.root.glob("*.tmp"):
            if folder.stem.isdigit() and int(folder.stem) < before_run:
                shutil.rmtree(folder, ignore_errors=True)

    def begin(self, run: int, step: int) -> None:
        """An empty place for a new checkpoint."""
        shutil.rmtree(self._unfinished(run, step), ignore_errors=True)
        self._unfinished(run, step).mkdir(parents=True)

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


def _digest(path: Path) -> tuple[int, str]:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
        return os.fstat(file.fileno()).st_size, digest.hexdigest()


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
