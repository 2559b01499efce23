"""A job of one GPU type that, where it may run, only nodes with GPUs of several types have.

It is stored as a job that wants GPUs by type, of one type. Policies choose among nodes by their
type, so a job whose type other nodes have alone is left to those nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dlsched.core.cluster.features import parse_constraint
from dlsched.core.cluster.gpus_by_type import by_type_text
from dlsched.core.cluster.host_lists import fold
from dlsched.core.errors import BadInput
from dlsched.daemon.capacity import Capacity
from dlsched.jobs.fields import BY_NAME, LEFTOVERS
from dlsched.rpc.v1 import control_pb2


def type_of_mixed_nodes(
    wanted: control_pb2.JobRequest, partition: str, values: Mapping[str, Any], capacity: Capacity
) -> str:
    """The one GPU type that a job names and only nodes with several types have; or nothing.

    Args:
        wanted: the job.
        partition: in which it is to run.
        values: its checked fields.
        capacity: the nodes that are known.

    Raises:
        BadInput: they have it, and the job asks for something that it cannot have there.
    """
    names = {name.lower() for name in wanted.gpu_types} or _constrained(values["constraint"])
    if len(names) != 1 or wanted.gpus_by_type or wanted.open_ended:
        return ""
    (kind,) = names
    hosts = capacity.usable(partition, wanted.only_nodes, wanted.not_nodes)
    mixed = [host.name for host in hosts if kind in host.gpu_types]
    if not mixed or any(host.gpu_type.lower() == kind for host in hosts):
        return ""
    for name in ("gpu_share", "min_gpus", "max_gpus", "adaptive", "fixed_batch", "guarantee"):
        if values[name] in LEFTOVERS or (name != "guarantee" and values[name]):
            option = BY_NAME[name].options[0].words[-1]
            raise BadInput(
                f"GPU type {kind!r}: only nodes with several types have it ({fold(mixed)}), "
                f"so {option} cannot be kept"
            )
    return kind


def without_type(constraint: str, kind: str) -> str:
    """A constraint, or nothing if it says this GPU type alone."""
    return "" if _constrained(constraint) == {kind} else constraint


def layout_of_type(kind: str, gang: tuple[int, ...]) -> str:
    """So many GPUs of one type on every node, as jobs are stored.

    Raises:
        BadInput: not the same number on every node.
    """
    if len(set(gang)) > 1:
        raise BadInput(
            f"GPU type {kind!r}: only nodes with several types have it, and a job gets as many of "
            f"it on each: not {sum(gang)} on {len(gang)}"
        )
    return by_type_text(((kind, gang[0]),))


def _constrained(constraint: str) -> set[str]:
    """The only name of a constraint that has one; else nothing."""
    alternatives = parse_constraint("constraint", constraint)
    return set(alternatives[0]) if [len(names) for names in alternatives] == [1] else set()
