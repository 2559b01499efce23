"""The times of the protocol in seconds, and the relations between them that safety needs."""

from __future__ import annotations

from dataclasses import dataclass

from dlsched.core.errors import BadInput

STALE_S = 6.0  # on the database's clock: then a leader without heartbeats may be replaced
LONGEST_TICK_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """The times of one cluster; daemon and agents have the same."""

    beat_s: float = 5.0  # between two syncs of a node
    reply_age_s: float = 5.0  # an older reply is not used
    confirmed_s: float = 4.0  # renewals only while leadership was confirmed within this
    lease_s: float = 30.0  # node lease
    kill_s: float = 15.0  # TERM to KILL where a fenced run cannot be frozen
    margin_s: float = 20.0
    prepare_s: float = 30.0  # for which a prepared keeper waits for its release
    unkillable_s: float = 60.0  # KILL to giving up on a process
    obeys_s: float = 30.0  # for which a keeper may leave an order to stop without any effect
    witness_beats: float = 3.0  # a witness renewed within these proves that a leader is alive
    clock_rate: float = 0.05  # by how much a clock may be fast or slow

    @property
    def window_s(self) -> float:
        """How long a node must be silent before its fenced runs are known to have stopped."""
        return self.lease_s + self.kill_s + self.margin_s

    @property
    def away_s(self) -> float:
        """How long ranks of a call over several nodes wait for an agent that is away.

        As long as a silent node may still have its runs: later, the leader may have given them up.
        """
        return self.window_s

    @property
    def witnessed_s(self) -> float:
        """How long after its renewal a witness still counts as renewed for every node."""
        fast, slow = 1 + self.clock_rate, 1 - self.clock_rate
        return self.witness_beats * self.beat_s / fast * slow

    @property
    def tick_s(self) -> float:
        """Between two ticks of a daemon, in each of which it confirms or asks for the lead."""
        return min(self.beat_s / 2, LONGEST_TICK_S)

    @property
    def pause_s(self) -> float:
        """A gap between two ticks above which this process has been paused."""
        return 2 * self.beat_s

    def check(self) -> None:
        """Refuse times under which two runs of a job could be alive at once.

        Raises:
            BadInput: naming the relation that does not hold.
        """
        needed = 0.25 * (self.lease_s + self.kill_s) + 5
        if self.margin_s < needed:
            raise BadInput(f"margin_s is {self.margin_s:g}, needs at least {needed:g}")
        # no other leader begins while an earlier one may still renew
        longest = STALE_S * (1 - self.clock_rate) / (1 + self.clock_rate)
        if self.confirmed_s > longest:
            raise BadInput(f"confirmed_s is {self.confirmed_s:g}, may be at most {longest:.1f}")
        if self.reply_age_s > self.lease_s / 2:
            raise BadInput("reply_age_s must be at most half of lease_s")
        if self.witness_beats * self.beat_s > self.lease_s / 2:
            raise BadInput("witness_beats x beat_s must be at most half of lease_s")
