"""The learner: a network that decides, one that predicts rewards, and how both learn (PyTorch).

First it may imitate a baseline (cross-entropy). Then it learns by what its decisions brought: those
with a reward above the predicted one become more likely, and a little randomness is rewarded, too.
Each layer is followed by a scale and a shift of its own, as in the published program, where batch
normalisation was never switched to training.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dlsched.core.arrays import Floats, Ints
from dlsched.policies.learning.network import Network, Singles
from simulate.learner.memories import Batch, Memory
from simulate.learner.worlds import Rates

SPREAD = 0.02  # standard deviation of the first weights
RANDOMNESS = 0.1  # weight of the entropy


class Net(nn.Module):
    """Layers with relu, each followed by a scale and a shift, and a linear layer."""

    def __init__(self, inputs: int, hidden: tuple[int, ...], outputs: int) -> None:
        super().__init__()
        sizes = (inputs, *hidden)
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))
        self.scales = nn.ParameterList(torch.ones(size) for size in hidden)
        self.shifts = nn.ParameterList(torch.zeros(size) for size in hidden)
        self.last = nn.Linear(sizes[-1], outputs)
        for layer in (*self.layers, self.last):
            nn.init.trunc_normal_(layer.weight, std=SPREAD, a=-2 * SPREAD, b=2 * SPREAD)
            nn.init.zeros_(layer.bias)

    def forward(self, values: Tensor) -> Tensor:
        """The outputs of rows of inputs."""
        for layer, scale, shift in zip(self.layers, self.scales, self.shifts, strict=True):
            values = torch.relu(layer(values)) * scale + shift
        found: Tensor = self.last(values)
        return found

    def plain(self) -> tuple[list[Singles], list[Singles]]:
        """Weights and biases of the same function without scales and shifts."""
        weights, biases = [], []
        scale, shift = np.float32(1.0), np.float32(0.0)
        steps = [*zip(self.layers, self.scales, self.shifts, strict=True), (self.last, None, None)]
        for layer, next_scale, next_shift in steps:
            assert isinstance(layer, nn.Linear)
            weight = layer.weight.detach().numpy().T
            biases.append(layer.bias.detach().numpy() + (shift * np.ones(len(weight))) @ weight)
            weights.append(weight * np.reshape(scale * np.ones(len(weight)), (-1, 1)))
            if next_scale is not None:
                scale, shift = next_scale.detach().numpy(), next_shift.detach().numpy()
        return [each.astype(np.float32) for each in weights], [
            each.astype(np.float32) for each in biases
        ]


class SharedNet(nn.Module):
    """One small network for the score of every job, so that what is learned of one holds for all.

    The score of the last action, to end, is a number of its own. As plain layers, the weights of
    one job stand in blocks along the diagonal.
    """

    def __init__(self, features: int, hidden: tuple[int, ...], jobs: int) -> None:
        super().__init__()
        self._features, self._jobs = features, jobs
        self.of_job = Net(features, hidden, 1)
        self.ending = nn.Parameter(torch.zeros(1))

    def forward(self, values: Tensor) -> Tensor:
        """The scores of rows of states, [state, feature of job]."""
        by_job = values.reshape(-1, self._features, self._jobs).transpose(1, 2)
        scores = self.of_job(by_job)[:, :, 0]
        return torch.cat([scores, self.ending.expand(len(scores), 1)], dim=1)

    def plain(self) -> tuple[list[Singles], list[Singles]]:
        """Weights and biases of the same function as plain layers."""
        weights, biases = self.of_job.plain()
        wide = [_blocks(weight, self._jobs) for weight in weights]
        of_inputs = np.arange(self._jobs * self._features).reshape(self._jobs, self._features)
        wide[0] = wide[0][of_inputs.T.ravel()]  # states come feature by feature, not job by job
        last = np.concatenate([wide[-1], np.zeros((len(wide[-1]), 1), np.float32)], axis=1)
        ends = np.concatenate([np.tile(biases[-1], self._jobs), self.ending.detach().numpy()])
        return [*wide[:-1], last], [*(np.tile(b, self._jobs) for b in biases[:-1]), ends]


def _blocks(weight: Singles, count: int) -> Singles:
    """A matrix, so many times along the diagonal."""
    return np.kron(np.eye(count, dtype=np.float32), weight)


class Learner:
    """Two networks with what they remember.

    Attributes:
        imitated: updates by imitation so far.
        updates: updates by rewards so far.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        hidden: tuple[int, ...],
        rates: Rates,
        seed: int,
        *,
        shared: bool = False,
    ) -> None:
        """Begin with random weights.

        Args:
            inputs: of a state.
            outputs: actions.
            hidden: sizes of the layers between.
            rates: how fast it learns.
            seed: of weights and of what is drawn from memory.
            shared: does one small network serve every job?
        """
        torch.manual_seed(seed)
        self._rng = np.random.default_rng((seed, 1))
        self._rates = rates
        self._decides: Net | SharedNet = Net(inputs, hidden, outputs)
        if shared:
            self._decides = SharedNet(inputs // (outputs - 1), hidden, outputs - 1)
        self._predicts = Net(inputs, hidden, 1)
        self._imitating = torch.optim.Adam(self._decides.parameters(), lr=rates.imitation)
        self._deciding = torch.optim.Adam(self._decides.parameters(), lr=rates.reward)
        self._predicting = torch.optim.Adam(self._predicts.parameters(), lr=rates.reward)
        self._shown = Memory(rates.memory, inputs)  # what the baseline did
        self._done = Memory(rates.memory, inputs)  # what it did itself
        self.imitated = self.updates = 0

    def network(self, schema: str, settings: Mapping[str, object]) -> Network:
        """The deciding network as it is now."""
        weights, biases = self._decides.plain()
        return Network("the network in training", schema, weights, biases, settings)

    def imitate(self, states: Singles, actions: Ints) -> bool:
        """Remember decisions of the baseline, and learn once from memory when it is full."""
        self._shown.store(states, actions, np.zeros(len(actions)))
        if not self._shown.is_full:
            return False
        batch = self._shown.drawn_evenly(self._rates.batch, self._rng)
        scores = self._decides(torch.from_numpy(batch.states))
        loss = nn.functional.cross_entropy(scores, torch.from_numpy(batch.actions))
        _step(self._imitating, loss)
        self.imitated += 1
        return True

    def reward(self, states: Singles, actions: Ints, rewards: Floats) -> bool:
        """Remember own decisions of a slot, and learn once from memory when it is full."""
        self._done.store(states, actions, rewards)
        if not self._done.is_full:
            return False
        self._learn(self._done.drawn_by_priority(self._rates.batch, self._rng))
        self.updates += 1
        return True

    def _learn(self, batch: Batch) -> None:
        states = torch.from_numpy(batch.states)
        actions = torch.from_numpy(batch.actions)
        rewards = torch.from_numpy(batch.rewards.astype(np.float32))
        predicted = self._predicts(states)[:, 0]
        better = (rewards - predicted.detach()) * torch.from_numpy(batch.weights)
        scores = self._decides(states)
        logs = torch.log_softmax(scores, dim=1)
        likely = logs.exp()
        taken = logs.gather(1, actions[:, None])[:, 0]
        loss = -(taken * better).mean() + RANDOMNESS * (likely * torch.log(likely + 1e-6)).mean()
        _step(self._deciding, loss)
        _step(self._predicting, ((rewards - predicted) ** 2).mean())
        self._done.learned(batch.places, better.numpy())

    def state_dict(self) -> dict[str, Any]:
        """Everything that decides what it learns next."""
        return {
            "decides": self._decides.state_dict(),
            "predicts": self._predicts.state_dict(),
            "imitating": self._imitating.state_dict(),
            "deciding": self._deciding.state_dict(),
            "predicting": self._predicting.state_dict(),
            "shown": _tensors(self._shown.state_dict()),
            "done": _tensors(self._done.state_dict()),
            "counts": [self.imitated, self.updates],
            "rng": self._rng.bit_generator.state,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state_dict`."""
        for name, part in (
            ("decides", self._decides), ("predicts", self._predicts),
            ("imitating", self._imitating), ("deciding", self._deciding),
            ("predicting", self._predicting),
        ):  # fmt: skip
            part.load_state_dict(state[name])
        for name, memory in (("shown", self._shown), ("done", self._done)):
            memory.load_state_dict({key: each.numpy() for key, each in state[name].items()})
        self.imitated, self.updates = state["counts"]
        self._rng.bit_generator.state = state["rng"]


def _step(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]  # torch
    optimizer.step()


def _tensors(arrays: Mapping[str, Any]) -> dict[str, Tensor]:
    return {name: torch.from_numpy(each.copy()) for name, each in arrays.items()}
