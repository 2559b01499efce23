"""The Trainer of HuggingFace: steps are counted, a stop is obeyed, its folder is the checkpoint.

    with attach() as job:
        trainer = Trainer(...)
        callback = DlschedCallback(job, trainer)
        trainer.train(resume_from_checkpoint=callback.restore())

A step counts when the Trainer has done everything that belongs to it: its evaluation, its log, its
own checkpoint. So the callback asks at the beginning of the next step or epoch.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from transformers import Trainer, TrainerCallback

from dlsched.job.errors import JobError
from dlsched.job.frameworks.own_folder import OwnFolder
from dlsched.job.job import Job

if TYPE_CHECKING:
    from transformers import TrainerControl as Control
    from transformers import TrainerState as State
    from transformers import TrainingArguments as Arguments


class DlschedCallback(TrainerCallback):  # type: ignore[misc]  # as transformers has it
    """Tells a job each step of a Trainer, saves and stops as the job says."""

    def __init__(self, job: Job, trainer: Trainer) -> None:
        """Add the callback to a Trainer.

        Args:
            job: this process.
            trainer: that is going to train.

        Raises:
            JobError: when the Trainer saves no optimizer.
        """
        if trainer.args.save_only_model:
            raise JobError("save_only_model=True: a restart would lose the optimizer's state")
        self._job, self._trainer = job, trainer
        self._folder = OwnFolder(job, "trainer", self._write)
        self._told = 0  # steps that the job knows
        self._saved: Path | None = None  # the Trainer's own checkpoint of the present step
        self._numbers: dict[str, float] = {}
        trainer.add_callback(self)

    def restore(self) -> str | None:
        """Return the folder for `resume_from_checkpoint`; None: train from the beginning.

        Raises:
            JobError: when another number of ranks has written it.
        """
        self._job.restore()
        if self._folder.path is None:
            return None
        return str(next(self._folder.path.glob("checkpoint-*")))

    # -- what the Trainer calls --------------------------------------------------------------------

    def on_train_begin(
        self, args: Arguments, state: State, control: Control, **more: object
    ) -> None:
        """Begin with the steps that the Trainer has restored."""
        self._told = state.global_step

    def on_log(
        self,
        args: Arguments,
        state: State,
        control: Control,
        logs: dict[str, float] | None = None,
        **more: object,
    ) -> None:
        """Keep the loss and the numbers of an evaluation for the next report."""
        shown = {
            name: float(value)
            for name, value in (logs or {}).items()
            if name == "loss" or (name.startswith("eval_") and isinstance(value, int | float))
        }
        self._numbers.update(shown)

    def on_save(self, args: Arguments, state: State, control: Control, **more: object) -> None:
        """Note that the Trainer has written a checkpoint of its own."""
        self._saved = Path(self._trainer.args.output_dir) / f"checkpoint-{state.global_step}"

    def on_epoch_begin(
        self, args: Arguments, state: State, control: Control, **more: object
    ) -> None:
        """Tell the last step of the epoch before."""
        self._tell(state)

    def on_step_begin(
        self, args: Arguments, state: State, control: Control, **more: object
    ) -> None:
        """Tell the step before."""
        self._tell(state)

    # -- inside ------------------------------------------------------------------------------------

    def _tell(self, state: State) -> None:
        if state.global_step == self._told:
            return
        self._told = state.global_step
        numbers, self._numbers = self._numbers, {}
        self._job.step_or_leave(**numbers)
        if self._saved is not None:
            self._job.save()
            self._saved = None

    def _write(self, folder: Path) -> None:
        """Write the Trainer's checkpoint; take what the Trainer has just written, if it has."""
        name = f"checkpoint-{self._trainer.state.global_step}"
        if self._saved is not None and self._saved.name == name and self._saved.is_dir():
            shutil.copytree(
                self._saved, folder / name, copy_function=_link_or_copy, dirs_exist_ok=True
            )
            return
        with _writing_to(self._trainer, folder):
            self._trainer._save_checkpoint(self._trainer.model, trial=None)


@contextlib.contextmanager
def _writing_to(trainer: Trainer, folder: Path) -> Iterator[None]:
    """Make the Trainer write a checkpoint to this folder, and to nowhere else."""
    kept = {"output_dir": str(folder), "push_to_hub": False}
    before = {name: getattr(trainer.args, name) for name in kept}
    best = trainer.state.best_model_checkpoint
    try:
        for name, value in kept.items():
            setattr(trainer.args, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(trainer.args, name, value)
        trainer.state.best_model_checkpoint = best


def _link_or_copy(source: str, target: str) -> None:
    with contextlib.suppress(FileExistsError):  # another rank of a shared folder
        try:
            os.link(source, target)
        except OSError as error:
            if isinstance(error, FileExistsError):
                raise
            shutil.copy2(source, target)
