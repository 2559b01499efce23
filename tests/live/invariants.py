"""Invariants after any kill, pause or cut, checked from what the jobs themselves wrote.

Each job's processes hold a lock for their job and one for each of their GPUs, as long as any of
them lives, and say so if one is taken. They also write when they begin and how they end. So
"twice at once" is seen by the processes, not by what the daemon believes.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from dlsched.client.records import Job
from tests.live.local_cluster import LocalCluster

__all__ = ["Witnessed"]

PREAMBLE = """#!/bin/bash
marks={marks}
me="$DLSCHED_JOB_ID $DLSCHED_RUN ${{DLSCHED_NODE_RANK:-0}}"
claim() {{
    exec {{held}}>>"$marks/$1.lock"
    flock -n $held || echo "$1: $me" >>"$marks/clashes"
}}
claim "job-$DLSCHED_JOB_ID-${{DLSCHED_NODE_RANK:-0}}"
for gpu in ${{CUDA_VISIBLE_DEVICES//,/ }}; do claim "$gpu"; done
echo "$me begin" >>"$marks/log"
trap 'code=$?; echo "$me end $code" >>"$marks/log"' EXIT
"""
ENDED = frozenset(
    ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "GPU_FAIL", "DEADLINE")
)


class Witnessed:
    """Jobs of a cluster that are watched by themselves.

    Attributes:
        accepted: ids that were printed, in order.
    """

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        self.accepted: list[int] = []
        self._marks = cluster.folder / "witnessed"
        self._marks.mkdir()
        self._ends: dict[int, tuple[str, int | None, int | None]] = {}

    def submit(self, body: str, **options: object) -> int:
        """Submit a script that is watched; its id is one that must never be lost."""
        script = PREAMBLE.format(marks=self._marks) + body + "\n"
        options.setdefault("output", f"{self.cluster.out}/%j.%n.out")
        with self.cluster.client() as client:
            job = client.submit(script=script.encode(), name="watched", **options)  # type: ignore[arg-type]
        self.accepted.append(job)
        return job

    def lines(self, job: int | None = None) -> list[list[str]]:
        """What processes wrote: job, run, rank, "begin" or "end", and the code."""
        found = [line.split() for line in _read(self._marks / "log").splitlines()]
        return [line for line in found if job is None or line[0] == str(job)]

    def began(self, job: int) -> int:
        """How many processes of a job have begun, of all its runs."""
        return sum(line[3] == "begin" for line in self.lines(job))

    def check(self) -> None:
        """All of it, now; call it as often as you like."""
        clashes = _read(self._marks / "clashes")
        assert not clashes, clashes
        twice = Counter(tuple(line[:3]) for line in self.lines() if line[3] == "begin")
        assert not [key for key, count in twice.items() if count > 1]
        assert len(set(self.accepted)) == len(self.accepted)
        known = {job.job_id: job for job in self.cluster.jobs(self.accepted)}
        assert sorted(known) == sorted(self.accepted)
        for number, job in known.items():
            self._check_job(number, job)
        with self.cluster.client() as client:
            for node in client.nodes():
                assert all(len(gpu.jobs) <= 1 for gpu in node.devices), node

    def _check_job(self, number: int, job: Job) -> None:
        assert job.name == "watched"
        runs = {int(line[1]) for line in self.lines(number)}
        assert len(runs) <= job.starts, (number, runs, job.starts)
        if job.state == "PENDING":
            assert job.reason
        if job.state in ENDED:
            end = (job.state, job.exit_code, job.exit_signal)
            assert self._ends.setdefault(number, end) == end
        assert number not in self._ends or job.state in ENDED


def _read(path: Path) -> str:
    return path.read_text() if path.exists() else ""
