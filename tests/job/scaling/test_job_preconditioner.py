"""Gradients divided as Adam divides them, against the formulas written out."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs PyTorch"),
]


@pytest.fixture(scope="module")
def adam() -> ModuleType:
    """The trainings; they import PyTorch, which collecting the tests does not."""
    return importlib.import_module("tests.job.scaling.adam_trainings")


@pytest.mark.parametrize(
    ("optimizer", "options"),
    [
        ("Adam", {}),
        ("AdamW", {"weight_decay": 0.0}),
        ("Adam", {"amsgrad": True}),
        ("NAdam", {}),
    ],
    ids=["adam", "adamw", "amsgrad", "nadam"],
)
def test_gradients_are_divided_by_the_root_of_the_corrected_mean_square(
    adam: ModuleType, optimizer: str, options: dict[str, Any]
) -> None:
    training = adam.Training(getattr(adam.torch.optim, optimizer), **options)
    known = adam.Preconditioner.of(training.optimizer)
    assert known is not None
    for _ in range(5):
        assert not known.is_ready
        training.step()
    assert known.is_ready
    fresh = training.gradients()
    divided = [part for (part,) in known.divided(training.parameters, fresh)]
    divisors = training.divisors(largest=bool(options.get("amsgrad")))
    for found, gradient, divisor in zip(divided, fresh, divisors, strict=True):
        adam.torch.testing.assert_close(found, gradient / divisor)


def test_only_optimisers_of_adam_s_family_divide_gradients(adam: ModuleType) -> None:
    parameter = adam.torch.nn.Parameter(adam.torch.ones(2))
    assert adam.Preconditioner.of(adam.torch.optim.SGD([parameter], lr=0.1)) is None
    odd = adam.torch.optim.Adamax([parameter], lr=0.1)  # has no mean of squares
    known = adam.Preconditioner.of(odd)
    for _ in range(6):
        parameter.grad = adam.torch.ones(2)
        odd.step()
    assert known is not None
    assert not known.is_ready


def test_a_parameter_without_gradients_has_no_divisor_and_does_not_count(adam: ModuleType) -> None:
    training = adam.Training()
    for _ in range(5):
        training.step()
    still = adam.torch.nn.Parameter(adam.torch.zeros(2))
    state: Any = training.optimizer.state[training.parameters[1]]
    state["exp_avg_sq"][2] = 0.0
    known = adam.Preconditioner.of(training.optimizer)
    assert known is not None
    asked = [still, training.parameters[1]]
    (first,), (second,) = known.divided(asked, [adam.torch.ones(2), adam.torch.ones(4)])
    assert first.tolist() == [0.0, 0.0]
    assert second[2] == 0.0
    assert (second[:2] > 0).all()


def test_passes_of_a_step_are_compared_divided(adam: ModuleType) -> None:
    training = adam.Measured()
    for _ in range(5):
        single = training.step(passes=3)
    local, mean, more = training.noise.told[-1]
    assert not more["divided"]  # the fifth step, after four
    assert mean == pytest.approx(adam.sqr(training.means[-1]), rel=1e-5)
    assert local == pytest.approx(sum(map(adam.sqr, single)) / 3, rel=1e-5)
    single = training.step(passes=3)
    divisor = training.divisor()
    local, mean, more = training.noise.told[-1]
    assert more["divided"]
    assert more["count"] == 3
    assert mean == pytest.approx(adam.sqr(training.means[-1] / divisor), rel=1e-4)
    assert local == pytest.approx(sum(adam.sqr(each / divisor) for each in single) / 3, rel=1e-4)


def test_gradients_that_mixed_precision_has_enlarged_count_as_they_are(adam: ModuleType) -> None:
    for passes in (1, 2):
        plain, enlarged = adam.Measured(), adam.Measured()
        for _ in range(2):  # two steps in a row, or two passes
            plain.step(passes)
            enlarged.step(passes, factor=8.0)
        (local, mean, _), (same_local, same_mean, _) = plain.noise.told[-1], enlarged.noise.told[-1]
        assert (same_local, same_mean) == pytest.approx((local, mean), rel=1e-5)


def test_two_steps_in_a_row_are_compared_by_the_same_divisors(adam: ModuleType) -> None:
    training = adam.Measured()
    for _ in range(8):
        training.step()
    now, before, divisor = *reversed(training.means[-2:]), training.divisor()
    local, mean, more = training.noise.told[-1]
    assert more["divided"]
    expected = (adam.sqr(now / divisor) + adam.sqr(before / divisor)) / 2
    assert local == pytest.approx(expected, rel=1e-4)
    assert mean == pytest.approx(adam.sqr((now + before) / 2 / divisor), rel=1e-4)


@pytest.fixture
def alone(adam: ModuleType, tmp_path: Path) -> Iterator[None]:
    """A process group of this process."""
    adam.torch.distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1
    )
    yield
    adam.torch.distributed.destroy_process_group()


@pytest.mark.usefixtures("alone")
def test_gradients_of_ranks_are_divided_before_they_are_averaged(adam: ModuleType) -> None:
    training = adam.Measured(replicas=2, wrap=adam.torch.nn.parallel.DistributedDataParallel)
    for _ in range(7):
        training.step()
    expected = adam.sqr(training.means[-1] / training.divisor())
    local, mean, more = training.noise.told[-1]
    assert (more["divided"], more["count"]) == (True, 2)
    assert 2 * local == pytest.approx(
        expected, rel=1e-4
    )  # the sum over ranks, of which one is here
    assert 2 * mean == pytest.approx(expected, rel=1e-4)
