"""The training of ordinary.py, which the scheduler may now stop, move and continue.

dlsched submit --gpus 2 --launch gpu -- python preemptible.py --epochs 4
"""

from __future__ import annotations

import argparse

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, TensorDataset

from dlsched.job import Job, attach
from dlsched.job.frameworks.accelerate import AccelerateLoader


def waves(count: int) -> TensorDataset:
    """Points of a line and a curve over it."""
    draw = torch.Generator().manual_seed(1)
    x = 6 * torch.rand(count, 1, generator=draw) - 3
    return TensorDataset(x, torch.sin(2 * x) + 0.1 * torch.randn(count, 1, generator=draw))


def main(given: argparse.Namespace, job: Job) -> None:
    """Train."""
    accelerator = Accelerator(
        mixed_precision="bf16", gradient_accumulation_steps=given.passes, cpu=given.cpu
    )
    set_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Linear(1, 64), torch.nn.Tanh(), torch.nn.Dropout(0.1), torch.nn.Linear(64, 1)
    )
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 200)
    loader = DataLoader(waves(given.samples), given.batch, shuffle=True)
    model, optimizer, schedule, loader = accelerator.prepare(net, optimizer, schedule, loader)
    loader = AccelerateLoader(job, accelerator, loader)
    loader.restore()
    for epoch in loader.epochs(given.epochs):
        for x, y in loader:
            with accelerator.accumulate(model):
                loss = torch.nn.functional.mse_loss(model(x), y)
                accelerator.backward(loss)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
            if accelerator.sync_gradients:
                job.step(loss=loss.item())
        accelerator.print(f"epoch {epoch} rate {schedule.get_last_lr()[0]:.6f}", flush=True)
    weights = accelerator.unwrap_model(model).parameters()
    accelerator.print("weights", sum(each.double().sum().item() for each in weights), flush=True)
    accelerator.end_training()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Learn a curve, on several ranks.")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--samples", type=int, default=2048)
    parser.add_argument("--batch", type=int, default=32, help="of each rank")
    parser.add_argument("--passes", type=int, default=2, help="whose gradients make a step")
    parser.add_argument("--cpu", action="store_true", help="also where there are GPUs")
    with attach() as job:
        main(parser.parse_args(), job)
