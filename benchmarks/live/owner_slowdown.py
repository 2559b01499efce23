"""How much an opportunistic PyTorch training slows the owner of its GPU, on a real cluster.

    python -m benchmarks.live.owner_slowdown [SECONDS]

A daemon, an agent with one pretended GPU, and two trainings on the CPU. The owner's median time of
a step is measured alone, then beside the other, without the first 10 s. Prints both, their ratio,
and the shares that were decided.
"""

from __future__ import annotations

import re
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

from dlsched.torture.local_cluster import LocalCluster, eventually

SETTLES_S = 10.0
ALONE_S = 20.0
PROGRAM = """
import sys, time, torch
from dlsched.job import attach
torch.set_num_threads(1)
size = int(sys.argv[2])
net, data = torch.nn.Linear(size, size), torch.rand(size, size)
with attach() as job, open(sys.argv[1], "a") as times:
    while True:
        begun = time.monotonic()
        net(data).square().mean().backward()
        time.sleep(0.03)
        times.write(f"{time.monotonic()} {time.monotonic() - begun}\\n")
        times.flush()
        if not job.step():
            break
"""


class Node(LocalCluster):
    """One node under AntMan, with the options that a site has."""

    def _agent_tables(self, name: str) -> dict[str, Mapping[str, Any]]:
        return {**super()._agent_tables(name), "node_policy": {"name": "antman-node"}}


def steps(file: Path) -> list[tuple[float, float]]:
    """When each step ended, and how long it took."""
    lines = [line.split() for line in file.read_text().splitlines()] if file.exists() else []
    return [(float(line[0]), float(line[1])) for line in lines if len(line) == 2]


def main(seconds: float) -> None:
    """Measure for so many seconds beside each other."""
    with (
        tempfile.TemporaryDirectory() as folder,
        Node(nodes=1, gpus="1:v100", round={"policy": "antman"}) as cluster,
    ):
        program = Path(folder) / "train.py"
        program.write_text(PROGRAM)

        def train(name: str, size: int, *words: str) -> int:
            answer = cluster.cli(
                "submit", "--parsable", "-J", name, "-o", f"{cluster.out}/%j.out", "--set",
                "gpu_util=40", *words, "--", sys.executable, str(program), f"{folder}/{name}",
                str(size),
            )  # fmt: skip
            return int(answer.split()[-1])

        owned = Path(folder) / "owner"
        train("owner", 256)
        eventually("the owner works", lambda: len(steps(owned)) > 20, within=120)
        begun = time.monotonic()
        time.sleep(ALONE_S)
        alone = median(took for at, took in steps(owned) if at > begun)
        opportunistic = train("opportunistic", 512, "--opportunistic")
        came = time.monotonic()
        time.sleep(seconds)
        pattern = re.compile(rf"limit job={opportunistic} share=(\d+)")
        shares = [int(found) for found in pattern.findall(cluster.log("n1"))]
        beside = [took for at, took in steps(owned) if at > came + SETTLES_S]
        other = len(steps(Path(folder) / "opportunistic"))
    ratio = median(beside) / alone
    print(f"owner alone {1e3 * alone:.2f} ms, beside {1e3 * median(beside):.2f} ms: {ratio:.3f}")
    print(f"steps of the other: {other}; its shares in per cent: {shares}")


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 90.0)
