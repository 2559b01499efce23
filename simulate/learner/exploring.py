"""Job-aware exploration: in training, actions that a good schedule would need are tried (DL2).

A network that is drawn from alone hardly ever sees a job with far more workers than another one, or
with many workers and few servers. So some actions are put in the place of drawn ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dlsched.policies.scheduling.dl2.window import Window as GpuWindow
from simulate.worlds.slots.learned import ROLES, SERVERS, WORKERS, Window
from simulate.worlds.slots.world import Role

RARE = 0.001  # of all actions


class Equalising:
    """Of several rules, the one that needs no parameter servers: GPUs for a job that has few."""

    def __init__(self, rng: np.random.Generator) -> None:
        """Explore with these random numbers."""
        self.rng = rng

    def __call__(self, window: GpuWindow, action: int) -> int:
        """The action to take in the place of one that was drawn; always an allowed one."""
        sizes = window.sizes[window.jobs]
        few = int(sizes.argmin())
        ratio = sizes.max() // sizes[few]
        return few if ratio > self.rng.integers(3, 6) else action


class JobAware:
    """The rules of the published program, over one world of slots.

    Attributes:
        rng: decides what is tried.
    """

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self._counts = [0] * ROLES
        self._ratio = 3

    def begin_slot(self) -> None:
        """In each slot, another ratio of servers to workers is too large."""
        self._ratio = int(self.rng.integers(3, 8))

    def __call__(self, window: Window, action: int) -> int:
        """The action to take in the place of one that was drawn; always an allowed one."""
        found = self._wanted(window)
        action = action if found is None else found
        if action < len(window.allowed) - 1:
            self._counts[action % ROLES] += 1
        return action

    def _wanted(self, window: Window) -> int | None:
        """The allowed action that the rules want to be tried; None: what was drawn."""
        jobs = len(window.jobs)
        if not jobs:
            return None
        workers, servers = window.state[WORKERS, :jobs], window.state[SERVERS, :jobs]
        tasks = workers + servers
        few, many = float(tasks.min()), float(tasks.max())
        if few > 0 and many // few > self.rng.integers(3, 6):
            found = int(tasks.argmin()) * ROLES + self._bundle_or(Role.WORKER)
            if window.allowed[found]:
                return found
        if min(self._counts) == 0:  # until each kind was tried once, the network goes its own way
            return None
        return self._of_first(window, workers.tolist(), servers.tolist())

    def _of_first(self, window: Window, workers: list[float], servers: list[float]) -> int | None:
        rare = self._rare()
        for place, (w, p) in enumerate(zip(workers, servers, strict=True)):
            role = rare if rare is not None else self._for(w, p)
            if role is not None and window.allowed[place * ROLES + role]:
                return place * ROLES + role
        return None

    def _rare(self) -> Role | None:
        total = sum(self._counts)
        return next((Role(k) for k, count in enumerate(self._counts) if count < RARE * total), None)

    def _for(self, workers: float, servers: float) -> Role | None:
        """What a job with these numbers should have next."""
        rng = self.rng
        if workers == 0 or servers == 0:
            if workers == servers:
                return Role.BUNDLE if rng.random() < 0.5 else None
            return Role.WORKER if workers == 0 else Role.SERVER
        if servers > workers * self._ratio:
            return self._bundle_or(Role.WORKER) if rng.random() < 0.5 else None
        if workers >= 0.5 * servers and rng.random() < 0.5:
            return Role.SERVER if rng.random() < 0.99 else Role.BUNDLE
        return None

    def state_dict(self) -> dict[str, Any]:
        """What was tried so far, by kind of action."""
        return {"counts": list(self._counts)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state_dict`."""
        self._counts = list(state["counts"])

    def _bundle_or(self, other: Role) -> Role:
        return Role.BUNDLE if self.rng.random() < 0.5 else other
