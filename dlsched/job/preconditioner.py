"""What an optimiser of Adam's family divides gradients by, before it takes its step.

The noise that counts for such an optimiser is that of the divided gradients: a coordinate whose
gradients are always large moves no further than another. The divisor of a coordinate is
√v̂ + ε, v̂ being the mean of its squared gradients so far, corrected for its beginning at 0. In the
first steps that mean says little, and gradients are taken as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

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
        self, parameters: Iterable[torch.Tensor], *gradients: Iterable[torch.Tensor]
    ) -> Iterator[tuple[torch.Tensor, ...]]:
        """Each parameter's part of some gradients, divided, one parameter after the other.

        One that never had a gradient has no divisor: its first does not count, nor does that of a
        coordinate, which ε alone would make larger than all others together.
        """
        for parameter, *parts in zip(parameters, *gradients, strict=True):
            state = self._optimizer.state.get(parameter)
            if not state or "exp_avg_sq" not in state:
                yield tuple(torch.zeros_like(part) for part in parts)
                continue
            group = self._group[parameter]
            seen = state.get("max_exp_avg_sq", state["exp_avg_sq"])  # the former with amsgrad
            correction = (1 - group["betas"][1] ** float(state["step"])) ** 0.5
            # (√v / c + ε) is (√v + ε·c) / c, which takes fewer passes over memory
            epsilon = group["eps"] * correction
            divisor = seen.sqrt().add_(epsilon)
            torch.nn.functional.threshold(divisor, epsilon, torch.inf, inplace=True)
            none = torch.zeros((), dtype=divisor.dtype, device=divisor.device)
            yield tuple(
                torch.addcdiv(none, part, divisor.view_as(part), value=correction) for part in parts
            )
