"""HuggingFace accelerate: its folder is the checkpoint, and its loader continues where it was.

model, optimizer, schedule, loader = accelerator.prepare(net, optimizer, schedule, loader)
loader = AccelerateLoader(job, accelerator, loader)
loader.restore()
for epoch in loader.epochs(10):
    for x, y in loader:
        with accelerator.accumulate(model):
            ...
        if accelerator.sync_gradients:
            job.step(loss=loss.item())
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.data_loader import DataLoaderShard, skip_first_batches
from torch.utils.data import IterableDataset

from dlsched.job.errors import JobError
from dlsched.job.frameworks.own_folder import OwnFolder
from dlsched.job.job import Job
from dlsched.job.pytorch.resumable import ResumableLoader


class AccelerateLoader(ResumableLoader):
    """A loader that accelerate has prepared, and all that accelerate saves, as checkpoints."""

    def __init__(self, job: Job, accelerator: Accelerator, loader: Any) -> None:
        """Make the folder of `accelerator.save_state` and the loader's position states.

        Args:
            job: this process.
            accelerator: it has prepared the loader and all that is trained.
            loader: as `accelerator.prepare` has returned it, of a data set with a length.

        Raises:
            JobError: when the position of the loader could not be restored.
        """
        super().__init__(job, loader)
        self._accelerator = accelerator
        self._folder = OwnFolder(job, "accelerate", self._write)

    def restore(self) -> int:
        """Load the newest checkpoint; return the steps done by then, the number of the next step.

        Raises:
            JobError: when another number of ranks has written it.
        """
        steps = self._job.restore()
        if self._folder.path is not None:
            self._accelerator.load_state(str(self._folder.path))
        return steps

    # -- inside ------------------------------------------------------------------------------------

    def _take(self, loader: Any) -> None:
        if type(loader) is not DataLoaderShard or isinstance(loader.dataset, IterableDataset):
            raise JobError(
                f"a {type(loader).__name__} keeps no position: give the DataLoader of a data set "
                "with a length, prepared by accelerator.prepare without dispatch_batches"
            )
        if loader.use_stateful_dataloader:
            raise JobError("use_stateful_dataloader=True: accelerate would skip the batches twice")
        if isinstance(loader.synchronized_generator, torch.Generator):  # the one of the shuffle
            self._own = list(dict.fromkeys([*self._own, loader.synchronized_generator]))
        self._stateful = None
        self._loader = loader

    def _rest(self) -> Iterator[Any]:
        """Return the batches of the epoch that were not given; load one, so that all is drawn."""
        rest = self._loader
        if self._job.batch and self._keeps_workers:
            rest.skip_batches = self._job.batch  # another loader would have workers of its own
        elif self._job.batch:
            rest = skip_first_batches(self._loader, self._job.batch)
        batches = iter(rest)
        first = list(islice(batches, 1))
        self._loader.skip_batches = 0
        return chain(first, batches)

    def _plain(self) -> Any:
        return self._loader.base_dataloader

    def _start_workers(self) -> None:
        iter(self._plain())  # what they load first is thrown away

    def _set_epoch(self) -> None:
        self._loader.set_epoch(self._job.epoch)

    def _write(self, folder: Path) -> None:
        if not self._accelerator.sync_gradients:
            raise JobError(
                "unused gradients are not saved: step() only if accelerator.sync_gradients"
            )
        self._accelerator.save_state(str(folder))
