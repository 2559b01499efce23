"""How much a text of a failed process says about the cause of a failure.

When one rank of a gang fails, the others fail too, because it has closed its connections to them.
Libraries and launchers then write about the rank that is gone; such a text follows from the cause.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import IntEnum


class Weight(IntEnum):
    """How much a text says of the cause; the lowest counts first."""

    CAUSE = 0  # something has gone wrong in the process that says it
    PERHAPS = 1  # a connection or a process has ended: the cause, or what follows from it
    FOLLOW_UP = 2  # a library says that another rank is gone, or a rank has been told to end
    WRAPPER = 3  # a launcher says that what it has started has failed


def _any_of(*texts: str, one_after_other: Iterable[tuple[str, str]] = ()) -> re.Pattern[str]:
    """A pattern that finds any of some texts in a line, or two of which one follows the other.

    Users write what is searched, so the time grows only with its length: of the first of two texts
    only the first occurrence in a line is tried.
    """
    pairs = (rf"^(?>.*?(?:{first})).*(?:{then})" for first, then in one_after_other)
    return re.compile("|".join((*texts, *pairs)), re.IGNORECASE | re.MULTILINE)


_CERTAIN = _any_of(
    "CUDA error: ", "CUDA out of memory", "device-side assert", "illegal memory access"
)
_WRAPPER = _any_of(
    "ChildFailedError",
    "ProcessRaisedException",
    "ProcessExitedException",
    "CalledProcessError",
    "An error occurred while generating the dataset",
    one_after_other=[
        (r"Caught \w+ in ", "worker|replica"),
        ("DataLoader worker ", "exited unexpectedly"),
    ],
)
_FOLLOW_UP = _any_of(
    r"closed by (?:the )?(?:remote )?peer",
    r"remote process (?:has )?exit(?:ed|ing)",
    "Application timeout caused pair closure",
    "successfully reached monitoredBarrier",
    r"(?:recv|send)(?:Value|Bytes|Vector)? failed",
    "failed to recv",
    "Socket Timeout",
    "ncclRemoteError",
    r"NCCL communicator (?:was|is) aborted",
    "Timeout at NCCL work",
    r"watchdog (?:caught|thread)",
    "collective operation timeout",
    r"Some NCCL operations have failed or timed out",
    "Flight recorder dump",
    "taking the entire process down",
    r"wait timeout after \d+ ?ms",
    r"client socket has (?:timed out|failed to connect)",
    r"Rendezvous(?:Connection|Closed|Timeout)Error",
    "SignalException",
    r"Received \d+ death signal",
    "another task died",
    "heartbeat timeout",
    "MPI_ABORT was invoked",
    r"signal 15\b",
    r"exit 143\b",
    one_after_other=[
        (r"connection (?:was )?(?:closed|reset|aborted|lost)\b", r"\b(?:peer|remote)"),
        (r"\bgloo\b", "connection|timed out|timeout|unexpected|error"),
        ("watchdog ", r"timed? ?out"),
        ("monitoredBarrier", "failed|timed"),
        (
            r"TCPStore|store->(?:get|set|wait)|c10d::|DistStoreError|key-value store",
            "timeout|timed out|reset|closed|broken|failed|error",
        ),
        (r"tasks? ", "are unhealthy|disconnected"),
        (
            r"(?:distributed|coordination) service",
            "error|fail|unavailable|heartbeat|shut",
        ),
    ],
)
_PERHAPS = _any_of(
    r"broken ?pipe",
    r"connection ?(?:reset|refused|aborted|closed)",
    "EOFError",
    "KeyboardInterrupt",
    "timed out",
    "TimeoutError",
    "ncclSystemError",
    r"signal 9\b",
    r"exit 137\b",
    r"exit 130\b",
)


def weight_of(text: str) -> Weight:
    """How much an error, or `exit N` or `signal N`, says of the cause."""
    for pattern, weight in (
        (_CERTAIN, Weight.CAUSE),
        (_WRAPPER, Weight.WRAPPER),
        (_FOLLOW_UP, Weight.FOLLOW_UP),
        (_PERHAPS, Weight.PERHAPS),
    ):
        if pattern.search(text):
            return weight
    return Weight.CAUSE
