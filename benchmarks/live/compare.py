"""The live cluster beside Slurm on the same machine: `python -m benchmarks.live.compare [NAMES]`.

Both run as they are installed, four nodes of eight (made-up) GPUs on loopback, one after the other,
with the same calls: one submit, many submits, an array, a list of ten thousand waiting jobs, a
thousand jobs of `true`, and the time from a submit to the script's first line. Machines are noisy:
read the ratios of one run, not the seconds of two. Where Slurm is not installed (`apt-get install
slurmctld slurmd slurm-client munge`), its column has figures of an earlier run and says so.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.live import slurm_cluster
from benchmarks.live.dlsched_cluster import DlschedCluster
from benchmarks.live.slurm_cluster import SlurmCluster

__all__ = ["main"]

Figures = dict[str, float]


LISTS = 5  # of each kind, of which the median counts
SLURM_ONCE: Figures = {  # Slurm 22.05 on two quiet cores, a yardstick of 0.36 s
    "submit to script: median s": 2.98,
    "1,000 x true: jobs/s": 72.8,
    "list 10,000: text s": 0.0767,
    "10,000 submits: s": 33.2,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """What one figure is to reach, against Slurm's or by itself."""

    row: str
    text: str
    holds: Callable[[float, float], bool]
    against_slurm: bool = True


GOALS = (
    Goal(
        row="submit to script: median s",
        text="15 times sooner, at least",
        holds=lambda ours, theirs: theirs >= 15 * ours,
    ),
    Goal(
        row="1,000 x true: jobs/s",
        text="5 times the rate, at least",
        holds=lambda ours, theirs: ours >= 5 * theirs,
    ),
    Goal(
        row="list 10,000: text s",
        text="twice the time, at most",
        holds=lambda ours, theirs: ours <= 2 * theirs,
    ),
    Goal(
        row="10,000 waiting: daemon MB",
        text="150, at most",
        holds=lambda ours, _: ours <= 150,
        against_slurm=False,
    ),
    Goal(
        row="submit: client CPU, of `python -c pass`",
        text="6 times, at most",
        holds=lambda ours, _: ours <= 6,
        against_slurm=False,
    ),
)


class Cluster(Protocol):
    """What both sides offer to be measured by."""

    @property
    def environment(self) -> Mapping[str, str]: ...
    def cpu_s(self) -> float: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """The same calls in each side's own words."""

    submit: Sequence[str]
    held: Sequence[str]
    array: str
    wrap: str
    list_text: Sequence[str]
    list_json: Sequence[str]
    list_ids: Sequence[str]
    cancel_all: Sequence[str]


SLURM = Words(
    submit=("sbatch", "--parsable", "-o", "/dev/null"),
    held=("-H",),
    array="--array={}",
    wrap="--wrap",
    list_text=("squeue",),
    list_json=("squeue", "--json"),
    list_ids=("squeue", "-h", "-o", "%A"),
    cancel_all=("scancel", "-u", "root"),
)
DLSCHED = Words(
    submit=("dlsched", "submit", "--parsable", "-o", "/dev/null"),
    held=("--hold",),
    array="--array={}",
    wrap="--wrap",
    list_text=("dlsched", "queue"),
    list_json=("dlsched", "queue", "--json"),
    list_ids=("dlsched", "queue", "--noheader", "-o", "id"),
    cancel_all=("dlsched", "cancel", "-y", "--me"),
)


class Bench:
    """One side under measurement."""

    def __init__(self, cluster: Cluster, words: Words, folder: Path) -> None:
        self.cluster, self.words, self.folder = cluster, words, folder
        self.environment = dict(cluster.environment)
        for name in ("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED"):
            self.environment.pop(name, None)  # an installed client has its bytecode, and buffers

    def call(self, *command: str) -> tuple[float, float, str]:
        """Wall seconds, the client's CPU seconds and what it printed."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        began = time.perf_counter()
        done = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, check=False
        )
        wall = time.perf_counter() - began
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return wall, cpu, done.stdout

    def submit(self, script: str, *options: str) -> tuple[float, float, str]:
        """Submit a one-line script."""
        return self.call(*self.words.submit, *options, self.words.wrap, script)

    def until_empty(self, within: float) -> None:
        """Wait until no job is listed."""
        deadline = time.monotonic() + within
        while self.call(*self.words.list_ids)[2].strip():
            if time.monotonic() > deadline:
                raise TimeoutError(f"jobs are still listed after {within:g} s")
            time.sleep(0.2)


def one_submit(bench: Bench) -> Figures:
    """Calls of submit, one after the other."""
    before = bench.cluster.cpu_s()
    calls = [bench.submit("true", *bench.words.held)[:2] for _ in range(30)]
    daemon = (bench.cluster.cpu_s() - before) / len(calls)
    bench.call(*bench.words.cancel_all)
    nothing = statistics.mean(bench.call(sys.executable, "-c", "pass")[1] for _ in range(10))
    client = statistics.mean(cpu for _, cpu in calls)
    return {
        "submit: client CPU, of `python -c pass`": client / nothing,
        "submit: wall ms (median)": 1e3 * statistics.median(wall for wall, _ in calls),
        "submit: client CPU ms": 1e3 * client,
        "submit: daemons CPU ms": 1e3 * daemon,
    }


def array(bench: Bench) -> Figures:
    """One array of ten thousand, accepted and listed."""
    wall, _, _ = bench.submit("true", *bench.words.held, bench.words.array.format("0-9999"))
    listed, _, _ = bench.call(*bench.words.list_text)
    bench.call(*bench.words.cancel_all)
    bench.until_empty(60)
    return {"array of 10,000: submit s": wall, "array of 10,000: list s": listed}


def latency(bench: Bench) -> Figures:
    """From before the client starts to the script's first line, on an idle cluster."""
    waits: list[float] = []
    for k in range(30):
        mark = bench.folder / f"mark{k}"
        began = time.time()
        bench.submit(f"date +%s.%N > {mark}.new && mv {mark}.new {mark}")
        deadline = time.monotonic() + 30
        while not mark.exists():
            if time.monotonic() > deadline:
                raise TimeoutError("a job did not start within 30 s")
            time.sleep(0.005)
        waits.append(float(mark.read_text()) - began)
    bench.until_empty(30)
    ordered = sorted(waits)
    return {
        "submit to script: median s": statistics.median(ordered),
        "submit to script: p99 s": ordered[-1],
    }


def thousand(bench: Bench) -> Figures:
    """A thousand jobs of `true`, from the submit of their array until the last has ended."""
    before = bench.cluster.cpu_s()
    began = time.perf_counter()
    bench.submit("true", bench.words.array.format("0-999"))
    bench.until_empty(300)
    wall = time.perf_counter() - began
    return {
        "1,000 x true: jobs/s": 1000 / wall,
        "1,000 x true: daemons CPU ms a job": bench.cluster.cpu_s() - before,
    }


def listing(bench: Bench) -> Figures:
    """Ten thousand separate waiting jobs as text and as JSON."""
    bench.until_empty(60)  # the first list of a new checkout writes bytecode
    figures = _fill_queue(bench)
    memory = getattr(bench.cluster, "memory_mb", None)
    if callable(memory):
        time.sleep(5)  # until what the call itself needed is given back
        figures["10,000 waiting: daemon MB"] = memory()["memory: daemon MB"]
    text_wall, text_cpu, text = _several(bench, bench.words.list_text)
    figures |= {
        "list 10,000: text s": text_wall,
        "list 10,000: text client CPU s": text_cpu,
        "list 10,000: text kB": len(text) / 1e3,
    }
    try:
        wall, _, document = _several(bench, bench.words.list_json)
        figures |= {"list 10,000: JSON s": wall, "list 10,000: JSON MB": len(document) / 1e6}
    except RuntimeError:
        pass  # built without its JSON plugin
    bench.call(*bench.words.cancel_all)
    bench.until_empty(60)
    return figures


def _several(bench: Bench, command: Sequence[str]) -> tuple[float, float, str]:
    """The medians of some calls, and what the last one printed."""
    calls = [bench.call(*command) for _ in range(LISTS)]
    wall, cpu = (statistics.median(each) for each in list(zip(*calls, strict=True))[:2])
    return wall, cpu, calls[-1][2]


def _fill_queue(bench: Bench) -> Figures:
    if bench.words is SLURM:
        script = " ".join([*SLURM.submit, "-H", SLURM.wrap, "true"])
        began = time.perf_counter()
        bench.call("sh", "-c", f"for i in $(seq 10000); do {script} >&-; done 2>&-; true")
        return {"10,000 submits: s": time.perf_counter() - began}
    rows = bench.folder / "jobs.csv"
    rows.write_text("name,command,hold\n" + "".join(f"job{k},true,yes\n" for k in range(10_000)))
    wall, _, _ = bench.call("dlsched", "submit", "--from", str(rows))
    return {"10,000 submits: s": wall}


MEASURES: Mapping[str, Callable[[Bench], Figures]] = {
    "submit": one_submit,
    "array": array,
    "latency": latency,
    "thousand": thousand,
    "listing": listing,
}


def _side(
    cluster: AbstractContextManager[Cluster], words: Words, names: Sequence[str], folder: Path
) -> Figures:
    figures: Figures = {}
    with cluster as running:
        bench = Bench(running, words, folder)
        for name in names:
            figures |= MEASURES[name](bench)
            print(f"  {name}: done", file=sys.stderr, flush=True)
        memory = getattr(running, "memory_mb", None)
        if callable(memory):
            figures |= memory()
    return figures


def main(words: Sequence[str] | None = None) -> int:
    """Measure both and print them side by side."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("names", nargs="*", choices=[[], *MEASURES], help="default: all")
    parser.add_argument("--only", choices=("slurm", "dlsched"))
    given = parser.parse_args(words)
    names = given.names or list(MEASURES)
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    results: dict[str, Figures] = {}
    with tempfile.TemporaryDirectory(prefix="dlsched-live-") as name:
        folder = Path(name)
        for side in ("dlsched", "slurm"):
            (folder / side).mkdir()
            if given.only not in (None, side):
                continue
            if side == "slurm" and (why := slurm_cluster.obstacle()):
                print(f"slurm: {why}", file=sys.stderr)
                continue
            print(side, file=sys.stderr, flush=True)
            cluster: AbstractContextManager[Cluster] = (
                SlurmCluster(folder / side / "cluster") if side == "slurm" else DlschedCluster()
            )
            side_words = SLURM if side == "slurm" else DLSCHED
            results[side] = _side(cluster, side_words, names, folder / side)
    ours, theirs = results.get("dlsched", {}), results.get("slurm", {})
    once = {row: value for row, value in SLURM_ONCE.items() if row in ours and not theirs}
    if once:
        print("Slurm's column is of an earlier run on another load: read its ratios with care")
    _print(ours, theirs or once, "slurm" if theirs else "stored")
    return 0


def _print(ours: Figures, theirs: Figures, side: str) -> None:
    print(f"{'':42}{'dlsched':>10}{side:>10}{'ratio':>8}")
    for row in dict.fromkeys([*ours, *theirs]):
        mine, other = ours.get(row), theirs.get(row)
        ratio = f"{mine / other:.2f}" if mine is not None and other else ""
        print(f"{row:42}{_shown(mine):>10}{_shown(other):>10}{ratio:>8}")
    print()
    for goal in GOALS:
        mine, other = ours.get(goal.row), theirs.get(goal.row)
        if mine is not None and (other is not None or not goal.against_slurm):
            word = "reached" if goal.holds(mine, other or 0.0) else "missed"
            print(f"{word:8} {goal.row}: {goal.text}")


def _shown(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}" if value < 1000 else f"{value:,.0f}"


if __name__ == "__main__":
    raise SystemExit(main())
