"""The pause of a resize in place beside that of a restart, with PyTorch ranks on CPUs.

    python -m benchmarks.live.resizes_in_place

A real daemon and three agents. Two jobs, one after the other, are taken from 2 ranks to 3 and to 1.
A pause is the time from the end of the last step of one run to the end of the first step of the
next, as rank 0 sees it.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from itertools import pairwise
from pathlib import Path
from typing import Any

if __package__ in (None, ""):  # a rank: the project's own folder comes first
    sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.measure import heading
from dlsched.torture.local_cluster import LocalCluster

__all__ = ["main"]

SIZES = (2, 3, 1)


def train(seen: str, steps: int, width: int) -> None:
    """Train as one rank; rank 0 notes when each step ends.

    Args:
        seen: file for the notes.
        steps: of the training.
        width: of each of four layers; 4 · width² numbers, and twice as many of Adam.
    """
    import torch  # noqa: PLC0415  # the parent needs none
    from torch.nn.parallel import DistributedDataParallel  # noqa: PLC0415

    from dlsched.job import attach  # noqa: PLC0415
    from dlsched.job.torch import init_process_group, register_training  # noqa: PLC0415

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.manual_seed(1)
    net = torch.nn.Sequential(*(torch.nn.Linear(width, width, bias=False) for _ in range(4)))
    data = torch.randn(8, width)
    with attach(every_s=None) as job:
        init_process_group(job, "gloo")
        model = DistributedDataParallel(net)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
        register_training(job, model=model, optimizer=optimizer)
        for _ in range(job.restore(), steps):
            optimizer.zero_grad()
            loss = model(data).square().mean()
            loss.backward()
            optimizer.step()
            time.sleep(0.05)
            goes_on = job.step()
            if job.rank == 0:
                with Path(seen).open("a", encoding="utf-8") as file:
                    file.write(json.dumps([job.runtime.run, time.time()]) + "\n")
            if not goes_on:
                break


def pauses(seen: Path) -> list[float]:
    """The seconds between the last step of a run and the first of the next."""
    lines = [json.loads(line) for line in seen.read_text(encoding="utf-8").splitlines()]
    return [after[1] - before[1] for before, after in pairwise(lines) if before[0] != after[0]]


def measure(cluster: LocalCluster, steps: int, width: int, *, in_place: bool) -> list[float]:
    """The pauses of one job."""
    seen = cluster.folder / f"seen-{in_place}-{width}"
    asked: dict[str, Any] = {"in_place": "yes"} if in_place else {}
    with cluster.client() as client:
        job = client.submit(
            [sys.executable, __file__, "--rank", str(seen), str(steps), str(width)],
            launch="gpu", gpus="2", min_gpus="1", max_gpus="3",
            chdir=cluster.folder, output=f"{cluster.out}/%j.%t.out",
            **asked,
        )  # fmt: skip
    cluster.until(job, "COMPLETED", within=600)
    return pauses(seen)


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rank", nargs=3, metavar=("FILE", "STEPS", "WIDTH"), help="be a rank")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--widths", type=int, nargs="+", default=[64, 1024])
    given = parser.parse_args()
    if given.rank:
        train(given.rank[0], int(given.rank[1]), int(given.rank[2]))
        return
    heading()
    print(
        "| state | resize | in place | restart | ratio |",
        "| --- | --- | --- | --- | --- |",
        sep="\n",
    )
    options = [f"sizes={','.join(map(str, SIZES))}", "period_s=1", "warm=true"]
    rounds = {"policy": "testing-resize", "options": options, "ready_s": 600.0}
    with LocalCluster(nodes=3, gpus="2:v100", round=rounds) as cluster:
        for width in given.widths:
            quick, slow = (
                measure(cluster, given.steps, width, in_place=each) for each in (True, False)
            )
            megabytes = 4 * width**2 * 3 * 4 / 1e6
            for before, after, one, other in zip(SIZES, SIZES[1:], quick, slow, strict=False):
                print(
                    f"| {megabytes:.3g} MB | {before} to {after} | {one:.2f} s | {other:.2f} s | "
                    f"1/{other / one:.0f} |"
                )


if __name__ == "__main__":
    main()
