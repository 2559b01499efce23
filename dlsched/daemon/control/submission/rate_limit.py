"""How often a user may call `submit`: a token bucket for each user.

Calls count, not jobs: a user with many jobs sends them in one call.
"""

from __future__ import annotations

from dlsched.daemon.rpc_errors import TooMuch

MOST_USERS = (
    10_000  # beyond it, the users that were quiet the longest are dropped: their buckets are full
)


class RateLimit:
    """The token buckets of all users."""

    def __init__(self) -> None:
        self._left: dict[str, tuple[float, float]] = {}  # calls left, and when that was

    def take(self, user: str, per_s: float, burst: int, now: float) -> None:
        """Count a call.

        Args:
            user: the caller.
            per_s: calls a second at which the bucket fills.
            burst: the most calls that the bucket holds.
            now: seconds of `boottime`.

        Raises:
            TooMuch: the bucket is empty; then the call is not counted.
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
