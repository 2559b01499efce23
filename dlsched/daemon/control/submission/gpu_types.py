"""The GPU type of a job as it is stored, at its submission and at each change.

A job of one GPU type that, where it may run, only nodes with GPUs of several types have, is stored
as a job that wants GPUs by type, of one type. Policies choose among nodes by their type, so a job
whose type other nodes have alone is left to those nodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import fields as dataclass_fields
from typing import Any

from dlsched.core.cluster.features import (
    CONTAINER,
    parse_constraint,
    refuse_unknown,
    with_feature,
)
from dlsched.core.cluster.gpus_by_type import by_type_of, by_type_text
from dlsched.core.errors import BadInput
from dlsched.daemon.capacity import Capacity
from dlsched.daemon.control import bounds
from dlsched.daemon.control.submission.node_constraints import split_constraint
from dlsched.daemon.rpc_errors import NotPossible
from dlsched.db.records import JobBody
from dlsched.host_lists import fold
from dlsched.jobs.fields import BY_NAME, LEFTOVERS

OF_TYPES = ("gpus", "gpu_types", "constraint", "only_nodes", "not_nodes", "partition")


@dataclass(frozen=True, slots=True)
class GpuTypes:
    """The GPU types that a job asks for, as they are stored.

    Attributes:
        types: of nodes; none: any.
        of_mixed: the one type that only nodes with several types have; empty: there is none.
        constraint: what else it asks of nodes.
    """

    types: tuple[str, ...]
    of_mixed: str
    constraint: str

    def layout(self, gang: tuple[int, ...]) -> str:
        """How many GPUs of the type of mixed nodes on every node, as it is stored; or nothing.

        Raises:
            BadInput: there are none, or not the same number on every node.
        """
        kind = self.of_mixed
        if not kind:
            return ""
        if not sum(gang):
            raise BadInput("gpus: 0, so it can have no type of GPUs")
        if len(set(gang)) > 1:
            raise BadInput(
                f"GPU type {kind!r}: only nodes with several types have it, and a job gets as many "
                f"of it on each: not {sum(gang)} on {len(gang)}"
            )
        return by_type_text(((kind, gang[0]),))


def gpu_types_of(
    values: Mapping[str, Any], partition: str, capacity: Capacity, *, open_ended: bool = False
) -> GpuTypes:
    """The GPU types of a job.

    Args:
        values: its checked fields.
        partition: in which it is to run.
        capacity: the nodes that are known.
        open_ended: may it wait for nodes that are not?

    Raises:
        BadInput: no node has a type, or it asks for something that it cannot have with the type.
    """
    names, constraint = values["gpu_types"], values["constraint"]
    of_mixed = "" if open_ended else _type_of_mixed_nodes(values, partition, capacity)
    if of_mixed:
        names, constraint = (), "" if _constrained(constraint) == {of_mixed} else constraint
    known = _known_types(names, capacity, open_ended=open_ended)
    types, constraint = split_constraint(constraint, known, capacity, open_ended=open_ended)
    return GpuTypes(types, of_mixed, constraint)


def changed_gpu_types(
    body: JobBody, fields: Mapping[str, Any], capacity: Capacity
) -> dict[str, Any]:
    """The types, constraint and layout of a job, as if it were submitted with changes.

    Args:
        body: what it asks for now.
        fields: those that change, with their new values.
        capacity: the nodes that are known.

    Raises:
        BadInput: it could not be submitted so.
        NotPossible: its types cannot be changed.
    """
    given = {each: fields[each] for each in OF_TYPES if each in fields}
    kind = one_type_of(body.gpus_by_type)
    if "constraint" in fields:  # it names types, too, in place of those that the job has
        given = {"gpu_types": (), **given, "constraint": fields["constraint"] or ""}
    elif kind:
        given = {"gpu_types": (kind,), **given}
    wanted = replace(body, **given, gpus_by_type="" if kind else body.gpus_by_type)
    if (
        "gpus" in fields
        and len(body.gang or ()) == 1
        and not (wanted.gpus_by_type or body.max_nodes)
    ):
        wanted = replace(wanted, gang=(wanted.gpus,))
    values = {each.name: getattr(wanted, each.name) for each in dataclass_fields(wanted)}
    found = gpu_types_of(values, wanted.partition, capacity)
    by_type = wanted.gpus_by_type
    if by_type and found.types:
        raise NotPossible(f"it has {by_type} on each node; the types cannot be changed")
    constraint = found.constraint
    if body.container:
        constraint = with_feature(constraint, CONTAINER)
    return {
        "gang": wanted.gang,
        "gpu_types": found.types,
        "constraint": constraint,
        "gpus_by_type": by_type or found.layout(wanted.gang or (wanted.gpus,)),
    }


def check_names(types: Sequence[str], constraint: str, capacity: Capacity) -> None:
    """Refuse GPU types and features that no node has, whatever else a job asks for.

    Raises:
        BadInput: naming the first of them.
    """
    mixed = frozenset(kind for host in capacity.hosts.values() for kind in host.gpu_types)
    _known_types([name for name in types if name.lower() not in mixed], capacity)
    if capacity.hosts:
        names = parse_constraint("constraint", constraint)
        refuse_unknown("constraint", names, capacity.features | mixed)


def one_type_of(gpus_by_type: str) -> str:
    """The type of a job that `GpuTypes.layout` made; empty for all others."""
    wanted = by_type_of(gpus_by_type)
    return wanted[0][0] if len(wanted) == 1 else ""


def _type_of_mixed_nodes(values: Mapping[str, Any], partition: str, capacity: Capacity) -> str:
    """The one GPU type that a job names and only nodes with several types have; or nothing.

    Raises:
        BadInput: they have it, and the job asks for something that it cannot have there.
    """
    names = {name.lower() for name in values["gpu_types"]} or _constrained(values["constraint"])
    if len(names) != 1 or values["gpus_by_type"]:
        return ""
    (kind,) = names
    hosts = capacity.usable(partition, values["only_nodes"], values["not_nodes"])
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


def _known_types(
    names: Sequence[str], capacity: Capacity, *, open_ended: bool = False
) -> tuple[str, ...]:
    """GPU types as nodes spell them.

    Raises:
        BadInput: no node has one, and the job may not wait for such a node.
    """
    known = capacity.types
    found = []
    for name in dict.fromkeys(names):
        bounds.check_text("GPU type", name, 64)
        if name.lower() not in known and not open_ended and capacity.hosts:
            raise capacity.unknown_type("GPU type", name)
        found.append(known.get(name.lower(), name))
    return tuple(found)


def _constrained(constraint: str) -> set[str]:
    """The only name of a constraint that has one; else nothing."""
    alternatives = parse_constraint("constraint", constraint)
    return set(alternatives[0]) if [len(names) for names in alternatives] == [1] else set()
