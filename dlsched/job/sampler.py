"""Every sample once an epoch, whatever the number of ranks, also when it changes in the middle.

The epoch is a permutation that depends on seed and epoch alone, and a position in it that all ranks
share. Rank r of K takes every K-th sample from the position on, beginning with its r-th. A step of
K ranks so takes a whole block, and a restart with another K goes on exactly behind it.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import BinaryIO

from dlsched.job.errors import JobError

__all__ = ["ElasticSampler"]


class ElasticSampler:
    """This rank's samples; iterating over it does not move the position, `batches` does.

    Args:
        length: of the data set.
        rank: of this process.
        world_size: how many ranks share the samples.
        seed: of the order.
        shuffle: else the order is that of the data set.
        pad: give all ranks equally many samples by repeating up to K-1 of them at an epoch's end,
            as training with collectives needs; without, each sample is seen exactly once.
    """

    def __init__(
        self,
        length: int,
        *,
        rank: int = 0,
        world_size: int = 1,
        seed: int = 0,
        shuffle: bool = True,
        pad: bool = True,
    ) -> None:
        if length < 1 or world_size < 1 or not 0 <= rank < world_size:
            raise JobError(f"a sampler of {length} samples for rank {rank} of {world_size}")
        self.length = length
        self.rank = rank
        self.world_size = world_size
        self.seed = seed
        self.shuffle = shuffle
        self.pad = pad
        self.epoch = 0
        self.consumed = 0  # samples of this epoch that all ranks together have used
        self._order: tuple[int, list[int]] | None = None  # of an epoch

    def __iter__(self) -> Iterator[int]:
        """Indices for this rank, from the position to the end of the epoch."""
        rest = self.order()[self.consumed :]
        missing = -len(rest) % self.world_size if self.pad else 0
        rest += (rest * missing)[:missing]
        return iter(rest[self.rank :: self.world_size])

    def __len__(self) -> int:
        """How many of them there are."""
        rest = self.length - self.consumed
        if self.pad:
            return len(range(0, rest, self.world_size))
        return len(range(self.rank, rest, self.world_size))

    def batches(self, size: int, *, epochs: int | None = None) -> Iterator[list[int]]:
        """This rank's batches from the position on, until so many epochs are over.

        A batch counts as used when it is handed out: `job.step` after it saves the right position.
        The last one of an epoch may be smaller.
        """
        while epochs is None or self.epoch < epochs:
            mine = list(self)
            steps = len(range(self.consumed, self.length, size * self.world_size))
            for step in range(steps):
                self.advance(size)
                yield mine[step * size : (step + 1) * size]

    def advance(self, size: int) -> None:
        """All ranks have used a batch of so many samples each; an ended epoch begins the next."""
        self.consumed += size * self.world_size
        if self.consumed >= self.length:
            self.epoch += 1
            self.consumed = 0

    def order(self) -> list[int]:
        """The whole epoch as all ranks see it."""
        if self._order is None or self._order[0] != self.epoch:
            indices = list(range(self.length))
            if self.shuffle:
                random.Random(f"{self.seed}/{self.epoch}").shuffle(indices)
            self._order = (self.epoch, indices)
        return list(self._order[1])

    # -- as a state of the checkpoint --------------------------------------------------------------

    def save(self, file: BinaryIO) -> None:
        """Write the position."""
        position = {name: getattr(self, name) for name in ("epoch", "consumed", "length", "seed")}
        file.write(json.dumps(position).encode())

    def load(self, file: BinaryIO) -> None:
        """Go on where another run, of any number of ranks, has been."""
        position = json.loads(file.read())
        if position["length"] != self.length:
            raise JobError(
                f"the checkpoint is of {position['length']} samples, the data has {self.length}"
            )
        self.seed, self.epoch = position["seed"], position["epoch"]
        self.consumed = position["consumed"]
        self._order = None
