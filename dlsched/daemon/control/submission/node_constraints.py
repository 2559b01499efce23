"""Constraints on features and GPU types of nodes, as far as the cluster is known."""

from __future__ import annotations

from itertools import chain

from dlsched.core.cluster.features import constraint_text, parse_constraint, refuse_unknown
from dlsched.core.errors import BadInput
from dlsched.daemon.capacity import Capacity


def split_constraint(
    text: str, types: tuple[str, ...], capacity: Capacity, *, open_ended: bool
) -> tuple[tuple[str, ...], str]:
    """The GPU types that a job allows, which policies weigh, and what else it asks of nodes.

    Args:
        text: the constraint.
        types: that the job allows otherwise; none: any.
        capacity: the nodes that are known.
        open_ended: may the job wait for nodes that are not?

    Raises:
        BadInput: it is malformed, names what no node has, or leaves no GPU type.
    """
    alternatives = parse_constraint("constraint", text)
    if not alternatives:
        return types, ""
    known = capacity.types
    if capacity.hosts and not open_ended:
        for name in chain.from_iterable(alternatives):
            if name not in capacity.features and capacity.mixed({name}):
                raise capacity.unknown_type("constraint: GPU type", name)
        refuse_unknown("constraint", alternatives, capacity.features)
    elif not capacity.hosts and all(len(names) == 1 for names in alternatives):
        known = {names[0]: names[0] for names in alternatives}  # what else could they be
    of_type = [[name for name in names if name in known] for names in alternatives]
    if not all(len(names) == 1 for names in of_type):
        return types, constraint_text(alternatives)
    named = tuple(dict.fromkeys(known[name] for (name,) in of_type))
    both = tuple(name for name in named if not types or name in types)
    if not both:
        raise BadInput(f"GPU types: nothing is both {'|'.join(types)} and {'|'.join(named)}")
    plain = all(len(names) == 1 for names in alternatives)
    return both, "" if plain else constraint_text(alternatives)
