"""Graphs of what waits for each other, such as stages and jobs: an order, and the longest ways."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Any, TypeVar

from dlsched.core.errors import BadInput, not_known, shorten

if TYPE_CHECKING:
    from fractions import Fraction

Node = TypeVar("Node", bound=Any)
Length = TypeVar("Length", bound="int | float | Fraction")


def in_order(where: str, noun: str, parents: Mapping[Node, Collection[Node]]) -> list[Node]:
    """The nodes, each after its parents; otherwise as they were given.

    Args:
        where: the file and the place in it, for messages.
        noun: what a node is called.
        parents: of each node.

    Raises:
        BadInput: a parent is not there, or nodes wait for each other.
    """
    for name, before in parents.items():
        for each in before:
            if each not in parents:
                raise not_known(
                    f"{where}: {noun} {shorten(str(name))}: after", str(each), map(str, parents)
                )
    sorter = TopologicalSorter(parents)
    try:
        sorter.prepare()
    except CycleError as error:
        circle = " after ".join(shorten(str(each)) for each in reversed(error.args[1]))
        raise BadInput(f"{where}: {noun}s wait for each other: {circle}") from None
    place = {name: number for number, name in enumerate(parents)}
    order: list[Node] = []
    while sorter.is_active():
        ready = sorted(sorter.get_ready(), key=place.__getitem__)
        order += ready
        sorter.done(*ready)
    return order


def ways_to_the_end(
    lengths: Mapping[Node, Length], parents: Mapping[Node, Collection[Node]]
) -> dict[Node, Length]:
    """The longest way from the beginning of each node to the end, itself included.

    Args:
        lengths: of the nodes.
        parents: of each node; no node waits for itself.
    """
    after: dict[Node, list[Length]] = {name: [] for name in parents}
    found: dict[Node, Length] = {}
    for name in reversed(list(TopologicalSorter(parents).static_order())):
        found[name] = lengths[name] + max(after[name], default=0)  # type: ignore[assignment, operator]
        for each in parents[name]:
            after[each].append(found[name])
    return {name: found[name] for name in parents}
