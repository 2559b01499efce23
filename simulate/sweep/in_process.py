"""Runs one after the other in this process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from simulate.sweep.interface import Progress
from simulate.sweep.run import Finished, Inputs, Run, execute

__all__ = ["InProcess"]


class InProcess:
    """The executor for a single run, for debuggers, and for `processes:1`."""

    def start(
        self, inputs: Inputs, runs: Sequence[Run], on_progress: Progress
    ) -> Iterator[Finished]:
        """Do the runs in order."""
        for run in runs:
            yield run, execute(inputs, run, partial(on_progress, run))
