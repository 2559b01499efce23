"""The training of ordinary.py, which the scheduler may now stop, move and continue.

dlsched submit --gpus 2 --launch node -- python -m dlsched.job.torchrun preemptible.py
"""

from __future__ import annotations

import argparse
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from dlsched.job import Job, attach
from dlsched.job.torch import ResumableLoader, register_training


def waves(count: int) -> TensorDataset:
    """Points of a line and a curve over it."""
    draw = torch.Generator().manual_seed(1)
    x = 6 * torch.rand(count, 1, generator=draw) - 3
    return TensorDataset(x, torch.sin(2 * x) + 0.1 * torch.randn(count, 1, generator=draw))


def main(given: argparse.Namespace, job: Job) -> None:
    """Train."""
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    device = torch.device(
        f"cuda:{os.environ['LOCAL_RANK']}" if torch.cuda.is_available() else "cpu"
    )
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Linear(1, 64), torch.nn.Tanh(), torch.nn.Dropout(0.1), torch.nn.Linear(64, 1)
    )
    model = DistributedDataParallel(net.to(device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100)
    scaler = torch.amp.GradScaler(device.type, enabled=device.type == "cuda")
    data = waves(given.samples)
    loader = ResumableLoader(job, DataLoader(data, given.batch, sampler=DistributedSampler(data)))
    register_training(job, model=model, optimizer=optimizer, schedule=schedule, scaler=scaler)
    job.restore()
    for epoch in loader.epochs(given.epochs):
        for number, (x, y) in enumerate(loader):
            with torch.autocast(device.type, dtype=torch.bfloat16):
                found = model(x.to(device))
            loss = torch.nn.functional.mse_loss(found.float(), y.to(device)) / given.passes
            scaler.scale(loss).backward()
            if (number + 1) % given.passes == 0:
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad()
                schedule.step()
                job.step(loss=loss.item())
        if dist.get_rank() == 0:
            print(f"epoch {epoch} rate {schedule.get_last_lr()[0]:.6f}", flush=True)
    if dist.get_rank() == 0:
        print("weights", sum(each.double().sum().item() for each in net.parameters()), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Learn a curve, on several ranks.")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--samples", type=int, default=2048)
    parser.add_argument("--batch", type=int, default=32, help="of each rank")
    parser.add_argument("--passes", type=int, default=2, help="whose gradients make a step")
    with attach() as job:
        main(parser.parse_args(), job)
