"""Which server suits a task best, and which task leaves an overloaded server.

Vectors have a number in 0 to 1 for each resource, and one for the traffic: servers that for the
data between the task and what is there, tasks that for the data between them and their server.
Source: the paper, section 3.3; the sheet's rules for ties and scales.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlsched.core.arrays import Bools, Floats, Ints


def in_parts(traffic: Floats) -> Floats:
    """Traffic over the largest one; all 0 where there is none."""
    most = float(traffic.max(initial=0.0))
    return traffic / most if most > 0 else np.zeros_like(traffic)


def distances(utilisation: Floats, traffic: Floats, under: Bools) -> Floats:
    """How far each server is from the ideal one.

    The ideal server has of each resource the least utilisation of any underloaded server, and the
    most traffic with the task.

    Args:
        utilisation: of each server's resources, 0 to 1, shape (servers, resources).
        traffic: data between the task and the tasks on each server, in any unit.
        under: which servers are underloaded.
    """
    ideal = utilisation[under].min(axis=0) if under.any() else np.zeros(utilisation.shape[1])
    near = in_parts(traffic)
    off = ((utilisation - ideal) ** 2).sum(axis=1) + (near - near.max(initial=0.0)) ** 2
    return np.asarray(np.sqrt(off))


def best_server(off: Floats, fits: Bools) -> int:
    """The server that is nearest to the ideal one, the lowest of equal ones; -1: none fits.

    Args:
        off: distances from the ideal server.
        fits: which servers can take the task and are not overloaded then.
    """
    return int(np.argmin(np.where(fits, off, np.inf))) if fits.any() else -1


def leaving_task(uses: Floats, traffic: Floats, over: Bools, candidates: Ints) -> int:
    """The candidate that is nearest to the ideal task to move out, the first of equal ones.

    The ideal task uses as much as any of the server's tasks of the overloaded resources, as little
    as any of the others, and has no traffic with the server.

    Args:
        uses: part of the server's resources that each of its tasks uses, (tasks, resources).
        traffic: data between each and the other tasks there, in any unit.
        over: which resources of the server are overloaded.
        candidates: positions of the tasks that may leave; at least one.
    """
    ideal = np.where(over, uses.max(axis=0), uses.min(axis=0))
    off = ((uses - ideal) ** 2).sum(axis=1) + in_parts(traffic) ** 2
    return int(candidates[np.argmin(off[candidates])])


def least_urgent(priorities: Floats, places: Sequence[int], part: float) -> Ints:
    """The positions of smallest priority: a part of `places`, and at least one of them."""
    order = np.asarray(places, np.int64)
    order = order[np.argsort(priorities[order], kind="stable")]
    return order[: max(int(part * len(order)), 1)]


def load_of_cluster(utilisation: Floats) -> float:
    """How loaded all servers are, 0 to 1: the mean length of their vectors.

    The paper leaves the length as it is, so that a full server of M resources has √M; here it is
    over √M.

    Args:
        utilisation: of each server's resources, 0 to 1, shape (servers, resources).
    """
    if not utilisation.size:
        return 0.0
    lengths = np.sqrt((utilisation**2).sum(axis=1) / utilisation.shape[1])
    return float(lengths.mean())
