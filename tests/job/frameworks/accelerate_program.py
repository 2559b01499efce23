"""A network under accelerate that is given a loader, or saves, in a way that must be refused."""

from __future__ import annotations

import sys

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from dlsched.job import attach
from dlsched.job.frameworks.accelerate import AccelerateLoader

FOLDER, CASE = sys.argv[1], sys.argv[2]


class Endless(IterableDataset):
    def __iter__(self):
        return iter(torch.ones(1, 1) for _ in iter(int, 1))


accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
net = torch.nn.Linear(1, 1)
loader = DataLoader(Endless() if CASE == "endless" else TensorDataset(torch.ones(8, 1)), 2)
model, optimizer, prepared = accelerator.prepare(
    net, torch.optim.SGD(net.parameters(), 0.1), loader
)
with attach(folder=FOLDER, every_s=None) as job:
    resumable = AccelerateLoader(job, accelerator, loader if CASE == "plain" else prepared)
    print("from", resumable.restore())
    for (x,) in resumable:
        with accelerator.accumulate(model):
            accelerator.backward(model(x).mean())
            optimizer.step()
            optimizer.zero_grad()
        job.step()
        job.save()
