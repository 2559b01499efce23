"""A small elastic training that the tests run as ranks; tells which samples it has seen."""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any

import torch

from dlsched.job import attach
from dlsched.job.elastic import ElasticTraining
from dlsched.job.torch import init_process_group


class Points(torch.utils.data.Dataset):  # type: ignore[type-arg]  # as torch has it
    """Points of a noisy line; each knows its number."""

    def __init__(self, count: int) -> None:
        draw = torch.Generator().manual_seed(3)
        self.x = torch.randn(count, 8, generator=draw)
        self.y = self.x.sum(1, keepdim=True) + torch.randn(count, 1, generator=draw)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, place: int) -> tuple[int, torch.Tensor, torch.Tensor]:
        return place, self.x[place], self.y[place]


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder")
    parser.add_argument("--seen", required=True)
    parser.add_argument("--samples", type=int, default=960)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch", type=int, default=24)
    parser.add_argument("--maximum", type=int, default=None)
    parser.add_argument("--local", type=int, default=24)
    parser.add_argument("--measure", type=int, default=1)
    parser.add_argument("--report", type=float, default=30.0)
    parser.add_argument("--adam", action="store_true")
    parser.add_argument("--pause", type=float, default=0.0)
    parser.add_argument("--every-steps", type=int, default=None)
    parser.add_argument("--ballast", type=int, default=0, help="numbers that slow down saving")
    given = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with attach(folder=given.folder, every_s=None, every_steps=given.every_steps) as job:
        init_process_group(job, "gloo")
        model = torch.nn.Linear(8, 1)
        ballast = torch.nn.Linear(given.ballast, 1) if given.ballast else torch.nn.Identity()
        weights: Any = model.parameters()
        optimizer = torch.optim.Adam(weights) if given.adam else torch.optim.SGD(weights, lr=0.02)
        training = ElasticTraining(
            job, model, optimizer, Points(given.samples),
            batch_size=given.batch, maximum=given.maximum, local=(1, given.local),
            measure_every=given.measure, report_s=given.report, ballast=ballast,
        )  # fmt: skip
        first = job.restore()
        seen = Path(f"{given.seen}.{job.checkpoint.run}.{job.rank}")
        with seen.open("a", buffering=1) as file:
            for epoch in training.epochs(given.epochs):
                for places, x, y in training.batches():
                    loss = torch.nn.functional.mse_loss(training.model(x), y)
                    goes_on = training.step(loss)
                    line = {"epoch": epoch, "step": job.steps, "places": places.tolist()}
                    line |= {"progress": training.progress, "local": training.local}
                    line |= {"passes": training.accumulation + 1, "loss": float(loss)}
                    print(json.dumps(line), file=file)
                    time.sleep(given.pause if goes_on else 0)
        noise = training.noise
        print(job.checkpoint.run, job.world_size, first, job.steps, training.progress,
              noise.sqr, noise.var, float(loss.detach()))  # fmt: skip
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of a build without numpy
        main()
