"""The numbers of the protocol, in seconds, with the relations between them that safety needs."""

from __future__ import annotations

from dataclasses import dataclass

from dlsched.core.errors import BadInput


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """One set for a whole cluster; agents get theirs from the same configuration."""

    beat_s: float = 5.0  # between two syncs of a node
    reply_age_s: float = 5.0  # an older reply is not used
    confirmed_s: float = 10.0  # renewals only while leadership was confirmed within this
    lease_s: float = 30.0  # node lease
    kill_s: float = 15.0  # TERM to KILL where a fenced run cannot be frozen
    margin_s: float = 20.0
    prepare_s: float = 30.0  # a prepared keeper waits so long for its release
    unkillable_s: float = 60.0  # KILL to giving up on a process
    witness_beats: float = 3.0  # a witness that was renewed within these speaks for the leader
    clock_rate: float = 0.05  # by how much a clock may be fast or slow

    @property
    def window_s(self) -> float:
        """How long a node must be silent before its fenced runs are known to have stopped."""
        return self.lease_s + self.kill_s + self.margin_s

    @property
    def witnessed_s(self) -> float:
        """How long after a renewal that reached a witness no node can call it unrenewed."""
        fast, slow = 1 + self.clock_rate, 1 - self.clock_rate
        return self.witness_beats * self.beat_s / fast * slow

    @property
    def pause_s(self) -> float:
        """A gap between two beats that means: this process was not running."""
        return 2 * self.beat_s

    def check(self) -> None:
        """Refuse numbers under which two runs of a job could be alive at once.

        Raises:
            BadInput: with the relation that does not hold.
        """
        needed = 0.25 * (self.lease_s + self.kill_s) + 5
        if self.margin_s < needed:
            raise BadInput(f"margin_s is {self.margin_s:g}, needs at least {needed:g}")
        if self.reply_age_s > self.lease_s / 2:
            raise BadInput("reply_age_s must be at most half of lease_s")
        if self.witness_beats * self.beat_s > self.lease_s / 2:
            raise BadInput("witness_beats x beat_s must be at most half of lease_s")
