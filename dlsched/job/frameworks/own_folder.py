"""The checkpoint folder of a framework as a state of each checkpoint of the job.

The framework writes its folder into the checkpoint, and reads it from there at the restart. So the
folder is named, hashed, committed and deleted together with the checkpoint.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from dlsched.job.errors import JobError
from dlsched.job.job import Job

RANKS = "ranks"  # file with the number of ranks that have written the folder


class OwnFolder:
    """A folder that a framework writes on all ranks together.

    Attributes:
        path: the folder that `job.restore` has found; None without a checkpoint.
    """

    def __init__(
        self, job: Job, name: str, write: Callable[[Path], object], *, same_ranks: bool = True
    ) -> None:
        """Make the folder a state of each checkpoint.

        Args:
            job: this process.
            name: of the state.
            write: writes the files of this rank to a folder; called on all ranks together.
            same_ranks: whether only the same number of ranks can continue from the folder.
        """
        self.path: Path | None = None
        self._job = job
        self._write = write
        self._same_ranks = same_ranks
        job.checkpoint.register_shards(name, save=self._save, load=self._load)

    def _save(self, folder: Path) -> list[str]:
        """Write the folder; return the names of all its files on rank 0, none on other ranks."""
        error: Exception | None = None
        try:
            self._write(folder)
        except Exception as found:  # the other ranks wait
            error = found
        if not self._job.all_succeeded(error is None):
            raise error or JobError("another rank has failed")
        if self._job.rank != 0:
            return []
        (folder / RANKS).write_text(str(self._job.world_size), encoding="ascii")
        for path in [*folder.rglob("*"), folder]:
            _sync(path)
        files = (path for path in folder.rglob("*") if path.is_file())
        return sorted(path.relative_to(folder).as_posix() for path in files)

    def _load(self, folder: Path) -> None:
        ranks = int((folder / RANKS).read_text(encoding="ascii"))
        if self._same_ranks and ranks != self._job.world_size:
            raise JobError(
                f"the checkpoint {folder.parent} is of {ranks} rank{'s'[: ranks != 1]} and this "
                f"run has {self._job.world_size}: the framework finds its place in the data only "
                "with the same number; submit with --gpus, without --adaptive and --max-gpus"
            )
        self.path = folder


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
