"""Trainings under Adam whose divisors are known, for the tests of gradients that it divides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from dlsched.job.scaling.gradient_noise import GradientNoise
from dlsched.job.scaling.gradients import Gradients
from dlsched.job.scaling.preconditioner import Preconditioner

BETAS, EPS = (0.9, 0.99), 1e-3
Optimizer = Callable[..., torch.optim.Optimizer]


class Training:
    """Two parameters with random gradients, and the means that Adam has of them."""

    def __init__(self, optimizer: Optimizer = torch.optim.Adam, **options: Any) -> None:
        self.draw = torch.Generator().manual_seed(1)
        self.parameters = [torch.nn.Parameter(torch.zeros(size)) for size in ((3, 2), (4,))]
        self.optimizer = optimizer(self.parameters, lr=0.1, betas=BETAS, eps=EPS, **options)
        self.seen: list[list[torch.Tensor]] = []

    def gradients(self) -> list[torch.Tensor]:
        sizes = torch.tensor([10.0, 0.1])  # coordinates of very different size
        return [
            torch.randn(each.shape, generator=self.draw) * size
            for each, size in zip(self.parameters, sizes, strict=True)
        ]

    def step(self) -> None:
        self.seen.append(self.gradients())
        for parameter, gradient in zip(self.parameters, self.seen[-1], strict=True):
            parameter.grad = gradient.clone()
        self.optimizer.step()

    def divisors(self, *, largest: bool = False) -> list[torch.Tensor]:
        """√v̂ + ε from all gradients so far; the largest v so far with amsgrad."""
        found, beta = [], BETAS[1]
        for place in range(len(self.parameters)):
            means = [torch.zeros(self.parameters[place].shape)]
            for gradients in self.seen:
                means.append(beta * means[-1] + (1 - beta) * gradients[place] ** 2)
            v = torch.stack(means).amax(0) if largest else means[-1]
            found.append((v / (1 - beta ** len(self.seen))).sqrt() + EPS)
        return found


class Told(GradientNoise):
    """Notes what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[float, float, dict[str, Any]]] = []

    def add(self, local: float, mean: float, **more: Any) -> None:
        self.told.append((local, mean, more))

    def add_in_a_row(self, local: float, mean: float, **more: Any) -> None:
        self.told.append((local, mean, more))


class Line(torch.nn.Module):
    """Its gradient is the mean of what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x * self.weight).sum(1).mean()


class Measured:
    """A line under Adam; its squared gradients have a known mean."""

    def __init__(self, replicas: int = 1, wrap: Any = None) -> None:
        self.line = Line()
        self.model = wrap(self.line) if wrap is not None else self.line
        self.optimizer = torch.optim.Adam(self.line.parameters(), lr=0.1, betas=BETAS, eps=EPS)
        self.noise = Told()
        by = Preconditioner.of(self.optimizer)
        self.gradients = Gradients(self.model, replicas, every=1, preconditioner=by)
        self.draw = torch.Generator().manual_seed(2)
        self.means: list[torch.Tensor] = []

    def step(self, passes: int = 1, factor: float = 1.0) -> list[torch.Tensor]:
        """The gradients of its passes."""
        single = []
        for place in range(passes):
            x = torch.randn(4, 3, generator=self.draw) + torch.tensor([9.0, 1.0, 0.1])
            single.append(x.mean(0))
            self.gradients.before(last=place == passes - 1)
            (factor * self.model(x) / passes).backward()
            if place < passes - 1:
                self.gradients.passed(last=False, passes=passes)
        self.gradients.passed(last=True, passes=passes)
        self.gradients.measure(self.noise, 1.0, factor)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.means.append(torch.stack(single).mean(0))
        return single

    def divisor(self) -> torch.Tensor:
        """Before the last step."""
        v, beta = torch.zeros(3), BETAS[1]
        for mean in self.means[:-1]:
            v = beta * v + (1 - beta) * mean**2
        return torch.Tensor((v / (1 - beta ** (len(self.means) - 1))).sqrt() + EPS)


def sqr(gradient: torch.Tensor) -> float:
    return float((gradient**2).sum())
