"""What a reader of traces may leave out, and what it does with a row it can't use."""

from __future__ import annotations

from dataclasses import dataclass

from dlsched.core.errors import BadInput, not_known
from simulate.traces.status import STATUSES

LOG_STATUSES = ("completed", "cancelled", "failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """Which jobs to keep.

    Attributes:
        drop_cpu_jobs: leave out jobs that ask for no GPU.
        min_duration: leave out jobs that ran for fewer seconds; None means 1 for the logs of real
            clusters and no limit for research traces, whose rows are all meant.
        status: keep these statuses (a job of unknown status is always kept); None means completed,
            cancelled and failed for logs, and everything for research traces.
        on_missing: "drop" or "keep" jobs whose size or duration the log lost (NaN when kept).
        skip_bad_rows: count rows that can't be read instead of refusing the file.
        workload: which of several workloads in a file, as SET:NUMBER.

    Raises:
        BadInput: a status that is none of the four, or a negative `min_duration`.
    """

    drop_cpu_jobs: bool = True
    min_duration: float | None = None
    status: tuple[str, ...] | None = None
    on_missing: str = "drop"
    skip_bad_rows: bool = False
    workload: str | None = None

    def __post_init__(self) -> None:
        for word in self.status or ():
            if word not in STATUSES:
                raise not_known("status", word, STATUSES)
        if self.min_duration is not None and not self.min_duration >= 0:
            raise BadInput(f"the shortest duration must be 0 s or more, not {self.min_duration}")
        if self.on_missing not in ("drop", "keep"):
            raise BadInput(f"on-missing is {self.on_missing!r}; it must be drop or keep")
