"""A training with PyTorch that writes down how long each step took, and is slowed by a file.

    paced_program.py STEP_S TIMES SLOW [STEPS]

Of STEP_S seconds it computes a part and waits for the rest, as for its input. While the file SLOW
exists, each step takes twice as long. It ends after STEPS steps, or when the file SLOW.end exists.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import torch

from dlsched.job import attach
from dlsched.job.torch import register_training


def main(step_s: float, times: Path, slow: Path, steps: int) -> None:
    """Train."""
    torch.manual_seed(1)
    torch.set_num_threads(1)
    net = torch.nn.Linear(16, 1)
    data = torch.rand(64, 16)
    end = slow.with_name(slow.name + ".end")
    with attach() as job, times.open("a") as written:
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
        register_training(job, model=net, optimizer=optimizer)
        for step in range(job.restore(), steps):
            begun = time.monotonic()
            optimizer.zero_grad()
            loss = net(data).square().mean()
            loss.backward()
            optimizer.step()
            until = begun + step_s * (2 if slow.exists() else 1)
            time.sleep(max(0.0, until - time.monotonic()))
            written.write(f"{step} {time.monotonic() - begun:.6f}\n")
            written.flush()
            if not job.step(loss=loss.item()) or end.exists():
                break


if __name__ == "__main__":
    main(
        float(sys.argv[1]),
        Path(sys.argv[2]),
        Path(sys.argv[3]),
        int(sys.argv[4]) if len(sys.argv) > 4 else 10_000_000,
    )
