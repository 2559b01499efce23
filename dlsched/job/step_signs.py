"""Notices a script that calls `step` twice after each training step: its steps count double.

A *sign* is a value that every training step changes: the versions of weights and gradients, the
position in the data. When at every second call of `step` no sign has changed, it is called twice.
"""

from __future__ import annotations

from collections.abc import Callable

CALLS = 100  # of `step` that are watched; later ones cost nothing
TWICE = [True, False] * 3  # whether a sign had changed, at the last calls


class StepSigns:
    """The signs of one training, watched during its first steps."""

    def __init__(self) -> None:
        """Know no sign yet."""
        self._signs: list[Callable[[], object]] = []
        self._last: list[object] = []
        self._changed: list[bool] = []

    def add(self, sign: Callable[[], object]) -> None:
        """Watch a value that every training step changes."""
        self._signs.append(sign)

    def show_twice(self) -> bool:
        """Look at the signs, once at each call of `step`; return whether it is called twice.

        That is certain once at most: then, and after `CALLS` calls, nothing is watched any more.
        """
        if not self._signs:
            return False
        now = [sign() for sign in self._signs]
        self._changed.append(now != self._last)
        self._last = now
        is_twice = self._changed[-len(TWICE) :] == TWICE
        if is_twice or len(self._changed) >= CALLS:
            self._signs.clear()
            self._last.clear()
        return is_twice
