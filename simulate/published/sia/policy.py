"""The policy `sia` with the rounding of its published code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from dlsched.core.arrays import Floats
from dlsched.core.options import option
from dlsched.policies.scheduling.sia.integer_program import EXACT, Terms
from dlsched.policies.scheduling.sia.options import SiaOptions
from dlsched.policies.scheduling.sia.policy import Sia

MOST = 3000.0  # upper bound of A in the published code


class RoundedTerms(Terms):
    """A in single precision and to two decimals, at most 3000; G in single precision, too."""

    step = 0.01

    def powers(self, worth: Floats, power: float) -> Floats:
        """A, from G and p."""
        single = np.power(worth.astype(np.float32), np.float32(power))
        return np.minimum(np.round(single, 2), np.float32(MOST)).astype(np.float64)

    def charged(self, worth: Floats, scale: Floats) -> Floats:
        """G with each job's row scaled."""
        return (worth.astype(np.float32) * scale.astype(np.float32)).astype(np.float64)


ROUNDED = RoundedTerms()


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedSiaOptions(SiaOptions):
    """Sia, where time passes as in its simulator."""

    rounding: Literal["none", "artifact"] = option(
        "none",
        "artifact: round terms of the objective to two decimals, as published",
    )


class PublishedSia(Sia):
    """Sia with rounded terms, unless `rounding=none`."""

    Options: ClassVar[type[PublishedSiaOptions]] = PublishedSiaOptions
    options: PublishedSiaOptions

    @property
    def terms(self) -> Terms:
        """How the objective is computed."""
        return ROUNDED if self.options.rounding == "artifact" else EXACT
