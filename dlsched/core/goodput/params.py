"""The numbers of the goodput model: of a job's speed, of its gradient noise, of its batch sizes.

Every field may be a plain number (one job) or an array (many jobs); the formulas broadcast.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dlsched.core.arrays import Bools, Floats
from dlsched.core.errors import BadInput

Number = float | Floats


class PerfParams(NamedTuple):
    """What a step takes: `alpha` is constant, `beta` grows; all from 1e-8 up.

    Attributes:
        alpha_c: s of a forward and backward pass, whatever its size.
        beta_c: s a sample of it.
        alpha_n: s of synchronising over several nodes.
        beta_n: s of it for every replica beyond the second.
        alpha_r: s of synchronising within a node.
        beta_r: s of it for every replica beyond the second.
        gamma: how far computing and synchronising overlap: 1 not at all, 10 nearly wholly.
    """

    alpha_c: Number
    beta_c: Number
    alpha_n: Number
    beta_n: Number
    alpha_r: Number
    beta_r: Number
    gamma: Number

    @property
    def known(self) -> bool | Bools:
        """Has it been fitted (is it not NaN)?"""
        return np.isfinite(self.alpha_c)


class GradParams(NamedTuple):
    """The gradient at the initial batch size.

    Attributes:
        sqr: squared norm of the true gradient.
        var: trace of its covariance.
    """

    sqr: Number
    var: Number


class BatchLimits(NamedTuple):
    """What batch sizes a job may have.

    Attributes:
        initial: samples in all that the user trains with; efficiency is relative to it.
        maximum: most samples in all.
        local_min: fewest samples a replica computes at once.
        local_max: most of them (GPU memory).
        accumulation: may gradients be accumulated over several passes?
        fixed: the batch is always `maximum`, on however many GPUs.
    """

    initial: Number
    maximum: Number
    local_min: Number
    local_max: Number
    accumulation: bool | Bools = True
    fixed: bool | Bools = False

    @staticmethod
    def of(
        initial: float,
        maximum: float | None = None,
        local_min: float | None = None,
        local_max: float | None = None,
        *,
        accumulation: bool = True,
        fixed: bool = False,
        what: str = "batch limits",
    ) -> BatchLimits:
        """Limits of one job; what is not given is as wide as the rest allows.

        Args:
            initial: samples in all.
            maximum: samples in all; the initial batch when None.
            local_min: samples a replica; 1 when None.
            local_max: samples a replica; the maximum when None.
            accumulation: may gradients be accumulated?
            fixed: is the batch always `maximum`?
            what: whose limits, for messages.

        Raises:
            BadInput: no batch size keeps them.
        """
        maximum = initial if maximum is None else maximum
        local_min = 1 if local_min is None else local_min
        local_max = maximum if local_max is None else local_max
        sizes = {
            "the initial batch size": initial,
            "the maximum batch size": maximum,
            "the smallest local batch size": local_min,
            "the largest local batch size": local_max,
        }
        for name, size in sizes.items():
            if not (math.isfinite(size) and size >= 1):
                raise BadInput(f"{what}: {name} must be a number from 1 up, not {size:g}")
        if maximum < initial:
            raise BadInput(
                f"{what}: the maximum batch size {maximum:g} is below the initial {initial:g}"
            )
        if local_min > local_max:
            raise BadInput(
                f"{what}: the smallest local batch size {local_min:g} is above "
                f"the largest, {local_max:g}"
            )
        if local_min > maximum:
            raise BadInput(
                f"{what}: the smallest local batch size {local_min:g} is above "
                f"the maximum batch size {maximum:g}"
            )
        return BatchLimits(initial, maximum, local_min, local_max, accumulation, fixed)
