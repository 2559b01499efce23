"""What watched jobs write of themselves, and how it is read.

Each process of a watched job holds a lock for its job and one for each of its GPUs, as long as it
or a child of it lives, and says so if one is taken. It also writes when it begins and how it ends.
So "twice at once" is seen by the processes, not by what the daemon believes.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

PREAMBLE = """#!/bin/bash
umask 0
marks={marks}
me="$DLSCHED_JOB_ID $DLSCHED_RUN ${{DLSCHED_NODE_RANK:-0}}"
claim() {{
    exec {{held}}>>"$marks/$1.lock"
    flock -n $held || echo "$1: $me" >>"$marks/clashes"
}}
claim "job-$DLSCHED_JOB_ID-${{DLSCHED_NODE_RANK:-0}}"
for gpu in ${{CUDA_VISIBLE_DEVICES//,/ }}; do claim "$gpu"; done
echo "$me begin" >>"$marks/log"
trap 'code=$?; echo "$me end $code" >>"$marks/log"' EXIT
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """All that watched jobs have written.

    Attributes:
        lines: job, run, rank, "begin" or "end", and the code.
        clashes: locks that were taken: which, and by which job, run and rank they were wanted.
    """

    lines: tuple[tuple[str, ...], ...] = ()
    clashes: tuple[str, ...] = ()


def watched_script(folder: Path, body: str) -> str:
    """A script that does what `body` says and writes marks below a folder."""
    return PREAMBLE.format(marks=folder) + body + "\n"


def read_marks(folder: Path) -> Marks:
    """Read what jobs have written below a folder so far."""
    return Marks(
        lines=tuple(tuple(line.split()) for line in _lines(folder / "log")),
        clashes=tuple(_lines(folder / "clashes")),
    )


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []
