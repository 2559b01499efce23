"""How fast kinds of trainings run: speeds by model, batch size, GPUs and partner, as plain values.

What is known of a kind is kept beyond its jobs, so that the next one need not be measured again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

__all__ = [
    "MEASURED",
    "SpeedKey",
    "SpeedRow",
    "SpeedsForgotten",
    "SpeedsSet",
]

MEASURED = "measured"  # the source of what jobs themselves have told


class SpeedKey(NamedTuple):
    """What decides a speed.

    Attributes:
        model: what is trained.
        batch_size: examples a step; 0 where nobody has said.
        gpu_type: on what.
        gpus: on how many, of the job and of its partner.
        partner: the model on the same GPUs; empty when it has them alone.
        partner_batch_size: its examples a step.
    """

    model: str
    batch_size: int
    gpu_type: str
    gpus: int
    partner: str = ""
    partner_batch_size: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedRow:
    """How fast a kind ran there.

    Attributes:
        key: what, and where.
        steps_per_s: of the whole job; 0: it does not run there.
        measurements: on how many it rests; 0: it was imported.
        source: MEASURED, or who imported it.
        at: when it was last set.
        changed_at: when it last changed so much that plans were to be made anew.
    """

    key: SpeedKey
    steps_per_s: float
    measurements: int = 0
    source: str = MEASURED
    at: float = 0.0
    changed_at: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedsSet:
    """These speeds hold from now on."""

    rows: tuple[SpeedRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedsForgotten:
    """Speeds of these keys are known no more."""

    keys: tuple[SpeedKey, ...]
