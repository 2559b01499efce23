"""Gradients divided as Adam divides them, against the formulas written out."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dlsched.job.gradient_noise import GradientNoise

if importlib.util.find_spec("torch") is None:
    pytest.skip("PyTorch is not installed", allow_module_level=True)

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from dlsched.job.gradients import Gradients
from dlsched.job.preconditioner import Preconditioner

BETAS, EPS = (0.9, 0.99), 1e-3
Optimizer = Callable[..., torch.optim.Optimizer]


class Training:
    """Two parameters whose gradients are drawn, and what Adam has seen of them."""

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


@pytest.mark.parametrize(
    ("optimizer", "options"),
    [
        (torch.optim.Adam, {}),
        (torch.optim.AdamW, {"weight_decay": 0.0}),
        (torch.optim.Adam, {"amsgrad": True}),
        (torch.optim.NAdam, {}),
    ],
    ids=["adam", "adamw", "amsgrad", "nadam"],
)
def test_gradients_are_divided_by_the_root_of_the_corrected_mean_square(
    optimizer: Optimizer, options: dict[str, Any]
) -> None:
    training = Training(optimizer, **options)
    known = Preconditioner.of(training.optimizer)
    assert known is not None
    for _ in range(5):
        assert not known.is_ready
        training.step()
    assert known.is_ready
    fresh = training.gradients()
    divided = [part for (part,) in known.divided(training.parameters, fresh)]
    divisors = training.divisors(largest=bool(options.get("amsgrad")))
    for found, gradient, divisor in zip(divided, fresh, divisors, strict=True):
        torch.testing.assert_close(found, gradient / divisor)


def test_others_than_adam_s_family_divide_nothing() -> None:
    parameter = torch.nn.Parameter(torch.ones(2))
    assert Preconditioner.of(torch.optim.SGD([parameter], lr=0.1)) is None
    odd = torch.optim.Adamax([parameter], lr=0.1)  # has no mean of squares
    known = Preconditioner.of(odd)
    for _ in range(6):
        parameter.grad = torch.ones(2)
        odd.step()
    assert known is not None
    assert not known.is_ready


def test_what_never_had_a_gradient_has_no_divisor_and_does_not_count() -> None:
    training = Training()
    for _ in range(5):
        training.step()
    still = torch.nn.Parameter(torch.zeros(2))
    state: Any = training.optimizer.state[training.parameters[1]]
    state["exp_avg_sq"][2] = 0.0
    known = Preconditioner.of(training.optimizer)
    assert known is not None
    asked = [still, training.parameters[1]]
    (first,), (second,) = known.divided(asked, [torch.ones(2), torch.ones(4)])
    assert first.tolist() == [0.0, 0.0]
    assert second[2] == 0.0
    assert (second[:2] > 0).all()


class Told(GradientNoise):
    """Notes what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[float, float, dict[str, Any]]] = []

    def measured(self, local: float, mean: float, **more: Any) -> None:
        self.told.append((local, mean, more))

    def measured_in_a_row(self, local: float, mean: float, **more: Any) -> None:
        self.told.append((local, mean, more))


class Line(torch.nn.Module):
    """Its gradient is the mean of what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x * self.weight).sum(1).mean()


class Measured:
    """A line under Adam, whose squared gradients have a known mean."""

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


def test_passes_of_a_step_are_compared_divided() -> None:
    training = Measured()
    for _ in range(5):
        single = training.step(passes=3)
    local, mean, more = training.noise.told[-1]
    assert not more["divided"]  # the fifth step, after four
    assert mean == pytest.approx(sqr(training.means[-1]), rel=1e-5)
    assert local == pytest.approx(sum(map(sqr, single)) / 3, rel=1e-5)
    single = training.step(passes=3)
    divisor = training.divisor()
    local, mean, more = training.noise.told[-1]
    assert more["divided"]
    assert more["count"] == 3
    assert mean == pytest.approx(sqr(training.means[-1] / divisor), rel=1e-4)
    assert local == pytest.approx(sum(sqr(each / divisor) for each in single) / 3, rel=1e-4)


def test_gradients_that_mixed_precision_has_enlarged_count_as_they_are() -> None:
    for passes in (1, 2):
        plain, enlarged = Measured(), Measured()
        for _ in range(2):  # two steps in a row, or two passes
            plain.step(passes)
            enlarged.step(passes, factor=8.0)
        (local, mean, _), (same_local, same_mean, _) = plain.noise.told[-1], enlarged.noise.told[-1]
        assert (same_local, same_mean) == pytest.approx((local, mean), rel=1e-5)


def test_two_steps_in_a_row_are_compared_by_the_same_divisors() -> None:
    training = Measured()
    for _ in range(8):
        training.step()
    now, before, divisor = *reversed(training.means[-2:]), training.divisor()
    local, mean, more = training.noise.told[-1]
    assert more["divided"]
    expected = (sqr(now / divisor) + sqr(before / divisor)) / 2
    assert local == pytest.approx(expected, rel=1e-4)
    assert mean == pytest.approx(sqr((now + before) / 2 / divisor), rel=1e-4)


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[None]:
    """A process group of this process."""
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("alone")
def test_gradients_of_ranks_are_divided_before_they_are_averaged() -> None:
    training = Measured(replicas=2, wrap=DistributedDataParallel)
    for _ in range(7):
        training.step()
    expected = sqr(training.means[-1] / training.divisor())
    local, mean, more = training.noise.told[-1]
    assert (more["divided"], more["count"]) == (True, 2)
    assert 2 * local == pytest.approx(
        expected, rel=1e-4
    )  # the sum over ranks, of which one is here
    assert 2 * mean == pytest.approx(expected, rel=1e-4)
