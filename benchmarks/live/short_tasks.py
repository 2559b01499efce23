"""Short tasks beside ordinary jobs on one live cluster: how many end in a second, at what price.

    python -m benchmarks.live.short_tasks --tasks 10000 --jobs 500 --tokens 100 --seconds 1

One daemon and two agents with pretended GPUs, one for each token. First an array of ordinary jobs
executes the command, then one list of short tasks does. The price is CPU time of daemon, agents,
keepers and what they start, as the operating system accounts it to their processes.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing

import psutil

from dlsched.torture.local_cluster import LocalCluster, eventually


def cpu_seconds(cluster: LocalCluster) -> float:
    """CPU time of the daemon and the agents, with all that has ended below them."""
    total = 0.0
    for process in cluster.processes.values():
        times = psutil.Process(process.pid).cpu_times()
        total += times.user + times.system + times.children_user + times.children_system
    for each in cluster.remaining():
        try:
            if each.pid not in {p.pid for p in cluster.processes.values()}:
                times = each.cpu_times()
                total += times.user + times.system + times.children_user + times.children_system
        except psutil.NoSuchProcess:
            continue
    return total


def measured(
    cluster: LocalCluster, count: int, submit: Callable[[], int], done: Callable[[int], int]
) -> dict[str, float]:
    """Submit something and wait until so many have ended."""
    cpu, began = cpu_seconds(cluster), time.monotonic()
    job = submit()
    eventually(f"{count} have ended", lambda: done(job) >= count or _pause(), within=3600)
    wall_s, used = time.monotonic() - began, cpu_seconds(cluster) - cpu
    return {"ended": count, "a_second": count / wall_s, "cpu_ms_each": 1000 * used / count}


def stored(cluster: LocalCluster, table: str, job: int, compared: str) -> int:
    """How many rows of a table have ended, as the database says: no call of the daemon."""
    query = f"SELECT COUNT(*) FROM {table} WHERE job {compared} ? AND ended_at IS NOT NULL"
    with closing(sqlite3.connect(cluster.folder / "dlsched.db")) as database:
        found: int = database.execute(query, (job,)).fetchone()[0]
    return found


def _pause() -> bool:
    """Ask again in half a second: looking costs CPU time, too."""
    time.sleep(0.5)
    return False


def main() -> None:
    """Measure both ways and print them side by side."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tasks", type=int, default=10_000, help="of the list")
    parser.add_argument("--jobs", type=int, default=500, help="of the array of ordinary jobs")
    parser.add_argument("--tokens", type=int, default=100, help="that run at once, both ways")
    parser.add_argument("--seconds", default="1", help="that each task sleeps")
    given = parser.parse_args()
    each = -(-given.tokens // 2)
    with LocalCluster(nodes=2, gpus=f"{each}:v100") as cluster:
        lines = cluster.folder / "tasks.sh"
        lines.write_text(f"sleep {given.seconds}\n" * given.tasks)
        common = ("--parsable", "--gpus", "1", "-o", "/dev/null")

        def jobs_done(job: int) -> int:
            return stored(cluster, "jobs", job, ">=")

        def tasks_done(job: int) -> int:
            return stored(cluster, "task_runs", job, "=")

        ordinary = measured(
            cluster,
            given.jobs,
            lambda: int(
                cluster.cli(
                    *("submit", *common, "--array", f"1-{given.jobs}%{given.tokens}"),
                    *("--wrap", f"sleep {given.seconds}"),
                )
            ),
            jobs_done,
        )
        short = measured(
            cluster,
            given.tasks,
            lambda: int(
                cluster.cli("submit", *common, "--tasks", str(lines), "--tokens", str(given.tokens))
            ),
            tasks_done,
        )
    ratios = {
        "a_second": short["a_second"] / ordinary["a_second"],
        "cpu": ordinary["cpu_ms_each"] / short["cpu_ms_each"],
    }
    print(json.dumps({"ordinary": ordinary, "short": short, "times_better": ratios}, indent=2))


if __name__ == "__main__":
    main()
