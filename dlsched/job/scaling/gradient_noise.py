"""How noisy gradients are, and how much progress a step with a larger batch therefore makes.

`sqr` is the squared norm of the true gradient, `var` the summed variance of the gradient of a batch
of the initial size. Both are estimated from several gradients of the same step: those of the
replicas, or of the accumulated passes. With one replica and one pass they are estimated from two
steps in a row, which is biased.

Sources: Johnson et al., "AdaScale SGD", ICML 2020; McCandlish et al., "An Empirical Model of
Large-Batch Training", 2018; Qiao et al., "Pollux", OSDI 2021.
"""

from __future__ import annotations

import json
import math
from typing import BinaryIO, Literal

from dlsched.job.errors import JobError

MEMORY = 0.999  # of the mean over steps, for a step at the initial batch size
LEAST_VAR = 1e-6
Scaling = Literal["adascale", "adam", "linear", "sqrt", "none"]


class GradientNoise:
    """A mean over the steps of a training, in which older steps count less.

    Attributes:
        skipped: measurements that were not finite, which mixed precision sometimes has.
    """

    def __init__(self) -> None:
        """Begin with no measurement."""
        self._sqr = self._var = self._weight = 0.0
        self._biased = True
        self._divided = False
        self.skipped = 0

    @property
    def is_known(self) -> bool:
        """Whether there is a measurement."""
        return self._weight > 0

    @property
    def sqr(self) -> float:
        """Squared norm of the true gradient."""
        return max(self._sqr / self._weight, 0.0) if self._weight else 0.0

    @property
    def var(self) -> float:
        """Variance of the gradient of a batch of the initial size, summed over parameters."""
        return max(self._var / self._weight, LEAST_VAR) if self._weight else 1.0

    def add(
        self,
        local: float,
        mean: float,
        *,
        count: int,
        scale: float,
        steps: int = 1,
        divided: bool = False,
    ) -> None:
        """Add a measurement from several gradients of one step.

        Args:
            local: mean of the squared norms of the single gradients.
            mean: squared norm of their mean.
            count: how many there are; at least 2.
            scale: samples of all of them together, in initial batches.
            steps: how many steps this measurement stands for.
            divided: they are gradients as Adam divides them, which have another size; earlier
                measurements of the others are dropped.
        """
        sqr = (count * mean - local) / (count - 1)
        var = (local - mean) * scale / (count - 1)
        self._take(sqr, var, MEMORY ** (scale * steps), biased=False, divided=divided)

    def add_in_a_row(
        self, local: float, mean: float, *, scale: float, steps: int = 1, divided: bool = False
    ) -> None:
        """Add a measurement from the gradients of this step and the last one.

        It is dropped once there is an unbiased one. The arguments are those of `add`; `scale` is
        that of one of the two steps.
        """
        if self._biased or not self.is_known or divided != self._divided:
            sqr, var = 2 * mean - local, (local - mean) * 2 * scale
            self._take(sqr, var, MEMORY ** (scale * steps), biased=True, divided=divided)

    def _take(self, sqr: float, var: float, keep: float, *, biased: bool, divided: bool) -> None:
        if not (math.isfinite(sqr) and math.isfinite(var)):
            self.skipped += 1
            return
        if (self._biased and not biased) or self._divided != divided:
            self._sqr = self._var = self._weight = 0.0
        self._biased, self._divided = biased, divided
        self._sqr = keep * self._sqr + (1 - keep) * sqr
        self._var = keep * self._var + (1 - keep) * var
        self._weight = keep * self._weight + (1 - keep)

    def gain(self, scale: float) -> float:
        """Return the progress of a step with `scale` initial batches, in steps with one."""
        if not self.is_known:
            return 1.0
        needed = self.var / scale + self.sqr
        return (self.var + self.sqr) / needed if needed > 0 else 1.0

    # -- as a state of the checkpoint --------------------------------------------------------------

    def save(self, file: BinaryIO) -> None:
        """Write the state to a file."""
        known = [self._sqr, self._var, self._weight, self._biased, self._divided]
        file.write(json.dumps(known).encode())

    def load(self, file: BinaryIO) -> None:
        """Read the state from a file."""
        self._sqr, self._var, self._weight, self._biased, *more = json.loads(file.read())
        self._divided = bool(more and more[0])  # older checkpoints do not have it


def rate_factor(rule: Scaling, scale: float, gain: float) -> float:
    """Return the factor of the learning rate at `scale` times the initial batch size.

    Args:
        rule: adascale (for SGD) is the gain, adam (for the family of Adam) its square root; linear
            and sqrt depend on the batch size alone; none is 1.
        scale: batch size divided by the initial one.
        gain: the progress of the step, in steps at the initial batch size.

    Raises:
        JobError: when there is no such rule.
    """
    match rule:
        case "adascale":
            return gain
        case "adam":
            return math.sqrt(gain)
        case "linear":
            return scale
        case "sqrt":
            return math.sqrt(scale)
        case "none":
            return 1.0
    raise JobError(f"scaling={rule}: one of adascale, adam, linear, sqrt, none")
