"""The exchange of the agreement through the process group of a PyTorch training.

Only a step of a job that has made a process group imports it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from dlsched.job.gang.agreement import NOTHING, Numbers


class GroupExchange:
    """Gathers a few numbers of each rank on the CPU, beside the training's collectives."""

    def __init__(self) -> None:
        """Make a group of its own; all ranks do so at the same point of the program."""
        self._group = dist.new_group(backend="gloo")
        self._size = dist.get_world_size()
        self._waiting: list[tuple[Any, list[torch.Tensor]]] = []

    def post(self, numbers: Numbers) -> None:
        """Send this rank's numbers; they are gathered during the next step."""
        mine = torch.tensor(numbers, dtype=torch.int64)
        gathered = [torch.zeros(len(NOTHING), dtype=torch.int64) for _ in range(self._size)]
        work = dist.all_gather(gathered, mine, group=self._group, async_op=True)
        self._waiting.append((work, gathered))

    def collect(self) -> Sequence[Numbers]:
        """Return the numbers of each rank, in order of rank."""
        work, gathered = self._waiting.pop(0)
        work.wait()
        found: list[Numbers] = [tuple(each.tolist()) for each in gathered]
        return found

    def close(self) -> None:
        """Collect what is still being gathered: every rank has posted it."""
        while self._waiting:
            self.collect()
