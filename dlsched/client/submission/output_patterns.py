"""`-o` and `-e`: which `%` letters a path may hold."""

from __future__ import annotations

import re

from dlsched.client.submission.texts import check_text
from dlsched.core.errors import BadInput

LETTERS = {
    "j": "job id",
    "A": "array's job id",
    "a": "task of the array",
    "b": "task of the array, its last digit",
    "J": "job id, as Slurm names the script's own step",
    "x": "job name",
    "u": "user",
    "N": "node",
    "n": "node's rank",
    "t": "rank",
    "s": "step: batch",
    "%": "a percent sign",
}
_ESCAPE = re.compile(r"%(\d{0,2})(.?)", re.ASCII)


def output_pattern(what: str, text: str) -> str:
    """Return the pattern as it is; numbers may be padded (`%4j`).

    Raises:
        BadInput: a letter that is not known, or a text that no path can be.
    """
    check_text(what, text, longest=4096)
    for width, letter in _ESCAPE.findall(text):
        if letter not in LETTERS or letter == "":
            known = " ".join(f"%{each}" for each in LETTERS)
            raise BadInput(f"{what}: %{width}{letter} is not known; known: {known}")
    return text


def of_slurm(text: str) -> str:
    """Return a pattern in which letters that are not known stand for themselves, as in Slurm."""

    def kept(match: re.Match[str]) -> str:
        return match[0] if match[2] in LETTERS and match[2] else f"%{match[0]}"

    return _ESCAPE.sub(kept, text)
