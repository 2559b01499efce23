"""A trained feed-forward network that decides: plain arrays, so that deciding needs numpy alone.

What it was trained for stands beside its weights: a `schema` that names its inputs and outputs, and
the settings of its training. A part refuses a network of another schema or size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Singles = NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class Network:
    """Layers x → max(x·W + b, 0), the last one without the maximum.

    Attributes:
        name: where it comes from, as users name it.
        schema: what its inputs and outputs are.
        settings: of its training, for the record.
        weights: of each layer, [input, output].
        biases: of each layer.
    """

    name: str
    schema: str
    weights: Sequence[Singles]
    biases: Sequence[Singles]
    settings: Mapping[str, object] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.name

    @property
    def inputs(self) -> int:
        """How many numbers it takes."""
        return int(self.weights[0].shape[0])

    @property
    def outputs(self) -> int:
        """How many numbers it gives."""
        return int(self.weights[-1].shape[1])

    def __call__(self, values: Singles) -> Singles:
        """The outputs of one input, or of a row of inputs each."""
        last = len(self.weights) - 1
        for number, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            values = values @ weight + bias
            if number < last:
                np.maximum(values, 0.0, out=values)
        return values


class Decision(NamedTuple):
    """One decision of a network, as a learner remembers it.

    Attributes:
        state: what the network saw.
        action: what was done.
    """

    state: Singles
    action: int


def draw(scores: Singles, allowed: NDArray[np.bool_], chance: float) -> int:
    """One of the allowed outputs, with probabilities in proportion to e to their scores.

    Args:
        scores: of each output.
        allowed: at least one is.
        chance: from 0 to below 1; decides which.
    """
    likely = np.exp(scores - scores[allowed].max(), dtype=np.float64, where=allowed,
                    out=np.zeros(len(scores)))  # fmt: skip
    total = likely.cumsum()
    return int(total.searchsorted(chance * total[-1], side="right"))
