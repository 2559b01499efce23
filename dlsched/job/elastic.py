"""An elastic PyTorch training: any number of ranks, a batch size that adapts, gradients measured.

    with attach() as job:
        init_process_group(job)
        training = ElasticTraining(job, net, optimizer, dataset, batch_size=128, maximum=1024)
        job.restore()
        for epoch in training.epochs(10):
            for inputs, labels in training.batches():
                training.step(cross_entropy(training.model(inputs), labels))

A *step* of the optimiser is one or more *passes* forward and backward. The samples of a step are
those of all passes of all ranks. Ranks change what they do only at the beginning of `batches` and
only by numbers that all of them have, so that they always do the same.

Imported only by scripts that use it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any, BinaryIO

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from dlsched.job.errors import JobError
from dlsched.job.gradient_noise import GradientNoise, Scaling, rate_factor
from dlsched.job.gradients import Gradients
from dlsched.job.job import Job
from dlsched.job.messages import Trained
from dlsched.job.preconditioner import Preconditioner
from dlsched.job.step_times import BatchLimits, StepTimes, split
from dlsched.job.torch import keep_through_stop, register_training

__all__ = ["ElasticTraining"]

REPORT_S = 30.0  # at most, between two reports to the scheduler
LOSS_EVERY_S = 1.0  # reading a loss makes the CPU wait for the GPU


class ElasticTraining:
    """A model, its optimiser and its data, on however many ranks there are.

    Attributes:
        model: what to call with a batch; wrapped where there are several ranks.
        progress: optimiser steps that what was done is worth, at the initial batch size.
        local: samples a rank and pass.
        accumulation: passes before the one that synchronises.
        noise: of the gradients, as measured.
    """

    def __init__(
        self,
        job: Job,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
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
        loader: dict[str, Any] | None = None,
        wrapper: dict[str, Any] | None = None,
        **states: Any,
    ) -> None:
        """Register all of it with the checkpoints; `job.restore()` comes after.

        Args:
            job: this process.
            model: on its device already; not wrapped.
            optimizer: of its parameters.
            dataset: with a length, indexed by number.
            batch_size: samples a step that the training was tuned for.
            maximum: samples a step at most; more than `batch_size` lets it adapt.
            local: samples a rank and pass, at least and at most.
            may_accumulate: several passes may make a step, where `local` would be exceeded.
            fixed: the batch size stays. So does it when the job was submitted with --fixed-batch,
                and without measurements.
            scaling: how the learning rate follows the batch size.
            measure_every: steps between two measurements of the gradients; 0: never.
            report_s: seconds between two reports.
            seed: of the order of the samples.
            scaler: of mixed precision.
            loader: further options of the DataLoader.
            wrapper: further options of DistributedDataParallel.
            states: further parts of the training with `state_dict` and `load_state_dict`, as a
                learning-rate schedule.
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
        self._optimizer, self._scaler, self._scaling = optimizer, scaler, scaling
        self._dataset, self._options = dataset, dict(loader or {})
        self._sampler = job.sampler(len(dataset), seed=seed)
        self._gradients = Gradients(
            self.model,
            job.world_size,
            every=measure_every,
            preconditioner=Preconditioner.of(optimizer),
        )
        self._times = StepTimes()
        self._report_s, self._reported_at, self._told_at = report_s, time.monotonic(), 0.0
        self._epoch = 0
        self._passes: list[int] = []  # samples of this rank in each pass of the step, so far
        self._step_passes = 1
        self._mark = 0.0
        self._fresh = True  # what comes next is not measured: it has the start of things in it
        scaled = {"scaler": scaler} if scaler is not None else {}
        register_training(job, model=model, optimizer=optimizer, **scaled, **states)
        job.checkpoint.register("gradient-noise", save=self.noise.save, load=self.noise.load)
        job.checkpoint.register("progress", save=self._save, load=self._load)

    # -- what the training calls -------------------------------------------------------------------

    def epochs(self, count: int) -> Iterator[int]:
        """Numbers of epochs, from the present one on.

        With a fixed batch size an epoch sees each sample once. With one that adapts it goes on
        until what was done is worth as many steps as an epoch has at the initial batch size.
        """
        while self._epoch < count and not self._job.stopped:
            yield self._epoch
            if self._is_over():  # a job that has stopped saved the epoch that it was in
                self._epoch += 1

    def batches(self) -> Iterator[Any]:
        """This rank's batches of the rest of the epoch; after each one, `step` is to be called."""
        while not self._job.stopped and not self._is_over():
            self._choose_batch()
            yield from self._pass_of_data()

    def step(self, loss: torch.Tensor) -> bool:
        """Learn from a batch: backward, and after the last pass of a step the optimiser's.

        Args:
            loss: mean over the batch.

        Returns:
            whether to go on; when not, `batches` ends too.
        """
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
        self._clock_step()
        return self._step_is_done(loss)

    # -- the data ----------------------------------------------------------------------------------

    def _is_over(self) -> bool:
        """Whether the present epoch is."""
        if self.limits.fixed:
            return self._sampler.epoch > self._epoch
        target = (self._epoch + 1) * len(self._dataset) / self.limits.initial
        return self.progress >= target

    def _pass_of_data(self) -> Iterator[Any]:
        sampler, size = self._sampler, self.local
        mine = list(sampler)
        chunks = [mine[k : k + size] for k in range(0, len(mine), size)]
        options = {"worker_init_fn": keep_through_stop, **self._options}
        data = torch.utils.data.DataLoader(self._dataset, batch_sampler=chunks, **options)
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
        """Take up what the scheduler thinks best; all ranks what rank 0 has heard."""
        replicas = self._job.world_size
        local, accumulation = self.local, self.accumulation
        wish = self._job.batch
        if (
            wish is not None
            and not self.limits.fixed
            and self.noise.is_known
            and self.limits.allows(replicas, wish.local, wish.accumulation)
        ):
            local, accumulation = wish.local, wish.accumulation
        if replicas > 1:
            told = torch.tensor([local, accumulation], device=self._gradients.device)
            dist.broadcast(told, src=0)
            local, accumulation = (int(number) for number in told.tolist())
        self.local, self.accumulation = local, accumulation

    # -- one step ----------------------------------------------------------------------------------

    def _measure(self, scale: float) -> None:
        factor = 1.0 if self._scaler is None else float(self._scaler.get_scale())
        self._gradients.passed(last=True, passes=self._step_passes)
        self._gradients.measure(self.noise, scale, factor)

    def _optimise(self, scale: float, gain: float) -> None:
        """The optimiser's step, with a learning rate for this batch size."""
        groups = self._optimizer.param_groups
        before = [group["lr"] for group in groups]
        if not self.limits.fixed and scale > 1:
            for group in groups:
                group["lr"] = group["lr"] * rate_factor(self._scaling, scale, gain)
        if self._scaler is None:
            self._optimizer.step()
        else:
            self._scaler.step(self._optimizer)
            self._scaler.update()
        for group, rate in zip(groups, before, strict=True):
            group["lr"] = rate
        self._optimizer.zero_grad()

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
        told: float | None = None
        if now - self._told_at >= LOSS_EVERY_S:
            self._told_at, told = now, float(loss.detach())
        goes_on = self._job.step(
            loss=told, progress=self.progress, batch=float(sum(self._passes) * self._job.world_size)
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
        told = json.loads(file.read())
        self.progress, self._epoch = float(told["progress"]), int(told["epoch"])


def _check(limits: BatchLimits, scaling: Scaling) -> None:
    if limits.initial < 1:
        raise JobError(f"batch_size={limits.initial}: at least one sample is needed")
    if limits.maximum < limits.initial:
        raise JobError(f"maximum={limits.maximum} is below batch_size={limits.initial}")
    if not 1 <= limits.local_min <= limits.local_max:
        raise JobError(f"local=({limits.local_min}, {limits.local_max}): not at least and at most")
    rate_factor(scaling, 1.0, 1.0)
