"""A small convolutional network on made-up images, elastic: any number of GPUs, batch sizes adapt.

The images are ten patterns, shifted, faded and covered with noise, so that there is something to
learn and nothing to download. On a machine without GPUs the program can sleep for the time that a
GPU would need, so that the example scales there too.

    dlsched submit --adaptive --launch gpu -- python elastic_images.py --epochs 20
"""

from __future__ import annotations

import argparse
import time
import warnings

import torch
from torch.nn import functional

from dlsched.job import attach
from dlsched.job.elastic import ElasticTraining
from dlsched.job.torch import init_process_group

SIDE, CLASSES = 12, 10


class Images(torch.utils.data.Dataset):  # type: ignore[type-arg]  # as torch has it
    """Pictures of ten patterns."""

    def __init__(self, count: int, seed: int) -> None:
        patterns = torch.randn(CLASSES, 3, 4, 4, generator=torch.Generator().manual_seed(7))
        patterns = functional.interpolate(patterns, size=(SIDE, SIDE), mode="bilinear")
        draw = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(CLASSES, (count,), generator=draw)
        shifts = torch.randint(-2, 3, (count, 2), generator=draw).tolist()
        shown = zip(patterns[self.labels], shifts, strict=True)
        moved = torch.stack([torch.roll(image, shift, (1, 2)) for image, shift in shown])
        contrast = 0.3 + 0.7 * torch.rand(count, 1, 1, 1, generator=draw)
        self.images = contrast * moved + 0.8 * torch.randn(moved.shape, generator=draw)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, place: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.images[place], self.labels[place]


def network() -> torch.nn.Module:
    """Two convolutions and a linear layer."""
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, 3, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
        torch.nn.Conv2d(16, 32, 3, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
        torch.nn.Flatten(), torch.nn.Linear(32 * 9, CLASSES),
    )  # fmt: skip


def evaluated(model: torch.nn.Module, images: Images) -> str:
    """The part of the images that is recognised, and their mean loss."""
    with torch.no_grad():
        scores = model(images.images)
    right = scores.argmax(1) == images.labels
    loss = functional.cross_entropy(scores, images.labels)
    return f"accuracy {float(right.float().mean()):.4f} loss {float(loss)!r}"


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser(description="Learn to tell ten patterns apart, elastically.")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--samples", type=int, default=4096)
    parser.add_argument("--batch", type=int, default=64, help="samples a step, of all ranks")
    parser.add_argument("--maximum", type=int, default=512, help="at most, as it adapts")
    parser.add_argument("--sample-ms", type=float, default=0.0, help="sleep as long for each")
    parser.add_argument("--report", type=float, default=30.0, help="seconds between two reports")
    parser.add_argument("--folder", help="of the checkpoints, where no scheduler names one")
    given = parser.parse_args()

    torch.manual_seed(0)
    torch.set_num_threads(1)
    with attach(folder=given.folder, every_s=30) as job:
        init_process_group(job, "gloo")
        model = network()
        training = ElasticTraining(
            job, model, torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9),
            Images(given.samples, seed=1), batch_size=given.batch, maximum=given.maximum,
            local=(8, 128), report_s=given.report,
        )  # fmt: skip
        job.restore()
        for epoch in training.epochs(given.epochs):
            for images, labels in training.batches():
                time.sleep(given.sample_ms / 1000 * len(labels))
                training.step(functional.cross_entropy(training.model(images), labels))
            if job.rank == 0:
                print(f"run {job.checkpoint.run} epoch {epoch} steps {job.steps} ranks "
                      f"{job.world_size} x {training.local} x {training.accumulation + 1} progress "
                      f"{training.progress:.0f}", flush=True)  # fmt: skip
    if job.rank == 0:
        print(evaluated(model, Images(2000, seed=2)), flush=True)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of a build without numpy
        main()
