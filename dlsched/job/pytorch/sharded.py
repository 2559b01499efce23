"""Trainings of PyTorch that keep a part of their state on each rank, as states of checkpoints.

FSDP and tensor parallelism shard the weights, ZeroRedundancyOptimizer the state of the optimiser.
All ranks together save and load such a state; the number of ranks may be another one each time.
Only `register_training` imports this module, when a part of the training is sharded.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan, ReadItem
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_loader import load as load_shards
from torch.distributed.checkpoint.state_dict_saver import save as save_shards

from dlsched.job.job import Job


def register_sharded(job: Job, model: Any, optimizers: list[Any]) -> None:
    """Make sharded weights and the state of their optimisers a state of each checkpoint."""

    def states() -> dict[str, Any]:
        weights, optimizer_state = get_state_dict(model, optimizers)
        return {"model": weights, "optimizer": optimizer_state}

    planner: list[DefaultLoadPlanner] = [_ReadsNoTensors()]  # of the first save only

    def save(folder: Path) -> list[str]:
        save_shards(states(), checkpoint_id=folder)
        if planner:
            load_shards(states(), checkpoint_id=folder, planner=planner[0])
            planner.clear()
        own = [path.name for path in folder.glob(f"__{job.rank}_*")]
        return own if job.rank else [".metadata", *own]

    def load(folder: Path) -> None:
        found = states()
        planner = DefaultLoadPlanner(flatten_sharded_tensors=False)  # else it fails with FSDP1
        load_shards(found, checkpoint_id=folder, planner=planner)
        set_state_dict(
            model,
            optimizers,
            model_state_dict=found["model"],
            optim_state_dict=found["optimizer"],
        )

    job.checkpoint.register_shards("shards", save=save, load=load)


class _ReadsNoTensors(DefaultLoadPlanner):
    """Reads back a checkpoint as a restore does, but changes nothing and reads no tensors."""

    def __init__(self) -> None:
        """Plan as a restore does."""
        super().__init__(flatten_sharded_tensors=False)

    def create_local_plan(self) -> LoadPlan:
        """Return a restore's plan, which names what is missing, without the tensors."""
        plan = super().create_local_plan()
        items = [each for each in plan.items if each.type == LoadItemType.BYTE_IO]
        return replace(plan, items=items)

    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        """Read a value that is no tensor, and drop it."""
        torch.load(value, weights_only=False)


def register_gathered(
    job: Job,
    optimizer: Any,
    save: Callable[[BinaryIO], object],
    load: Callable[[BinaryIO], object],
) -> None:
    """Make a training a state of each checkpoint whose optimiser's state rank 0 gathers first.

    Args:
        job: this process.
        optimizer: a ZeroRedundancyOptimizer.
        save: writes the whole training to a file, on rank 0.
        load: reads it, on all ranks.
    """

    def gather(folder: Path) -> list[str]:
        optimizer.consolidate_state_dict(to=0)
        if dist.get_rank() != 0:
            return []
        with (folder / "gathered").open("wb") as file:
            save(file)
            file.flush()
            os.fsync(file.fileno())
        return ["gathered"]

    def spread(folder: Path) -> None:
        with (folder / "gathered").open("rb") as file:
            load(file)

    job.checkpoint.register_shards("training", save=gather, load=spread)
