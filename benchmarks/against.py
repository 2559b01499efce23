"""Two commits in one run: the same cases, by turns in this checkout and in an earlier commit.

The files of the commit are unpacked into a temporary folder, and the cases of this checkout run
there too, on the same traces. Under load, two runs that follow each other see nearly the same
machine: the ratio of each pair is what counts, and the median of these ratios is shown.
"""

from __future__ import annotations

import io
import statistics
import subprocess
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.cases import Case
from benchmarks.measure import (
    ROOT,
    Cost,
    calls_per_decision,
    figures_of,
    measure,
    yardstick_s,
)

__all__ = ["checkout_of", "compare"]

Row = dict[str, Any]


@contextmanager
def checkout_of(commit: str) -> Iterator[Path]:
    """A folder with the files of a commit, for as long as the context lasts.

    Raises:
        ValueError: the project has no such commit.
    """
    packed = subprocess.run(
        ["git", "archive", "--format=tar", commit], cwd=ROOT, capture_output=True, check=False
    )
    if packed.returncode:
        raise ValueError(packed.stderr.decode(errors="replace").strip())
    with tempfile.TemporaryDirectory(prefix="dlsched-against-") as folder:
        with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as files:
            files.extractall(folder, filter="data")
        yield Path(folder)


def compare(cases: Iterable[Case], commit: str, repeats: int) -> list[Row]:
    """Run every case in both, print a line for each, and return the figures.

    Args:
        cases: what is run.
        commit: what this checkout is compared to.
        repeats: pairs of runs of a case; 0: at least three, and as many as the case says.

    Raises:
        ValueError: the project has no such commit.
        RuntimeError: a run failed.
    """
    rows = []
    with checkout_of(commit) as other:
        print(f"{'':28}{'now':>10}{commit[:9]:>11}{'ratio':>8}  (CPU-s; ratio now / {commit})")
        for case in cases:
            turns = repeats or max(case.repeats, 3)
            pairs = [_pair(case, other, other_first=turn % 2 == 1) for turn in range(turns)]
            rows.append(_row(case, pairs, other))
            print(_lines(rows[-1]), flush=True)
    return rows


def _pair(case: Case, other: Path, *, other_first: bool) -> tuple[Cost, Cost]:
    """One run in this checkout and one in the other, in this order in the result."""
    if other_first:
        then = measure(case.command, other)
        return measure(case.command), then
    return measure(case.command), measure(case.command, other)


def _row(case: Case, pairs: Sequence[tuple[Cost, Cost]], other: Path) -> Row:
    """The figures of a case; in each pair of figures the first is of this checkout."""
    columns = list(zip(*pairs, strict=True))
    yardstick = yardstick_s()
    cpu = [statistics.median(cost.cpu_s for cost in column) for column in columns]
    row: Row = {
        "name": case.name,
        "cpu_s": cpu,
        "yardsticks": [each / yardstick for each in cpu],
        "ratio": statistics.median(now.cpu_s / then.cpu_s for now, then in pairs),
        "peak_mb": [max(cost.peak_mb for cost in column) for column in columns],
        "same_results": figures_of(pairs[0][0].output) == figures_of(pairs[0][1].output),
    }
    if case.counts_calls:
        row["calls_per_decision"] = [
            calls_per_decision(case.command, root) for root in (ROOT, other)
        ]
    return row


def _lines(row: Row) -> str:
    now, then = row["cpu_s"]
    text = f"{row['name']:28}{now:10.2f}{then:11.2f}{row['ratio']:8.2f}"
    for key, label in (
        ("yardsticks", "  yardsticks"),
        ("peak_mb", "  MB"),
        ("calls_per_decision", "  calls a decision"),
    ):
        if key in row:
            now, then = row[key]
            text += f"\n{label:28}{now:10.2f}{then:11.2f}{now / then:8.2f}"
    return text if row["same_results"] else text + "\n  DIFFERENT RESULTS"
