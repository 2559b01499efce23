"""GPU time that owners have used, which counts less the longer ago it was.

A GPU-second that was used t seconds ago counts 2^(−t/h), h being the half-life. So g GPUs that are
held from a to b count, at a later time t,

    g · h/ln 2 · (2^(−(t−b)/h) − 2^(−(t−a)/h))

Nothing is stepped: each owner has a value, the time as of which it holds, and the GPUs that it
holds since. A start or an end changes one owner; asking costs one vector operation over owners.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from dlsched.core.arrays import Floats, Ints, Rows

Owner = tuple[str, str, str]  # user, account, virtual cluster; "" for none


def faded(seconds: float | Floats, half_life_s: float) -> Floats:
    """What is left of each GPU-second after so many seconds."""
    left: Floats = np.exp2(-np.asarray(seconds, np.float64) / half_life_s)
    return left


def held_for(seconds: float | Floats, half_life_s: float) -> Floats:
    """What one GPU counts that was held for so many seconds until now, in GPU-seconds."""
    span = np.asarray(seconds, np.float64)
    if math.isinf(half_life_s):
        return span
    counted: Floats = -np.expm1(-span * (math.log(2.0) / half_life_s))
    return counted * (half_life_s / math.log(2.0))


class DecayedUsage:
    """What each owner has used.

    Attributes:
        owners: by number.
        half_life_s: seconds; infinite where nothing fades.
        value: GPU-seconds as of `at`.
        at: seconds.
        gpus: held since `at`.
    """

    __slots__ = ("_numbers", "at", "gpus", "half_life_s", "owners", "value")

    def __init__(self, half_life_s: float, owners: Iterable[Owner] = (), now: float = 0.0) -> None:
        """Begin with owners that have used nothing."""
        self.owners: list[Owner] = []
        self.half_life_s = half_life_s
        self._numbers: dict[Owner, int] = {}
        self.value: Floats = np.zeros(0)
        self.at: Floats = np.zeros(0)
        self.gpus: Floats = np.zeros(0)
        for owner in owners:
            self.number(owner, now)

    def number(self, owner: Owner, now: float = 0.0) -> int:
        """An owner's number; one that is new has used nothing."""
        found = self._numbers.get(owner)
        if found is None:
            found = self._numbers[owner] = len(self.owners)
            self.owners.append(owner)
            self.value = np.append(self.value, 0.0)
            self.at = np.append(self.at, now)
            self.gpus = np.append(self.gpus, 0.0)
        return found

    def restore(self, owner: Owner, value: float, at: float, gpus: float = 0.0) -> None:
        """Set what an owner has used up to a time, and the GPUs that it holds since."""
        number = self.number(owner)
        self.value[number], self.at[number], self.gpus[number] = value, at, gpus

    def copy(self) -> DecayedUsage:
        """One of its own with the same content."""
        other = DecayedUsage(self.half_life_s)
        other.owners, other._numbers = list(self.owners), dict(self._numbers)
        other.value, other.at, other.gpus = self.value.copy(), self.at.copy(), self.gpus.copy()
        return other

    def as_of(self, now: float) -> Floats:
        """What each owner has used, as it counts now, in GPU-seconds."""
        passed = np.maximum(now - self.at, 0.0)
        used = self.value * faded(passed, self.half_life_s)
        held: Floats = self.gpus * held_for(passed, self.half_life_s)
        return used + held

    def settle(self, now: float) -> None:
        """Bring all values up to now."""
        self.value, self.at = self.as_of(now), np.maximum(self.at, now)

    def change(self, owner: int, gpus: float, now: float) -> None:
        """An owner holds more GPUs (fewer: negative) from now on, or from an earlier time on."""
        passed = now - self.at.item(owner)
        if passed > 0:
            used = self.value.item(owner) * faded(passed, self.half_life_s)
            held = self.gpus.item(owner) * held_for(passed, self.half_life_s)
            self.value[owner] = used + held
            self.at[owner] = now
        elif passed < 0:
            self.value[owner] += gpus * held_for(-passed, self.half_life_s)
        self.gpus[owner] += gpus

    def change_all(self, owners: Rows, gpus: Ints | Floats, now: float | Floats) -> None:
        """As `change`, for many at once; owners may be there more than once."""
        if not len(owners):
            return
        times = np.broadcast_to(np.asarray(now, np.float64), owners.shape)
        self.settle(float(times.max()))
        late = held_for(self.at[owners] - times, self.half_life_s)
        np.add.at(self.value, owners, gpus * late)
        np.add.at(self.gpus, owners, gpus)


def owner_numbers(
    usage: DecayedUsage, names: Sequence[tuple[str, ...]], codes: Sequence[Ints], now: float
) -> Ints:
    """The owner of each row, from its codes of user, account and virtual cluster.

    Args:
        usage: gets owners that it does not know.
        names: what the codes stand for; a code of -1 is the empty name.
        codes: by row.
        now: seconds.
    """
    table = np.stack(codes, axis=1) if len(codes[0]) else np.zeros((0, len(codes)), np.int64)
    distinct, place = np.unique(table, axis=0, return_inverse=True)
    numbers = [
        usage.number(tuple(n[c] if c >= 0 else "" for n, c in zip(names, row, strict=True)), now)  # type: ignore[arg-type]  # three of them
        for row in distinct.tolist()
    ]
    found: Ints = np.array(numbers, np.int64)[np.reshape(place, -1)] if numbers else place
    return found
