"""The Trainer of Lightning: steps are counted, a stop is obeyed, its file is the checkpoint.

    with attach() as job:
        callback = DlschedCallback(job)
        trainer = Trainer(callbacks=[callback], ...)
        trainer.fit(model, loader, ckpt_path=callback.restore())

Lightning keeps the position of a data loader that has `state_dict` and `load_state_dict`, such as
StatefulDataLoader of torchdata. Any other loader would begin its epoch again after a restart, and
is refused.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, BinaryIO

import torch
from lightning.pytorch import Callback, LightningModule, Trainer

from dlsched.job.errors import JobError
from dlsched.job.frameworks.own_folder import OwnFolder
from dlsched.job.job import REPORT_S, Job
from dlsched.job.pytorch.loading import generators, set_generators

FILE = "trainer.ckpt"  # a folder, where the strategy shards the model


class DlschedCallback(Callback):  # type: ignore[misc]  # as Lightning has it
    """Tells a job each step of a Trainer, saves and stops as the job says."""

    def __init__(self, job: Job) -> None:
        """Make the Trainer's checkpoint and random numbers states of the job's checkpoints."""
        self._job = job
        self._trainer: Trainer | None = None
        self._folder = OwnFolder(job, "trainer", self._write)
        self._randomness: dict[str, object] | None = None  # of the checkpoint
        self._told = 0  # steps that the job knows
        self._read_at = -REPORT_S
        job.checkpoint.register(
            "randomness",
            save=lambda file: torch.save(generators(), file),
            load=self._keep_randomness,
            each_rank=True,
            try_load=False,
        )

    def restore(self) -> str | None:
        """Return the file for `ckpt_path`; None: train from the beginning.

        Raises:
            JobError: when another number of ranks has written it.
        """
        self._job.restore()
        return None if self._folder.path is None else str(self._folder.path / FILE)

    # -- what the Trainer calls --------------------------------------------------------------------

    def on_sanity_check_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Take SIGTERM back: Lightning's own handler would end the training without saving."""
        self._job.handle_signals()

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Begin with the steps that the Trainer has restored.

        Raises:
            JobError: when a data loader has no position that could be restored.
        """
        self._job.handle_signals()
        self._trainer = trainer
        self._told = trainer.global_step
        combined = trainer.fit_loop._combined_loader
        loaders = combined.flattened if combined is not None else []
        for loader in loaders:
            if not (hasattr(loader, "state_dict") and hasattr(loader, "load_state_dict")):
                raise JobError(
                    f"the training's {type(loader).__name__} has no state_dict: after a restart "
                    "within an epoch Lightning would begin its data again; use StatefulDataLoader "
                    "of torchdata"
                )
            if type(getattr(loader, "sampler", None)).__name__ == "DistributedSamplerWrapper":
                raise JobError(
                    "the order of the training's data is lost at a restart: Lightning wraps the "
                    "loader's sampler for several ranks; give the loader a DistributedSampler"
                )
        if self._folder.path is not None:
            _begin_again_at_position(trainer, loaders)
        if self._randomness is not None:
            set_generators(self._randomness)
            self._randomness = None

    def on_train_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: object,
        batch: object,
        batch_idx: int,
    ) -> None:
        """Tell a step, or leave it to the validation that comes next.

        The last step of an epoch is told together with the first of the next one: Lightning does
        not continue exactly from a checkpoint of an epoch's end.
        """
        loop = trainer.fit_loop.epoch_loop
        validates = loop._should_check_val_fx(trainer.fit_loop._data_fetcher)
        if not validates and not loop._num_ready_batches_reached():
            self._tell(trainer)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Tell the step before the validation."""
        ended = trainer.fit_loop.epoch_loop._num_ready_batches_reached()
        if not trainer.sanity_checking and not ended:
            self._tell(trainer)

    # -- inside ------------------------------------------------------------------------------------

    def _tell(self, trainer: Trainer) -> None:
        if trainer.global_step == self._told or trainer.fit_loop._should_accumulate():
            return  # gradients are being added up
        self._told = trainer.global_step
        self._job.steps = trainer.global_step - 1
        numbers: dict[str, float] = {}
        if time.monotonic() - self._read_at >= REPORT_S:  # reading makes the CPU wait for the GPU
            self._read_at = time.monotonic()
            metrics = trainer.callback_metrics
            numbers = {name: float(value) for name, value in metrics.items()}
            if "train_loss" in numbers:
                numbers.setdefault("loss", numbers.pop("train_loss"))
        self._job.step_or_leave(**numbers)

    def _write(self, folder: Path) -> None:
        if self._trainer is None:
            raise JobError("the Trainer has not begun to train")
        self._trainer.save_checkpoint(folder / FILE)

    def _keep_randomness(self, file: BinaryIO) -> None:
        self._randomness = torch.load(file, map_location="cpu", weights_only=True)


def _begin_again_at_position(trainer: Trainer, loaders: list[Any]) -> None:
    """Make the loaders continue in the order of the present epoch.

    After a restart Lightning lets them continue before it tells the samplers the epoch.
    """
    epoch = trainer.fit_loop.epoch_progress.current.processed
    for loader in loaders:
        position = loader.state_dict()
        sampler = getattr(loader, "sampler", None)
        within = getattr(getattr(loader, "batch_sampler", None), "sampler", None)
        for set_epoch in (getattr(each, "set_epoch", None) for each in (sampler, within)):
            if set_epoch is not None:
                set_epoch(epoch)
        loader.load_state_dict(position)
    iter(trainer.fit_loop._data_fetcher)
