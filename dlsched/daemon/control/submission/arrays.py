"""The grammar of arrays: `0-9%2`, `1,3,7`, `0-15:4`, and how elements are shown folded."""

from __future__ import annotations

import re
from collections.abc import Iterable

from dlsched.core.errors import BadInput
from dlsched.db.records import ArrayShape

_PIECE = re.compile(r"(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?")
LARGEST_TASK = 4_000_000


def parse_array(text: str, most: int) -> ArrayShape:
    """The array that a text asks for.

    Raises:
        BadInput: for anything outside the grammar, or more elements than `most`.
    """
    body, percent, bound = text.partition("%")
    if percent and not (bound.isascii() and bound.isdigit() and 0 < int(bound[:10]) < 10**9):
        raise BadInput(f"array {text[:60]!r}: after % comes how many may run at once")
    tasks: set[int] = set()
    step, asked = 1, 0
    for piece in body.split(",", most)[:most]:
        match = _PIECE.fullmatch(piece)
        if match is None:
            raise BadInput(f"array {text[:60]!r}: {piece[:40]!r} is not N, N-M or N-M:STEP")
        first, last = int(match[1]), int(match[2] or match[1])
        stride = int(match[3] or 1)
        if last < first or stride < 1 or last > LARGEST_TASK:
            raise BadInput(
                f"array {text[:60]!r}: {piece[:40]!r} is not a range up to {LARGEST_TASK}"
            )
        step = stride if match[3] else step
        asked += (last - first) // stride + 1  # those that are named twice count twice
        if asked <= most:
            tasks.update(range(first, last + 1, stride))
    if asked > most or body.count(",") >= most:
        raise BadInput(f"array {text[:60]!r}: more than {most} elements")
    return ArrayShape(tasks=tuple(sorted(tasks)), limit=int(bound) if percent else 0, step=step)


def fold_tasks(tasks: Iterable[int], limit: int = 0) -> str:
    """Task numbers as a user writes them: 2-9%2."""
    ranges: list[list[int]] = []
    for task in sorted(tasks):
        if ranges and ranges[-1][1] == task - 1:
            ranges[-1][1] = task
        else:
            ranges.append([task, task])
    text = ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in ranges)
    return f"{text}%{limit}" if limit else text
