"""A training of four layers on several ranks; tells its last weights to the last bit.

python bucket_program.py FOLDER STEPS: saves after the last step.
"""

from __future__ import annotations

import hashlib
import sys
from itertools import pairwise

import torch
from torch.nn.parallel import DistributedDataParallel

from dlsched.job import attach
from dlsched.job.torch import init_process_group, register_training

SIZES = (3, 64, 48, 33, 1)  # enough for some sums to be rounded otherwise in another order

folder, steps = sys.argv[1], int(sys.argv[2])
torch.manual_seed(0)
torch.set_num_threads(1)
layers = [torch.nn.Linear(a, b) for a, b in pairwise(SIZES)]
net = torch.nn.Sequential(*(each for layer in layers for each in (layer, torch.nn.Tanh())))
with attach(folder=folder, every_s=None) as job:
    init_process_group(job, "gloo")
    model = DistributedDataParallel(net, gradient_as_bucket_view=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    register_training(job, model=model, optimizer=optimizer)
    for step in range(job.restore(), steps):
        x = torch.randn(16, 3, generator=torch.Generator().manual_seed(100 * step + job.rank))
        loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        job.step(loss=loss.item())
    job.save()
    weights = str([each.tolist() for each in net.parameters()])
    print(job.steps, hashlib.sha256(weights.encode()).hexdigest())
torch.distributed.destroy_process_group()
