"""What a sync costs the daemon: `python -m benchmarks.live.cost_of_a_sync [--against COMMIT]`.

Hollow nodes with a full cluster of jobs sync and nothing else happens. The daemon's CPU time, with
all that it does each second, is divided by the syncs that it has answered. With `--against` the
daemon of an earlier commit has as many nodes at the same time, on the same machine: compare the
ratio.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.against import checkout_of
from benchmarks.live.thousand_nodes import REAL_TIMES
from benchmarks.measure import ROOT, heading
from dlsched.hollow.__main__ import allow_open_files, parser, settings_of
from dlsched.hollow.jobs import SimulatedJobs
from dlsched.hollow.nodes import HollowNodes
from dlsched.torture.local_cluster import LocalCluster

SETTLING_S = 3 * REAL_TIMES["reply_age_s"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What a daemon has used, and how many syncs it has answered."""

    cpu_s: float
    syncs: int

    def per_sync_ms(self, before: Spent) -> float:
        """CPU time of a sync since then, in ms."""
        return 1000 * (self.cpu_s - before.cpu_s) / (self.syncs - before.syncs)


class Side:
    """A daemon of one checkout with its nodes."""

    def __init__(self, cluster: LocalCluster, nodes: HollowNodes) -> None:
        self._daemon = psutil.Process(cluster.processes["daemon"].pid)
        self._cluster, self._nodes = cluster, nodes

    async def fill(self, jobs: int) -> None:
        """Submit as many jobs of one GPU as there is room for, and wait until all run."""
        rows = self._cluster.folder / "jobs.csv"
        rows.write_text("command,name,gpus\n" + "true,job,1\n" * jobs)
        await asyncio.to_thread(self._cluster.cli, "submit", "--from", str(rows))
        while sum(node.executed for node in self._nodes.nodes.values()) < jobs:
            await asyncio.sleep(0.1)

    def spent(self) -> Spent:
        """What it has used until now."""
        times = self._daemon.cpu_times()
        return Spent(
            cpu_s=times.user + times.system,
            syncs=sum(node.leader.answered for node in self._nodes.nodes.values()),
        )


@contextlib.contextmanager
def daemon_of(root: Path, beat_s: float) -> Iterator[LocalCluster]:
    """A cluster of no nodes, whose daemon is that of a checkout."""
    cluster = LocalCluster(
        nodes=0,
        round={"interval_s": 60.0, "policy": "fifo"},
        timing={**REAL_TIMES, "beat_s": beat_s},
    )
    cluster.daemon_environment = {"PYTHONPATH": str(root)}
    with cluster:
        yield cluster


async def measured(
    roots: Sequence[Path], nodes: int, gpus: int, beat_s: float, seconds: float
) -> list[float]:
    """CPU time of a sync for the daemon of each checkout, all at the same time, in ms."""
    allow_open_files(len(roots) * nodes)
    async with contextlib.AsyncExitStack() as held:
        sides = []
        for root in roots:
            cluster = held.enter_context(daemon_of(root, beat_s))
            words = ["--daemon", f"127.0.0.1:{cluster.port}", "--nodes", str(nodes)]
            words += ["--gpus", str(gpus), "--beat", str(beat_s), "--insecure-loopback"]
            each = HollowNodes(
                settings_of(parser().parse_args(words)), SimulatedJobs.parse("36000")
            )
            await held.enter_async_context(each)
            await each.all_joined()
            sides.append(Side(cluster, each))
        await asyncio.gather(*(side.fill(nodes * gpus) for side in sides))
        await asyncio.sleep(SETTLING_S)
        before = [side.spent() for side in sides]
        await asyncio.sleep(seconds)
        return [side.spent().per_sync_ms(then) for side, then in zip(sides, before, strict=True)]


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print."""
    found = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    found.add_argument("--against", metavar="COMMIT", help="an earlier commit, measured beside")
    found.add_argument("--nodes", type=int, default=100, help="of each daemon")
    found.add_argument("--gpus", type=int, default=10, help="of each node")
    found.add_argument("--beat", type=float, default=0.5, help="seconds between a node's syncs")
    found.add_argument("--seconds", type=float, default=30.0, help="of the measurement")
    given = found.parse_args(argv)
    logging.disable(logging.WARNING)  # each node says that its registration was not answered
    heading()
    with contextlib.ExitStack() as held:
        roots = [ROOT]
        if given.against:
            roots.append(held.enter_context(checkout_of(given.against)))
        now, *then = asyncio.run(
            measured(roots, given.nodes, given.gpus, given.beat, given.seconds)
        )
    print(f"CPU time of a sync: {now:.2f} ms", end="")
    print(f"; {given.against}: {then[0]:.2f} ms; ratio {now / then[0]:.2f}" if then else "")
    return 0


if __name__ == "__main__":
    sys.exit(main())
