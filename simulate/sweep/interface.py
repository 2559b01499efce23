"""The interface of executors, which do the runs of a sweep, and the simplest executor."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Protocol

from simulate.sweep.run import Finished, Inputs, Run, execute

Progress = Callable[[Run, int], None]  # a run that is going on, and how many of its jobs have ended


class Executor(Protocol):
    """Does runs; a sweep knows nothing else of where they are done."""

    def start(
        self, inputs: Inputs, runs: Sequence[Run], on_progress: Progress
    ) -> Iterator[Finished]:
        """Do the runs; yields each as it finishes, in any order.

        Closing the iterator, or an exception in it (Ctrl-C), stops those that are still going.
        `on_progress` is for executors that can tell how far a run is.
        """
        ...


class InProcess:
    """The executor that does one run after the other in this process."""

    def start(
        self, inputs: Inputs, runs: Sequence[Run], on_progress: Progress
    ) -> Iterator[Finished]:
        """Do the runs in order."""
        for run in runs:
            yield run, execute(inputs, run, partial(on_progress, run))
