"""The stacks of this process's threads, for the keeper of a training that hangs.

A thread that waits inside a collective reads no message, so the keeper asks with a signal, and the
handler of `faulthandler` writes to a file in memory whose descriptor the keeper has. Nothing is
written to the user's disk.
"""

from __future__ import annotations

import faulthandler
import os
import signal

from dlsched.job.messages import STACKS_SIGNAL


def offer() -> int | None:
    """Return the descriptor of the file; None where the script uses the signal itself."""
    if signal.getsignal(STACKS_SIGNAL) is not signal.SIG_DFL:
        return None
    try:
        file = os.memfd_create("dlsched-stacks", os.MFD_CLOEXEC)
        faulthandler.register(STACKS_SIGNAL, file=file, all_threads=True)
    except (OSError, RuntimeError):
        return None
    return file
