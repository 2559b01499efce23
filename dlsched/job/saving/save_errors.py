"""Why a checkpoint could not be written, in words that name what is full or too small.

Libraries hide the system's error: PyTorch raises another one in its place, and numpy tells only how
much it has written.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

from dlsched.job.errors import JobError

LITTLE = 64 * 1024  # bytes; a disk with less room is full
WORDS = {
    errno.ENOSPC: "no space left on {}",
    errno.EDQUOT: "the disk quota is used up in {}",
    errno.EFBIG: "a file in {} may not be as large as it has to be (see `ulimit -f`)",
    errno.EROFS: "{} may only be read",
    errno.EACCES: "no permission to write in {}",
}


def why_not_saved(error: Exception, folder: Path) -> str:
    """Return why a save failed, in one line.

    Args:
        error: that ended it.
        folder: of the checkpoints.
    """
    for each in _causes(error):
        if isinstance(each, OSError) and each.errno in WORDS:
            return WORDS[each.errno].format(folder)
    if room_in(folder) < LITTLE:
        return WORDS[errno.ENOSPC].format(folder)
    plain = isinstance(error, OSError | JobError)
    text = str(error) if plain else f"{type(error).__name__}: {error}"
    return " ".join(text.split()) or type(error).__name__


def room_in(folder: Path) -> float:
    """Return how many bytes this user can still write in a folder; infinite: not known."""
    for path in (folder, *folder.parents):
        try:
            found = os.statvfs(path)
        except OSError:  # it is not made yet
            continue
        return float(found.f_bavail * found.f_frsize) if found.f_blocks else float("inf")
    return float("inf")


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """The error and those that it was raised from or during."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__
