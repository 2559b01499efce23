"""The search for a good state: a price for GPUs, and then job by job.

The fitness grows with a sum of terms, one a job. So if GPUs had a price, every job could choose by
itself; at the price at which all together want no more than there is, what they choose is nearly
the best, and no state is worth more than the bound that comes with it. What is left is to lay the
rows on nodes. The search starts from what is now, and

- gives single jobs what is better for them, the greatest gain first;
- lets two jobs exchange: one gives everything back, another takes what it wants, the first takes
  what is best of the rest;
- looks at all combinations of what could still be better, where they are few (`enumeration`);
- takes some jobs' GPUs away and hands them out anew at the price, and keeps what came of it if it
  is better.

Every row it gives is feasible, so every state is. It is never worse than what is now.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dlsched.core.arrays import Ints
from dlsched.policies.scheduling.pollux.choices import Choices, Menu, choices_of
from dlsched.policies.scheduling.pollux.enumeration import better_ways
from dlsched.policies.scheduling.pollux.feasible import is_feasible, repaired
from dlsched.policies.scheduling.pollux.fitness import mean_of_gains
from dlsched.policies.scheduling.pollux.problem import Problem
from dlsched.policies.scheduling.pollux.state import State

__all__ = ["Found", "search"]

TRIES = 3  # partners that an exchange looks at
PRICES = (0.0, 0.3, 0.6, 1.0, 1.5, 2.5)  # that GPUs are handed out anew at, of the clearing one
SWEEPS = 2  # of exchanges; further ones bring a tenth of a per cent, and cost as much
SLACK = 0.1  # of what the bound leaves open: how much worse a state may be to go on from
TOLERANCE = 1e-10  # of the sum of gains; less is no improvement


@dataclass(frozen=True, slots=True)
class Found:
    """The best state found.

    Attributes:
        rows: [job, node] replicas.
        fitness: its fitness.
        bound: no state has more.
    """

    rows: Ints
    fitness: float
    bound: float


def search(problem: Problem, rng: np.random.Generator, *, effort: int = 50) -> Found:
    """The best state that is found.

    Args:
        problem: the question.
        rng: what is random is drawn from it.
        effort: how often some jobs' GPUs are handed out anew.
    """
    choices = choices_of(problem)
    rows = problem.base if is_feasible(problem, problem.base) else None
    if rows is None:
        rows = repaired(problem, problem.base, rng)
    hunt = _Hunt(problem, choices, State(problem, choices, rows), rng)
    if len(hunt.movable):
        hunt.run(effort)
    found = mean_of_gains(hunt.best.total, problem.jobs, problem.exponent)
    bound = mean_of_gains(hunt.bound, problem.jobs, problem.exponent)
    return Found(hunt.best.rows, float(found), float(bound))


class _Hunt:
    """One search.

    Attributes:
        best: the best state so far.
        bound: no sum of gains is larger.
        movable: jobs whose rows may change.
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
        """Search from what is now and from what the price says, then by handing out anew."""
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
            # go on from states that are little worse, and ever less so; from the best otherwise
            slack = SLACK * left / effort * (self.bound - self.best.total)
            if state.total >= here.total - slack:
                here = state
            if here.total < self.best.total - 4 * slack:
                here = self.best

    def _look_at_all(self, layouts: int) -> bool:
        """Look at all combinations that could be better, if they are few; is nothing left open?"""
        seen = better_ways(
            self.problem, self._choices, self._price, self.best, layouts=layouts, eps=self._eps
        )
        self._keep(seen.best)
        return seen.proven

    def _keep(self, state: State) -> None:
        if state.total > self.best.total + self._eps:
            self.best = state

    def _settle(self, state: State) -> None:
        """Single jobs and exchanges, until neither helps much."""
        self._fill(state)
        for _ in range(SWEEPS):
            if not self._exchanges(state):
                return
            self._fill(state)

    def _fill(self, state: State) -> None:
        """Give single jobs what is better for them, the greatest gain first."""
        jobs, menu = self.movable, self._free_of_charge
        for _ in range(4 * len(jobs)):
            offers = state.offers(jobs, menu)
            better = offers.value - state.gain[jobs]
            first = int(better.argmax())
            if better[first] <= self._eps:
                return
            state.take(int(jobs[first]), int(offers.kind[first]), int(offers.replicas[first]))

    def _hand_out(self, state: State, jobs: Ints, menu: Menu, *, largest_first: bool) -> None:
        """Give jobs that have nothing what they want at the menu's price."""
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
        """Let each job in turn give back what it has for the good of another; did any help?"""
        helped = False
        for giver in self._rng.permutation(self.movable).tolist():
            if state.replicas[giver] and any(
                self._exchange(state, giver, menu) for menu in (self._priced, self._free_of_charge)
            ):
                helped = True
        return helped

    def _exchange(self, state: State, giver: int, menu: Menu) -> bool:
        """One job gives everything back; another takes, then the first; is that better?"""
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
        """A few jobs whose GPUs could serve each other: on some nodes, and some that want more."""
        rng, jobs = self._rng, self.movable
        chosen = set(rng.choice(jobs, min(len(jobs), int(rng.integers(1, 4))), replace=False))
        nodes = rng.choice(self.problem.nodes, min(self.problem.nodes, int(rng.integers(1, 4))))
        there = np.flatnonzero(state.rows[:, nodes].any(axis=1) & ~self.problem.pinned)
        return np.array(sorted({int(job) for job in chosen} | set(there.tolist())), np.int64)
