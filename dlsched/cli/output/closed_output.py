"""Standard output that is closed, or on a full disk: said on stderr, with a code of its own.

A script that is not told the id of a job must not take the job for refused, and submit it again.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

UNTOLD = 74  # exit code: it was done, and standard output did not take the answer
_ERRORS = (errno.EBADF, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.ENOSPC, errno.EPIPE)
_MOST_IDS = 100


def open_closed_output() -> None:
    """Have writing to a closed standard output fail as such.

    Python has no stream then and prints nothing, and the number of the file would be that of the
    next socket.
    """
    if sys.stdout is None:
        number = os.open(os.devnull, os.O_RDONLY)  # the kernel refuses to write there, too
        sys.stdout = os.fdopen(number, "w")


def why_untold(error: BaseException) -> str:
    """Why standard output takes nothing, if that is what an error says; empty if it is not."""
    if not isinstance(error, OSError) or error.errno not in _ERRORS or error.filename is not None:
        return ""
    give_up_output()
    return error.strerror or str(error)


def give_up_output() -> None:
    """Keep the interpreter from writing the rest when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def told_jobs(ids: Iterable[int], program: str = "dlsched") -> Iterator[None]:
    """Print ids of new jobs in this block; where standard output takes nothing, on stderr.

    Args:
        ids: of the jobs.
        program: that says so.
    """
    try:
        yield
        sys.stdout.flush()
    except OSError as error:
        if not (why := why_untold(error)):
            raise
        known = list(map(str, ids))
        more = f" and {len(known) - _MOST_IDS} more" if len(known) > _MOST_IDS else ""
        told = ", ".join(known[:_MOST_IDS]) + more or "nothing"
        print(f"{program}: standard output: {why}; submitted: {told}", file=sys.stderr)
        raise SystemExit(UNTOLD) from None
