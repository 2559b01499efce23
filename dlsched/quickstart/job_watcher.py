"""Jobs as they change: a table on a terminal, else a line for each change."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from typing import Any

from dlsched.client.job_records import Job

STYLES = {
    "RUNNING": "green",
    "PENDING": "yellow",
    "PREEMPTED": "yellow",
    "COMPLETED": "dim",
    "FAILED": "bold red",
}


class JobWatcher:
    """Shows jobs each time `show` is called."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._printed: dict[int, tuple[str, int]] = {}
        self._live: Any = None

    def __enter__(self) -> JobWatcher:
        """Begin a table, if standard output is a terminal."""
        if sys.stdout.isatty():
            from rich.live import Live  # noqa: PLC0415  # only where it is used

            self._live = Live(refresh_per_second=8, transient=False)
            self._live.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        """End the table; its last content stays."""
        if self._live is not None:
            self._live.__exit__(None, None, None)

    def show(self, jobs: Iterable[Job]) -> None:
        """Show the present state of jobs."""
        ordered = sorted(jobs, key=lambda job: job.job_id)
        if self._live is not None:
            self._live.update(self._table(ordered))
            return
        for job in ordered:
            now = (job.state, job.starts)
            if self._printed.get(job.job_id) != now:
                self._printed[job.job_id] = now
                print(f"{self._seconds():5.1f} s  {_line(job)}", flush=True)

    def _seconds(self) -> float:
        return time.monotonic() - self._began

    def _table(self, jobs: list[Job]) -> Any:
        from rich.table import Table  # noqa: PLC0415

        table = Table(title=f"{self._seconds():.0f} s", title_justify="left")
        for name, justify in (
            ("ID", "right"), ("NAME", "left"), ("STATE", "left"), ("GPUS", "right"),
            ("WHERE", "left"), ("RUN", "right"), ("PREEMPTED", "right"), ("STEPS", "right"),
        ):  # fmt: skip
            table.add_column(name, justify=justify)  # type: ignore[arg-type]  # one of rich's words
        for job in jobs:
            table.add_row(
                str(job.job_id), job.name or "", job.state, _gpus(job), ",".join(job.nodes),
                str(job.starts or ""), str(job.preemptions or ""), f"{job.progress or 0:.0f}",
                style=STYLES.get(job.state),
            )  # fmt: skip
        return table


def _gpus(job: Job) -> str:
    return f"{len(job.gang)}x{job.gang[0]}" if len(job.gang) > 1 else str(job.gpus)


def _line(job: Job) -> str:
    where = f" on {','.join(job.nodes)}" if job.nodes else ""
    run = f", run {job.starts}" if job.starts > 1 else ""
    why = f" ({job.reason})" if job.state == "PENDING" and job.reason else ""
    return f"job {job.job_id} {job.name:<6} {job.state}{where}{run}{why}"
