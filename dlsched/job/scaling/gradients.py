"""Measures gradients during the training: norms for the noise estimate, and how long ranks wait.

With several ranks, the gradient of each exists for a moment only, before it is averaged: a hook of
the data-parallel wrapper reads it bucket by bucket, which is one pass over memory and no further
kernel for each parameter, unless gradients are divided as Adam does. With one rank, the passes of a
step are compared, or two steps in a row. Only some of the steps are measured.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

from dlsched.job.scaling.gradient_noise import GradientNoise
from dlsched.job.scaling.preconditioner import Preconditioner


class Gradients:
    """Measures the gradients of a model.

    Attributes:
        device: of the gradients.
        sync_s: seconds that the last step waited for other ranks.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        replicas: int,
        *,
        every: int,
        preconditioner: Preconditioner | None = None,
    ) -> None:
        """Register the hook, where there are several ranks.

        Args:
            model: its gradients are measured.
            replicas: number of ranks.
            every: steps between two measurements; 0: never.
            preconditioner: what the optimiser divides gradients by; None: it does not.
        """
        self._parameters = [each for each in model.parameters() if each.requires_grad]
        self.device = self._parameters[0].device
        self.sync_s = 0.0
        self._wrapper = model if isinstance(model, DistributedDataParallel) else None
        self._replicas = replicas
        self._every = every
        self._preconditioner = preconditioner
        self._divides = False  # in this step
        self._step = 0
        self._passes = 1
        self._norms: list[torch.Tensor] = []  # squared, of single gradients of this step
        self._sums: list[torch.Tensor] = []  # of the passes of this step before the present one
        self._last: list[torch.Tensor] = []  # gradients of the step before
        self._ready: Any = None
        self._done: Any = None
        if self._wrapper is not None:
            # a lambda: PyTorch refuses hooks that have text as annotations
            self._wrapper.register_comm_hook(None, lambda state, bucket: self._hook(bucket))

    @property
    def _sampled(self) -> bool:
        return self._every > 0 and self._step % self._every == 0

    @property
    def _compares_passes(self) -> bool:
        return self._replicas == 1 and self._passes > 1

    def before(self, *, last: bool) -> None:
        """Prepare a pass; only the last one of a step synchronises."""
        if self._sampled:  # the optimiser takes no step between this and the measurement
            self._divides = self._preconditioner is not None and self._preconditioner.is_ready
        if self._wrapper is not None:
            self._wrapper.require_backward_grad_sync = last

    def passed(self, *, last: bool, passes: int) -> None:
        """Note that a backward pass is done."""
        self._passes = passes
        if last and self._wrapper is not None:
            self._synchronised()
        if self._sampled and self._compares_passes:
            self._note_pass(last=last)

    def measure(self, noise: GradientNoise, scale: float, factor: float) -> None:
        """Measure, after the last pass of a step and before the optimiser's step.

        `scale` is the samples of the step divided by the initial batch size; `factor` is by how
        much mixed precision has enlarged the gradients.
        """
        if self._sampled:
            if self._replicas > 1 or self._passes > 1:
                local, mean = self._norms_of_step()
                if self._replicas > 1:
                    both = torch.stack([local, mean]) / self._replicas
                    dist.all_reduce(both)  # the very same numbers on all ranks
                    local, mean = both[0], both[1]
                count = self._replicas if self._replicas > 1 else self._passes
                noise.add(
                    float(local) / factor**2, float(mean) / factor**2,
                    count=count, scale=scale, steps=self._every, divided=self._divides,
                )  # fmt: skip
            elif self._last:
                local, mean = self._norms_in_a_row()
                noise.add_in_a_row(
                    float(local) / factor**2,
                    float(mean) / factor**2,
                    scale=scale,
                    steps=self._every,
                    divided=self._divides,
                )
        self._norms, self._last = [], []
        self._step += 1
        if self._sampled and self._replicas == 1 and self._passes == 1:  # the next step is
            self._last = self._copies()

    # -- several ranks -----------------------------------------------------------------------------

    def _hook(self, bucket: Any) -> torch.futures.Future[torch.Tensor]:
        if self._sampled and self._divides:
            self._norms.append(self._sqr(bucket.parameters(), bucket.gradients()))
        elif self._sampled:
            flat = bucket.buffer()
            self._norms.append(_dot(flat, flat))
        if bucket.is_last():
            self._ready = self._moment()
        world: Any = dist.group.WORLD
        return allreduce_hook(world, bucket)

    def _synchronised(self) -> None:
        done = self._moment()
        ready, self._ready = self._ready, None
        if ready is None:
            return
        if isinstance(ready, float):
            self.sync_s = done - ready
            return
        earlier, self._done = self._done, (ready, done)
        if earlier is not None:  # it has happened by now, so this does not wait for the GPU
            self.sync_s = earlier[0].elapsed_time(earlier[1]) / 1000

    def _moment(self) -> Any:
        if self.device.type != "cuda":
            return time.perf_counter()
        event: Any = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    # -- one rank ----------------------------------------------------------------------------------

    def _note_pass(self, *, last: bool) -> None:
        """Note the gradient of one pass: what it has added to the sum."""
        now = self._grads()
        if self._sums:
            now = [a - b for a, b in zip(now, self._sums, strict=True)]
        self._norms.append(self._sqr(self._parameters, now) * self._passes**2)
        self._sums = [] if last else self._copies()

    def _norms_of_step(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the mean of the squared norms of the single gradients, and that of their mean."""
        norms = torch.stack(self._norms)
        local = norms.sum() if self._replicas > 1 else norms.mean()  # buckets, or passes
        return local, self._sqr(self._parameters, self._grads())

    def _norms_in_a_row(self) -> tuple[torch.Tensor, torch.Tensor]:
        both, cross = [], []
        for now, before in self._parts(self._parameters, self._grads(), self._last):
            both.append(_dot(now, now) + _dot(before, before))
            cross.append(_dot(now, before))
        sum_of_both = torch.stack(both).sum()
        return sum_of_both / 2, (sum_of_both + 2 * torch.stack(cross).sum()) / 4

    def _grads(self) -> list[torch.Tensor]:
        return [
            torch.zeros_like(each) if each.grad is None else each.grad for each in self._parameters
        ]

    def _sqr(
        self, parameters: Iterable[torch.Tensor], gradient: Iterable[torch.Tensor]
    ) -> torch.Tensor:
        """Return the squared norm of a gradient, divided if this step's gradients are."""
        return torch.stack([_dot(a, a) for (a,) in self._parts(parameters, gradient)]).sum()

    def _parts(
        self, parameters: Iterable[torch.Tensor], *gradients: Iterable[torch.Tensor]
    ) -> Iterable[tuple[torch.Tensor, ...]]:
        """Give each parameter's part of gradients, divided if this step's gradients are."""
        if self._divides and self._preconditioner is not None:
            return self._preconditioner.divided(parameters, *gradients)
        return zip(*gradients, strict=True)

    def _copies(self) -> list[torch.Tensor]:
        return [each.detach().clone() for each in self._grads()]


def _dot(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return torch.dot(one.flatten(), other.flatten()).float()
