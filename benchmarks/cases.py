"""The cases: which commands are measured, what they may cost, and what they are compared to."""

from __future__ import annotations

import csv
import gzip
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measure import dlsched, measure

__all__ = ["GROUPS", "Budget", "Case", "Workloads", "all_cases"]

CLUSTER = "312x8:v100+1x4:v100"  # 2,500 GPUs
PASSED_CLUSTER = "311x8:v100"
CONTENDED = 1.2  # offered load at which the queue grows for as long as jobs come

GROUPS = {
    "target": "100,000 and 1,000,000 Philly-like jobs on 2,500 GPUs, LAS, 60-s rounds, min-nodes",
    "passed": "the real philly-passed trace, 82,247 jobs, on 311 nodes of 8",
    "blox": "Blox' published stream at 8 jobs/h on 32 nodes of 4, jobs 1000 to 2000 tracked",
    "start": "starting up",
    "store": "the database of the live cluster",
    "growth": "how the cost grows: jobs, GPUs, load; LAS",
    "cells": "HiveD's cells and the default placement; 20,000 Philly-like jobs, 512 GPUs, load 0.9",
    "policy": "every policy on 20,000 Philly-like jobs, 512 GPUs, load 0.9",
    "synergy": "Synergy's tune on 1,000 GPUs, 3,000 jobs, and a plain simulator; same average JCT",
    "deadlines": "policies that know of deadlines, jobs of which 60 % have one; flows over a link",
    "graphs": "graphs of tasks: 100 jobs of four stages, 2,600 tasks, on one pool",
    "reference": "against a plain simulator: a dict a job, every round stepped; same average JCT",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What a case may cost; None is no limit.

    Attributes:
        cpu_s, wall_s, peak_mb: absolute limits.
        yardsticks: most CPU time, in yardsticks of the same run.
        calls_per_decision: most calls of functions, in Python or built in.
        of: the case that `memory_factor` refers to.
        memory_factor: at most so many times the memory of that case in the same run.
    """

    cpu_s: float | None = None
    wall_s: float | None = None
    peak_mb: float | None = None
    yardsticks: float | None = None
    calls_per_decision: float | None = None
    of: str = ""
    memory_factor: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One command to measure.

    Attributes:
        name: how `run.py` calls it, "group/rest".
        command: what is run.
        budget: what it may cost.
        compared_to: the case that it is shown as a multiple of.
        repeats: runs of which the median counts.
        counts_calls: count calls of functions too, in one more run; the summary must go to stdout.
    """

    name: str
    command: list[str]
    budget: Budget = Budget()
    compared_to: str = ""
    repeats: int = 1
    counts_calls: bool = False

    @property
    def group(self) -> str:
        """The part of the name before the slash."""
        return self.name.partition("/")[0]


class Workloads:
    """Generated traces, made once into a folder when first asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        data = Path(__file__).parent.parent.parent / "shared" / "data"
        self.data = Path(os.environ.get("DLSCHED_DATA", data))

    def philly(self, jobs: int, *, cluster: str = CLUSTER, load: float = 0.9) -> str:
        """A Philly-like trace that offers this load to this cluster."""
        path = self.folder / f"philly-{jobs}-{cluster.replace(':', '-')}-{load:g}.csv"
        if not path.exists():
            words = ["--profile", "philly", "--jobs", str(jobs), "--cluster", cluster]
            measure(dlsched("trace", "generate", *words, "--load", f"{load:g}", "-o", str(path)))
        return str(path)

    def with_deadlines(self, jobs: int, *, cluster: str) -> tuple[str, str]:
        """A trace of elastic jobs of which 60 % have deadlines, at load 1, and their speeds."""
        path, speeds = self.folder / f"deadlines-{jobs}.csv", self.folder / "speeds.csv"
        if not path.exists():
            words = ["--jobs", str(jobs), "--cluster", cluster, "--load", "1"]
            words += ["--deadlines", "0.6", "--elastic", str(speeds), "-o", str(path)]
            measure(dlsched("trace", "generate", *words))
        return str(path), str(speeds)

    def flows(self, count: int) -> str:
        """Flows of 1 to 100 over one link at a load of 0.8; every third one has a deadline."""
        path = self.folder / f"flows-{count}.csv"
        rows = [
            f"{k},{k * 63},{1 + 37 * k % 100},nic,{300 if k % 3 == 0 else ''}\n"
            for k in range(count)
        ]
        path.write_text("flow_id,arrival,size,path,deadline\n" + "".join(rows))
        return str(path)

    def graphs(self, count: int) -> str:
        """Graphs of four stages and 26 tasks, one after 40 s, for a pool of 20 GPUs and 80 CPUs."""
        jobs = []
        for k in range(count):
            stages = [
                {"name": "prepare", "tasks": 8, "duration": 20 + k % 7, "demand": {"cpu": 4}},
                {"name": "rungs", "tasks": 16, "duration": 30 + 5 * (k % 11),
                 "demand": {"gpu": 1, "cpu": 2}, "after": ["prepare"]},
                {"name": "baseline", "duration": 90 + k % 40, "demand": {"gpu": 2, "cpu": 4}},
                {"name": "report", "duration": 10, "demand": {"cpu": 1},
                 "after": ["rungs", "baseline"]},
            ]  # fmt: skip
            jobs.append({"id": str(k), "arrival": 40 * k, "stages": stages})
        path = self.folder / f"graphs-{count}.json"
        path.write_text(json.dumps({"capacity": {"gpu": 20, "cpu": 80}, "jobs": jobs}))
        return str(path)

    def sensitive(self, jobs: int, *, nodes: int) -> tuple[str, str, str]:
        """Jobs one after 4 s that gain by processors or not, their profiles, and a cluster file."""
        trace, profiles = self.folder / f"sensitive-{jobs}.csv", self.folder / "demands.csv"
        cluster = self.folder / f"servers-{nodes}.toml"
        # processors and GB for each GPU at full speed, seconds of a step, gain at full speed
        models = {"vision": (12, 125, 0.6, 2.9), "speech": (6, 187.5, 0.6, 2.5),
                  "small": (9, 62.5, 0.64, 2.4), "text": (1, 20, 0.12, 1.0)}  # fmt: skip
        header = "cluster_cpu_per_gpu,model,ideal_cpu_per_gpu,ideal_mem_gb_per_gpu,"
        profiles.write_text(
            header + "iteration_s_at_fair_share,speedup_at_ideal\n"
            + "".join(f"3,{name},{','.join(map(str, of))}\n" for name, of in models.items())
        )  # fmt: skip
        names, gangs = list(models), (1, 1, 1, 2, 1, 4, 1, 1, 8, 1)
        rows = (
            f"{k},{names[k % 7 % 4]},{4 * k},{1_000 + 7_919 * k % 20_000},{gangs[k % 10]}\n"
            for k in range(jobs)
        )
        trace.write_text("job_id,model,submit_time,total_iterations,num_gpus\n" + "".join(rows))
        cluster.write_text(f"[[nodes]]\ncount = {nodes}\ngpus = 8\ncpus = 24\nmemory_gb = 500\n")
        return str(trace), str(profiles), str(cluster)

    def even(self, jobs: int) -> str:
        """A trace of jobs of 1 to 4 GPUs and up to 1,100 s, submitted one a minute."""
        path = self.folder / f"even-{jobs}.csv"
        rows = [f"{k},{k * 60},{1 + k % 4},{100 + 37 * k % 1000}\n" for k in range(jobs)]
        path.write_text("job_id,submit_time,num_gpus,duration\n" + "".join(rows))
        return str(path)

    def published(self, *parts: str) -> str | None:
        """A file of the data root; None when it is not there."""
        path = self.data.joinpath(*parts)
        return str(path) if path.exists() else None


def replay(trace: str, cluster: str, policy: str, *words: str) -> list[str]:
    """The words of a replay."""
    return dlsched("replay", trace, "--cluster", cluster, "--policy", policy, *words)


def all_cases(names: list[str], work: Workloads) -> Iterator[Case]:
    """The cases whose name or group is among the names (all but the largest when none is given)."""
    makers = {
        "start": _start,
        "store": _store,
        "reference": _reference,
        "target": _target,
        "passed": _passed,
        "blox": _blox,
        "cells": _cells,
        "policy": _policies,
        "deadlines": _deadlines,
        "graphs": _graphs,
        "synergy": _synergy,
        "growth": _growth,
    }
    for group, maker in makers.items():
        wanted = [name for name in names if name.partition("/")[0] == group]
        if not names or wanted:
            for case in maker(work):
                if not wanted or group in wanted or case.name in wanted:
                    yield case


def _start(work: Workloads) -> Iterator[Case]:
    bare = Case(name="start/python", command=[sys.executable, "-c", "pass"], repeats=5)
    yield bare
    yield Case(
        name="start/help",
        command=dlsched("--help"),
        budget=Budget(cpu_s=0.150),
        compared_to=bare.name,
        repeats=5,
    )
    yield Case(
        name="start/replay-500",
        command=replay(work.even(500), "4x4", "fifo"),
        budget=Budget(cpu_s=1.0),
        compared_to=bare.name,
        repeats=5,
    )


def _store(_: Workloads) -> Iterator[Case]:
    script = str(Path(__file__).with_name("submit_store.py"))
    bare = Case(name="store/submit-none", command=[sys.executable, script, "0"], repeats=3)
    yield bare
    yield Case(
        name="store/submit-10000",
        command=[sys.executable, script, "10000"],
        budget=Budget(cpu_s=2.6),
        compared_to=bare.name,
        repeats=3,
    )


def _target(work: Workloads) -> Iterator[Case]:
    small = "target/100k"
    yield Case(
        name=small,
        command=replay(work.philly(100_000), CLUSTER, "las", "--summary-out", "-"),
        budget=Budget(yardsticks=8.0, calls_per_decision=80.0, peak_mb=500.0),
        repeats=3,
        counts_calls=True,
    )
    yield Case(
        name="target/1m",
        command=replay(work.philly(1_000_000), CLUSTER, "las"),
        budget=Budget(yardsticks=260.0, peak_mb=6000.0, of=small, memory_factor=12),
        compared_to=small,
    )


def _passed(work: Workloads) -> Iterator[Case]:
    trace = work.published("traces", "philly-passed", "philly_passed_jobs.csv.gz")
    if trace is None:
        return
    for policy in ("fifo", "srtf", "las", "tiresias"):
        yield Case(
            name=f"passed/{policy}",
            command=replay(trace, PASSED_CLUSTER, policy),
            budget=Budget(yardsticks=8.0),
            compared_to="" if policy == "fifo" else "passed/fifo",
            repeats=3,
        )


def _blox(work: Workloads) -> Iterator[Case]:
    """The stream in the data, under all nine combinations of order and admission."""
    stream = work.published("blox", "input_load8.csv.gz")
    published = work.published("blox", "published_jobs.csv.gz")
    if stream is None or published is None:
        return
    with gzip.open(published, "rt") as file:
        tracked = sorted({int(job["job"]) for job in csv.DictReader(file)})
    words = ["--clock", "rounds", "--round", "300", "-o", "semantics=blox"]
    words += ["--placement", "first-free", "--track", f"{tracked[0]}:{tracked[-1]}"]
    for policy in ("fifo", "srtf", "las"):
        for admission in ("accept-all", "load-threshold:1.2", "load-threshold:1.4"):
            yield Case(
                name=f"blox/{policy}-{admission.replace('load-threshold:', '')}",
                command=replay(
                    stream, "32x4", policy, "--format", "blox", "--admission", admission, *words
                ),
            )


def _growth(work: Workloads) -> Iterator[Case]:
    for jobs in (10_000, 30_000, 100_000, 300_000):
        yield Case(
            name=f"growth/jobs-{jobs}",
            command=replay(work.philly(jobs), CLUSTER, "las"),
            compared_to="" if jobs == 10_000 else "growth/jobs-10000",
        )
    for nodes in (63, 125, 313, 625, 1250):
        cluster = f"{nodes}x8:v100"
        yield Case(
            name=f"growth/gpus-{nodes * 8}",
            command=replay(work.philly(50_000, cluster=cluster), cluster, "las"),
            compared_to="" if nodes == 63 else "growth/gpus-504",
        )
    for load in (0.6, 0.9, 1.0, CONTENDED):
        yield Case(
            name=f"growth/load-{load:g}",
            command=replay(work.philly(100_000, load=load), CLUSTER, "las"),
            compared_to="" if load == 0.6 else "growth/load-0.6",
        )


def _cells(work: Workloads) -> Iterator[Case]:
    cluster = "64x8:v100"
    trace = work.philly(20_000, cluster=cluster)
    for placement in ("min-nodes", "hived"):
        yield Case(
            name=f"cells/{placement}",
            command=replay(trace, cluster, "fifo", "--placement", placement),
            compared_to="" if placement == "min-nodes" else "cells/min-nodes",
        )


def _policies(work: Workloads) -> Iterator[Case]:
    cluster = "64x8:v100"
    trace = work.philly(20_000, cluster=cluster)
    listing = "from dlsched.policies.registry import names; print(*names('scheduling'))"
    for policy in measure([sys.executable, "-c", listing]).output.split():
        if policy == "what-if":  # simulates the future every round: another order of magnitude
            continue
        yield Case(
            name=f"policy/{policy}",
            command=replay(trace, cluster, policy),
            compared_to="" if policy == "fifo" else "policy/fifo",
        )
    queue = work.philly(2_000, cluster="16x8", load=1.5)
    for policy in ("easy", "conservative"):  # each end makes conservative plan anew
        yield Case(
            name=f"policy/{policy}-noisy",
            command=replay(queue, "16x8", policy, "--estimate", "noise:1.0"),
            compared_to="" if policy == "easy" else "policy/easy-noisy",
        )


def _deadlines(work: Workloads) -> Iterator[Case]:
    cluster = "8x8:v100"
    trace, speeds = work.with_deadlines(3_000, cluster=cluster)
    listing = (
        "from dlsched.policies.registry import find, names; "
        "print(*(n for n in names('scheduling') if find('scheduling', n).knows_deadlines))"
    )
    for policy in measure([sys.executable, "-c", listing]).output.split():
        greedy = ("-o", "plan=greedy") if policy == "chronus" else ()  # programs take minutes
        yield Case(
            name=f"deadlines/{policy}",
            command=replay(
                trace, cluster, policy, "--profiles", speeds, "--restart-overhead", "30", *greedy,
            ),
            compared_to="" if policy == "edf" else "deadlines/edf",
        )  # fmt: skip
    yield Case(
        name="deadlines/sla-what-if",
        command=replay(
            trace, cluster, "fifo,easy,edf", "--profiles", speeds, "--what-if", "1500",
        ),
        compared_to="deadlines/edf",
    )  # fmt: skip
    flows = work.flows(2_000)
    for discipline in ("karuna", "fair"):
        yield Case(
            name=f"deadlines/flows-{discipline}",
            command=dlsched("flows", flows, "--link", "nic=1", "--discipline", discipline),
        )


def _graphs(work: Workloads) -> Iterator[Case]:
    file = work.graphs(100)
    for discipline in ("drf-cp", "carbyne", "tetris"):
        yield Case(
            name=f"graphs/{discipline}",
            command=dlsched("dags", file, "--discipline", discipline),
            compared_to="" if discipline == "drf-cp" else "graphs/drf-cp",
        )


def _synergy(work: Workloads) -> Iterator[Case]:
    """Synergy's `tune` on 1,000 GPUs, beside a plain simulator that decides the same."""
    trace, profiles, cluster = work.sensitive(3_000, nodes=125)
    words = ["--profiles", profiles, "-o", "order=srtf", "-o", "semantics=synergy"]
    words += ["-o", "peers=that-help"]
    yield Case(name="synergy/tune", command=replay(trace, cluster, "synergy", *words))
    script = str(Path(__file__).with_name("reference_synergy.py"))
    yield Case(
        name="synergy/plain",
        command=[sys.executable, script, trace, profiles, "--nodes", "125"],
        compared_to="synergy/tune",
    )


def _reference(work: Workloads) -> Iterator[Case]:
    cluster = "313x8:v100"
    trace = work.philly(100_000, cluster=cluster)
    ours = "reference/dlsched"
    words = ["--clock", "rounds", "--round", "60", "--placement", "first-free"]
    words += ["-o", "semantics=blox", "-o", "misfit=skip", "-o", "guard_s=inf"]
    yield Case(
        name=ours,
        command=replay(trace, cluster, "las", *words, "--summary-out", "-"),
    )
    script = str(Path(__file__).with_name("reference_las.py"))
    yield Case(
        name="reference/plain",
        command=[sys.executable, script, trace, "--nodes", "313", "--gpus", "8", "--round", "60"],
        compared_to=ours,
    )
