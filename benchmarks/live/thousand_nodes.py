"""A daemon under 1,000 hollow nodes: `python -m benchmarks.live.thousand_nodes [--nodes N …]`.

10,000 jobs run and 10,000 wait. When nothing is written any more, the daemon's CPU time, memory,
event loop and transactions are measured for a minute; then the queue is listed while rounds are
decided. Only
the agents' processes and GPUs are missing: each node has its own connections and syncs as a real
one. Exit code 1 when a budget is exceeded and `--check` is given.
"""

from __future__ import annotations

import argparse
import math
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import psutil

from benchmarks.measure import heading
from dlsched.torture.local_cluster import LocalCluster, eventually, free_port

REAL_TIMES = {"beat_s": 5.0, "reply_age_s": 5.0, "prepare_s": 30.0, "unkillable_s": 60.0}
LISTS = 8
QUIET_S, LONGEST_SETTLING_S = 3 * REAL_TIMES["reply_age_s"], 600.0
WRITTEN = "dlsched_transactions_total"
IDLE_INTERVAL_S, BUSY_INTERVAL_S = 60.0, 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How many of what."""

    nodes: int
    gpus: int
    pending: int
    seconds: float

    @property
    def running(self) -> int:
        """Jobs of one GPU that fill the cluster."""
        return self.nodes * self.gpus


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One measured figure; `budget` is the most that it may be, if any."""

    name: str
    value: float
    budget: float | None = None


class Daemon:
    """The daemon's process from outside: what the kernel and its metrics say."""

    def __init__(self, pid: int, metrics_port: int) -> None:
        self._process = psutil.Process(pid)
        self._url = f"http://127.0.0.1:{metrics_port}/metrics"

    def cpu_s(self) -> tuple[float, float]:
        """CPU seconds of the daemon's own process, and of its workers."""

        def of(process: psutil.Process) -> float:
            spent = process.cpu_times()
            return float(spent.user + spent.system)

        return of(self._process), math.fsum(map(of, self._process.children(recursive=True)))

    def memory_mb(self) -> tuple[float, float]:
        """Resident memory of the daemon's own process, and with its workers."""
        own = self._process.memory_info().rss / 1e6
        rest = sum(p.memory_info().rss for p in self._process.children(recursive=True)) / 1e6
        return own, own + rest

    def metrics(self) -> dict[str, float]:
        """All samples by name with labels."""
        with urllib.request.urlopen(self._url, timeout=30) as answer:
            text = answer.read().decode()
        found = re.findall(r"^(dlsched\S+) (\S+)$", text, re.MULTILINE)
        return {name: float(value) for name, value in found}


def lag_quantile(before: Mapping[str, float], after: Mapping[str, float], part: float) -> float:
    """The bound of the histogram's bucket below which a part of the loop's lags lies, seconds."""
    pattern = re.compile(r'dlsched_loop_lag_seconds_bucket\{le="(.+)"\}')
    counts = {
        float(match[1]): value - before[name]
        for name, value in after.items()
        if (match := pattern.fullmatch(name))
    }
    total = max(counts.values())
    return min(bound for bound, count in counts.items() if count >= part * total)


def settle(daemon: Daemon) -> list[Figure]:
    """Wait until every node has the newest witnesses alone: then nothing is written any more."""
    began = last = time.monotonic()
    written = daemon.metrics()[WRITTEN]
    while (now := time.monotonic()) - last < QUIET_S and now - began < LONGEST_SETTLING_S:
        time.sleep(1)
        if (newer := daemon.metrics()[WRITTEN]) > written:
            written, last = newer, time.monotonic()
    return [Figure(name="until nothing is written, s", value=last - began)]


def idle(daemon: Daemon, seconds: float) -> list[Figure]:
    """What the daemon costs while nothing changes but the time."""
    before, (own, workers), began = daemon.metrics(), daemon.cpu_s(), time.monotonic()
    time.sleep(seconds)
    after, (own_after, workers_after) = daemon.metrics(), daemon.cpu_s()
    took = time.monotonic() - began
    memory, family = daemon.memory_mb()
    return [
        Figure(name="daemon, cores", value=(own_after - own) / took, budget=1.0),
        Figure(name="its workers, cores", value=(workers_after - workers) / took),
        Figure(name="daemon, MB", value=memory, budget=500),
        Figure(name="with its workers, MB", value=family),
        Figure(name="lag of the loop, p50 below s", value=lag_quantile(before, after, 0.5)),
        Figure(
            name="lag of the loop, p99 below s",
            value=lag_quantile(before, after, 0.99),
            budget=0.1,
        ),
        Figure(
            name="transactions a second",
            value=(after[WRITTEN] - before[WRITTEN]) / took,
            budget=5.0,
        ),
    ]


def listing(cluster: LocalCluster, daemon: Daemon) -> list[Figure]:
    """Lists of the waiting jobs while a round is decided every five seconds."""
    text = cluster.write_config().read_text()
    old, new = (f"interval_s = {each}" for each in (IDLE_INTERVAL_S, BUSY_INTERVAL_S))
    assert old in text
    (cluster.folder / "dlsched.toml").write_text(text.replace(old, new))
    cluster.cli("admin", "reload")
    walls, before, (spent, _), started = [], daemon.metrics(), daemon.cpu_s(), time.monotonic()
    for _ in range(LISTS):
        began = time.perf_counter()
        cluster.cli("queue", "-a", "--state", "PENDING")
        walls.append(time.perf_counter() - began)
    after, (spent_after, _) = daemon.metrics(), daemon.cpu_s()
    rounds = 'dlsched_rounds_total{mode="full"}'  # absent before the first one
    earlier, later = (each.get(rounds, 0.0) for each in (before, after))
    return [
        Figure(name="queue of the waiting jobs, s", value=statistics.median(walls), budget=0.8),
        Figure(
            name="the daemon meanwhile, cores",
            value=(spent_after - spent) / (time.monotonic() - started),
        ),
        Figure(name="rounds decided meanwhile", value=later - earlier),
    ]


def fill(cluster: LocalCluster, daemon: Daemon, scale: Scale) -> list[Figure]:
    """Submit all jobs in two calls, and wait until the cluster is full."""
    began = time.monotonic()
    for number, count in enumerate((scale.running, scale.pending)):
        rows = cluster.folder / f"jobs{number}.csv"
        rows.write_text("command,name,gpus\n" + "".join(f"true,job{k},1\n" for k in range(count)))
        cluster.cli("submit", "--from", str(rows))
    submitted = time.monotonic() - began

    running = 'dlsched_jobs{state="running"}'
    eventually("it is full", lambda: daemon.metrics()[running] >= scale.running, within=600)
    return [
        Figure(name="submitting all, s", value=submitted),
        Figure(name="until all run that can, s", value=time.monotonic() - began),
    ]


def measured(scale: Scale, policy: str, database: str) -> list[Figure]:
    """All figures of one cluster."""
    metrics_port = free_port()
    cluster = LocalCluster(
        database,
        nodes=0,
        round={"interval_s": IDLE_INTERVAL_S, "policy": policy},
        timing=REAL_TIMES,
        tables={"daemon": {"metrics": f"127.0.0.1:{metrics_port}"}},
    )
    with cluster, tempfile.TemporaryFile() as told:
        nodes = subprocess.Popen(
            [
                *(sys.executable, "-m", "dlsched.hollow", "--insecure-loopback"),
                *("--daemon", f"127.0.0.1:{cluster.port}", "--nodes", str(scale.nodes)),
                *("--gpus", str(scale.gpus), "--seconds", "36000"),
            ],
            stdout=subprocess.PIPE,
            stderr=told,
            text=True,
        )
        try:
            assert nodes.stdout is not None
            print(nodes.stdout.readline(), end="", flush=True)
            daemon = Daemon(cluster.processes["daemon"].pid, metrics_port)
            figures = fill(cluster, daemon, scale) + settle(daemon)
            before = psutil.Process(nodes.pid).cpu_times()
            figures += idle(daemon, scale.seconds)
            after = psutil.Process(nodes.pid).cpu_times()
            spent = after.user + after.system - before.user - before.system
            figures.append(Figure(name="the hollow nodes, cores", value=spent / scale.seconds))
            figures += listing(cluster, daemon)
        finally:
            nodes.terminate()
            nodes.wait(60)
    return figures


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--gpus", type=int, default=10, help="of each node")
    parser.add_argument("--pending", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=60.0, help="of the idle time")
    parser.add_argument("--policy", default="fifo")
    parser.add_argument("--database", default="", help="URL of an empty database; SQLite without")
    parser.add_argument("--check", action="store_true", help="exit 1 when a budget is exceeded")
    given = parser.parse_args(argv)
    scale = Scale(nodes=given.nodes, gpus=given.gpus, pending=given.pending, seconds=given.seconds)
    yardstick = heading()
    figures = measured(scale, given.policy, given.database)
    exceeded = False
    print(f"\n{'':34}{'measured':>10}{'budget':>10}{'yardsticks/s':>14}")
    for each in figures:
        over = each.budget is not None and each.value > each.budget
        exceeded |= over
        budget = "" if each.budget is None else f"{each.budget:g}"
        ratio = f"{each.value / yardstick:.3f}" if each.name.endswith("cores") else ""
        mark = "  exceeded" if over else ""
        print(f"{each.name:34}{each.value:>10.3g}{budget:>10}{ratio:>14}{mark}")
    return int(exceeded and given.check)


if __name__ == "__main__":
    raise SystemExit(main())
