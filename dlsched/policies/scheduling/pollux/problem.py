"""The question of one round: who may have how many replicas on which nodes, and what it is worth.

Pollux (Qiao et al., OSDI 2021) describes a decision by a matrix of jobs × nodes, the replicas of
each job on each node. A replica is one GPU. Of a row only three things count for what it is worth:
how many replicas it has, whether they lie on several nodes, and whether it is the row that the job
has now. So a round's question is a few small tables beside the present matrix.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dlsched.core.arrays import Bools, Floats, Ints

__all__ = ["FLOOR", "Problem", "fair_replicas", "restart_factor"]

FLOOR = 1e-3  # what a job is worth that gets nothing, so that means of negative power exist


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One round's question. Jobs are in order of precedence, nodes in the order of their use.

    Attributes:
        speedup: [job, on several nodes?, replicas]: goodput over that of a fair share (or of one
            GPU, as the fitness wants it); 0 replicas: 0.
        weight: [job] what a speedup is multiplied by: the dominant share of one replica times the
            number of nodes.
        factor: [job] what is left of it in a round that changes the job's row, in [0, 1].
        base: [job, node] replicas now.
        capacity: [node] GPUs.
        allowed: [job, node] may the job use that node?
        least: [job] replicas below which it cannot run.
        most: [job] replicas that it may have at most.
        pinned: [job] its row must stay.
        exponent: p of the power mean; None: the plain sum (the library's).
        apart: no two jobs that span nodes meet on one (interference avoidance).
        widest: nodes that a job may span.
        kind: [node] its GPU type, if there are several: a job that spans nodes has one type.
    """

    speedup: Floats
    weight: Floats
    factor: Floats
    base: Ints
    capacity: Ints
    allowed: Bools
    least: Ints
    most: Ints
    pinned: Bools
    exponent: float | None = -1.0
    apart: bool = True
    widest: int = 16
    kind: Ints | None = None

    @property
    def jobs(self) -> int:
        """How many jobs."""
        return int(self.base.shape[0])

    @property
    def nodes(self) -> int:
        """How many nodes."""
        return int(self.base.shape[1])

    @property
    def largest(self) -> int:
        """The largest number of replicas that the tables know."""
        return int(self.speedup.shape[2]) - 1

    def first_nodes(self, count: int) -> Problem:
        """The same question for the first so many nodes, or with more that are empty.

        Nodes beyond those there are have as many GPUs as the largest, and everybody may use them.
        What jobs hold on nodes that are gone they hold no longer.
        """
        kept = min(count, self.nodes)
        more = count - kept
        return replace(
            self,
            base=np.pad(self.base[:, :kept], ((0, 0), (0, more))),
            capacity=np.pad(
                self.capacity[:kept], (0, more), constant_values=int(self.capacity.max(initial=0))
            ),
            allowed=np.pad(self.allowed[:, :kept], ((0, 0), (0, more)), constant_values=True),
            kind=None if self.kind is None else np.pad(self.kind[:kept], (0, more), mode="edge"),
        )

    def speedups(self, states: NDArray[np.integer]) -> Floats:
        """[…, job] of states […, job, node]."""
        replicas = np.minimum(states.sum(axis=-1), self.largest)
        several = ((states > 0).sum(axis=-1) > 1).astype(np.int64)
        return np.asarray(self.speedup[np.arange(self.jobs), several, replicas])

    def worths(self, states: NDArray[np.integer]) -> Floats:
        """What rows are worth: scaled speedups, less what a changed row loses by its restart."""
        changed = (states != self.base).any(axis=-1)
        return self.speedups(states) * self.weight * np.where(changed, self.factor, 1.0)


def fair_replicas(gpus: int, jobs: int) -> int:
    """GPUs of a fair share, rounded up; the speedup of so many on one node is 1.

    The published scheduler measures them on one node even where no node has so many.
    """
    return -(-gpus // max(jobs, 1))


def restart_factor(age: Floats, restarts: Ints, delay: Floats | float) -> Floats:
    """(T - R·δ) / (T + δ), not below 0: what a restart now leaves of a job of age T.

    Args:
        age: seconds since its submission.
        restarts: starts after the first.
        delay: seconds that one costs.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        left = np.maximum(age - restarts * delay, 0.0) / (age + delay)
    return np.where(age + delay > 0, np.nan_to_num(left), 1.0)
