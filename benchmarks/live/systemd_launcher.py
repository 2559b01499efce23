"""What a transient service costs a start: `python -m benchmarks.live.systemd_launcher [JOBS]`.

The packaged daemon and one agent on a machine whose process 1 is systemd (`tests/systemd` boots it;
needs root), an idle cluster, one job after another, as a user submits them. Measured is the time
from the request's arrival, as the daemon stored it, to the first line of the script; with the
launchers `systemd` and `plain` by turns, so that both run under the same load.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from datetime import datetime
from pathlib import Path

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "systemd"))

import installed_cluster  # type: ignore[import-not-found]  # found in the folder just named
import machine as machines  # type: ignore[import-not-found]

__all__ = ["main"]

LAUNCHERS = ("systemd", "plain")
TURNS = 3
CONFIG = "/etc/dlsched/agent.toml"


def switch(cluster: installed_cluster.Cluster, launcher: str) -> None:
    """Have the agent start jobs in another way."""
    lines = cluster.machine.run("cat", CONFIG).stdout.splitlines(keepends=True)
    kept = [line for line in lines if not line.startswith("launcher =")]
    cluster.machine.write(CONFIG, "".join([f'launcher = "{launcher}"\n', *kept]))
    cluster.machine.run("systemctl", "restart", installed_cluster.AGENT)
    cluster.wait(cluster.submit("true"))  # it is there, and warm


def start_s(cluster: installed_cluster.Cluster) -> float:
    """One job: seconds from its request to its first line."""
    job = cluster.submit("date +%s.%N")
    cluster.wait(job)
    submitted = datetime.fromisoformat(cluster.show(job)["submitted_at"])
    return float(cluster.output(job)) - submitted.timestamp()


def measured(jobs: int) -> dict[str, list[float]]:
    """Seconds of each start, by launcher."""
    found: dict[str, list[float]] = {launcher: [] for launcher in LAUNCHERS}
    with tempfile.TemporaryDirectory() as folder, machines.Machine(Path(folder) / "m") as machine:
        cluster = installed_cluster.start(machine)
        for _ in range(TURNS):
            for launcher in LAUNCHERS:
                switch(cluster, launcher)
                found[launcher] += [start_s(cluster) for _ in range(max(jobs // TURNS, 1))]
    return found


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("jobs", nargs="?", type=int, default=60, help="of each launcher")
    jobs = parser.parse_args().jobs
    why = machines.obstacle()
    if why:
        print(f"no systemd to measure with: {why}", file=sys.stderr)
        return 1
    found = measured(jobs)
    load = os.getloadavg()[0]
    print(f"request to first line, ms, of {len(found['plain'])} jobs each; load {load:.1f}")
    print(f"{'launcher':<10}{'min':>8}{'median':>8}{'max':>8}")
    for launcher, values in found.items():
        low, middle, high = min(values), statistics.median(values), max(values)
        print(f"{launcher:<10}{low * 1e3:8.0f}{middle * 1e3:8.0f}{high * 1e3:8.0f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
