"""Goes over the data of a loader; stops itself after a step; tells the samples and the noise."""

from __future__ import annotations

import argparse
import os
import signal
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, RandomSampler, Sampler

from dlsched.job import Job, attach
from dlsched.job.pytorch.resumable import ResumableLoader


class Backwards(Sampler[int]):
    """A sampler of the script's own, with another order in each epoch."""

    epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        return iter([(place + self.epoch) % 10 for place in reversed(range(10))])

    def __len__(self) -> int:
        return 10


class Stream(IterableDataset):  # type: ignore[type-arg]  # as torch has it
    """Ten numbers in each epoch."""

    place = 0

    def __iter__(self) -> Iterator[int]:
        while self.place < 10:
            self.place += 1
            yield self.place - 1
        self.place = 0


class StatefulStream(Stream):
    def state_dict(self) -> dict[str, Any]:
        return {"place": self.place}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.place = state["place"]


def loader_of(kind: str) -> Any:
    """Return a loader over ten numbers in batches of two."""
    data = list(range(10))
    match kind:
        case "shuffle":
            return DataLoader(data, 2, shuffle=True)
        case "workers":
            return DataLoader(data, 2, shuffle=True, num_workers=2)
        case "generator":
            own = torch.Generator().manual_seed(7)
            return DataLoader(data, 2, sampler=RandomSampler(data, generator=own))
        case "sampler":
            return DataLoader(data, 2, sampler=Backwards())
        case "batch-sampler":
            return DataLoader(data, batch_sampler=BatchSampler(Backwards(), 2, drop_last=False))
        case "stream":
            return DataLoader(StatefulStream(), 2)
        case "stateful":
            from torchdata.stateful_dataloader import StatefulDataLoader  # noqa: PLC0415

            return StatefulDataLoader(data, 2, shuffle=True)
        case "no-state":
            return DataLoader(Stream(), 2)
        case "stream-workers":
            return DataLoader(StatefulStream(), 2, num_workers=2)
        case "no-batches":
            return DataLoader(data, batch_size=None)
    raise ValueError(kind)


def step(job: Job, stop: int) -> None:
    """Count a step, after which a stop is wanted or not."""
    if job.steps + 1 == stop:
        os.kill(os.getpid(), signal.SIGTERM)
    job.step()


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser()
    parser.add_argument("kind")
    parser.add_argument("--stop", type=int, default=0)
    parser.add_argument("--step-between", action="store_true", help="a step is an epoch")
    given = parser.parse_args()
    torch.manual_seed(5)
    with attach(folder="ckpt" if given.stop >= 0 else None, every_s=None) as job:
        loader = ResumableLoader(job, loader_of(given.kind))
        job.restore()
        for epoch in loader.epochs(3):
            for batch in loader:
                print(epoch, batch.tolist(), f"{torch.rand(()).item():.6f}", flush=True)
                if not given.step_between:
                    step(job, given.stop)
            if given.step_between:
                step(job, given.stop)


if __name__ == "__main__":
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of a build without numpy
        main()
