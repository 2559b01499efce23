"""What an optimiser of Adam's family divides gradients by, before it takes its step.

The noise that counts for such an optimiser is that of the divided gradients: a coordinate whose
gradients are always large moves no further than another. The divisor of a coordinate is
√v̂ + ε, v̂ being the mean of its squared gradients so far, corrected for its beginning at 0. In the
first steps that mean says little, and gradients are taken as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch

__all__ = ["Preconditioner"]

STEPS = 5  # of the optimiser, before its means are believed


class Preconditioner:
    """The divisors of one optimiser's parameters, as of its last step."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = optimizer
        self._group = {p: group for group in optimizer.param_groups for p in group["params"]}
        self._is_ready = False

    @classmethod
    def of(cls, optimizer: torch.optim.Optimizer) -> Preconditioner | None:
        """That of an optimiser of Adam's family; None for others."""
        adam = all("betas" in group and "eps" in group for group in optimizer.param_groups)
        return cls(optimizer) if adam else None

    @property
    def is_ready(self) -> bool:
        """Whether so many steps were taken that gradients are to be divided."""
        if not self._is_ready:
            states = [self._optimizer.state.get(each) for each in self._group]
            steps = [float(state["step"]) for state in states if state and "exp_avg_sq" in state]
            self._is_ready = bool(steps) and max(steps) >= STEPS
        return self._is_ready

    def divided(
        self, parameters: Iterable[torch.Tensor], gradients: Iterable[torch.Tensor]
    ) -> Iterator[torch.Tensor]:
        """Gradients of some parameters, divided, one after the other.

        One that never had a gradient has no divisor: its first does not count.
        """
        for parameter, gradient in zip(parameters, gradients, strict=True):
            state = self._optimizer.state.get(parameter)
            if not state or "exp_avg_sq" not in state:
                yield torch.zeros_like(gradient)
            else:
                yield self._divide(gradient, state, self._group[parameter])

    @staticmethod
    def _divide(gradient: torch.Tensor, state: Any, group: Any) -> torch.Tensor:
        seen = state.get("max_exp_avg_sq", state["exp_avg_sq"])  # the former with amsgrad
        correction = (1 - group["betas"][1] ** state["step"]) ** 0.5
        divided = gradient / (seen.sqrt() / correction + group["eps"])
        return torch.where(seen > 0, divided, 0.0)
