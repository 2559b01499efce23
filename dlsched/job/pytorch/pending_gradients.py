"""Gradients that were accumulated and not used yet, as a part of a checkpoint.

A script may call `step` after each pass of an accumulation. A checkpoint between two passes then
has the gradients so far; else the optimiser's next step would be one of fewer samples.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch


class PendingGradients:
    """The gradients of this rank since the last step of each optimiser."""

    def __init__(self, optimizers: Sequence[torch.optim.Optimizer], world_size: int) -> None:
        """Watch the steps of optimisers, in a run of so many ranks."""
        self._optimizers = list(optimizers)
        self._world_size = world_size
        self._used: dict[int, tuple[Callable[[], torch.Tensor | None], int]] = {}
        for number, optimizer in enumerate(self._optimizers):
            optimizer.register_step_post_hook(partial(self._stepped, number))

    def state(self) -> dict[str, object]:
        """Return the gradients by optimiser and parameter, and the number of ranks."""
        found = {
            (number, place): weight.grad.detach()
            for number in range(len(self._optimizers))
            if self._is_pending(number)
            for place, weight in enumerate(self._weights(number))
            if weight.grad is not None and bool(weight.grad.any())
        }
        return {"world_size": self._world_size, "gradients": found}

    def load(self, state: dict[str, Any]) -> None:
        """Continue with the gradients of a checkpoint."""
        gradients = state["gradients"]
        if gradients and state["world_size"] != self._world_size:
            print(
                "dlsched.job: the checkpoint is from the middle of an accumulation on "
                f"{state['world_size']} ranks: its passes so far are lost on {self._world_size}",
                file=sys.stderr,
            )
            return
        for (number, place), gradient in gradients.items():
            weight = self._weights(number)[place]
            weight.grad = gradient.to(device=weight.device, dtype=weight.dtype)

    def _weights(self, number: int) -> list[torch.Tensor]:
        groups = self._optimizers[number].param_groups
        return [weight for group in groups for weight in group["params"]]

    def _first(self, number: int) -> torch.Tensor | None:
        gradients = (weight.grad for weight in self._weights(number))
        return next((each for each in gradients if each is not None), None)

    def _stepped(self, number: int, *given: object) -> None:
        first = self._first(number)
        if first is not None:
            self._used[number] = (weakref.ref(first), first._version)

    def _is_pending(self, number: int) -> bool:
        """Whether there are gradients that the optimiser's last step has not used."""
        first = self._first(number)
        if first is None:
            return False
        gradient, version = self._used.get(number, (lambda: None, 0))
        return first is not gradient() or first._version != version
