"""The best plan of a training on given GPUs that a search finds.

Few plans are all tried. Of many, the search begins with the best uniform plan, gives the groups
with the most parameters first each of the possible choices, keeps the best, and repeats that until
nothing gains; then annealing takes random steps, from one seed. A plan whose memory does not fit is
worse than any that fits.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dlsched.core.errors import BadInput
from simulate.worlds.plans.deployment import (
    Choice,
    Plan,
    graph_of,
    resident_bytes,
    uniform_choices,
)
from simulate.worlds.plans.devices import Devices
from simulate.worlds.plans.iteration import iterate
from simulate.worlds.plans.model import Model
from simulate.worlds.plans.order import Order, ranked

PASSES = 5
HOT, COLD = 0.05, 0.001  # first and last temperature, of the best time
Score = tuple[bool, int]  # does not fit, µs


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan and what it costs.

    Attributes:
        plan: the choice of each group.
        iteration_us: µs of one iteration.
        peak_bytes: the most memory at once, by GPU.
        fits: within the memory of every GPU.
    """

    plan: Plan
    iteration_us: int
    peak_bytes: dict[int, int]
    fits: bool

    @property
    def score(self) -> Score:
        """Smaller is better."""
        return not self.fits, self.iteration_us


@dataclass(slots=True)
class Search:
    """Tries plans of one training on some GPUs.

    Attributes:
        model: the training.
        devices: the GPUs.
        order: of operations on a GPU.
        exhaustive: up to so many plans are all tried.
        steps: of the annealing.
        seed: of its random steps.
        tried: how many plans were run.
    """

    model: Model
    devices: Devices
    order: Order = "upward"
    exhaustive: int = 5_000
    steps: int = 500
    seed: int = 0
    tried: int = 0

    def run(self, plan: Plan) -> Planned:
        """One iteration of a plan."""
        self.tried += 1
        network = self.devices.network
        graph = graph_of(self.model, plan, self.devices)
        found = iterate(ranked(graph, network, self.order), network)
        peak = dict(found.peak_bytes)
        for device, size in resident_bytes(self.model, plan).items():
            peak[device] = peak.get(device, 0) + size
        memory = self.devices.memory_bytes
        fits = all(
            size <= memory.get(self.devices.types[device], math.inf)
            for device, size in peak.items()
        )
        return Planned(plan, found.makespan_us, peak, fits)

    def uniform(self) -> dict[str, Planned]:
        """Plans that give all groups the same, by name."""
        return {
            name: self.run(dict.fromkeys(self.model.groups, choice))
            for name, choice in uniform_choices(self.model, self.devices).items()
        }

    def best(self) -> Planned:
        """The best plan found.

        Raises:
            BadInput: none fits the memory of the GPUs.
        """
        choices = list(uniform_choices(self.model, self.devices).values())
        groups = self.model.groups
        if len(choices) ** len(groups) <= self.exhaustive:
            every = itertools.product(choices, repeat=len(groups))
            tried = (self.run(dict(zip(groups, each, strict=True))) for each in every)
            found = min(tried, key=lambda each: each.score)
        else:
            found = min(self.uniform().values(), key=lambda each: each.score)
            found = self._anneal(self._descend(found, choices), choices)
        if not found.fits:
            raise BadInput(
                f"model {self.model.name}: no plan fits the memory of the GPUs; the best needs "
                + ", ".join(
                    f"{size / 2**30:.2f} GiB on {self.devices.types[device]}-{device}"
                    for device, size in sorted(found.peak_bytes.items())
                )
            )
        return found

    def _descend(self, found: Planned, choices: list[Choice]) -> Planned:
        by_size = sorted(self.model.groups, key=lambda group: -self.model.parameter_bytes(group))
        for _ in range(PASSES):
            before = found.score
            for group in by_size:
                others = [each for each in choices if each != found.plan[group]]
                tried = (self.run({**found.plan, group: each}) for each in others)
                found = min((found, *tried), key=lambda each: each.score)
            if found.score == before:
                break
        return found

    def _anneal(self, found: Planned, choices: list[Choice]) -> Planned:
        rng = np.random.default_rng(self.seed)
        best = at = found
        for step in range(self.steps):
            group = self.model.groups[rng.integers(len(self.model.groups))]
            tried = self.run({**at.plan, group: choices[rng.integers(len(choices))]})
            heat = HOT * (COLD / HOT) ** (step / self.steps) * best.iteration_us
            loss = tried.iteration_us - at.iteration_us
            if tried.fits and (loss <= 0 or rng.random() < math.exp(-loss / heat)):
                at = tried
                best = min((best, at), key=lambda each: each.score)
        return best


def throughputs(
    search: Callable[[Devices], Search], devices: Devices
) -> list[tuple[str, int, float]]:
    """Steps per second of the best plan by GPU type and number: 1, 2, 4, … and all of a type."""
    found = []
    for gpu_type in dict.fromkeys(devices.types):
        total = list(devices.types).count(gpu_type)
        counts = sorted({*(2**k for k in range(total.bit_length()) if 2**k <= total), total})
        for count in counts:
            best = search(devices.of_type(gpu_type, count)).best()
            found.append((gpu_type, count, 1e6 / best.iteration_us if best.iteration_us else 0.0))
    return found
