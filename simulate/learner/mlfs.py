"""MLF-RL: a network that first does as MLF-H, and then learns by what its replays bring (PyTorch).

A decision is a choice among any number of candidates, each of which the network scores; the highest
score is taken. The imitation is by cross-entropy on the job and on the server that MLF-H takes.
Then all weights are changed at random, and a change is kept when the replays of the training bring
more reward with it. The best network on the traces that judge is kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from dlsched.core.cluster.description import Cluster
from dlsched.core.errors import BadInput
from dlsched.core.sums import ordered_sum
from dlsched.core.units import COMPLETED
from dlsched.policies.learning.network import Decision, Network, Singles
from dlsched.policies.scheduling.mlfs.choices import INPUTS, SCHEMA, ByNetwork
from dlsched.policies.scheduling.mlfs.options import MlfsOptions
from dlsched.policies.scheduling.mlfs.policy import Mlfs
from simulate.replay import prepare
from simulate.settings import RunSettings
from simulate.traces.trace import Trace

WEIGHTS = (0.5, 0.55, 0.25)  # of the completion time, of deadlines met, of traffic; the paper's
BATCH = 256  # decisions
CHANGE = 0.05  # standard deviation of a change of each weight
MOST_UPDATES = 1_000_000
MOST_KEPT = 20_000  # decisions that are imitated


class Brought(NamedTuple):
    """What a replay brought.

    Attributes:
        jct: mean completion time [s].
        on_time: part of the jobs with a deadline that met it; NaN where none has one.
        traffic: GPUs of gangs that were not on the server with most of their GPUs.
    """

    jct: float
    on_time: float
    traffic: float

    def reward(self, heuristic: Brought) -> float:
        """The paper's reward, each term over MLF-H's, so that MLF-H itself has 1."""
        terms = [
            heuristic.jct / self.jct,
            self.on_time / heuristic.on_time if heuristic.on_time > 0 else math.nan,
            (1.0 + heuristic.traffic) / (1.0 + self.traffic),
        ]
        known = [(w, term) for w, term in zip(WEIGHTS, terms, strict=True) if not math.isnan(term)]
        return ordered_sum(w * term for w, term in known) / ordered_sum(w for w, _ in known)


@dataclass(frozen=True, slots=True)
class Step:
    """One validation: the phase, its updates so far, and the mean reward."""

    phase: str
    updates: int
    reward: float


class _Heuristic:
    """Chooses as MLF-H, and remembers what was chosen.

    Attributes:
        decisions: those with more than one candidate.
        traffic: GPUs of gangs that were not on the server with most of their GPUs.
    """

    def __init__(self) -> None:
        self.decisions: list[Decision] = []
        self.traffic = 0

    def choose(self, candidates: Singles, heuristic: int) -> int:
        """As MLF-H."""
        if len(candidates) > 1:
            self.decisions.append(Decision(candidates, heuristic))
        return heuristic

    def placed(self, gpus: Sequence[int]) -> None:
        """Count the GPUs that are apart from the others."""
        self.traffic += sum(gpus) - max(gpus)


class _Learner(ByNetwork):
    """Chooses by a network, and counts traffic as above."""

    def __init__(self, network: Network) -> None:
        super().__init__(network)
        self.traffic = 0

    def placed(self, gpus: Sequence[int]) -> None:
        """Count the GPUs that are apart from the others."""
        self.traffic += sum(gpus) - max(gpus)


class MlfsTraining:
    """A training on traces of one cluster.

    Attributes:
        best: the best network so far.
        curve: all validations.
    """

    def __init__(
        self,
        training: Sequence[Trace],
        validation: Sequence[Trace],
        cluster: Cluster,
        settings: RunSettings,
        *,
        hidden: Sequence[int] = (32, 32),
        seed: int = 0,
    ) -> None:
        """Prepare; MLF-H plays all traces once.

        Args:
            training: traces to learn from.
            validation: traces to be judged by.
            cluster: where they run.
            settings: of all replays.
            hidden: sizes of the network's layers.
            seed: of everything that is drawn.

        Raises:
            BadInput: no job of a trace ends.
        """
        self._training, self._validation = training, validation
        self._cluster, self._settings = cluster, replace(settings, policy="mlfs", record=False)
        self._seed = seed
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            sizes = (INPUTS, *hidden, 1)
            layers = [nn.Linear(a, b) for a, b in pairwise(sizes)]
        self._layers = nn.ModuleList(layers)
        self._shown: list[Decision] = []
        self._heuristic: dict[int, Brought] = {}
        for place, trace in enumerate((*training, *validation)):
            player = _Heuristic()
            self._heuristic[id(trace)] = self._play(trace, player)
            if place < len(training):
                self._shown += player.decisions
        self._shown = self._shown[:MOST_KEPT]
        self.curve: list[Step] = []
        self.best: Network | None = None

    def run(
        self, imitations: int, updates: int, every: int, on_step: Callable[[Step], None]
    ) -> None:
        """Imitate for so many passes, then learn by rewards; `on_step` hears of validations."""
        rng = np.random.default_rng((self._seed, 1))
        optimiser = torch.optim.Adam(self._layers.parameters(), lr=3e-3)
        for _ in range(imitations):
            order = rng.permutation(len(self._shown)).tolist()
            for start in range(0, len(order), BATCH):
                batch = [self._shown[place] for place in order[start : start + BATCH]]
                self._update(optimiser, batch)
        self._validate("imitation", imitations, on_step)
        reached = self._reward(self._training)
        for update in range(1, updates + 1):
            reached = self._explore(reached, update)
            if update % every == 0 or update == updates:
                self._validate("reward", update, on_step)

    def _explore(self, reached: float, update: int) -> float:
        """Change the weights at random; returns the reward, without the change if that is less."""
        generator = torch.Generator().manual_seed(self._seed * MOST_UPDATES + update)
        before = [each.detach().clone() for each in self._layers.parameters()]
        with torch.no_grad():
            for each in self._layers.parameters():
                each.add_(torch.randn(each.shape, generator=generator) * CHANGE)
            found = self._reward(self._training)
            if found > reached:
                return found
            for each, old in zip(self._layers.parameters(), before, strict=True):
                each.copy_(old)
        return reached

    def _reward(self, traces: Sequence[Trace]) -> float:
        """The mean reward of the network as it is now."""
        network = self.network()
        rewards = [
            self._play(trace, _Learner(network)).reward(self._heuristic[id(trace)])
            for trace in traces
        ]
        return float(np.mean(rewards))

    def agreement(self) -> float:
        """How often the network takes what MLF-H took, of the decisions that were shown."""
        network = self.network()
        same = [int(np.argmax(network(d.state)[:, 0])) == d.action for d in self._shown]
        return float(np.mean(same)) if same else 1.0

    def network(self) -> Network:
        """The network as it is now."""
        layers = [layer for layer in self._layers if isinstance(layer, nn.Linear)]
        return Network(
            "mlfs",
            SCHEMA,
            [layer.weight.detach().numpy().T.copy() for layer in layers],
            [layer.bias.detach().numpy().copy() for layer in layers],
            {"seed": self._seed, "traces": len(self._training)},
        )

    def _validate(self, phase: str, updates: int, on_step: Callable[[Step], None]) -> None:
        step = Step(phase, updates, self._reward(self._validation))
        if self.best is None or step.reward > max(each.reward for each in self.curve):
            self.best = self.network()
        self.curve.append(step)
        on_step(step)

    def _play(self, trace: Trace, chooser: _Heuristic | _Learner) -> Brought:
        engine = prepare(trace, self._cluster, self._settings)
        policy = Mlfs(MlfsOptions())
        policy.chooser = chooser
        engine.cycle.parts.scheduling = policy
        engine.run()
        table = engine.world.table
        ended = table.status == COMPLETED
        if not ended.any():
            raise BadInput(f"{trace.name}: no job has ended, so that nothing can be learned")
        took = table.finish - table.submit_time
        due = ~np.isnan(table.deadline)
        on_time = float((took[due] <= table.deadline[due]).mean()) if due.any() else math.nan
        return Brought(float(took[ended].mean()), on_time, float(chooser.traffic))

    def _update(self, optimiser: torch.optim.Optimizer, batch: Sequence[Decision]) -> None:
        """Make what was chosen more likely."""
        counts = [len(each.state) for each in batch]
        scores = self._scores(torch.from_numpy(np.concatenate([each.state for each in batch])))
        padded = torch.full((len(batch), max(counts)), -torch.inf)
        rows = torch.repeat_interleave(torch.arange(len(batch)), torch.tensor(counts))
        places = torch.cat([torch.arange(count) for count in counts])
        padded = padded.index_put((rows, places), scores)
        chosen = torch.tensor([each.action for each in batch])
        likely = torch.log_softmax(padded, dim=1)[torch.arange(len(batch)), chosen]
        loss = -likely.mean()
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]  # torch has no types here
        optimiser.step()

    def _scores(self, values: Tensor) -> Tensor:
        for layer in list(self._layers)[:-1]:
            values = torch.relu(layer(values))
        found: Tensor = self._layers[-1](values)
        return found[:, 0]
