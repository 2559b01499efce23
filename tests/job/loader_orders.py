"""Goes over the data of loaders, whole and with stops, and compares the batches."""

from __future__ import annotations

import io
import random
from collections.abc import Callable, Iterator
from typing import Any, cast

import torch
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, Sampler

from dlsched.job.pytorch.loading import generators, set_generators
from dlsched.job.pytorch.resumable import ResumableLoader

DATA, BATCHES, EPOCHS = list(range(10)), 5, 3
Options = dict[str, Any]  # of a DataLoader
Make = Callable[["StandIn", Options], ResumableLoader]
Given = tuple[int, list[int]]  # the epoch and the samples of a batch


class StandIn:
    """What a loader asks of a job, in one process."""

    def __init__(self) -> None:
        self.checkpoint, self.stopped, self.world_size = self, False, 1
        self.epoch = self.batch = 0
        self.save: dict[str, Callable[..., None]] = {}
        self.load: dict[str, Callable[..., None]] = {}

    def register(self, name: str, **both: Any) -> None:
        self.save[name], self.load[name] = both["save"], both["load"]

    def register_shards(self, name: str, **both: Any) -> None:
        """Keep no folder: the loader's own state is looked at."""


class Backwards(Sampler[int]):
    """An order of the script's own, another one in each epoch."""

    epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        return iter([(place + self.epoch) % 10 for place in reversed(range(10))])

    def __len__(self) -> int:
        return 10


class Remembering(Backwards):
    """An order that depends on the epochs before: by a count and generators of its own."""

    def __init__(self) -> None:
        self.count, self.python = 0, random.Random(4)

    def __iter__(self) -> Iterator[int]:
        self.count += 1
        order = [(place + self.count) % 10 for place in range(10)]
        self.python.shuffle(order)
        return iter(order)


class DrawingForEach:
    """Batches that are drawn one by one from the random numbers of the process."""

    def __iter__(self) -> Iterator[list[int]]:
        for _ in range(BATCHES):
            yield torch.randint(10, (2,)).tolist()

    def __len__(self) -> int:
        return BATCHES


ORDERS: dict[str, Callable[[], dict[str, Any]]] = {
    "shuffle": lambda: {"batch_size": 2, "shuffle": True},
    "shuffle with a generator": lambda: {
        "batch_size": 2, "shuffle": True, "generator": torch.Generator().manual_seed(3),
    },
    "sampler with a generator": lambda: {
        "batch_size": 2, "sampler": RandomSampler(DATA, generator=torch.Generator().manual_seed(7)),
    },
    "sampler": lambda: {"batch_size": 2, "sampler": Backwards()},
    "sampler that remembers": lambda: {"batch_size": 2, "sampler": Remembering()},
    "batch sampler": lambda: {"batch_sampler": BatchSampler(RandomSampler(DATA), 2, False)},
}  # fmt: skip
WORKERS: dict[str, dict[str, Any]] = {
    "none": {},
    "workers": {"num_workers": 2},
    "workers that stay": {"num_workers": 2, "persistent_workers": True},
    "one that stays": {"num_workers": 1, "persistent_workers": True, "prefetch_factor": 4},
}
STOPS = [(epoch, given) for epoch in range(EPOCHS) for given in (1, 3, BATCHES)]  # of the epoch


def go_over(make: Make, order: str, workers: str, stops: list[tuple[int, int]]) -> list[Given]:
    """Give all batches, of a process that is begun anew after each of some batches."""
    found: list[Given] = []
    saved: bytes | None = None
    for stop in [*stops, None]:
        torch.manual_seed(1)
        loader = make(job := StandIn(), ORDERS[order]() | WORKERS[workers])
        if saved is not None:
            job.load["loader"](io.BytesIO(saved))
        more, saved = run(job, loader, stop)
        found += more
        iterator = loader._plain()._iterator
        if loader._plain().num_workers and iterator is not None:  # else they are awaited in vain
            iterator._shutdown_workers()
    return found


def by_torch(job: StandIn, options: Options) -> ResumableLoader:
    return ResumableLoader(cast(Any, job), DataLoader(DATA, **options))


def by_accelerate(job: StandIn, options: Options) -> ResumableLoader:
    from accelerate import Accelerator  # noqa: PLC0415

    from dlsched.job.frameworks.accelerate import AccelerateLoader  # noqa: PLC0415

    accelerator = Accelerator(cpu=True)
    return AccelerateLoader(
        cast(Any, job), accelerator, accelerator.prepare(DataLoader(DATA, **options))
    )


def by_torchdata(job: StandIn, options: Options) -> ResumableLoader:
    from torchdata.stateful_dataloader import StatefulDataLoader  # noqa: PLC0415

    return ResumableLoader(cast(Any, job), StatefulDataLoader(DATA, **options))


def by_timm(job: StandIn, options: Options) -> ResumableLoader:
    """A loader that is one batch ahead; its batches are images of one pixel, and targets."""
    from timm.data.loader import PrefetchLoader  # noqa: PLC0415

    loader = DataLoader(DATA, collate_fn=_images, **options)
    ahead = PrefetchLoader(loader, device=torch.device("cpu"))
    return ResumableLoader(cast(Any, job), ahead)


def timm_loader(kind: str, **more: float) -> ResumableLoader:
    from timm.data import loader as timm  # noqa: PLC0415

    loader: Any = DataLoader(DATA, 2, shuffle=True, collate_fn=_images)
    if kind == "PrefetchLoader":
        loader = timm.PrefetchLoader(loader, device=torch.device("cpu"), **more)
    else:
        loader = timm.MultiEpochsDataLoader(DATA, 2, shuffle=True)
    return ResumableLoader(cast(Any, StandIn()), loader)


class WithState(torch.utils.data.Dataset[int]):
    """A data set that remembers what it was asked for."""

    def __len__(self) -> int:
        return 10

    def __getitem__(self, place: int) -> int:
        return place

    def state_dict(self) -> dict[str, int]:
        return {}

    def load_state_dict(self, state: dict[str, int]) -> None:
        pass


def with_a_state(**options: bool) -> ResumableLoader:
    from torchdata.stateful_dataloader import StatefulDataLoader  # noqa: PLC0415

    loader = StatefulDataLoader(WithState(), 2, num_workers=1, **options)
    return ResumableLoader(cast(Any, StandIn()), loader)


def _images(samples: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.zeros(len(samples), 3, 1, 1, dtype=torch.uint8), torch.tensor(samples)


def run(
    job: StandIn, loader: ResumableLoader, stop: tuple[int, int] | None
) -> tuple[list[Given], bytes | None]:
    """Give the batches that are left, until a stop; returns its checkpoint, too."""
    found: list[Given] = []
    for epoch in loader.epochs(EPOCHS):
        for number, batch in enumerate(loader, job.batch):
            assert (job.epoch, job.batch) == (epoch, number + 1)
            samples = batch if isinstance(batch, torch.Tensor) else batch[1]
            found.append((epoch, samples.tolist()))
            torch.rand(())  # as dropout draws
            if stop == (epoch, number + 1):
                file = io.BytesIO()
                job.save["loader"](file)
                return found, file.getvalue()
    return found, None


def check(library: str, order: str, workers: str) -> None:
    """Compare the batches of interrupted epochs with those of whole ones."""
    make = {
        "torch": by_torch, "accelerate": by_accelerate, "timm": by_timm, "torchdata": by_torchdata,
    }[library]  # fmt: skip
    before = generators()
    try:
        whole = go_over(make, order, workers, [])
        assert len(whole) == EPOCHS * BATCHES
        for stop in STOPS:
            assert go_over(make, order, workers, [stop]) == whole, stop
        assert go_over(make, order, workers, [(0, 2), (1, 1), (1, 4), (2, 2)]) == whole
    finally:
        set_generators(before)


def go_over_lazily(order: dict[str, Any]) -> None:
    """Go over an epoch of a loader."""
    before = generators()
    try:
        for _ in by_torch(StandIn(), order):
            torch.rand(())
    finally:
        set_generators(before)
