"""One training from its beginning to its end: warm-up, learning by rewards, the best kept.

What is learned rises, peaks and then falls again, so a network is validated every few updates and
the best one so far is kept. The state is saved between episodes; a training that was interrupted
and goes on from there learns the same, bit by bit.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import torch

from dlsched.core.errors import BadInput
from dlsched.policies.learning.network import Network
from simulate.learner.learner import Learner
from simulate.learner.worlds import Enough, Lesson, Rates, Verdict, World

FORMAT = "dlsched.training/1"
SAVE_EVERY = 100  # updates
MOST_EPISODES = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSettings:
    """What is trained.

    Attributes:
        seed: of everything that is drawn.
        warmup: imitate the baseline first, or not; None: as is usual in the world.
        imitations: updates of the warm-up.
        updates: by rewards.
        every: updates between two validations.
        hidden: sizes of the network's layers; empty: as is usual.
        rates: how fast it learns; None: as is usual.
    """

    seed: int = 0
    warmup: Literal["sl", "none"] | None = None
    imitations: int = 200
    updates: int = 1000
    every: int = 250
    hidden: tuple[int, ...] = ()
    rates: Rates | None = None


@dataclass(frozen=True, slots=True)
class Point:
    """One validation, a point of the learning curve.

    Attributes:
        phase: `start`, `imitation` or `reward`.
        updates: of this phase so far.
        verdict: of the network.
    """

    phase: str
    updates: int
    verdict: Verdict


class Session:
    """A training.

    Attributes:
        curve: all validations so far.
        best: the best network so far.
        baseline: how well the baseline does.
    """

    def __init__(self, world: World, settings: TrainingSettings) -> None:
        """Prepare to learn in a world."""
        usual = world.usual
        rates = settings.rates or usual.rates
        hidden = settings.hidden or usual.hidden or (world.inputs,)
        warmup = settings.warmup or usual.warmup
        self._world = world
        self._settings = replace(settings, rates=rates, hidden=hidden, warmup=warmup)
        self._learner = Learner(
            world.inputs, world.outputs, hidden, rates, settings.seed, shared=usual.shared
        )
        self._episodes = {"imitation": 0, "reward": 0}
        self.curve: list[Point] = []
        self.best: Network | None = None
        self.baseline = world.validate(None)
        self._saved = 0

    def run(
        self,
        on_point: Callable[[Point], None] = lambda point: None,
        on_update: Callable[[str, int], None] = lambda phase, updates: None,
        on_save: Callable[[], None] = lambda: None,
    ) -> None:
        """Learn until the end.

        Args:
            on_point: called after each validation.
            on_update: called after each update with the phase and its number.
            on_save: called now and then when the state may be saved, and at the end.

        Raises:
            BadInput: the memory never becomes full, or the weights are no numbers any more.
        """
        self._on_point, self._on_update = on_point, on_update
        if not self.curve:
            self._validate("start", 0)
        phases = [("reward", self._settings.updates)]
        if self._settings.warmup == "sl":
            phases.insert(0, ("imitation", self._settings.imitations))
        for phase, wanted in phases:
            while self._updates(phase) < wanted:
                self._episode(phase, wanted)
                if sum(map(self._updates, self._episodes)) >= self._saved + SAVE_EVERY:
                    self._saved = sum(map(self._updates, self._episodes))
                    on_save()
        on_save()

    def _updates(self, phase: str) -> int:
        return self._learner.imitated if phase == "imitation" else self._learner.updates

    def _episode(self, phase: str, wanted: int) -> None:
        number = self._episodes[phase]
        if number >= MOST_EPISODES:
            raise BadInput(f"too few decisions in {MOST_EPISODES:,} episodes to learn from")
        fresh: list[Network] = []

        def network() -> Network:
            if not fresh:
                fresh.append(self._network())
            return fresh[0]

        def on_slot(lesson: Lesson) -> None:
            learner = self._learner
            if phase == "imitation":
                learned = learner.imitate(lesson.states, lesson.actions)
            else:
                learned = learner.reward(lesson.states, lesson.actions, lesson.rewards)
            if not learned:
                return
            fresh.clear()
            updates = self._updates(phase)
            self._on_update(phase, updates)
            if updates == wanted or (phase == "reward" and updates % self._settings.every == 0):
                self._validate(phase, updates)
            if updates >= wanted:
                raise Enough

        try:
            if phase == "imitation":
                self._world.show(number, on_slot)
            else:
                self._world.play(number, network, on_slot)
        except Enough:
            pass
        self._episodes[phase] = number + 1

    def _network(self) -> Network:
        return self._learner.network(self._world.schema, self.record())

    def record(self) -> dict[str, Any]:
        """The settings, as they stand in the file of the network."""
        told = asdict(self._settings)
        return {**told, "hidden": list(told["hidden"])}

    def _validate(self, phase: str, updates: int) -> None:
        network = self._network()
        verdict = self._world.validate(network)
        if not math.isfinite(verdict.jct):
            raise BadInput("the training has come to weights that are no numbers")
        if self.best is None or verdict.jct < min(point.verdict.jct for point in self.curve):
            self.best = network
        self.curve.append(Point(phase, updates, verdict))
        self._on_point(self.curve[-1])

    def state_bytes(self) -> bytes:
        """Everything that a training needs to go on."""
        assert self.best is not None, "it has been validated"
        content = io.BytesIO()
        state = {
            "format": FORMAT,
            "told": json.dumps(self._must_be_same(), sort_keys=True),
            "learner": self._learner.state_dict(),
            "world": self._world.state_dict(),
            "episodes": dict(self._episodes),
            "saved": self._saved,
            "curve": [(p.phase, p.updates, *_three(p.verdict)) for p in self.curve],
            "best": [
                [torch.from_numpy(each) for each in layers]
                for layers in (self.best.weights, self.best.biases)
            ],
        }
        torch.save(state, content)
        return content.getvalue()

    def load(self, content: bytes, name: str) -> None:
        """Go on from `state_bytes`; `updates` alone may be another number than before.

        Raises:
            BadInput: it is of another version, of other settings or another world.
        """
        try:
            state = torch.load(io.BytesIO(content), weights_only=True)
            known, told = state["format"], json.loads(state["told"])
        except Exception as error:  # torch raises what it likes
            raise BadInput(f"{name}: is no state of a training") from error
        if known != FORMAT:
            raise BadInput(f"{name}: of version {known}; this version of dlsched reads {FORMAT}")
        for key, value in self._must_be_same().items():
            if told.get(key) != value:
                raise BadInput(
                    f"{name}: its training has {key} {_short(told.get(key))}, not {_short(value)}"
                )
        self._learner.load_state_dict(state["learner"])
        self._world.load_state_dict(state["world"])
        self._episodes.update(state["episodes"])
        self._saved = state["saved"]
        self.curve = [Point(phase, n, Verdict(*three)) for phase, n, *three in state["curve"]]
        weights, biases = ([each.numpy() for each in layers] for layers in state["best"])
        self.best = Network("the best network", self._world.schema, weights, biases, self.record())

    def _must_be_same(self) -> dict[str, Any]:
        """What must be the same in a training that goes on."""
        told = json.loads(json.dumps(self.record()))
        del told["updates"]
        baseline = [float(each).hex() for each in _three(self.baseline)]
        return {**told, "inputs": self._world.inputs, "baseline on its traces": baseline}


def _three(verdict: Verdict) -> tuple[float, float, float]:
    return verdict.jct, verdict.makespan, verdict.reward


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
