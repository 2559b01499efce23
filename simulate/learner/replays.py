"""Replays as a world to learn in: the policy `dl2` on traces, clusters and settings as any other.

A network that is trained here is for the policy `dl2` in replays and in live clusters. Its teacher
shares GPUs equally. A decision's reward is by how much this GPU speeds its job up, compared with
the average of the jobs that might have got it. The reward of a whole round, with which DL2 learns
in slots, taught nothing here: it is the sum over many jobs, and says little about one decision.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dlsched.core.arrays import Ints
from dlsched.core.cluster.description import Cluster
from dlsched.core.errors import BadInput
from dlsched.core.speed.throughput_table import ThroughputTable
from dlsched.core.units import COMPLETED
from dlsched.policies.learning.network import Decision, Network
from dlsched.policies.scheduling.dl2.policy import Divides, Dl2, Dl2Options
from dlsched.policies.scheduling.dl2.shares import equal_shares
from dlsched.policies.scheduling.dl2.window import (
    FEATURES,
    SCHEMA,
    Asked,
    Window,
    divided,
    gain,
)
from simulate.engine import Engine
from simulate.learner.exploring import Equalising
from simulate.learner.worlds import Enough, Lesson, Rates, Usual, Verdict, lesson_of
from simulate.replay import prepare
from simulate.settings import RunSettings
from simulate.traces.trace import Trace

WORTH = 5.0  # of a gain: rewards are of the size of 1


class ReplayedTraces:
    """Traces on a cluster under `dl2`."""

    schema = SCHEMA
    usual = Usual(shared=True, warmup="sl", hidden=(32,), rates=Rates(reward=1e-3, memory=4096))

    def __init__(
        self,
        training: Sequence[Trace],
        validation: Sequence[Trace],
        cluster: Cluster,
        settings: RunSettings,
        throughputs: ThroughputTable,
        *,
        window: int = 20,
        seed: int = 0,
    ) -> None:
        """Learn from some traces and be judged by others.

        Args:
            training: traces of jobs that may have several numbers of GPUs.
            validation: others.
            cluster: of one GPU type, without nodes that are for some jobs alone.
            settings: of all replays; their policy is `dl2`.
            throughputs: how fast the jobs run on how many GPUs.
            window: how many jobs a network sees.
            seed: of everything that is drawn.
        """
        self.inputs, self.outputs = len(FEATURES) * window, window + 1
        self._training, self._validation = training, validation
        self._cluster, self._settings = cluster, replace(settings, policy="dl2", record=False)
        self._throughputs, self._window, self._seed = throughputs, window, seed

    def show(self, episode: int, on_slot: Callable[[Lesson], None]) -> None:
        """Let the teacher play an episode."""
        rng = np.random.default_rng((self._seed, 3, episode))

        def shown(asked: Asked, gpus: int) -> tuple[Ints, Lesson]:
            window = Window(asked, gpus, self._window)
            decisions: list[Decision] = []

            def granted(job: int) -> None:
                if job in window.jobs:
                    place = window.jobs.index(job)
                    decisions.append(_permuted(window, place, rng))
                    window.give(place)
                else:  # more jobs than the window has places
                    window.grow(job)

            sizes = equal_shares(asked.least, asked.most, gpus, granted)
            return sizes, lesson_of(decisions, np.zeros(len(decisions)))

        self._episode(episode, shown, on_slot)

    def play(
        self, episode: int, network: Callable[[], Network], on_slot: Callable[[Lesson], None]
    ) -> None:
        """Let a network play an episode with exploration."""
        rng = np.random.default_rng((self._seed, 4, episode))
        explore = Equalising(np.random.default_rng((self._seed, 5, episode)))

        def played(asked: Asked, gpus: int) -> tuple[Ints, Lesson]:
            window = Window(asked, gpus, self._window)
            rewards: list[float] = []

            def watched(window: Window, action: int) -> int:
                action = explore(window, action)
                rewards.append(_worth(asked, window, action))
                return action

            decisions = divided(window, network(), rng.random, watched)
            return window.sizes, lesson_of(decisions, np.array(rewards))

        self._episode(episode, played, on_slot)

    def _episode(
        self,
        episode: int,
        divide: Callable[[Asked, int], tuple[Ints, Lesson]],
        on_slot: Callable[[Lesson], None],
    ) -> None:
        def learning(asked: Asked, gpus: int) -> Ints:
            sizes, lesson = divide(asked, gpus)
            try:
                on_slot(lesson)
            except Enough:
                engine.horizon = engine.now
            return sizes

        trace = self._training[episode % len(self._training)]
        engine = self._engine(trace, learning=learning)
        engine.run()

    def validate(self, network: Network | None) -> Verdict:
        """How well a network does without exploration, or with None the teacher."""
        found = []
        for trace in self._validation:
            engine = self._engine(trace, network)
            engine.run()
            table = engine.world.table
            ended = table.status == COMPLETED
            if not ended.any():
                raise BadInput(f"{trace.name}: no job has ended, so that nothing can be learned")
            jct = (table.finish - table.submit_time)[ended].mean()
            span = table.finish[ended].max() - table.submit_time.min()
            rounds = max(span / engine.cycle.ctx.round_length, 1.0)
            found.append((jct, span, ended.sum() / rounds))
        return Verdict(*np.mean(found, axis=0).tolist())

    def _engine(
        self, trace: Trace, network: Network | None = None, learning: Divides | None = None
    ) -> Engine:
        settings = replace(self._settings, seed=self._seed)
        engine = prepare(trace, self._cluster, settings, throughputs=self._throughputs)
        if len(engine.cycle.ctx.pools.nodes) > 1:
            raise BadInput("training needs a cluster whose nodes are for all jobs alike")
        if engine.cycle.ctx.round_length == 0:
            raise BadInput("training needs rounds; leave out --clock events")
        policy = Dl2(Dl2Options(model=network, guard=False))
        policy.learning = learning
        engine.cycle.parts.scheduling = policy
        return engine

    def state_dict(self) -> dict[str, Any]:
        """Nothing is remembered between episodes."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """There is nothing to go on from."""


def _worth(asked: Asked, window: Window, action: int) -> float:
    """By how much one GPU more speeds a job up, less what it would on average in the window."""
    jobs = np.array(window.jobs)
    sizes = window.sizes[jobs]
    gains = gain(asked.speed[jobs, sizes], asked.speed[jobs, sizes + 1])
    own = gains[action] if action < len(jobs) else 0.0
    return WORTH * float(own - gains.mean())


def _permuted(window: Window, place: int, rng: np.random.Generator) -> Decision:
    """One GPU more for a place, with the jobs in another order, so that no order is learned."""
    count = len(window.jobs)
    order = rng.permutation(count).tolist()
    state = np.zeros_like(window.state)
    state[:, :count] = window.state[:, order]
    return Decision(state.ravel(), order.index(place))
