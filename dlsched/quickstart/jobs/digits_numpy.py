"""A small real training with numpy: a two-layer network learns to read noisy 8x8 digits.

It can be preempted at any step and continues there: the losses of all runs together are those of
one run without interruption, to the last digit. `--losses FILE` collects them.

    python digits_numpy.py --epochs 12
"""

from __future__ import annotations

import argparse
import os
import time
from typing import Any, BinaryIO

import numpy as np

from dlsched.job import attach

GLYPHS = """
.###. ..#.. .###. ####. #..#. ##### .###. ##### .###. .###.
#...# .##.. #...# ....# #..#. #.... #.... ....# #...# #...#
#...# ..#.. ...#. .###. ##### ####. ####. ...#. .###. .####
#...# ..#.. ..#.. ....# ...#. ....# #...# ..#.. #...# ....#
.###. .###. ##### ####. ...#. ####. .###. ..#.. .###. .###.
"""


def noisy_digits(count: int, seed: int) -> tuple[Any, Any]:
    """Images of 64 pixels and which digit each shows."""
    draw = np.random.default_rng(seed)
    rows = [line.split() for line in GLYPHS.split("\n") if line]
    shapes = np.array([[[c == "#" for c in row[digit]] for row in rows] for digit in range(10)])
    labels = draw.integers(0, 10, count)
    images = np.zeros((count, 8, 8))
    corners = draw.integers(0, 4, (count, 2))
    for image, label, (top, left) in zip(images, labels, corners, strict=True):
        image[top : top + 5, left : left + 5] = shapes[label]
    return (images + 0.4 * draw.standard_normal(images.shape)).reshape(count, 64), labels


class Network:
    """64 pixels, some hidden units, 10 digits; plain gradient descent with momentum."""

    def __init__(self, hidden: int, seed: int) -> None:
        draw = np.random.default_rng(seed)
        self.weights = {
            "w1": draw.standard_normal((64, hidden)) / 8,
            "b1": np.zeros(hidden),
            "w2": draw.standard_normal((hidden, 10)) / np.sqrt(hidden),
            "b2": np.zeros(10),
        }
        self.speed = {f"v{name}": np.zeros_like(each) for name, each in self.weights.items()}

    def learn(self, images: Any, labels: Any, rate: float = 0.05) -> float:
        """One step; the mean loss of the batch before it."""
        w = self.weights
        hidden = np.maximum(images @ w["w1"] + w["b1"], 0)
        scores = hidden @ w["w2"] + w["b2"]
        chances = np.exp(scores - scores.max(axis=1, keepdims=True))
        chances /= chances.sum(axis=1, keepdims=True)
        rows = np.arange(len(labels))
        loss = float(-np.log(chances[rows, labels] + 1e-12).mean())
        chances[rows, labels] -= 1
        slope = chances / len(labels)
        back = (slope @ w["w2"].T) * (hidden > 0)
        gradients = {
            "w1": images.T @ back,
            "b1": back.sum(axis=0),
            "w2": hidden.T @ slope,
            "b2": slope.sum(axis=0),
        }
        for name, gradient in gradients.items():
            self.speed[f"v{name}"] = 0.9 * self.speed[f"v{name}"] - rate * gradient
            w[name] += self.speed[f"v{name}"]
        return loss

    def save(self, file: BinaryIO) -> None:
        """Write weights and momentum."""
        np.savez(file, **self.weights, **self.speed)

    def load(self, file: BinaryIO) -> None:
        """Read them back."""
        with np.load(file) as saved:
            for part in (self.weights, self.speed):
                part.update({name: saved[name] for name in part})


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser(description="Learn to read noisy digits.")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--samples", type=int, default=4096)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--pause", type=float, default=0.0, help="seconds to sleep a step")
    parser.add_argument("--folder", help="of the checkpoints, where no scheduler names one")
    parser.add_argument("--losses", help="file that gets a line a step")
    given = parser.parse_args()

    images, labels = noisy_digits(given.samples, given.seed)
    network = Network(given.hidden, given.seed)

    with (
        attach(folder=given.folder, every_s=30) as job,
        open(given.losses or os.devnull, "a", buffering=1) as losses,
    ):
        sampler = job.sampler(given.samples, seed=given.seed)
        job.checkpoint.register("network", save=network.save, load=network.load)
        first = job.restore()
        print(f"run {job.checkpoint.run}: from step {first}", flush=True)
        for chosen in sampler.batches(given.batch, epochs=given.epochs):
            loss = network.learn(images[chosen], labels[chosen])
            time.sleep(given.pause)
            print(job.steps, repr(loss), file=losses)
            if job.steps % 50 == 0:
                print(f"step {job.steps}  epoch {sampler.epoch}  loss {loss:.4f}", flush=True)
            if not job.step(loss=loss):
                print(f"asked to leave ({job.lease.reason}) after step {job.steps}", flush=True)
                break
        else:
            print(f"done after step {job.steps}", flush=True)


if __name__ == "__main__":
    main()
