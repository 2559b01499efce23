"""How often a user may submit: a bucket a user that fills at the rate that the file says.

What counts is calls, not jobs: whoever has many jobs sends them in one call.
"""

from __future__ import annotations

from dlsched.daemon.refusals import TooMuch

__all__ = ["Pace"]

MOST_USERS = 10_000  # remembered; the longest quiet are forgotten, whose buckets are full again


class Pace:
    """The buckets of all users."""

    def __init__(self) -> None:
        self._left: dict[str, tuple[float, float]] = {}  # calls left, and when that was

    def take(self, user: str, per_s: float, burst: int, now: float) -> None:
        """Count a call.

        Raises:
            TooMuch: when the user has none left; it is not counted then.
        """
        left, at = self._left.pop(user, (float(burst), now))
        left = min(left + (now - at) * per_s, float(burst))
        enough = left >= 1.0
        self._left[user] = (left - 1.0 if enough else left, now)
        while len(self._left) > MOST_USERS:
            del self._left[next(iter(self._left))]
        if not enough:
            raise TooMuch(
                f"{user} submits more than {per_s:g} times a second: send many jobs in one call "
                f"(submit --from), or again in {(1.0 - left) / per_s:.2f} s"
            )
