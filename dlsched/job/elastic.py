"""An elastic PyTorch training: any number of ranks, a batch size that adapts, measured gradients.

    with attach() as job:
        init_process_group(job)
        training = ElasticTraining(job, net, optimizer, dataset, batch_size=128, maximum=1024)
        job.restore()
        for epoch in training.epochs(10):
            for inputs, labels in training.batches():
                training.step(cross_entropy(training.model(inputs), labels))

A *step* of the optimiser is one or more *passes* forward and backward. The samples of a step are
those of all passes of all ranks. Ranks change the batch size only at the beginning of `batches`,
and only by numbers that all of them have, so that they always agree.

Only scripts that use it import it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from dlsched.job.errors import JobError
from dlsched.job.job import Job
from dlsched.job.messages import Trained
from dlsched.job.pytorch.loading import keys_of, seeded_loader
from dlsched.job.scaling.gradient_noise import GradientNoise, Scaling, rate_factor
from dlsched.job.scaling.gradients import Gradients
from dlsched.job.scaling.preconditioner import Preconditioner
from dlsched.job.scaling.step_times import BatchLimits, StepTimes, split
from dlsched.job.torch import optimizers_of, register_training

REPORT_S = 30.0  # at most between two reports to the scheduler
LOSS_EVERY_S = 1.0  # reading a loss makes the CPU wait for the GPU


class ElasticTraining:
    """A model, its optimiser and its data, on any number of ranks.

    Attributes:
        model: to be called with a batch; wrapped when there are several ranks.
        progress: of the training, in optimiser steps at the initial batch size.
        local: samples of each rank and pass.
        accumulation: passes before the one that synchronises.
        noise: of the gradients, as measured.
        stepped: whether the last `step` ran the optimisers: not in passes that accumulate, nor in
            steps that mixed precision skips.
    """

    def __init__(
        self,
        job: Job,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer],
        dataset: Any,
        *,
        batch_size: int,
        maximum: int | None = None,
        local: tuple[int, int] | None = None,
        may_accumulate: bool = True,
        fixed: bool = False,
        scaling: Scaling = "adascale",
        measure_every: int = 10,
        report_s: float = REPORT_S,
        seed: int = 0,
        scaler: Any = None,
        schedules: Sequence[Any] = (),
        epoch_schedules: Sequence[Any] = (),
        before_step: Callable[[], object] = lambda: None,
        loader: dict[str, Any] | None = None,
        wrapper: dict[str, Any] | None = None,
        **states: Any,
    ) -> None:
        """Register all parts with the checkpoints; call `job.restore()` afterwards.

        Args:
            job: this process.
            model: on its device; not wrapped.
            optimizer: of its parameters; or several, which all take each step.
            dataset: with a length, indexed by number.
            batch_size: samples of each step that the training was tuned for.
            maximum: samples of a step at most; above `batch_size` the batch size adapts.
            local: samples of each rank and pass: the least and the most.
            may_accumulate: several passes may make a step, where `local` would be exceeded.
            fixed: the batch size does not change; nor does it when the job was submitted with
                --fixed-batch, or when gradients are not measured.
            scaling: how the learning rate follows the batch size.
            measure_every: steps between two measurements of the gradients; 0: never.
            report_s: seconds between two reports.
            seed: of the order of the samples.
            scaler: of mixed precision.
            schedules: of the learning rate; they take a step after each one of the optimisers.
            epoch_schedules: the same after the last step of each epoch.
            before_step: called when the gradients of a step are complete, such as to clip them.
            loader: further options of the DataLoader.
            wrapper: further options of DistributedDataParallel.
            states: further parts of the training with `state_dict` and `load_state_dict`, such
                as a learning-rate schedule.

        Raises:
            JobError: when the batch sizes or `scaling` are impossible.
        """
        stays = fixed or job.runtime.fixed_batch or measure_every == 0
        least, most = local or (1, maximum or batch_size)
        self.limits = BatchLimits(
            initial=batch_size,
            maximum=batch_size if stays else maximum or batch_size,
            local_min=least,
            local_max=most,
            may_accumulate=may_accumulate,
            fixed=stays or (maximum or batch_size) <= batch_size,
        )
        _check(self.limits, scaling)
        self.model = model
        if job.world_size > 1:
            self.model = DistributedDataParallel(model, **(wrapper or {}))
        self.progress = 0.0
        self.local, self.accumulation = self._initial(job.world_size)
        self.noise = GradientNoise()
        self._job = job
        self._optimizers = optimizers_of(optimizer)
        self._scaler, self._scaling = scaler, scaling
        self._schedules, self._epoch_schedules = schedules, epoch_schedules
        self._before_step = before_step
        self._dataset, self._options = dataset, dict(loader or {})
        self._sampler = job.sampler(len(dataset), seed=seed)
        self._gradients = Gradients(
            self.model,
            job.world_size,
            every=measure_every,
            preconditioner=Preconditioner.of(*self._optimizers),
        )
        self._times = StepTimes()
        self._report_s, self._reported_at, self._loss_at = report_s, time.monotonic(), 0.0
        self._epoch = 0
        self._begun: set[int] = set()  # epochs that this process has given
        self._passes: list[int] = []  # samples of this rank in each pass of the step so far
        self._step_passes = 1
        self._mark = 0.0
        self._fresh = True  # the next step is not measured: it includes the start of the loader
        self.stepped = False
        for each in self._optimizers:
            each.register_step_post_hook(self._note_stepped)
        own = {"scaler": scaler} if scaler is not None else {}
        own |= {f"schedule{k}": each for k, each in enumerate(schedules)}
        own |= {f"epoch-schedule{k}": each for k, each in enumerate(epoch_schedules)}
        register_training(job, model=self.model, optimizer=self._optimizers, **own, **states)
        known = job.checkpoint
        known.register("gradient-noise", save=self.noise.save, load=self.noise.load, try_load=False)
        known.register("progress", save=self._save, load=self._load, try_load=False)
        self._all_states = set() if states else known.states.names  # none of the script's own

    # -- what the training calls -------------------------------------------------------------------

    def epochs(self, count: int) -> Iterator[int]:
        """Give the numbers of epochs below `count`, from the present one on.

        With a fixed batch size an epoch uses each sample once. With a batch size that adapts, an
        epoch ends when the progress is that of an epoch at the initial batch size.

        After a stop on the last step of an epoch, the next epoch comes first. But if the script has
        states of its own, the epoch comes once more, without batches: the code after its batches
        may change them, and has not been saved.
        """
        while self._epoch < count and not self._job.stopped:
            resumed_at_end = self._is_over() and self._epoch not in self._begun
            if not (resumed_at_end and self._job.checkpoint.states.names == self._all_states):
                self._begun.add(self._epoch)
                yield self._epoch
            if self._is_over():  # a job that has stopped saved the epoch that it was in
                self._epoch += 1

    def batches(self) -> Iterator[Any]:
        """Give this rank's batches of the rest of the epoch; call `step` after each."""
        while not self._job.stopped and not self._is_over():
            self._choose_batch()
            yield from self._pass_of_data()

    def step(self, loss: torch.Tensor) -> bool:
        """Learn from a batch: run backward, and after the last pass of a step the optimiser.

        Args:
            loss: mean over the batch.

        Returns:
            Whether to go on; when not, `batches` ends too.
        """
        self.stepped = False
        last = len(self._passes) == self._step_passes
        part = loss / self._step_passes
        (part if self._scaler is None else self._scaler.scale(part)).backward()
        if not last:
            self._gradients.passed(last=False, passes=self._step_passes)
            self._clock_pass()
            return True
        scale = sum(self._passes) * self._job.world_size / self.limits.initial
        self._measure(scale)
        gain = 1.0 if self.limits.fixed else self.noise.gain(scale)
        self._optimise(scale, gain)
        self.progress += scale if self.limits.fixed else gain
        for schedule in self._schedules if self.stepped else ():
            schedule.step()
        for schedule in self._epoch_schedules if self._is_over() else ():
            schedule.step()
        self._clock_step()
        return self._step_is_done(loss)

    # -- the data ----------------------------------------------------------------------------------

    def _is_over(self) -> bool:
        """Whether the present epoch is over."""
        if self.limits.fixed:
            return self._sampler.epoch > self._epoch
        target = (self._epoch + 1) * len(self._dataset) / self.limits.initial
        return self.progress >= target

    def _pass_of_data(self) -> Iterator[Any]:
        sampler, size = self._sampler, self.local
        mine = keys_of(sampler)
        chunks = [mine[k : k + size] for k in range(0, len(mine), size)]
        data = seeded_loader(self._dataset, sampler, batch_sampler=chunks, **self._options)
        at_once = self.accumulation + 1
        self._fresh, self._mark = True, time.perf_counter()
        for place, batch in enumerate(data):
            if place % at_once == 0:
                self._passes, self._step_passes = [], min(at_once, len(chunks) - place)
            self._passes.append(len(chunks[place]))
            last = len(self._passes) == self._step_passes
            self._gradients.before(last=last)
            sampler.advance(size)
            yield batch
            if last and (self._job.stopped or self._is_over()):
                return

    def _initial(self, replicas: int) -> tuple[int, int]:
        limits = self.limits
        return split(
            limits.initial, replicas, limits.local_max, may_accumulate=limits.may_accumulate
        )

    def _choose_batch(self) -> None:
        """Use the batch size that the scheduler prefers, the one that rank 0 knows on all ranks."""
        replicas = self._job.world_size
        local, accumulation = self.local, self.accumulation
        preferred = self._job.preferred_batch
        if (
            preferred is not None
            and not self.limits.fixed
            and self.noise.is_known
            and self.limits.allows(replicas, preferred.local, preferred.accumulation)
        ):
            local, accumulation = preferred.local, preferred.accumulation
        if replicas > 1:
            both = torch.tensor([local, accumulation], device=self._gradients.device)
            dist.broadcast(both, src=0)
            local, accumulation = (int(number) for number in both.tolist())
        self.local, self.accumulation = local, accumulation

    # -- one step ----------------------------------------------------------------------------------

    def _measure(self, scale: float) -> None:
        factor = 1.0 if self._scaler is None else float(self._scaler.get_scale())
        self._gradients.passed(last=True, passes=self._step_passes)
        self._gradients.measure(self.noise, scale, factor)

    def _optimise(self, scale: float, gain: float) -> None:
        """Run the optimiser's step with a learning rate for this batch size."""
        groups = [group for each in self._optimizers for group in each.param_groups]
        before = [group["lr"] for group in groups]
        if not self.limits.fixed and scale > 1:
            for group in groups:
                group["lr"] = group["lr"] * rate_factor(self._scaling, scale, gain)
        if self._scaler is None:
            self._before_step()
            for each in self._optimizers:
                each.step()
        else:
            for each in self._optimizers:
                self._scaler.unscale_(each)
            self._before_step()
            for each in self._optimizers:
                self._scaler.step(each)
            self._scaler.update()
        for group, rate in zip(groups, before, strict=True):
            group["lr"] = rate
        for each in self._optimizers:
            each.zero_grad()

    def _note_stepped(self, *given: object) -> None:
        self.stepped = True

    def _clock_pass(self) -> None:
        now = time.perf_counter()
        if not self._fresh and self._passes[-1] == self.local:
            self._times.passed(self.local, now - self._mark)
        self._mark = now

    def _clock_step(self) -> None:
        now = time.perf_counter()
        if not self._fresh and self._passes[-1] == self.local:
            self._times.stepped(self.local, now - self._mark, self._gradients.sync_s)
        self._fresh = False

    def _step_is_done(self, loss: torch.Tensor) -> bool:
        now = time.monotonic()
        shown: float | None = None
        if now - self._loss_at >= LOSS_EVERY_S:
            self._loss_at, shown = now, float(loss.detach())
        goes_on = self._job.step(
            loss=shown,
            progress=self.progress,
            batch=float(sum(self._passes) * self._job.world_size),
        )
        if self._job.rank == 0 and (not goes_on or now - self._reported_at >= self._report_s):
            self._reported_at = now
            self._report(must_arrive=not goes_on)
        self._mark = time.perf_counter()
        return goes_on

    def _report(self, *, must_arrive: bool) -> None:
        local, steps, accumulation_s, optimiser_s = self._times.columns()
        known = self.noise.is_known
        self._job.tell(
            Trained(
                nodes=self._job.runtime.node_count,
                replicas=self._job.world_size,
                local=local,
                steps=steps,
                accumulation_s=accumulation_s,
                optimiser_s=optimiser_s,
                gradient_sqr=self.noise.sqr if known else None,
                gradient_var=self.noise.var if known else None,
                initial=self.limits.initial,
                maximum=self.limits.maximum,
                local_min=self.limits.local_min,
                local_max=self.limits.local_max,
                may_accumulate=self.limits.may_accumulate,
                fixed=self.limits.fixed,
                local_now=self.local,
                accumulation_now=self.accumulation,
                progress=self.progress,
            ),
            must_arrive=must_arrive,
        )

    # -- as a state of the checkpoint --------------------------------------------------------------

    def _save(self, file: BinaryIO) -> None:
        file.write(json.dumps({"progress": self.progress, "epoch": self._epoch}).encode())

    def _load(self, file: BinaryIO) -> None:
        found = json.loads(file.read())
        self.progress, self._epoch = float(found["progress"]), int(found["epoch"])


def _check(limits: BatchLimits, scaling: Scaling) -> None:
    if limits.initial < 1:
        raise JobError(f"batch_size={limits.initial}: at least one sample is needed")
    if limits.maximum < limits.initial:
        raise JobError(f"maximum={limits.maximum} is below batch_size={limits.initial}")
    if not 1 <= limits.local_min <= limits.local_max:
        raise JobError(f"local=({limits.local_min}, {limits.local_max}): not at least and at most")
    rate_factor(scaling, 1.0, 1.0)
