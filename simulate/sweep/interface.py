"""What a sweep knows of where its runs are done: the interface that every executor fills."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from simulate.sweep.run import Finished, Inputs, Run

__all__ = ["Executor", "Progress"]

Progress = Callable[[Run, int], None]  # a run that is going on, and how many of its jobs have ended


class Executor(Protocol):
    """Does runs; the only thing that a sweep knows of where they are done."""

    def start(
        self, inputs: Inputs, runs: Sequence[Run], on_progress: Progress
    ) -> Iterator[Finished]:
        """Do the runs; yields each as it finishes, in any order.

        Closing the iterator, or an exception in it (Ctrl-C), stops those that are still going.

        Args:
            inputs: what the runs share.
            runs: which to do.
            on_progress: for executors that can tell how far a run is.
        """
        ...
