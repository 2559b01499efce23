"""How much a user may do in a time: a token bucket for each user.

Of `submit` the calls count, not the jobs: a user with many jobs sends them in one call.
"""

from __future__ import annotations

from dlsched.daemon.rpc_errors import TooMuch

MOST_USERS = (
    10_000  # beyond it, the users that were quiet the longest are dropped: their buckets are full
)


class TokenBuckets:
    """The token buckets of all users."""

    def __init__(self) -> None:
        self._left: dict[str, tuple[float, float]] = {}  # tokens left, and when that was

    def take(self, user: str, tokens: float, per_s: float, burst: int, now: float) -> float:
        """Take tokens; returns after how many seconds there are enough, 0 if they were taken.

        Args:
            user: whose bucket it is.
            tokens: how many.
            per_s: tokens a second with which the bucket fills.
            burst: the most tokens that the bucket holds.
            now: seconds of `boottime`.
        """
        left, at = self._left.pop(user, (float(burst), now))
        left = min(left + (now - at) * per_s, float(burst))
        enough = left >= tokens
        self._left[user] = (left - tokens if enough else left, now)
        while len(self._left) > MOST_USERS:
            del self._left[next(iter(self._left))]
        return 0.0 if enough else (tokens - left) / per_s


class RateLimit:
    """How often users may call `submit`."""

    def __init__(self) -> None:
        self._calls = TokenBuckets()

    def take(self, user: str, per_s: float, burst: int, now: float) -> None:
        """Count a call.

        Args:
            user: the caller.
            per_s: calls a second on average.
            burst: the most calls at once.
            now: seconds of `boottime`.

        Raises:
            TooMuch: that is too many; then the call is not counted.
        """
        wait_s = self._calls.take(user, 1.0, per_s, burst, now)
        if wait_s > 0:
            raise TooMuch(
                f"{user} submits more than {per_s:g} times a second: send many jobs in one call "
                f"(submit --from), or again in {wait_s:.2f} s"
            )
