"""A small sharded training that the tests run as ranks; all ranks learn from the same samples."""

from __future__ import annotations

import sys
import warnings
from typing import Any

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.nn.parallel import DistributedDataParallel

from dlsched.job import attach
from dlsched.job.torch import init_process_group, register_training


def main() -> None:
    """Train up to a step, as `SHARDING STEPS` say; print the first step and the sum of weights."""
    sharding, steps = sys.argv[1], int(sys.argv[2])
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with attach(folder="ckpt", every_s=None) as job:
        init_process_group(job, "gloo")
        net = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Tanh(), torch.nn.Linear(7, 1))
        draw = torch.Generator().manual_seed(1)
        x, y = torch.randn(16, 5, generator=draw), torch.randn(16, 1, generator=draw)
        model: Any
        optimizer: Any
        if sharding == "fsdp2":
            model = fully_shard(net, mesh=init_device_mesh("cpu", (job.world_size,)))
        elif sharding == "fsdp1":
            model = FullyShardedDataParallel(net, device_id=torch.device("cpu"))
        else:
            model = DistributedDataParallel(net)
        if sharding == "zero":
            from torch.distributed.optim import ZeroRedundancyOptimizer  # noqa: PLC0415  # warns

            optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=0.05)
        else:
            optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 4, 0.5)
        register_training(job, model=model, optimizer=optimizer, schedule=schedule)
        first = job.restore()
        for _ in range(first, steps):
            optimizer.zero_grad()
            loss: Any = torch.nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            schedule.step()
            job.step()
        job.save()
        with torch.no_grad():
            print(first, repr(float(model(x).sum())), schedule.last_epoch)
        torch.distributed.barrier()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a build without numpy, and of FSDP on CPUs
        main()
