"""The best number of replicas of each job, by the room that there is for it.

The search often needs the best row of a job if at most m replicas fit on one node, or on several.
The answer for every m is a running maximum, computed once for a *price* of a GPU: at a price a job
chooses only as many GPUs as are worth it, and leaves the rest to other jobs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dlsched.core.arrays import Bools, Floats, Ints
from dlsched.policies.scheduling.pollux.problem import Problem, gains

HALVINGS = 40
ORDERS = 80.0  # ratio of the highest to the lowest price, as a power of e


@dataclass(frozen=True, slots=True)
class Menu:
    """Best choices at a price.

    Attributes:
        price: of a GPU, in gain.
        value: [job, on several nodes?, room]: gain less price of the best number that fits.
        replicas: this number.
        stay: [job] value of the present row.
    """

    price: float
    value: Floats
    replicas: Ints
    stay: Floats


@dataclass(frozen=True, slots=True)
class Choices:
    """The gain of each job by its row.

    Attributes:
        changed: [job, on several nodes?, replicas] of any other row than the present one; -inf
            where it is not permitted.
        stay: [job] of the present row.
        held: [job] replicas of the present row.
    """

    changed: Floats
    stay: Floats
    held: Ints

    def menu(self, price: float) -> Menu:
        """The best choices at a price, by room."""
        count = self.changed.shape[2]
        value = self.changed - price * np.arange(count)
        best = np.maximum.accumulate(value, axis=2)
        first = np.ones(value.shape, np.bool_)
        first[:, :, 1:] = value[:, :, 1:] > best[:, :, :-1]
        replicas = np.maximum.accumulate(np.where(first, np.arange(count), 0), axis=2)
        return Menu(price, best, replicas, self.stay - price * self.held)

    def wanted(self, price: float) -> tuple[Ints, float]:
        """The replicas that each job would choose at a price, and the sum of gains less prices.

        This sum plus the price of all GPUs is an upper bound of the value of any state.
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
        """Which jobs would keep their rows at this price."""
        value = self.changed - price * np.arange(self.changed.shape[2])
        return np.asarray(self.stay - price * self.held >= value.max(axis=(1, 2)))

    def clearing_price(self, gpus: int) -> tuple[float, float]:
        """The lowest price at which all jobs want at most `gpus` GPUs, and the best bound."""
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
    """The gains of every row that each job could have."""
    count = np.arange(problem.largest + 1)
    worths = problem.speedup * problem.weight[:, None, None]
    changed = gains(worths * problem.factor[:, None, None], problem.exponent)
    may = (count >= problem.least[:, None]) & (count <= problem.most[:, None])
    changed = np.where((may | (count == 0))[:, None, :], changed, -np.inf)
    changed[:, 0, int(problem.capacity.max(initial=0)) + 1 :] = -np.inf  # larger than any node
    changed[:, 1, :2] = -np.inf  # fewer than two replicas do not span nodes
    stay = gains(problem.worths(problem.base), problem.exponent)
    return Choices(changed, stay, problem.base.sum(axis=1))
