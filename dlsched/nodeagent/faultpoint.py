"""Crash points: where a test can have this process killed.

`DLSCHED_FAULTPOINT=name` kills at the first pass, `name:3` at the third. Unset, a pass costs one
comparison. Each point stands right before or right after something becomes durable or alive.
"""

from __future__ import annotations

import os
import signal

_ARMED = os.environ.get("DLSCHED_FAULTPOINT", "")
_NAME, _, _COUNT = _ARMED.partition(":")
_left = int(_COUNT or 1)

AGENT = (
    "agent-record-before",
    "agent-record-after",
    "agent-spawn-before",
    "agent-spawn-after",
    "agent-lease-before",
    "agent-lease-after",
    "agent-drop-before",
    "agent-drop-half",
    "agent-drop-after",
)
AGENT_FOR_A_LOST_KEEPER = ("agent-end-before", "agent-end-after")
KEEPER = (
    "keeper-begin",
    "keeper-reserve-before",
    "keeper-reserve-half",
    "keeper-reserve-after",
    "keeper-released-before",
    "keeper-released-after",
    "keeper-forked",
    "keeper-executed",
    "keeper-exit-before",
    "keeper-exit-half",
    "keeper-exit-after",
    "keeper-forgotten",
)


def faultpoint(name: str) -> None:
    """Die here, as by `kill -9`, when a test has asked for it."""
    global _left  # noqa: PLW0603  # one counter a process
    if name != _NAME:
        return
    _left -= 1
    if _left <= 0:
        _die()


def _die() -> None:
    if os.getpid() == 1:  # process 1 of a namespace cannot kill itself; leaving kills all the same
        os._exit(137)
    os.kill(os.getpid(), signal.SIGKILL)
