"""What a round decided, as plain values with job ids and placements.

A placement has indices of nodes and bits of their GPUs, which stay valid as long as the daemon
lives. Invariant: a job that is both in `launched` and in `suspended` is moved.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dlsched.core.arrays import Floats, Ints
from dlsched.core.cluster.occupancy import Placement
from dlsched.core.context import Mode
from dlsched.daemon.round.codec import decode, encode


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Decided:
    """The outcome of a round.

    Attributes:
        number: the round's number.
        mode: full, or fill.
        policy: the scheduling policy's name.
        launched: jobs that get GPUs, in order.
        suspended: jobs that lose their GPUs, in order.
        completed: jobs that the policy ends, because they reached their target.
        limits: the time limits of launched jobs from then on, in seconds, where they are lowered.
        host_shares: jobs on GPUs that are given other processors or memory than before, with what
            each of their GPUs has now: processors, GB.
        reasons: distinct reasons why a job got nothing.
        reason_of: pairs of a job and an index into `reasons`, shape (n, 2).
        order: the waiting jobs in the policy's order, best first.
        terms: the numbers behind the order, by name; a value for each of `order`.
        refused: jobs that admission refuses for good.
        admitted: jobs that admission lets in, where it does not let in all.
        wake_at: the policy wants to be asked again then, in seconds of its clock.
        stable_until: without changes nothing would be decided otherwise before then.
        nodes_wanted: the cluster size that it would like; None for no wish.
        state: what the next decision begins with.
        cpu_s: what it cost.
    """

    number: int
    mode: Mode
    policy: str
    launched: Mapping[int, Placement]
    suspended: tuple[int, ...]
    completed: tuple[int, ...]
    limits: Mapping[int, float] = field(default_factory=dict)
    host_shares: Mapping[int, tuple[float, float]] = field(default_factory=dict)
    reasons: tuple[str, ...]
    reason_of: Ints
    order: Ints
    refused: tuple[int, ...]
    wake_at: float
    stable_until: float
    nodes_wanted: int | None
    state: bytes
    terms: Mapping[str, Floats] = field(default_factory=dict)
    admitted: tuple[int, ...] = ()
    cpu_s: float = 0.0

    def reason_texts(self) -> dict[int, str]:
        """The reason why each job got nothing, by job."""
        return {int(job): self.reasons[int(index)] for job, index in self.reason_of.tolist()}

    def positions(self) -> dict[int, int]:
        """Each waiting job's place in the policy's order, from 1."""
        return {job: place for place, job in enumerate(self.order.tolist(), 1)}

    def to_bytes(self) -> bytes:
        """The decision as bytes, without its cost, so that equal plans give equal bytes."""
        plain: dict[str, Any] = {name: getattr(self, name) for name in self.__slots__}
        plain["launched"] = [
            [job, list(where.nodes), [format(mask, "x") for mask in where.masks]]
            for job, where in self.launched.items()
        ]
        plain["limits"] = list(self.limits.items())
        plain["host_shares"] = [[job, *share] for job, share in self.host_shares.items()]
        plain["cpu_s"] = 0.0
        return encode(plain)

    @classmethod
    def from_bytes(cls, data: bytes) -> Decided:
        """The decision of `to_bytes`.

        Raises:
            BadInput: they are not of this form.
        """
        plain = decode(data)
        plain["launched"] = {
            job: Placement(tuple(nodes), tuple(int(mask, 16) for mask in masks))
            for job, nodes, masks in plain["launched"]
        }
        plain["limits"] = dict(plain["limits"])
        plain["host_shares"] = {job: (c, m) for job, c, m in plain["host_shares"]}
        return cls(**plain)

    @property
    def changes_nothing(self) -> bool:
        """Whether everything stays as it is."""
        changes = self.launched or self.suspended or self.completed or self.refused
        return not (changes or self.host_shares or self.admitted)
