"""Fault points: named places at which a test makes a process die, as a power cut would.

`DLSCHED_FAULTPOINT=NAME` kills the process when it reaches the point NAME for the first time,
`NAME:3` when it reaches it for the third time. Without the variable a point costs one comparison.
Each point stands right before or right after something becomes durable or alive.
"""

from __future__ import annotations

import os
import signal

DAEMON = (
    "after-submit-read",
    "before-commit",
    "after-commit-before-answer",
    "after-round-commit-before-nudges",
    "between-nudges",
    "before-round-decided",
    "after-round-decided",
    "after-sync-read",
    "before-reply",
    "after-register",
)
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
KEEPER_WITH_HOOKS = (
    "keeper-hook-before",
    "keeper-hook-started",
    "keeper-epilog-written-before",
    "keeper-epilog-written-after",
)
AGENT_FOR_AN_EPILOG = ("agent-epilog-before", "agent-epilog-after")

_ARMED, _, _PASSES = os.environ.get("DLSCHED_FAULTPOINT", "").partition(":")
_passes_left = int(_PASSES or 1)


def fault_point(name: str) -> None:
    """Kill this process, as `kill -9` does, when a test has armed the point `name`."""
    global _passes_left  # noqa: PLW0603  # one counter a process
    if name != _ARMED:
        return
    _passes_left -= 1
    if _passes_left <= 0:
        _die()


def _die() -> None:
    if os.getpid() == 1:  # the first process of a namespace cannot kill itself, but it can exit
        os._exit(137)
    os.kill(os.getpid(), signal.SIGKILL)
