"""What a network sees of a choice: jobs of which one is next, or servers of which one gets a GPU.

Every candidate has a vector of its own, and the network gives each a score; so it decides among any
number of them. A candidate to be next has zeros in the place of a server.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from dlsched.core.arrays import Floats, Ints
from dlsched.core.errors import BadInput
from dlsched.policies.learning.network import Network, Singles
from dlsched.policies.scheduling.mlfs.hosts import in_parts
from dlsched.policies.scheduling.mlfs.priorities import Tasks

SCHEMA = "mlfs/1"
OF_A_JOB = 9
OF_A_SERVER = 8
INPUTS = OF_A_JOB + OF_A_SERVER + 2  # and which kind of choice it is
WINDOW = 24  # jobs of which the next one is chosen, the first by priority
HOUR_MIN = 60.0


class Chooses(Protocol):
    """Chooses in the place of MLF-H."""

    def choose(self, candidates: Singles, heuristic: int) -> int:
        """The position of one of the candidates.

        Args:
            candidates: a vector for each, shape (candidates, `INPUTS`).
            heuristic: which one MLF-H would take.
        """
        ...

    def placed(self, gpus: Sequence[int]) -> None:
        """A job starts, with so many GPUs on each of its servers."""
        ...


class ByNetwork:
    """Takes the candidate with the highest score, the first of equal ones."""

    def __init__(self, network: Network) -> None:
        """Take a network that was trained for this.

        Raises:
            BadInput: it was trained for something else.
        """
        if network.schema != SCHEMA or (network.inputs, network.outputs) != (INPUTS, 1):
            raise BadInput(
                f"{network.name}: a network of {network.schema}, not of {SCHEMA}; "
                "`dlsched train mlfs` makes one"
            )
        self._network = network

    def choose(self, candidates: Singles, heuristic: int) -> int:
        """The candidate with the highest score."""
        return int(np.argmax(self._network(candidates)[:, 0]))

    def placed(self, gpus: Sequence[int]) -> None:
        """Nothing is learned here."""


def features_of_jobs(tasks: Tasks, gangs: Ints, total_gpus: int) -> Floats:
    """What a network sees of jobs, each about 0 to 1; shape (jobs, `OF_A_JOB`)."""
    left = np.where(np.isfinite(tasks.left_min), tasks.left_min, 0.0)
    return np.column_stack(
        [
            tasks.urgency / (1.0 + tasks.urgency),
            1.0 / tasks.iteration,
            np.clip(tasks.learnt, -1.0, 1.0),
            tasks.size,
            1.0 / (1.0 + np.maximum(tasks.due_min, 0.0) / HOUR_MIN),
            np.log1p(left) / 10.0,
            np.log1p(tasks.waited_min) / 10.0,
            gangs / max(total_gpus, 1),
            np.zeros(len(gangs)),  # the place in the order, once it is known
        ]
    )


class Servers(NamedTuple):
    """What a network sees of servers beside their utilisation.

    Attributes:
        utilisation: of their four resources.
        traffic: with the job.
        off: how far they are from the ideal one.
        room: GPUs that it may get there, over the most of any.
        mine: GPUs that it has got there, over its gang.
    """

    utilisation: Floats
    traffic: Floats
    off: Floats
    room: Floats
    mine: Floats


def candidates_to_be_next(jobs: Floats) -> Singles:
    """Candidates to be the next job, from their features, in the order of their priorities."""
    found = np.zeros((len(jobs), INPUTS), np.float32)
    found[:, :OF_A_JOB] = jobs
    found[:, OF_A_JOB - 1] = np.arange(len(jobs)) / WINDOW
    found[:, -2] = 1.0
    return found


def candidates_to_host(job: Floats, servers: Servers) -> Singles:
    """Candidates to give a job a GPU."""
    found = np.zeros((len(servers.room), INPUTS), np.float32)
    found[:, :OF_A_JOB] = job
    found[:, OF_A_JOB:-2] = np.column_stack(
        [
            servers.utilisation,
            in_parts(servers.traffic),
            servers.off,
            servers.room,
            servers.mine,
        ]
    )
    found[:, -1] = 1.0
    return found
