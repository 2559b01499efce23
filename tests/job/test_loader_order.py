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
@pytest.mark.parametrize("library", ["accelerate", "torchdata", "timm"])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_loaders_of_libraries_have_them_too(library: str, order: str, workers: str) -> None:
    """accelerate's, torchdata's StatefulDataLoader, and timm's, which is one batch ahead."""
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed: pip install 'dlsched[frameworks]', or timm")
    from .loader_orders import check  # noqa: PLC0415 - it loads PyTorch

    check(library, order, workers)


@pytest.mark.skipif(importlib.util.find_spec("timm") is None, reason="timm is not installed")
@pytest.mark.parametrize(
    ("kind", "more", "said"),
    [
        ("PrefetchLoader", {"re_prob": 0.5}, "draws what it erases .* use use_prefetcher=False"),
        ("MultiEpochsDataLoader", {}, "MultiEpochsDataLoader has no state_dict"),
    ],
)
def test_a_loader_of_timm_that_cannot_be_exact_is_refused(
    kind: str, more: dict[str, float], said: str
) -> None:
    from dlsched.job.errors import JobError  # noqa: PLC0415

    from .loader_orders import timm_loader  # noqa: PLC0415

    with pytest.raises(JobError, match=said):
        timm_loader(kind, **more)


@pytest.mark.skipif(importlib.util.find_spec("torchdata") is None, reason="it is not installed")
@pytest.mark.filterwarnings("ignore")
def test_a_data_set_with_a_state_and_workers_that_stay_are_refused() -> None:
    from dlsched.job.errors import JobError  # noqa: PLC0415

    from .loader_orders import with_a_state  # noqa: PLC0415

    with_a_state(persistent_workers=False)
    with pytest.raises(JobError, match="has a state of its own and workers that stay"):
        with_a_state(persistent_workers=True)


def test_an_order_that_cannot_be_restored_is_told_within_its_first_epoch(
    capsys: pytest.CaptureFixture[str],
) -> None:
    from .loader_orders import ORDERS, DrawingForEach, go_over_lazily  # noqa: PLC0415

    go_over_lazily(ORDERS["shuffle"]())
    assert capsys.readouterr().err == ""
    go_over_lazily({"batch_sampler": DrawingForEach()})
    (line,) = capsys.readouterr().err.splitlines()
    assert "DrawingForEach draws for each batch from the random numbers of the process" in line
