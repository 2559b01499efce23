"""Where the tasks of a step write, by patterns of names."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from typing import BinaryIO, Literal

from dlsched.job import launch
from dlsched.job.errors import JobError
from dlsched.job.messages import Started

__all__ = ["PATTERN", "Files", "expanded", "values_of_job"]

PATTERN = re.compile(r"%(\d{0,2})(.)", re.ASCII)


class Files:
    """Files in place of this program's own output, by patterns of names."""

    def __init__(self, output: str, error: str, *, append: bool) -> None:
        """Open none yet; a pattern that is empty stands for this program's own output."""
        self._mode: Literal["ab", "wb"] = "ab" if append else "wb"
        self._patterns = {1: output, 2: error or output}
        self._open: dict[str, BinaryIO] = {}
        self._started = Started(ranks=0)

    def opened(self, started: Started) -> launch.Write:
        """Open the files of all ranks, as Slurm does: what was there goes, unless they append."""
        self._started = started
        for rank in range(started.ranks):
            for pattern in filter(None, self._patterns.values()):
                self._file(self._path(pattern, rank))
        return self.write

    def write(self, rank: int, stream: int, data: bytes) -> None:
        """Write what a rank has written."""
        pattern = self._patterns[stream]
        if not pattern:
            target = sys.stderr.buffer if stream == 2 else sys.stdout.buffer
        else:
            target = self._file(self._path(pattern, rank))
        target.write(data)
        target.flush()

    def _file(self, path: str) -> BinaryIO:
        if path not in self._open:
            try:
                self._open[path] = open(path, self._mode)  # noqa: SIM115  # open until the program ends
            except OSError as error:
                raise JobError(f"cannot open output {path}: {error.strerror}") from None
        return self._open[path]

    def _path(self, pattern: str, rank: int) -> str:
        nodes, step = self._started.nodes, self._started.call - 1
        node = nodes[rank] if nodes else ""
        values = {
            **values_of_job(),
            "t": rank,
            "N": node,
            "n": [*dict.fromkeys(nodes)].index(node) if nodes else 0,
            "s": step,
            "J": f"{os.environ.get('DLSCHED_JOB_ID', '')}.{step}",
        }
        return expanded("output", pattern, values)


def values_of_job() -> dict[str, object]:
    """What every step of a job may have in the name of a file, by letter."""
    job = os.environ.get("DLSCHED_JOB_ID", "")
    return {
        "%": "%",
        "j": job,
        "x": os.environ.get("DLSCHED_JOB_NAME", ""),
        "u": os.environ.get("USER", ""),
        "A": os.environ.get("DLSCHED_ARRAY_JOB_ID", job),
        "a": os.environ.get("DLSCHED_ARRAY_TASK_ID", "0"),
    }


def expanded(what: str, pattern: str, values: Mapping[str, object], kept: str = "") -> str:
    """The name of a file, but for the letters that are kept; `%3t` is a number of three digits."""

    def value(match: re.Match[str]) -> str:
        if match[2] in kept:
            return match[0]
        if match[2] not in values:
            raise JobError(f"{what} {pattern}: %{match[2]} is not known")
        return str(values[match[2]]).rjust(min(int(match[1] or 0), 10), "0")

    return PATTERN.sub(value, pattern)
