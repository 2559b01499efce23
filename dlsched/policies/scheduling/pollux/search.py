"""The search for a good state: a price of a GPU, and then job by job.

The fitness increases with a sum of terms, one a job. So at a price of a GPU every job can choose by
itself. At the clearing price, at which all jobs together want no more GPUs than there are, these
choices are nearly optimal, and they give an upper bound for all states. What remains is to place
the rows on nodes. The search starts from the present state, and

- improves the rows of single jobs, the greatest gain first;
- lets two jobs exchange GPUs: one gives back all, another takes its choice, the first takes the
  best of the rest;
- enumerates all states that could still be better, where they are few (`enumeration`);
- takes the GPUs of some jobs and divides them again at a price, and keeps the result if it is
  better.

Every row is feasible at all times, so every state is. The result is never worse than the present
state.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dlsched.core.arrays import Ints
from dlsched.policies.scheduling.pollux.choices import Choices, Menu, choices_of
from dlsched.policies.scheduling.pollux.enumeration import better_ways
from dlsched.policies.scheduling.pollux.problem import Problem, is_feasible, mean_of_gains, repaired
from dlsched.policies.scheduling.pollux.state import State

TRIES = 3  # partners that are tried in an exchange
PRICES = (0.0, 0.3, 0.6, 1.0, 1.5, 2.5)  # at which GPUs are divided again, × clearing price
SWEEPS = 2  # of exchanges; further ones gain 0.1 % at the same cost
SLACK = 0.1  # part of the gap by which a state may be worse to continue from it
TOLERANCE = 1e-10  # of the sum of gains; smaller differences are no improvement


@dataclass(frozen=True, slots=True)
class Found:
    """The best state found.

    Attributes:
        rows: [job, node] replicas.
        fitness: its fitness.
        bound: an upper bound of the fitness of all states.
    """

    rows: Ints
    fitness: float
    bound: float


def search(problem: Problem, rng: np.random.Generator, *, effort: int = 50) -> Found:
    """The best state found; `effort` is how often the GPUs of some jobs are divided again."""
    choices = choices_of(problem)
    rows = problem.base if is_feasible(problem, problem.base) else None
    if rows is None:
        rows = repaired(problem, problem.base, rng)
    hunt = _Search(problem, choices, State(problem, choices, rows), rng)
    if len(hunt.movable):
        hunt.run(effort)
    found = mean_of_gains(hunt.best.total, problem.jobs, problem.exponent)
    bound = mean_of_gains(hunt.bound, problem.jobs, problem.exponent)
    return Found(hunt.best.rows, float(found), float(bound))


class _Search:
    """One search.

    Attributes:
        best: the best state so far.
        bound: an upper bound of the sum of gains.
        movable: jobs with rows that may change.
    """

    def __init__(
        self, problem: Problem, choices: Choices, start: State, rng: np.random.Generator
    ) -> None:
        self.problem = problem
        self.best = start
        self.movable: Ints = np.flatnonzero(~problem.pinned)
        self._rng = rng
        self._choices = choices
        self._price, bound = choices.clearing_price(int(problem.capacity.sum()))
        self.bound = max(bound, start.total)
        self._free_of_charge = choices.menu(0.0)
        self._priced = choices.menu(self._price)
        self._menus = [choices.menu(self._price * times) for times in PRICES]
        self._eps = TOLERANCE * max(abs(bound), 1.0)

    def run(self, effort: int) -> None:
        """Search from the present state and the clearing price, then divide some GPUs again."""
        anew = self.best.copy()
        for job in self.movable.tolist():
            anew.clear(job)
        self._hand_out(anew, self.movable, self._priced, largest_first=True)
        for state in (self.best.copy(), anew):
            self._settle(state)
            self._keep(state)
        if self._look_at_all(effort):
            return
        here = self.best
        for left in range(effort, 0, -1):
            if self.bound - self.best.total <= self._eps:
                return
            state = here.copy()
            some = self._related(state)
            for job in some.tolist():
                state.clear(job)
            menu = self._menus[int(self._rng.integers(len(self._menus)))]
            self._hand_out(state, some, menu, largest_first=bool(self._rng.random() < 0.5))
            self._fill(state)
            self._keep(state)
            # continue from slightly worse states, less and less so; from the best one otherwise
            slack = SLACK * left / effort * (self.bound - self.best.total)
            if state.total >= here.total - slack:
                here = state
            if here.total < self.best.total - 4 * slack:
                here = self.best

    def _look_at_all(self, layouts: int) -> bool:
        """Enumerate all states that could be better, if they are few; whether it is proven."""
        seen = better_ways(
            self.problem, self._choices, self._price, self.best, layouts=layouts, eps=self._eps
        )
        self._keep(seen.best)
        return seen.proven

    def _keep(self, state: State) -> None:
        if state.total > self.best.total + self._eps:
            self.best = state

    def _settle(self, state: State) -> None:
        """Improve single jobs and exchange, until neither helps much."""
        self._fill(state)
        for _ in range(SWEEPS):
            if not self._exchanges(state):
                return
            self._fill(state)

    def _fill(self, state: State) -> None:
        """Improve the rows of single jobs, the greatest gain first."""
        jobs, menu = self.movable, self._free_of_charge
        for _ in range(4 * len(jobs)):
            offers = state.offers(jobs, menu)
            better = offers.value - state.gain[jobs]
            first = int(better.argmax())
            if better[first] <= self._eps:
                return
            state.take(int(jobs[first]), int(offers.kind[first]), int(offers.replicas[first]))

    def _hand_out(self, state: State, jobs: Ints, menu: Menu, *, largest_first: bool) -> None:
        """Give jobs without replicas their choices at the menu's price.

        Args:
            state: is changed.
            jobs: the jobs.
            menu: the choices at a price.
            largest_first: serve jobs with many replicas first.
        """
        while len(jobs):
            offers = state.offers(jobs, menu)
            better = offers.value - state.gain[jobs]
            wants = better > self._eps
            score = np.where(wants, offers.replicas, -1) if largest_first else better
            first = int(score.argmax())
            if wants[first]:
                state.take(int(jobs[first]), int(offers.kind[first]), int(offers.replicas[first]))
            elif not wants.any():
                return
            jobs = np.delete(jobs, first)

    def _exchanges(self, state: State) -> bool:
        """Let each job in turn give back its replicas to another; returns whether any helped."""
        helped = False
        for giver in self._rng.permutation(self.movable).tolist():
            if state.replicas[giver] and any(
                self._exchange(state, giver, menu) for menu in (self._priced, self._free_of_charge)
            ):
                helped = True
        return helped

    def _exchange(self, state: State, giver: int, menu: Menu) -> bool:
        """One job gives back all, another chooses, then the first; whether that is better."""
        jobs = self.movable
        had, worth = state.rows[giver].copy(), float(state.gain[giver])
        paid = menu.price * state.replicas[jobs]
        better = -(state.gain[jobs] - paid)
        state.clear(giver)
        offers = state.offers(jobs, menu)
        better += offers.value
        position = int(np.searchsorted(jobs, giver))
        together = better + better[position]
        together[position] = -np.inf
        for taker in np.argsort(-together, kind="stable")[:TRIES].tolist():
            if together[taker] <= self._eps:
                break
            job = int(jobs[taker])
            rows, gain = state.rows[job].copy(), float(state.gain[job])
            state.take(job, int(offers.kind[taker]), int(offers.replicas[taker]))
            rest = state.offers(jobs[position : position + 1], self._free_of_charge)
            state.take(giver, int(rest.kind[0]), int(rest.replicas[0]))
            if state.gain[giver] + state.gain[job] > worth + gain + self._eps:
                return True
            state.clear(giver)
            state.give(job, rows, gain)
        state.give(giver, had, worth)
        return False

    def _related(self, state: State) -> Ints:
        """A few jobs that could use each other's GPUs: on the same nodes, or waiting for more."""
        rng, jobs = self._rng, self.movable
        chosen = set(rng.choice(jobs, min(len(jobs), int(rng.integers(1, 4))), replace=False))
        nodes = rng.choice(self.problem.nodes, min(self.problem.nodes, int(rng.integers(1, 4))))
        there = np.flatnonzero(state.rows[:, nodes].any(axis=1) & ~self.problem.pinned)
        return np.array(sorted({int(job) for job in chosen} | set(there.tolist())), np.int64)
