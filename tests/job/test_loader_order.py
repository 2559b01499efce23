"""An interrupted epoch has the batches of one that is not: any workers, order, epoch and stop."""

from __future__ import annotations

import importlib.util

import pytest

if importlib.util.find_spec("torch") is None:
    pytest.skip("PyTorch is not installed", allow_module_level=True)

pytestmark = pytest.mark.slow
ORDERS = ["shuffle", "shuffle with a generator", "sampler with a generator", "sampler",
          "sampler that remembers", "batch sampler"]  # fmt: skip
WORKERS = ["none", "workers", "workers that stay", "one that stays"]


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_an_interrupted_epoch_has_the_batches_of_a_whole_one(order: str, workers: str) -> None:
    from .loader_orders import check  # noqa: PLC0415 - it loads PyTorch

    check("torch", order, workers)


@pytest.mark.parametrize("workers", WORKERS[:3])
@pytest.mark.parametrize(
    "order", ["shuffle", "shuffle with a generator", "sampler that remembers", "batch sampler"]
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_loader_of_accelerate_has_them_too(order: str, workers: str) -> None:
    if importlib.util.find_spec("accelerate") is None:
        pytest.skip("accelerate is not installed: pip install 'dlsched[frameworks]'")
    from .loader_orders import check  # noqa: PLC0415 - it loads PyTorch

    check("accelerate", order, workers)


def test_an_order_that_cannot_be_restored_is_told_within_its_first_epoch(
    capsys: pytest.CaptureFixture[str],
) -> None:
    from .loader_orders import ORDERS, DrawingForEach, go_over_lazily  # noqa: PLC0415

    go_over_lazily(ORDERS["shuffle"]())
    assert capsys.readouterr().err == ""
    go_over_lazily({"batch_sampler": DrawingForEach()})
    (line,) = capsys.readouterr().err.splitlines()
    assert "DrawingForEach draws for each batch from the random numbers of the process" in line
