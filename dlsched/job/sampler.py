"""Every sample once in each epoch, for any number of ranks, even when it changes within the epoch.

An epoch is a permutation that depends on seed and epoch alone, and a position in it that all ranks
share. Rank r of K takes every K-th sample from the position on, beginning with the r-th. So a step
of K ranks takes a whole block, and a restart with another K continues right after it.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import BinaryIO

from dlsched.job.errors import JobError


class ElasticSampler:
    """The samples of one rank; iterating over it does not move the position, `batches` does.

    Args:
        length: of the data set.
        rank: of this process.
        world_size: how many ranks share the samples.
        seed: of the order.
        shuffle: whether the order differs from that of the data set.
        pad: give all ranks equally many samples, as collectives need, by repeating up to K-1 of
            them at an epoch's end; else each sample is used exactly once.
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
        """Begin with the first sample of epoch 0."""
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
        """Give the indices for this rank, from the position to the end of the epoch."""
        rest = self.order()[self.consumed :]
        missing = -len(rest) % self.world_size if self.pad else 0
        rest += (rest * missing)[:missing]
        return iter(rest[self.rank :: self.world_size])

    def __len__(self) -> int:
        """Return the number of these indices."""
        rest = self.length - self.consumed
        if self.pad:
            return len(range(0, rest, self.world_size))
        return len(range(self.rank, rest, self.world_size))

    def batches(self, size: int, *, epochs: int | None = None) -> Iterator[list[int]]:
        """Give this rank's batches of `size` from the position on, until `epochs` epochs are over.

        A batch counts as used when it is given: `job.step` after it saves the right position. The
        last batch of an epoch may be smaller.
        """
        while epochs is None or self.epoch < epochs:
            mine = list(self)
            steps = len(range(self.consumed, self.length, size * self.world_size))
            for step in range(steps):
                self.advance(size)
                yield mine[step * size : (step + 1) * size]

    def advance(self, size: int) -> None:
        """Move the position: all ranks have used `size` samples each. The next epoch may begin."""
        self.consumed += size * self.world_size
        if self.consumed >= self.length:
            self.epoch += 1
            self.consumed = 0

    def order(self) -> list[int]:
        """Return all indices of the epoch, in the order that all ranks share."""
        if self._order is None or self._order[0] != self.epoch:
            indices = list(range(self.length))
            if self.shuffle:
                random.Random(f"{self.seed}/{self.epoch}").shuffle(indices)
            self._order = (self.epoch, indices)
        return list(self._order[1])

    # -- as a state of the checkpoint --------------------------------------------------------------

    def save(self, file: BinaryIO) -> None:
        """Write the position to a file."""
        position = {name: getattr(self, name) for name in ("epoch", "consumed", "length", "seed")}
        file.write(json.dumps(position).encode())

    def load(self, file: BinaryIO) -> None:
        """Read the position of another run, of any number of ranks, from a file.

        Raises:
            JobError: when the checkpoint belongs to a data set of another length.
        """
        position = json.loads(file.read())
        if position["length"] != self.length:
            raise JobError(
                f"the checkpoint is of {position['length']} samples, the data has {self.length}"
            )
        self.seed, self.epoch = position["seed"], position["epoch"]
        self.consumed = position["consumed"]
        self._order = None
