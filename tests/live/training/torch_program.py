"""A training with PyTorch whose ranks see the same data, so that their number changes no weight."""

from __future__ import annotations

import sys

import torch
from torch.nn.parallel import DistributedDataParallel

from dlsched.job import attach
from dlsched.job.torch import init_process_group, register_training


def main(steps: int) -> None:
    """Train for so many steps."""
    torch.manual_seed(1)
    torch.set_num_threads(1)
    net = torch.nn.Linear(4, 1)
    data = torch.arange(32.0).reshape(8, 4) / 32
    with attach(every_s=None, every_steps=1) as job:
        init_process_group(job)
        model = DistributedDataParallel(net)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        register_training(job, model=model, optimizer=optimizer)
        first = job.restore()
        for _ in range(first, steps):
            optimizer.zero_grad()
            loss = model(data).square().mean()
            loss.backward()
            optimizer.step()
            if not job.step(loss=loss.item()):
                break
        if job.rank == 0:
            total = sum(float(each.sum()) for each in net.parameters())
            print(f"from {first} on {job.world_size}: {total:.6f}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
