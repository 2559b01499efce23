"""Jobs that may run on another number of GPUs than they name: what they say has to go together."""

from __future__ import annotations

from typing import NamedTuple

from dlsched.core.errors import BadInput
from dlsched.rpc.v1 import control_pb2, run_pb2


def check_in_place(wanted: control_pb2.JobRequest) -> None:
    """Refuse jobs that cannot hand their state over to ranks of the next run.

    Raises:
        BadInput: they are not started one for each GPU, or share GPUs with others.
    """
    if not wanted.in_place:
        return
    if wanted.mode != run_pb2.LAUNCH_MODE_GPU:
        raise BadInput("in place: the node starts the ranks, so it says --launch gpu")
    if wanted.HasField("share"):
        raise BadInput("in place: it cannot have a share of a GPU")
    if wanted.no_requeue:
        raise BadInput("in place: it starts again, which no-requeue forbids")


class ElasticSize(NamedTuple):
    """GPUs that a job names, and its bounds; None: that number, or with `adaptive` any."""

    gpus: int
    minimum: int | None
    maximum: int | None


def elastic_size(
    wanted: control_pb2.JobRequest, gpus: int, minimum: int | None, maximum: int | None
) -> ElasticSize:
    """The sizes of a job, as it will be stored.

    Args:
        wanted: all that it asks for.
        gpus: as far as it says, 1 else.
        minimum: as it says.
        maximum: as it says.

    Raises:
        BadInput: its wishes contradict each other.
    """
    adaptive = wanted.adaptive or wanted.fixed_batch
    if minimum is None and maximum is None and not adaptive:
        return ElasticSize(gpus, None, None)
    for says, why in (
        (
            wanted.HasField("nodes") or wanted.HasField("gpus_per_node"),
            "its GPUs lie wherever they are free, so it says gpus, not nodes or gpus per node",
        ),
        (wanted.HasField("share"), "it cannot have a share of a GPU"),
        (wanted.exclusive, "it cannot have whole nodes"),
        (wanted.no_requeue, "a resize stops it and starts it again, which no-requeue forbids"),
    ):
        if says:
            raise BadInput(f"an elastic job: {why}")
    if not wanted.HasField("gpus"):
        gpus = minimum or 1
    if minimum is None and adaptive:
        minimum = 1
    size = ElasticSize(gpus, minimum, maximum)
    check_sizes(*size)
    return size


def check_sizes(gpus: int, minimum: int | None, maximum: int | None) -> None:
    """Refuse bounds that leave no room.

    Raises:
        BadInput: naming them.
    """
    if minimum is not None and maximum is not None and minimum > maximum:
        raise BadInput(f"min gpus: {minimum} is more than max gpus, {maximum}")
    if minimum is not None and gpus < minimum:
        raise BadInput(f"gpus: {gpus} is fewer than min gpus, {minimum}")
    if maximum is not None and gpus > maximum:
        raise BadInput(f"gpus: {gpus} is more than max gpus, {maximum}")
