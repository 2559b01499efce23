"""What measuring gradients costs an elastic training: `python benchmarks/gradient_noise.py`.

CPU milliseconds a step of a network of eight layers, by optimiser, size, ranks on one core each,
and how often gradients are measured; of several tries the least. Under Adam they are divided as it
divides them.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

if __package__ in (None, ""):  # run as a script: the project's own folder comes first
    sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.measure import heading

__all__ = ["main"]

WIDTHS = {"0.5 million": 256, "7.4 million": 960}
EVERY = {"none": 0, "every 10th step": 10, "every step": 1}
SAMPLES, WARM = 32, 20  # a rank and step; steps that are not counted


def train(optimizer: str, width: int, every: int, steps: int) -> None:
    """Train as one rank of a gang, and print CPU milliseconds a step.

    Args:
        optimizer: sgd or adam.
        width: of each layer.
        every: measure gradients at every so many steps; 0: never.
        steps: how many count.
    """
    import torch  # noqa: PLC0415  # the parent needs none

    from dlsched.job import attach  # noqa: PLC0415
    from dlsched.job.elastic import ElasticTraining  # noqa: PLC0415
    from dlsched.job.torch import init_process_group  # noqa: PLC0415

    torch.set_num_threads(1)
    torch.manual_seed(0)
    with attach(every_s=None) as job:
        init_process_group(job, "gloo")
        layers = [torch.nn.Linear(width, width, bias=False) for _ in range(8)]
        model = torch.nn.Sequential(*layers)
        made = torch.optim.Adam if optimizer == "adam" else torch.optim.SGD
        data = torch.randn(SAMPLES * job.world_size * (steps + WARM), width)
        training = ElasticTraining(
            job, model, made(model.parameters(), lr=1e-4), data,
            batch_size=SAMPLES * job.world_size, measure_every=every,
        )  # fmt: skip
        job.restore()
        begun, done = 0.0, 0
        for _ in training.epochs(1):
            for x in training.batches():
                if done == WARM:
                    begun = time.process_time()
                done += 1
                training.step(training.model(x).square().mean())
        print(1e3 * (time.process_time() - begun) / (done - WARM))


def cost(optimizer: str, width: int, ranks: int, every: int, steps: int) -> float:
    """Milliseconds a step, the mean of the ranks.

    Args:
        optimizer: sgd or adam.
        width: of each layer.
        ranks: processes of the gang.
        every: measure gradients at every so many steps; 0: never.
        steps: how many count.
    """
    with socket.socket() as free, tempfile.TemporaryDirectory() as folder:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        told = json.dumps([optimizer, width, every, steps])
        environment = {
            **os.environ, "WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1",
        }  # fmt: skip
        gang = [
            subprocess.Popen(
                [sys.executable, os.path.abspath(__file__), "--be", told],
                env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                stdout=subprocess.PIPE,
                text=True,
                cwd=folder,
            )
            for rank in range(ranks)
        ]
        found = [float(process.communicate()[0]) for process in gang]
    return math.fsum(found) / ranks


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--be", help=argparse.SUPPRESS)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--tries", type=int, default=3)
    given = parser.parse_args()
    if given.be is not None:
        train(*json.loads(given.be))
        return
    heading()
    print("| optimiser | parameters | ranks |", " | ".join(EVERY), "|")
    for optimizer in ("sgd", "adam"):
        for name, width in WIDTHS.items():
            for ranks in (1, 2):
                cells = [
                    min(cost(optimizer, width, ranks, k, given.steps) for _ in range(given.tries))
                    for k in EVERY.values()
                ]
                print(f"| {optimizer} | {name} | {ranks} |", *(f"{ms:.1f} |" for ms in cells))


if __name__ == "__main__":
    main()
