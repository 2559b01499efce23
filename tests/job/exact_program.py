"""A training with everything that could differ after a restart; tells its weights to the last bit.

Workers that draw random numbers, dropout, autocast, accumulation, clipping and schedules. It saves
and ends after a given step of `job.step`, as a preempted training does.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import warnings
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from dlsched.job import attach
from dlsched.job.elastic import ElasticTraining
from dlsched.job.torch import data_loader, init_process_group, register_training

SAMPLES, BATCH, PASSES, EPOCHS = 50, 6, 2, 2


class Noisy(torch.utils.data.Dataset[Any]):
    """Points with noise that is drawn anew each time, by two generators."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, place: int) -> tuple[torch.Tensor, torch.Tensor]:
        x = torch.full((8,), place / SAMPLES) + 0.1 * torch.randn(8)
        return x, torch.tensor([x.sum().item() + random.random()])


def make(rate: float) -> tuple[torch.nn.Module, Any]:
    """Return a network with dropout, and its optimiser."""
    torch.manual_seed(4)
    layers = [torch.nn.Linear(8, 32), torch.nn.Tanh(), torch.nn.Dropout(0.3)]
    net = torch.nn.Sequential(*layers, torch.nn.Linear(32, 16), torch.nn.Linear(16, 1))
    return net, torch.optim.AdamW(net.parameters(), lr=rate)


def loss_of(model: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return the loss of a pass, computed with lower precision."""
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found: torch.Tensor = torch.nn.functional.mse_loss(model(x).float(), y)
    return found


def plain(job: Any, given: Any) -> torch.nn.Module:
    """Train in a loop of the script's own, which calls `step` after each pass."""
    net, optimizer = make(0.01)
    model: Any = net
    if job.world_size > 1:
        model = DistributedDataParallel(net)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.7)
    register_training(job, model=model, optimizer=optimizer, schedule=schedule)
    sampler = job.sampler(SAMPLES, seed=2)
    job.restore()
    torch.manual_seed(job.rank) if job.steps == 0 else None
    loader = data_loader(Noisy(), sampler, BATCH, num_workers=given.workers)
    while sampler.epoch < EPOCHS:
        for x, y in loader:
            sampler.advance(BATCH)
            last = job.steps % PASSES == PASSES - 1
            if job.world_size > 1:
                model.require_backward_grad_sync = last
            (loss_of(model, x, y) / PASSES).backward()  # type: ignore[no-untyped-call]
            if last:
                torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
            job.step()
            leave(job, given)
    return net


def elastic(job: Any, given: Any) -> torch.nn.Module:
    """Train with `ElasticTraining`."""
    net, optimizer = make(0.01)
    training = ElasticTraining(
        job, net, optimizer, Noisy(), batch_size=BATCH * PASSES * job.world_size,
        local=(1, BATCH), fixed=True, seed=2,
        loader={"num_workers": given.workers},
        schedules=[torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.7)],
        epoch_schedules=[torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)],
        before_step=lambda: torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5),
    )  # fmt: skip
    job.restore()
    torch.manual_seed(job.rank) if job.steps == 0 else None
    for epoch in training.epochs(EPOCHS):
        batches = 0
        for x, y in training.batches():
            batches += 1
            training.step(loss_of(training.model, x, y))
            if training.stepped:
                leave(job, given)
        print("epoch", epoch, batches > 0)
    return net


def leave(job: Any, given: Any) -> None:
    """Save and end after the given step; in the background it is saved one step before."""
    if job.steps == given.leave:
        if not given.background:
            job.save()
        raise SystemExit(7)


def train(given: Any) -> None:
    """Train with the given kind of loop; print the number of steps and the sum of the weights."""
    every = given.leave - 1 if given.background else None
    with attach(
        folder=given.folder, every_s=None, every_steps=every, background=given.background
    ) as job:
        init_process_group(job, "gloo")
        net = (plain if given.kind == "plain" else elastic)(job, given)
        weights = str([each.tolist() for each in net.parameters()])
        print("ends", job.steps, hashlib.sha256(weights.encode()).hexdigest())


def main() -> None:
    """Read the arguments and train."""
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=["plain", "elastic"])
    parser.add_argument("--folder", required=True)
    parser.add_argument("--leave", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--background", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(1)
    try:
        train(given)
    finally:  # also after `leave`: threads of the group must not outlive the interpreter
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of a build without numpy
        main()
