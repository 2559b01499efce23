"""What each job could have, ranked: the best number of replicas where there is room for so many.

A search asks again and again which row would be best for a job where m replicas fit on one node, or
on several. The answer for every m is a running maximum, made once for a *price* of a GPU: with a
price a job wants only as much as is worth it, and leaves the rest to others.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dlsched.core.arrays import Bools, Floats, Ints
from dlsched.policies.scheduling.pollux.fitness import gains
from dlsched.policies.scheduling.pollux.problem import Problem

__all__ = ["Choices", "Menu", "choices_of"]

HALVINGS = 40
ORDERS = 80.0  # of e, between the dearest and the cheapest price


@dataclass(frozen=True, slots=True)
class Menu:
    """Best choices at a price.

    Attributes:
        price: of a GPU, in gain.
        value: [job, on several nodes?, room]: gain less price of the best number that fits.
        replicas: that number.
        stay: [job] value of the present row.
    """

    price: float
    value: Floats
    replicas: Ints
    stay: Floats


@dataclass(frozen=True, slots=True)
class Choices:
    """Gains by what a job has.

    Attributes:
        changed: [job, on several nodes?, replicas] of any row but the present one; -inf where it
            may not be.
        stay: [job] of the present row.
        held: [job] replicas of the present row.
    """

    changed: Floats
    stay: Floats
    held: Ints

    def menu(self, price: float) -> Menu:
        """What is best where there is room for so many."""
        count = self.changed.shape[2]
        value = self.changed - price * np.arange(count)
        best = np.maximum.accumulate(value, axis=2)
        first = np.ones(value.shape, np.bool_)
        first[:, :, 1:] = value[:, :, 1:] > best[:, :, :-1]
        replicas = np.maximum.accumulate(np.where(first, np.arange(count), 0), axis=2)
        return Menu(price, best, replicas, self.stay - price * self.held)

    def wanted(self, price: float) -> tuple[Ints, float]:
        """Replicas that each job would buy, and Σ of gain less price.

        That sum, plus the price of all GPUs, is more than any state is worth.
        """
        value = self.changed - price * np.arange(self.changed.shape[2])
        flat = value.reshape(len(value), -1)
        best = flat.argmax(axis=1)
        worth = np.take_along_axis(flat, best[:, None], axis=1)[:, 0]
        kept = self.stay - price * self.held
        stays = kept >= worth
        bought = np.where(stays, self.held, best % self.changed.shape[2])
        return bought, float(np.where(stays, kept, worth).sum())

    def stays(self, price: float) -> Bools:
        """Which jobs would rather keep their rows at that price."""
        value = self.changed - price * np.arange(self.changed.shape[2])
        return np.asarray(self.stay - price * self.held >= value.max(axis=(1, 2)))

    def clearing_price(self, gpus: int) -> tuple[float, float]:
        """The price at which no more GPUs are wanted than there are, and the bound at its best.

        Args:
            gpus: how many there are.
        """
        bought, bound = self.wanted(0.0)
        if bought.sum() <= gpus:
            return 0.0, bound
        finite = self.changed[np.isfinite(self.changed)]
        # gains of strongly negative powers go over tens of orders of magnitude: halve exponents
        high = np.log(float(finite.max() - finite.min()) + 1e-300)
        low = high - ORDERS
        for _ in range(HALVINGS):
            middle = 0.5 * (low + high)
            price = float(np.exp(middle))
            bought, worth = self.wanted(price)
            bound = min(bound, worth + price * gpus)
            if bought.sum() > gpus:
                low = middle
            else:
                high = middle
        return float(np.exp(high)), bound


def choices_of(problem: Problem) -> Choices:
    """Gains of every row that a job could have."""
    count = np.arange(problem.largest + 1)
    worths = problem.speedup * problem.weight[:, None, None]
    changed = gains(worths * problem.factor[:, None, None], problem.exponent)
    may = (count >= problem.least[:, None]) & (count <= problem.most[:, None])
    changed = np.where((may | (count == 0))[:, None, :], changed, -np.inf)
    changed[:, 0, int(problem.capacity.max(initial=0)) + 1 :] = -np.inf  # no node has so many
    changed[:, 1, :2] = -np.inf  # fewer than two do not span nodes
    stay = gains(problem.worths(problem.base), problem.exponent)
    return Choices(changed, stay, problem.base.sum(axis=1))
