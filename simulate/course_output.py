"""The file of `--courses-out`: what elastic jobs had over time (CSV, a row a change)."""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Sequence
from pathlib import Path

from dlsched.core.errors import DlschedError
from simulate.output import appearing_whole, cell, quoted
from simulate.results import ReplayResult

__all__ = ["COURSE_COLUMNS", "write_courses"]

COURSE_COLUMNS = ("job_id", "time", "gpus", "batch_size", "goodput")


def write_courses(
    results: Sequence[ReplayResult], path: Path, *, tagged: Sequence[str] = ()
) -> None:
    """Write the courses of all elastic jobs of some runs, in order of time.

    Args:
        results: the runs, in order.
        path: packed when it ends in .gz.
        tagged: leading columns that tell the runs apart: keys of the summary.

    Raises:
        DlschedError: the file cannot be written.
    """
    try:
        with appearing_whole(path) as part, part.open("wb") as raw:
            text = "".join(_lines(results, tagged)).encode()
            # neither the name nor the time of writing belongs into the bytes
            packed = path.name.endswith(".gz")
            raw.write(gzip.compress(text, compresslevel=6, mtime=0) if packed else text)
    except OSError as error:
        raise DlschedError(f"{path}: cannot be written ({error.strerror or error})") from None


def _lines(results: Sequence[ReplayResult], tagged: Sequence[str]) -> Iterator[str]:
    yield ",".join([*tagged, *COURSE_COLUMNS]) + "\n"
    for result in results:
        courses = result.courses
        if courses is None:
            continue
        tags = "".join(cell(result.summary.get(key)) + "," for key in tagged)
        names = [quoted(str(name)) for name in result.jobs.job_id.tolist()]
        for job, time, gpus, batch_size, goodput in zip(
            courses.job.tolist(),
            courses.time.tolist(),
            courses.gpus.tolist(),
            courses.batch_size.tolist(),
            courses.goodput.tolist(),
            strict=True,
        ):
            yield f"{tags}{names[job]},{cell(time)},{gpus},{cell(batch_size)},{cell(goodput)}\n"
