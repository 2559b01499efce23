"""Buckets of DistributedDataParallel that are the same before and after a restart.

DistributedDataParallel sums gradients over the ranks in buckets. After its first step it packs them
anew, in the order in which the gradients have become ready. With more than two ranks the order in
which an element is summed depends on its place in the bucket, so that the first step after a
restart would differ in the last bits. A checkpoint therefore has the order of the gradients, and a
restore packs the buckets before the first step.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

HARMLESS_HOOKS = (  # modules of hooks that a pass of zero gradients does not change
    "dlsched.job.scaling.gradients",
    "torch.distributed.algorithms.ddp_comm_hooks.default_hooks",
)


class BucketOrder:
    """The order of the gradients by which a model's buckets are packed."""

    def __init__(self, model: DistributedDataParallel) -> None:
        """Note the order in the first pass backward that sums gradients over the ranks."""
        self._model = model
        self._weights = [each for each in model._module_parameters if each.requires_grad]
        self._order: list[int] = []
        self._hooks = [
            weight.register_post_accumulate_grad_hook(partial(self._note, place))
            for place, weight in enumerate(self._weights)
        ]

    def state(self) -> list[int]:
        """Return the places of the parameters in the order; empty until it is known."""
        return self._order if len(self._order) == len(self._weights) else []

    def load(self, order: list[int]) -> None:
        """Pack the buckets in the order of a checkpoint; all ranks call it together."""
        if sorted(order) != list(range(len(self._weights))):
            return  # of a checkpoint before the first step, or without buckets
        self._stop_noting()
        self._order = order
        if not self._may_pack():
            return
        reducer: Any = self._model.reducer
        gradients = [each.grad for each in self._weights]
        for weight in self._weights:
            weight.grad = None
        with torch.enable_grad():
            reducer.prepare_for_backward([])
            for place in order:
                (self._weights[place].sum() * 0).backward()
        reducer._rebuild_buckets()
        for weight, gradient in zip(self._weights, gradients, strict=True):
            weight.grad = gradient

    def _may_pack(self) -> bool:
        """Whether the buckets are packed anew after a first step, and a pass of zeros is harmless.

        Hooks of the script's own may count passes, or let the optimiser take a step.
        """
        model: Any = self._model
        return not (
            model.find_unused_parameters
            or model.static_graph
            or model.mixed_precision is not None
            or model._delay_all_reduce_params
            or any(getattr(module, "sparse", False) for module in model.modules())
            or any(each._post_accumulate_grad_hooks for each in self._weights)
            or any(hook.__module__ not in HARMLESS_HOOKS for hook, _ in model._comm_hooks)
        )

    def _note(self, place: int, weight: torch.Tensor) -> None:
        if self._model.require_backward_grad_sync:
            self._order.append(place)
            if len(self._order) == len(self._weights):
                self._stop_noting()

    def _stop_noting(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
