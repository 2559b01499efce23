"""Data loaders that continue in the middle of an epoch with the very same samples.

What a data set draws for a sample (an augmentation) depends on seed, epoch and sample alone: not on
the worker that loads it, on what was loaded before, or on the number of ranks. The loader draws no
number of the training's own generators, which dropout uses.
"""

from __future__ import annotations

import random
import signal
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from dlsched.job.sampler import ElasticSampler

Key = tuple[int, int]  # epoch and index of a sample


class SeededDataset(torch.utils.data.Dataset[Any]):
    """A data set whose generators are seeded anew for each sample; indexed by `Key`.

    A data set that loads several samples at once, by `__getitems__`, is seeded once for them.
    """

    def __init__(self, dataset: Any, seed: int) -> None:
        """Take the random numbers of a data set from a seed."""
        self._dataset, self._seed = dataset, seed

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self._dataset)

    def __getitems__(self, keys: Sequence[Key]) -> Any:
        """Return the samples of a batch."""
        own = _generators() if torch.utils.data.get_worker_info() is None else None
        several = getattr(self._dataset, "__getitems__", None)
        try:
            if several:
                self._seed_for(keys[0])
                return several([index for _, index in keys])
            return [self[key] for key in keys]
        finally:
            if own is not None:  # in the process of the training
                set_generators(own)

    def __getitem__(self, key: Key) -> Any:
        """Return a sample."""
        self._seed_for(key)
        return self._dataset[key[1]]

    def _seed_for(self, key: Key) -> None:
        number = random.Random(f"{self._seed}/{key[0]}/{key[1]}").getrandbits(64)
        random.seed(number)
        torch.default_generator.manual_seed(number)
        if "numpy" in sys.modules:
            sys.modules["numpy"].random.seed(number % 2**32)


class Keys(torch.utils.data.Sampler[Key]):
    """The samples of one rank from the position of a sampler to the end of its epoch."""

    def __init__(self, sampler: ElasticSampler) -> None:
        self._sampler = sampler

    def __iter__(self) -> Iterator[Key]:
        return iter(keys_of(self._sampler))

    def __len__(self) -> int:
        return len(self._sampler)


def keys_of(sampler: ElasticSampler) -> list[Key]:
    """Return the samples of this rank from the sampler's position to the end of its epoch."""
    return [(sampler.epoch, index) for index in sampler]


def seeded_loader(dataset: Any, position: ElasticSampler, **options: Any) -> Any:
    """Return a DataLoader with a generator of its own, over keys.

    Args:
        dataset: with a length, indexed by number.
        position: the sampler that has the seed.
        options: of the DataLoader, among them what gives the keys.
    """
    options.setdefault("worker_init_fn", keep_through_stop)
    if "generator" not in options:
        options["generator"] = torch.Generator().manual_seed(position.seed)
    seeded = SeededDataset(dataset, position.seed)
    return torch.utils.data.DataLoader(seeded, **options)


def keep_through_stop(worker: int) -> None:
    """Make a data-loading worker ignore SIGTERM, as `worker_init_fn`: its parent ends it."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def generators() -> dict[str, Any]:
    """Return the states of this process's generators: Python's, PyTorch's and numpy's, if used."""
    state = _generators()
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state()
    return state


def _generators() -> dict[str, Any]:
    state: dict[str, Any] = {"torch": torch.get_rng_state(), "python": random.getstate()}
    if "numpy" in sys.modules:
        kind, keys, *rest = sys.modules["numpy"].random.get_state()
        state["numpy"] = [kind, keys.tolist(), *rest]
    return state


def set_generators(state: dict[str, Any]) -> None:
    """Set the generators of this process to states that `generators` has returned."""
    torch.set_rng_state(state["torch"])
    version, numbers, gauss = state["python"]
    random.setstate((version, tuple(numbers), gauss))
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])
    if "numpy" in state and "numpy" in sys.modules:
        kind, keys, *rest = state["numpy"]
        sys.modules["numpy"].random.set_state((kind, keys, *rest))
