"""A progress bar while a replay runs, on terminals only."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from simulate.sweep.run import Finished, Inputs, Run

SHOW_EVERY_S = 0.1


class Bar:
    """A progress bar over all runs; this class shows nothing."""

    def progress(self, run: Run, ended: int) -> None:
        """Take note that `ended` jobs of a run have ended."""

    def finished(self, finished: Finished) -> None:
        """Take note that a run has finished."""


class _RichBar(Bar):
    def __init__(self, inputs: Inputs, runs: Sequence[Run]) -> None:
        from rich.console import Console  # noqa: PLC0415 - only on a terminal
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415

        self._sizes = {run.number: len(inputs.traces[run.trace]) for run in runs}
        self._ended: dict[int, int] = {}
        self._over = 0
        self._shown_at = 0.0
        self.rich = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._last = ""  # the run that has got on last
        self._task = self.rich.add_task("", total=max(sum(self._sizes.values()), 1))
        self._show()

    def progress(self, run: Run, ended: int) -> None:
        self._ended[run.number] = ended
        self._last = run.title
        if time.monotonic() - self._shown_at > SHOW_EVERY_S:
            self._show()

    def finished(self, finished: Finished) -> None:
        run, _ = finished
        self._ended[run.number] = self._sizes[run.number]
        self._over += 1
        self._show()

    def _show(self) -> None:
        self._shown_at = time.monotonic()
        runs = len(self._sizes)
        description = f"{self._over} of {runs} runs done" if runs > 1 else "replaying"
        description += f", now {self._last}" if self._last else ""
        self.rich.update(self._task, description=description, completed=sum(self._ended.values()))


@contextmanager
def progress_bar(inputs: Inputs, runs: Sequence[Run]) -> Iterator[Bar]:
    """Yield a bar that disappears at the end."""
    if not sys.stderr.isatty():
        yield Bar()
        return
    bar = _RichBar(inputs, runs)
    with bar.rich:
        yield bar
