"""The page of bounds: how large a request may be, and how much work it may cause.

Bytes are bounded by method before a message is received, elements by field before it is decoded,
and the rest before any work begins. Elements count over a whole call, not for each job.
"""

from __future__ import annotations

KIB, MIB = 1 << 10, 1 << 20

# -- bytes of a message, by method -------------------------------------------------------------

OTHER_METHODS = 256 * KIB
BYTES: dict[str, int] = {
    "Control/Submit": 16 * MIB,  # copied whole in one turn of the event loop
    "Control/Act": 2 * MIB,  # with the environment of a requeued job
    "Control/SetSpeeds": 4 * MIB,
    "Control/WhatIf": 8 * MIB,  # with the script of a job that is not submitted
    "Leader/Sync": 16 * MIB,
    "Leader/Describe": MIB,
    "Runs/Report": MIB,
    "Agent/HoldRanks": 16 * MIB,
    "Agent/DeleteCheckpoints": 4 * MIB,
    "Control/Attach": 16 * KIB,  # each message of the call, as for the next three
    "Control/Forward": 16 * KIB,
    "Agent/Attach": 24 * KIB,  # with the names of run and user
    "Agent/Forward": 24 * KIB,
    "Health/Check": KIB,
    "Health/List": KIB,
    "Health/Watch": KIB,
}

# -- elements of a repeated field, over a whole call -------------------------------------------

OTHER_FIELDS = 10_000
ELEMENTS: dict[str, int] = {
    "SubmitRequest.jobs": 20_000,
    "JobRequest.argv": 400_000,
    "JobRequest.environment": 400_000,
    "JobRequest.gpu_types": 100_000,
    "JobRequest.only_nodes": 100_000,
    "JobRequest.not_nodes": 100_000,
    "JobRequest.dependencies": 20_000,
    "JobRequest.tasks": 100_000,
    "JobRequest.extra": 400_000,
    "SetSpeedsRequest.speeds": 20_000,
    "WhatIfRequest.gpus": 100,
    "WhatIfRequest.gpu_types": 100,
    "WhatIfRequest.policies": 100,
    "WhatIfRequest.options": 200,
    "SetShadowRequest.options": 200,
    "Filter.users": 1_000,
    "Filter.partitions": 1_000,
    "Filter.vcs": 1_000,
    "Filter.states": 100,
    "Filter.names": 20,
    "Filter.elements": 500,
    "UpdateRequest.fields": 100,
    "HeldSet.runs": 20_000,
    "HeldRun.gpus": 100_000,
    "HeldRun.nodes": 1_000_000,
    "SyncRequest.ended": 20_000,
    "LaunchRequest.more": 1_000,
    "ExitRecord.nodes": 1_000_000,
    "ExitRecord.steps": 1_000_000,
    "RunReport.metrics": 1_000,
    "RunReport.not_finite": 1_000,
    "RunReport.calls": 1_000,
    "RanksRequest.argv": 100_000,
    "RanksRequest.environment": 100_000,
    "AttachTarget.argv": 10_000,
}
VALUES = 2_000_000  # of all fields together, over a whole call

# -- words, and work: products over a whole call -----------------------------------------------

WORD_BYTES = 256  # of a name or a pattern in a filter
PATTERN_STARS = 8
NODES_OF_A_JOB = 10_000
GANG_NODES = 200_000  # nodes of all gangs of a call, an array's elements counted each
ENVIRONMENT_BYTES = 256 * MIB  # of the environments of all jobs of a call

COLUMNS_OF_ONE = 64  # names of further columns (`extra`) in the live jobs of one user
COLUMNS = 256  # of all users
COLUMN_VALUES_OF_ONE = 100_000  # in the live jobs of one user

# -- what is not decoded yet -------------------------------------------------------------------

SMALL = 16 * KIB  # a message of so many bytes is decoded on the event loop
UNDECODED = 8  # large messages that are received or held at a time: of users, and of all others
UNDECODED_OF_ONE = 2  # of one caller
ARRIVAL_S = 30.0  # in which a message arrives, once the server reads it
CALLS_OF_ONE = 512  # of one caller at a time

# -- calls that work ---------------------------------------------------------------------------

WORKING_OF_ONE = 4  # of one user and method; others wait, so that no user has all turns of the loop
LASTING = frozenset(  # methods that mostly wait, for as long as their caller likes
    {"Control/Wait", "Control/Logs", "Control/Attach", "Control/Forward", "Control/WhatIf"}
)
TAKEN_S = 60.0  # in which a client on the socket for calls takes a part of an answer


def byte_bound(method: str) -> int:
    """The most bytes of a request, by its method's full name."""
    return BYTES.get(_short(method), OTHER_METHODS)


def is_lasting(method: str) -> bool:
    """Whether calls of a method, by its full name, mostly wait."""
    return _short(method) in LASTING


def element_bound(field: str) -> int:
    """The most elements of a repeated field, `Message.field`, over a whole call."""
    return ELEMENTS.get(field, OTHER_FIELDS)


def _short(method: str) -> str:
    service, _, name = method.rpartition("/")
    return f"{service.rpartition('.')[2]}/{name}"
