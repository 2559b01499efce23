"""Files that a user names for output: they appear whole or not at all.

Apart from `files`, which the keeper of a job loads too and must stay small.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def appearing_whole(path: Path) -> Iterator[Path]:
    """Lend a temporary name beside `path`; the file takes its own name when all went well.

    A link keeps its target. A device or a pipe is written as it is: it must never be replaced.
    """
    if _is_special(path):
        yield path
        return
    target, part = _names_of(path)
    try:
        yield part
        os.replace(part, target)
    finally:
        with suppress(OSError):  # whatever is wrong with the name has been said already
            part.unlink()


def remove_left_parts(path: Path) -> None:
    """Remove what processes that were killed have left of `path` under its temporary names."""
    target, _ = _names_of(path)
    with suppress(OSError):
        for part in target.parent.glob(f".{glob.escape(target.name)}.*.part"):
            process = part.name.split(".")[-2]
            if process.isdecimal() and not os.path.exists(f"/proc/{process}"):
                part.unlink()


def why_not_writable(path: Path) -> str:
    """Why a file cannot be written, as the rest of a sentence about it; "" when it can."""
    if os.path.isdir(path):  # unlike Path's, no error for a name that cannot be
        return "a folder; name a file"
    if _is_special(path):
        return "" if os.access(path, os.W_OK) else "cannot be written"
    target, part = _names_of(path)
    if not os.path.isdir(target.parent):
        return f"the folder {target.parent} does not exist"
    try:
        part.open("wb").close()
        part.unlink()
    except OSError as error:
        return f"cannot be written ({error.strerror or error})"
    return ""


def _is_special(path: Path) -> bool:
    """Is there a device or a pipe, such as /dev/null?"""
    return os.path.exists(path) and not os.path.isfile(path)


def _names_of(path: Path) -> tuple[Path, Path]:
    """The file that a name stands for, and the temporary one beside it."""
    target = Path(os.path.realpath(path))
    return target, target.with_name(f".{target.name}.{os.getpid()}.part")
