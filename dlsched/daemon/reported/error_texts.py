"""How much a text of a failed process says about the cause of a failure.

When one rank of a gang fails, the others fail too, because it has closed its connections to them.
Libraries and launchers then write about the rank that is gone; such a text follows from the cause.
"""

from __future__ import annotations

import re
from enum import IntEnum


class Weight(IntEnum):
    """How much a text says of the cause; the lowest counts first."""

    CAUSE = 0  # something has gone wrong in the process that says it
    PERHAPS = 1  # a connection or a process has ended: the cause, or what follows from it
    FOLLOW_UP = 2  # a library says that another rank is gone, or a rank has been told to end
    WRAPPER = 3  # a launcher says that what it has started has failed


_CERTAIN = re.compile(r"CUDA error: |CUDA out of memory|device-side assert|illegal memory access")
_WRAPPER = re.compile(
    r"""ChildFailedError | ProcessRaisedException | ProcessExitedException | CalledProcessError
    | Caught\ \w+\ in\ .*(worker|replica) | DataLoader\ worker\ .*exited\ unexpectedly
    | An\ error\ occurred\ while\ generating\ the\ dataset""",
    re.VERBOSE,
)
_FOLLOW_UP = re.compile(
    r"""connection\ (was\ )?(closed|reset|aborted|lost)\b.*\b(peer|remote)
    | closed\ by\ (the\ )?(remote\ )?peer | remote\ process\ (has\ )?exit(ed|ing)
    | \bgloo\b.*(connection|timed\ out|timeout|unexpected|error)
    | Application\ timeout\ caused\ pair\ closure | successfully\ reached\ monitoredBarrier
    | (recv|send)(Value|Bytes|Vector)?\ failed | failed\ to\ recv | Socket\ Timeout
    | ncclRemoteError | NCCL\ communicator\ (was|is)\ aborted | Timeout\ at\ NCCL\ work
    | watchdog\ (caught|thread|.*timed?\ ?out) | collective\ operation\ timeout
    | Some\ NCCL\ operations\ have\ failed\ or\ timed\ out | Flight\ recorder\ dump
    | taking\ the\ entire\ process\ down | monitoredBarrier.*(failed|timed)
    | (TCPStore|store->(get|set|wait)|c10d::|DistStoreError|key-value\ store).*
      (timeout|timed\ out|reset|closed|broken|failed|error)
    | wait\ timeout\ after\ \d+\ ?ms | client\ socket\ has\ (timed\ out|failed\ to\ connect)
    | Rendezvous(Connection|Closed|Timeout)Error | SignalException | Received\ \d+\ death\ signal
    | another\ task\ died | heartbeat\ timeout | tasks?\ .*(are\ unhealthy|disconnected)
    | (distributed|coordination)\ service.*(error|fail|unavailable|heartbeat|shut)
    | MPI_ABORT\ was\ invoked | signal\ 15\b | exit\ 143\b""",
    re.VERBOSE | re.IGNORECASE,
)
_PERHAPS = re.compile(
    r"""broken\ ?pipe | connection\ ?(reset|refused|aborted|closed) | EOFError | KeyboardInterrupt
    | timed\ out | TimeoutError | ncclSystemError | signal\ 9\b | exit\ 137\b | exit\ 130\b""",
    re.VERBOSE | re.IGNORECASE,
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
