"""An interrupted epoch has the batches of one that is not: any workers, order, epoch and stop."""

from __future__ import annotations

import importlib.util

import pytest

if importlib.util.find_spec("torch") is None:
    pytest.skip("PyTorch is not installed", allow_module_level=True)

pytestmark = pytest.mark.slow
ORDERS = ["shuffle", "shuffle with a generator", "sampler with a generator", "sampler",
          "batch sampler"]  # fmt: skip
WORKERS = ["none", "workers", "workers that stay", "one that stays"]


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_an_interrupted_epoch_has_the_batches_of_a_whole_one(order: str, workers: str) -> None:
    from .loader_orders import check  # noqa: PLC0415 - it loads PyTorch

    check("torch", order, workers)


@pytest.mark.parametrize("workers", WORKERS[:3])
@pytest.mark.parametrize("order", [ORDERS[0], ORDERS[1], ORDERS[4]])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_loader_of_accelerate_has_them_too(order: str, workers: str) -> None:
    if importlib.util.find_spec("accelerate") is None:
        pytest.skip("accelerate is not installed: pip install 'dlsched[frameworks]'")
    from .loader_orders import check  # noqa: PLC0415 - it loads PyTorch

    check("accelerate", order, workers)
