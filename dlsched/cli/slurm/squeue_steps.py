"""The lines of `squeue -s`: the steps that run, one line each."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

from dlsched.cli.jobs.job_columns import Row
from dlsched.cli.slurm.formats import Cell
from dlsched.cli.slurm.queue_cells import LETTERS
from dlsched.cli.slurm.sacct_steps import with_steps

USUAL_OF_STEPS = "%i %j %P %u %M %N"


class StepRow(Row):
    """A step as a row of a job that has only what steps have."""

    step: str = ""

    @property
    def step_id(self) -> str:
        """`7.batch`, `7.0`."""
        return f"{self.job.shown_id}.{self.step}"


LETTERS_OF_STEPS: dict[str, Cell[Row]] = {
    "i": Cell("STEPID", lambda row: row.step_id if isinstance(row, StepRow) else ""),
    **{letter: LETTERS[letter] for letter in "jPuMNtTC"},
}


def running_steps(rows: Iterable[Row], named: Collection[str]) -> Iterator[Row]:
    """The steps that run.

    Args:
        rows: the jobs.
        named: only these steps, as `7.0` or `7.batch`; none: all.
    """
    for row in rows:
        for line in with_steps(row.job):
            job = replace(line.job, user=row.job.user, partition=row.job.partition)
            step = StepRow(job, row.now, step=line.step)
            if line.step and job.state == "RUNNING" and (not named or step.step_id in named):
                yield step
