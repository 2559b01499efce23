"""Commands inside a job that stop or queue again the job itself: they end well before it does.

The stop that such a command brings about reaches all processes of the job, the command too. A
script that asks `scontrol requeue` for its own job, as submitit and many handlers of signals do,
would take the command's death for a failure.
"""

from __future__ import annotations

import os
import signal


def outlive_own_stop() -> None:
    """Ignore SIGTERM from now on where this process is of a job; KILL follows after the grace."""
    if os.environ.get("DLSCHED_RUN_ID"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
