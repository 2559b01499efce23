"""How the ranks of a PyTorch training tell each other where they are, for the agreed stop.

Imported only by a step of a job that has made a process group.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from dlsched.job.agreement import NOTHING, Words

__all__ = ["GroupExchange"]


class GroupExchange:
    """A few numbers of each rank, gathered on the CPU beside the training's collectives."""

    def __init__(self) -> None:
        self._group = dist.new_group(backend="gloo")
        self._size = dist.get_world_size()
        self._waiting: list[tuple[Any, list[torch.Tensor]]] = []

    def post(self, words: Words) -> None:
        """Say mine; the gathering goes on beside the next step."""
        mine = torch.tensor(words, dtype=torch.int64)
        gathered = [torch.zeros(len(NOTHING), dtype=torch.int64) for _ in range(self._size)]
        work = dist.all_gather(gathered, mine, group=self._group, async_op=True)
        self._waiting.append((work, gathered))

    def collect(self) -> Sequence[Words]:
        """What each rank has said."""
        work, gathered = self._waiting.pop(0)
        work.wait()
        found: list[Words] = [tuple(each.tolist()) for each in gathered]
        return found

    def close(self) -> None:
        """Wait for what is still on its way: every rank has posted it."""
        while self._waiting:
            self.collect()
