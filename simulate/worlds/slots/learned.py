"""Workers and servers of a slot by a trained network, decision by decision (DL2).

The network sees a window of jobs that may have more, in order of arrival. Its actions are one more
worker, server or bundle for one of them, or to end the slot. At first every job gets one bundle if
it fits, so that no job starves. A placement that fails ends the slot.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from dlsched.core.arrays import Bools
from dlsched.core.errors import BadInput
from dlsched.policies.learning.network import Decision, Network, draw
from simulate.worlds.slots.world import Role, SlotWorld

SCHEMA = "dl2-servers/1"
FEATURES = 6  # type, slots since arrival, part left, dominant share, workers, servers
SHARE, WORKERS, SERVERS = 3, 4, 5
ROLES = len(Role)


class Window:
    """The jobs that may have more, as the network sees them.

    Attributes:
        jobs: of the window, in order of arrival.
        state: [feature, place]; columns without a job are 0.
        allowed: which actions: worker, server, bundle of each place, and to end the slot.
    """

    def __init__(self, world: SlotWorld, size: int) -> None:
        """Take the first jobs of a world that are not full."""
        most = world.conditions.most
        self._world, self._size = world, size
        there = (
            job for job in world.there if world.workers[job] < most or world.servers[job] < most
        )
        self.jobs = [job for job, _ in zip(there, range(size), strict=False)]
        self.state = np.zeros((FEATURES, size), np.float32)
        self.allowed: Bools = np.zeros(ROLES * size + 1, np.bool_)
        self.allowed[-1] = True
        for place, job in enumerate(self.jobs):
            self.state[:, place] = (
                world.jobs.type[job], world.slot - world.arrival[job], world.remaining(job),
                0, 0, 0,
            )  # fmt: skip
            self.update(place)

    def update(self, place: int) -> bool:
        """Follow what a job has now; False when it is full, so that another may take its place."""
        world, job = self._world, self.jobs[place]
        workers, servers, most = world.workers[job], world.servers[job], world.conditions.most
        self.state[SHARE, place] = world.share(job)
        self.state[WORKERS, place], self.state[SERVERS, place] = workers, servers
        first = place * ROLES
        self.allowed[first] = workers < most
        self.allowed[first + 1] = servers < most
        self.allowed[first + 2] = workers < most and servers < most
        return workers < most or servers < most


Explore = Callable[[Window, int], int]


class LearnedSlots:
    """Divides slots by a network; called with a world at the beginning of a slot.

    Attributes:
        network: its present weights.
        decisions: of the slot that was divided last.
    """

    def __init__(
        self, network: Network, rng: np.random.Generator, explore: Explore | None = None
    ) -> None:
        """Prepare to divide.

        Args:
            network: of this world.
            rng: draws the actions.
            explore: may put another action in the place of the one drawn; in training only.

        Raises:
            BadInput: the network was not trained for this world.
        """
        check_schema(network)
        self.network, self._rng, self._explore = network, rng, explore
        self.decisions: list[Decision] = []

    def __call__(self, world: SlotWorld) -> None:
        """Place workers and servers until the network ends the slot or a placement fails."""
        size = window_of(self.network)
        for job in world.there:
            world.place(job, Role.BUNDLE)
        self.decisions = []
        window = Window(world, size)
        while True:
            state = window.state.ravel().copy()
            action = draw(self.network(state), window.allowed, self._rng.random())
            if self._explore is not None:
                action = self._explore(window, action)
            place, role = divmod(action, ROLES)
            if place < size and not world.place(window.jobs[place], Role(role)):
                return
            self.decisions.append(Decision(state, action))
            if place == size:
                return
            if not window.update(place):
                window = Window(world, size)


def window_of(network: Network) -> int:
    """How many jobs a network sees."""
    return network.inputs // FEATURES


def check_schema(network: Network) -> None:
    """Refuse a network of another world.

    Raises:
        BadInput: says what it is.
    """
    if network.schema != SCHEMA:
        raise BadInput(
            f"{network.name}: a network for {network.schema}; the slot world needs one for {SCHEMA}"
        )
    jobs = window_of(network)
    if network.inputs != FEATURES * jobs or network.outputs != ROLES * jobs + 1:
        raise BadInput(
            f"{network.name}: takes {network.inputs} numbers and gives {network.outputs}; with "
            f"{FEATURES} features and {ROLES} actions of each job these do not fit"
        )


class Imitation:
    """Watches a baseline place bundles, and remembers what a network should have done.

    Each bundle is two decisions, a worker and then its server. The order of the jobs in the window
    is another one each time, so that a network does not learn it.

    Attributes:
        decisions: so far.
    """

    def __init__(self, world: SlotWorld, size: int, rng: np.random.Generator) -> None:
        """Begin a slot."""
        self._world, self._size, self._rng = world, size, rng
        self._window = Window(world, size)
        self._place = -1
        self.decisions: list[Decision] = []

    def __call__(self, job: int) -> None:
        """A job is about to get a bundle."""
        self._follow()
        window = self._window
        if job not in window.jobs:
            self._place = -1
            return  # more jobs than the window has places
        self._place = window.jobs.index(job)
        world = self._world
        self._remember(self._place, Role.WORKER)
        world.workers[job] += 1
        window.update(self._place)
        self._remember(self._place, Role.SERVER)
        world.workers[job] -= 1

    def _follow(self) -> None:
        """See what came of the last bundle."""
        if self._place >= 0 and not self._window.update(self._place):
            self._window = Window(self._world, self._size)

    def _remember(self, place: int, role: Role) -> None:
        count = len(self._window.jobs)
        order: Sequence[int] = self._rng.permutation(count).tolist()
        state = np.zeros_like(self._window.state)
        state[:, :count] = self._window.state[:, order]
        self.decisions.append(Decision(state.ravel(), order.index(place) * ROLES + role))
