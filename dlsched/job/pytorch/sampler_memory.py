"""What samplers remember from one epoch to the next: numbers, text, and generators of their own.

Only what has changed since the sampler was made is saved: what a script sets anew at a restart,
such as a batch size, stays as the script sets it. PyTorch's generators are saved elsewhere.
"""

from __future__ import annotations

import random
import sys
from typing import Any

Remembered = list[dict[str, object]]  # by the attributes of each sampler


class SamplerMemory:
    """The attributes of a loader's batch sampler and sampler that change."""

    def __init__(self, loader: object) -> None:
        """Note what they are at first."""
        batches = getattr(loader, "batch_sampler", None)
        parts = (batches, getattr(batches, "sampler", None))
        self._parts = [each for each in parts if each is not None]
        self._first = [_known(each) for each in self._parts]

    def state(self) -> Remembered:
        """Return what has changed, in a form for `torch.save`."""
        pairs = zip(self._first, map(_known, self._parts), strict=True)
        return [
            {name: value for name, value in now.items() if value != first.get(name, now)}
            for first, now in pairs
        ]

    def load(self, states: Remembered) -> None:
        """Make the samplers as they were; without a state, as they were at first."""
        for part, first, state in zip(self._parts, self._first, states, strict=False):
            now = _known(part)
            for name, value in {**first, **state}.items():
                if name not in now or now[name] != value:
                    _set(part, name, value)


def _known(part: object) -> dict[str, object]:
    found: dict[str, object] = {}
    for name, value in getattr(part, "__dict__", {}).items():
        if value is None or type(value) in (bool, int, float, str):
            found[name] = value
        elif isinstance(value, random.Random):
            found[name] = _lists(value.getstate())
        elif _is_of_numpy(value):
            found[name] = _lists(value.bit_generator.state)
    return found


def _set(part: object, name: str, value: Any) -> None:
    present: Any = getattr(part, name, None)
    if isinstance(present, random.Random):
        version, numbers, gauss = value
        present.setstate((version, tuple(numbers), gauss))
    elif _is_of_numpy(present):
        present.bit_generator.state = value
    else:
        setattr(part, name, value)


def _is_of_numpy(value: object) -> bool:
    return "numpy" in sys.modules and isinstance(value, sys.modules["numpy"].random.Generator)


def _lists(value: object) -> object:
    """Return the same without tuples and arrays."""
    if isinstance(value, dict):
        return {name: _lists(each) for name, each in value.items()}
    if isinstance(value, tuple | list):
        return [_lists(each) for each in value]
    return value.tolist() if hasattr(value, "tolist") else value
