"""Invariants after any kill, pause or cut, checked from what the jobs themselves wrote."""

from __future__ import annotations

from dlsched.torture.local_cluster import LocalCluster
from dlsched.torture.marks import read_marks, watched_script
from dlsched.torture.torture import seen_of
from dlsched.torture.verdict import (
    Accepted,
    Broken,
    History,
    Seen,
    judge,
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
        self._earlier: list[tuple[int, Seen]] = []

    def submit(self, body: str, **options: object) -> int:
        """Submit a script that is watched; its id is one that must never be lost."""
        script = watched_script(self._marks, body)
        options.setdefault("output", f"{self.cluster.out}/%j.%n.out")
        with self.cluster.client() as client:
            job = client.submit(script=script.encode(), name="watched", **options)  # type: ignore[arg-type]
        self.accepted.append(job)
        return job

    def lines(self, job: int | None = None) -> list[list[str]]:
        """What processes wrote: job, run, rank, "begin" or "end", and the code."""
        found = read_marks(self._marks).lines
        return [list(line) for line in found if job is None or line[0] == str(job)]

    def began(self, job: int) -> int:
        """How many processes of a job have begun, of all its runs."""
        return sum(line[3] == "begin" for line in self.lines(job))

    def check(self) -> None:
        """All of it, now; call it as often as you like.

        Raises:
            AssertionError: a promise is broken; the message names all that are.
        """
        broken = self.broken()
        if broken:
            raise AssertionError("; ".join(map(str, broken)))

    def broken(self) -> list[Broken]:
        """The promises that what is seen now does not keep."""
        jobs = {job.job_id: job for job in self.cluster.jobs(self.accepted)}
        seen = {number: seen_of(job) for number, job in jobs.items()}
        history = History(
            accepted=[Accepted(job=job) for job in self.accepted],
            jobs=seen,
            marks=read_marks(self._marks),
            earlier=self._earlier,
            shared=self.cluster.shared_gpus(),
        )
        self._earlier += seen.items()
        # the jobs of tests may still run, and end as their tests want
        found = [each for each in judge(history) if each.promise not in ("terminal", "exit-codes")]
        for number, job in jobs.items():
            if job.name != "watched":
                found.append(Broken(promise="accepted", what=f"job {number} is named {job.name}"))
        return found
