"""The divisors by which an optimiser of Adam's family divides gradients before its step.

For such an optimiser, the noise of the divided gradients counts: a coordinate that always has large
gradients moves no further than another. The divisor of a coordinate is √v̂ + ε, where v̂ is the
mean of its squared gradients so far, corrected for its start at 0. In the first steps that mean is
unreliable, and gradients are not divided.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch

STEPS = 5  # of the optimiser before its means are used


class Preconditioner:
    """The divisors of the parameters of optimisers, as of their last step."""

    def __init__(self, *optimizers: torch.optim.Optimizer) -> None:
        """Use optimisers of Adam's family."""
        groups = [(one, group) for one in optimizers for group in one.param_groups]
        self._group = {p: group for _, group in groups for p in group["params"]}
        self._owner = {p: one for one, group in groups for p in group["params"]}
        self._is_ready = False

    @classmethod
    def of(cls, *optimizers: torch.optim.Optimizer) -> Preconditioner | None:
        """Return the divisors of optimisers of Adam's family; None if there is another."""
        groups = [group for one in optimizers for group in one.param_groups]
        adam = all("betas" in group and "eps" in group for group in groups)
        return cls(*optimizers) if adam else None

    @property
    def is_ready(self) -> bool:
        """Whether the optimiser has taken enough steps for gradients to be divided."""
        if not self._is_ready:
            states = [owner.state.get(each) for each, owner in self._owner.items()]
            steps = [float(state["step"]) for state in states if state and "exp_avg_sq" in state]
            self._is_ready = bool(steps) and max(steps) >= STEPS
        return self._is_ready

    def divided(
        self, parameters: Iterable[torch.Tensor], *gradients: Iterable[torch.Tensor]
    ) -> Iterator[tuple[torch.Tensor, ...]]:
        """Give the parts of gradients that belong to each parameter, divided.

        A parameter, or a coordinate, that never had a gradient has no divisor: its first gradient
        counts as 0, because ε alone would make it larger than all others together.
        """
        for parameter, *parts in zip(parameters, *gradients, strict=True):
            owner = self._owner.get(parameter)
            state = None if owner is None else owner.state.get(parameter)
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
