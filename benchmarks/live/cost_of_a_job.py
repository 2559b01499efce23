"""Where the CPU time of a very short job goes: `python -m benchmarks.live.cost_of_a_job`.

A local cluster of four nodes runs jobs of `true`. With `--against COMMIT` a cluster of that commit
runs as many, by turns: read the ratio, which is the median over the turns. A keeper leaves no
account of itself, so each cluster is a group of processes (cgroup), and keepers with their jobs are
what the group has used beside the processes that stay. That needs root.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import sqlite3
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil

from benchmarks.against import checkout_of
from benchmarks.live.dlsched_cluster import InstalledCluster
from benchmarks.measure import ROOT, heading

V1, V2 = Path("/sys/fs/cgroup/cpuacct"), Path("/sys/fs/cgroup")
FIRST = 40  # jobs that are not counted: imports, bytecode, first pages
POLL_S, AFTER_S = 0.1, 0.5  # between looks at the database; until the last keeper has ended


class Side:
    """A cluster of one checkout, in a group of its own."""

    def __init__(self, root: Path, number: int) -> None:
        self._home = V1 if V1.is_dir() else V2
        self._group = self._home / f"cost_of_a_job.{os.getpid()}.{number}"
        self._root, self._submitted = root, 0
        self.cluster = InstalledCluster()

    @contextlib.contextmanager
    def running(self) -> Iterator[Side]:
        """The cluster, for as long as the context lasts."""
        self._group.mkdir()
        os.environ["PYTHONPATH"] = str(self._root)
        (self._group / "cgroup.procs").write_text(str(os.getpid()))  # what is started inherits it
        try:
            with self.cluster:
                (self._home / "cgroup.procs").write_text(str(os.getpid()))
                yield self
        finally:
            (self._home / "cgroup.procs").write_text(str(os.getpid()))
            with contextlib.suppress(OSError):  # a process is just ending: the group is empty soon
                self._group.rmdir()

    def _used_s(self) -> float:
        """CPU seconds of all processes of the group, ended ones too."""
        if self._home is V1:
            return int((self._group / "cpuacct.usage").read_text()) / 1e9
        fields = dict(line.split() for line in (self._group / "cpu.stat").read_text().splitlines())
        return int(fields["usage_usec"]) / 1e6

    def _parts_s(self) -> dict[str, float]:
        """CPU seconds so far, by kind of process."""
        parts: dict[str, float] = defaultdict(float)
        for name, process in self.cluster.processes.items():
            parts["daemon" if name == "daemon" else "agents"] += _run_s(process.pid)
            for child in psutil.Process(process.pid).children():
                with contextlib.suppress(psutil.Error, OSError):
                    words = " ".join(child.cmdline())
                    if "worker_main" in words:
                        parts["rounds' worker"] += _run_s(child.pid)
                    elif child.name() == "dls-zygote":
                        parts["zygotes"] += _run_s(child.pid)
        parts["all"] = self._used_s()
        parts["keepers and jobs"] = 2 * parts["all"] - math.fsum(parts.values())
        return dict(parts)

    def _ended(self) -> int:
        query = "SELECT COUNT(*) FROM jobs WHERE ended_at IS NOT NULL"
        with contextlib.closing(sqlite3.connect(self.cluster.folder / "dlsched.db")) as database:
            found: int = database.execute(query).fetchone()[0]
        return found

    def turn(self, jobs: int) -> dict[str, float]:
        """Run so many jobs; return the CPU time of one, in ms, by kind of process, and the rate."""
        before, began = self._parts_s(), time.perf_counter()
        words = ("submit", "-o", "/dev/null", "-G", "1", "--array", f"1-{jobs}", "--wrap", "true")
        subprocess.run(
            [sys.executable, "-m", "dlsched", *words],
            env=self.cluster.environment,
            stdout=subprocess.DEVNULL,
            check=True,
        )
        self._submitted += jobs
        while self._ended() < self._submitted:
            time.sleep(POLL_S)
        took_s = time.perf_counter() - began
        time.sleep(AFTER_S)
        after = self._parts_s()
        spent = {part: 1e3 * (after[part] - before[part]) / jobs for part in after}
        return spent | {"jobs a second": jobs / took_s}


def _run_s(pid: int) -> float:
    """CPU seconds of a process so far, to the nanosecond: all of its threads that live."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((each / "schedstat").read_text().split()[0]) for each in threads) / 1e9


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print."""
    found = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    found.add_argument("--against", metavar="COMMIT", help="an earlier commit, by turns")
    found.add_argument("--jobs", type=int, default=24, help="of each turn")
    found.add_argument("--turns", type=int, default=14, help="of each side")
    given = found.parse_args(argv)
    heading()
    with contextlib.ExitStack() as held:
        roots = [ROOT]
        if given.against:
            roots.append(held.enter_context(checkout_of(given.against)))
        sides = [held.enter_context(Side(root, k).running()) for k, root in enumerate(roots)]
        for side in sides:
            side.turn(FIRST)
        turns = []
        for number in range(given.turns):
            order = sides if number % 2 else sides[::-1]
            spent = {id(side): side.turn(given.jobs) for side in order}
            turns.append([spent[id(side)] for side in sides])
    print(f"{'CPU ms a job':20}{'now':>8}", end="")
    print(f"{given.against:>12}{'ratio':>8}" if given.against else "")
    for part in turns[0][0]:
        columns = [
            statistics.median(turn[side][part] for turn in turns) for side in range(len(roots))
        ]
        line = f"{part:20}{columns[0]:8.2f}"
        if given.against:
            ratio = statistics.median(turn[0][part] / turn[1][part] for turn in turns)
            line += f"{columns[1]:12.2f}{ratio:8.2f}"
        print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
