"""PyTorch's DistributedDataParallel on CPUs: a gang that is stopped, moved and resized as one.

All ranks stop after the same step, and the next run, with the same number of ranks or another one,
continues there. With the same number, the losses of all runs together are those of a run without
interruption, to the last digit. `--losses FILE` collects them.

    torchrun --nproc-per-node 2 gloo_gang.py --epochs 4
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from dlsched.job import attach
from dlsched.job.torch import init_process_group, register_training


def waves(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Points of a line and a curve over it."""
    draw = torch.Generator().manual_seed(1)
    x = 6 * torch.rand(count, 1, generator=draw) - 3
    return x, torch.sin(2 * x) + 0.1 * torch.randn(count, 1, generator=draw)


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser(description="Learn a curve, on several ranks.")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch", type=int, default=32, help="of each rank")
    parser.add_argument("--samples", type=int, default=2048)
    parser.add_argument("--pause", type=float, default=0.0, help="seconds to sleep a step")
    parser.add_argument("--folder", help="of the checkpoints, where no scheduler names one")
    parser.add_argument("--losses", help="file that gets a line a step")
    given = parser.parse_args()

    torch.manual_seed(0)
    torch.set_num_threads(1)
    with (
        attach(folder=given.folder, every_s=30) as job,
        open(given.losses or os.devnull, "a", buffering=1) as losses,
    ):
        init_process_group(job, "gloo")
        net = torch.nn.Sequential(
            torch.nn.Linear(1, 64), torch.nn.Tanh(), torch.nn.Dropout(0.1), torch.nn.Linear(64, 1)
        )
        model = DistributedDataParallel(net)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        sampler = job.sampler(given.samples)
        register_training(job, model=model, optimizer=optimizer)
        first = job.restore()
        if job.rank == 0:
            print(f"run {job.checkpoint.run}: {job.world_size} ranks from step {first}", flush=True)
        x, y = waves(given.samples)
        for chosen in sampler.batches(given.batch, epochs=given.epochs):
            loss: Any = torch.nn.functional.mse_loss(model(x[chosen]), y[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(given.pause)
            if job.rank == 0:
                print(job.steps, repr(loss.item()), file=losses)
            if not job.step(loss=loss.item()):
                print(f"rank {job.rank}: leaving after step {job.steps}", flush=True)
                break
        else:
            print(f"rank {job.rank}: done after step {job.steps}", flush=True)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of a build without numpy
        main()
