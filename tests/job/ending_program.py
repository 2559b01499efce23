"""Trainings as users write them, each with its own way to end; a line a step in the file SEEN."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from pathlib import Path

import torch

from dlsched.job import attach
from dlsched.job.torch import init_process_group, register_training

net = torch.nn.Linear(8, 1)


def learn(seen: Path, step: int, model: torch.nn.Module, pause_s: float) -> None:
    """Do one step; rank 0 notes its number and its run."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    optimizer.zero_grad()
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
    if os.environ.get("RANK", "0") == "0":
        with seen.open("a") as file:
            file.write(f"{os.environ['DLSCHED_RUN']} {step}\n")
    time.sleep(pause_s)


def breaks(seen: Path, steps: int, pause_s: float) -> None:
    """The library under DDP; the loop is left when `step` says no, and the program exits with 0."""
    job = attach()
    init_process_group(job)
    model = torch.nn.parallel.DistributedDataParallel(net)
    register_training(job, model=model)
    for step in range(job.restore(), steps):
        learn(seen, step, model, pause_s)
        if not job.step():
            break
    torch.distributed.destroy_process_group()


def saves(seen: Path, steps: int, pause_s: float) -> None:
    """No library: a handler of SIGTERM saves, and exits with 0."""
    saved = seen.with_suffix(".pt")
    state = torch.load(saved) if saved.exists() else {"step": 0}

    def save(_number: int, _frame: object) -> None:
        torch.save(state, saved)
        sys.exit(0)

    signal.signal(signal.SIGTERM, save)
    for step in range(state["step"], steps):
        learn(seen, step, net, pause_s)
        state["step"] = step + 1


def plain(seen: Path, steps: int, pause_s: float) -> None:
    """No library and no handler, with a checkpoint after each step."""
    saved = seen.with_suffix(".pt")
    first = int(saved.read_text()) if saved.exists() else 0
    for step in range(first, steps):
        learn(seen, step, net, pause_s)
        if os.environ.get("RANK", "0") == "0":
            part = saved.with_suffix(".part")
            part.write_text(str(step + 1))
            part.rename(saved)


def finishes(seen: Path, steps: int, pause_s: float) -> None:
    """The library under DDP; after the training, an evaluation that waits for a file."""
    with attach() as job:
        init_process_group(job)
        model = torch.nn.parallel.DistributedDataParallel(net)
        register_training(job, model=model)
        for step in range(job.restore(), steps):
            learn(seen, step, model, pause_s)
            if not job.step():
                break
    seen.with_suffix(".evaluating").touch()
    while not seen.with_suffix(".go").exists():
        time.sleep(0.05)
    torch.distributed.destroy_process_group()


def main() -> None:
    """Train as the words say."""
    words = argparse.ArgumentParser()
    words.add_argument("way", choices=["breaks", "saves", "plain", "finishes"])
    words.add_argument("seen", type=Path)
    words.add_argument("--steps", type=int, default=1000)
    words.add_argument("--pause", type=float, default=0.05)
    given = words.parse_args()
    torch.set_num_threads(1)
    globals()[given.way](given.seen, given.steps, given.pause)


if __name__ == "__main__":
    main()
