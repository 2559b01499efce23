"""Jobs of a list by column, under the names that a `Job` has for its fields.

Lists are printed from here: a record of each of ten thousand jobs costs more than all else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dlsched.client.job_records import Job
from dlsched.rpc.columns import Column, joined

_MAPPINGS = ("gpu_indices", "metrics", "asked")
LAST = 1 << 62  # the place of a job that has none


class ListedJobs:
    """Some jobs in an order; fields that no job says have no column."""

    __slots__ = ("columns", "count")

    def __init__(self, count: int, columns: Mapping[str, Column]) -> None:
        """Take the columns of `count` jobs."""
        self.count = count
        self.columns = columns

    @staticmethod
    def unsaid(name: str) -> Any:
        """What a job has that does not say a field."""
        return {} if name in _MAPPINGS else getattr(Job, name, None)

    @classmethod
    def joined(cls, pages: Sequence[ListedJobs]) -> ListedJobs:
        """The jobs of several pages, one page after the other."""
        some = [page for page in pages if page.count]
        if len(some) == 1:
            return some[0]
        counts = [page.count for page in some]
        names = dict.fromkeys(name for page in some for name in page.columns)
        columns = {n: joined([page.columns.get(n) for page in some], counts) for n in names}
        return cls(sum(counts), columns)

    def column(self, name: str) -> Column:
        """The column of a field of `Job`, or of another name, of which no job has a value."""
        return self.columns.get(name) or Column([self.unsaid(name)])

    def with_columns(self, **columns: Column) -> ListedJobs:
        """The same jobs with further columns."""
        return ListedJobs(self.count, {**self.columns, **columns})

    def of(self, jobs: Sequence[int]) -> ListedJobs:
        """Some of the jobs, by their numbers from 0."""
        return ListedJobs(len(jobs), {name: each.of(jobs) for name, each in self.columns.items()})

    def in_order(self) -> ListedJobs:
        """The jobs in the order of a listing: those that wait by their place, then by start."""
        names = ("state", "ended_at", "position", "started_at", "job_id")
        keys = list(map(_place, *(self.column(name).each(self.count) for name in names)))
        return self.of(sorted(range(self.count), key=keys.__getitem__))

    def records(self) -> list[Job]:
        """A record of each job."""
        own = {name: each for name, each in self.columns.items() if name in Job.__annotations__}
        found = []
        for values in zip(*(each.each(self.count) for each in own.values()), strict=True):
            job = object.__new__(Job)
            vars(job).update((name, {}) for name in _MAPPINGS)
            vars(job).update(zip(own, values, strict=True))
            found.append(job)
        return found


def _place(
    state: str, ended_at: float | None, position: int | None, started_at: float | None, job_id: int
) -> tuple[float, float, int]:
    if Job.waits(state, ended_at):
        return 0, position or LAST, job_id
    return 1, started_at or 0.0, job_id
