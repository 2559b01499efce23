"""What a round leaves for the next one: stored with its plan, in the same transaction.

It has the states of the parts, predictions, the jobs that were admitted and when, claims on GPUs
that were not free yet, and GPUs that a policy holds in reserve. Jobs, pools, users and nodes go by
name, so that the next round, perhaps of another process, may number them otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from dlsched.core.arrays import Floats, Ints
from dlsched.core.cluster.occupancy import Placement
from dlsched.core.errors import BadInput
from dlsched.daemon.round.codec import decode, encode

if TYPE_CHECKING:
    from dlsched.daemon.live.nodes import LiveNodes

NO_JOB = 0  # the job of a booking that is no job's: maintenance
NamedPlacement = list[list[Any]]  # [node, bits of its GPUs in hexadecimal], in rank order


@dataclass(slots=True, kw_only=True)
class PolicyState:
    """The form of the bytes that `Decided.state` has.

    Attributes:
        jobs: the job of each row, as the parts' state numbers them.
        predicted: seconds of work in all, by row; NaN before any prediction.
        expected, time_limit: what the user said when that was predicted.
        admitted_at: by row; NaN for those that admission holds back.
        active: jobs admitted and not ended, in order of admission.
        running: those of them that the decision left with GPUs.
        unseen: those of them that policies could not see (held by their users, say).
        held_back: jobs that wait for admission, in order of arrival.
        refused: jobs that admission has refused for good.
        finished: jobs that have completed, in order.
        names: what the codes of users, accounts and virtual clusters stood for.
        pools: the texts of the pools, by number.
        parts: the state of the parts, by stage.
        chosen: parts that a chooser has installed, by stage.
        bookings: what policies have planned ahead: [job, GPUs, start, end]; job 0 is
            maintenance.
        claims: jobs that were given GPUs: [job, run, placement].
        reserved: GPUs that the policy holds in reserve: [job, placement].
        host_shares: processors and GB for each GPU that jobs on GPUs were given: [job, processors,
            GB].
        speeds_at: when the latest speed was measured that it knows of.
        room: how each node served, and how many of its GPUs were not closed: [node, service,
            GPUs]; nothing in the state of an older release.
        decided_at: when the decision was made, in seconds of the policy's clock; infinite where
            none was, and in the state of an older release.
    """

    jobs: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    predicted: Floats = field(default_factory=lambda: np.zeros(0))
    expected: Floats = field(default_factory=lambda: np.zeros(0))
    time_limit: Floats = field(default_factory=lambda: np.zeros(0))
    admitted_at: Floats = field(default_factory=lambda: np.zeros(0))
    active: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    running: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    unseen: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    held_back: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    refused: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    finished: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    names: dict[str, list[str]] = field(default_factory=dict)
    pools: list[str] = field(default_factory=list)
    parts: dict[str, Any] = field(default_factory=dict)
    chosen: dict[str, str] = field(default_factory=dict)
    bookings: list[list[Any]] = field(default_factory=list)
    claims: list[list[Any]] = field(default_factory=list)
    reserved: list[list[Any]] = field(default_factory=list)
    host_shares: list[list[Any]] = field(default_factory=list)
    speeds_at: float = -math.inf
    room: list[list[Any]] = field(default_factory=list)
    decided_at: float = math.inf

    def to_bytes(self) -> bytes:
        """The state as bytes; equal states give equal bytes."""
        return encode({name: getattr(self, name) for name in self.__slots__})

    @classmethod
    def from_bytes(cls, data: bytes) -> PolicyState:
        """The state of `to_bytes`; no bytes are an empty state.

        Raises:
            BadInput: they are not of this form.
        """
        if not data:
            return cls()
        plain = decode(data)
        if isinstance(plain, dict):
            plain.pop("calendar", None)  # of an older release: it did not say whose plans they were
        try:
            return cls(**plain)
        except TypeError as error:
            raise BadInput(f"a policy state of another form: {error}") from None


def named(placement: Placement, names: list[str] | tuple[str, ...]) -> NamedPlacement:
    """A placement with the names of its nodes."""
    return [
        [names[node], format(mask, "x")]
        for node, mask in zip(placement.nodes, placement.masks, strict=True)
    ]


def placed(pairs: Iterable[Any], index: dict[str, int]) -> Placement | None:
    """The placement of `named`; None when one of the nodes is not there."""
    pairs = list(pairs)
    if any(name not in index for name, _ in pairs):
        return None
    return Placement(
        tuple(index[name] for name, _ in pairs), tuple(int(mask, 16) for _, mask in pairs)
    )


def claims_of(state: bytes, nodes: LiveNodes) -> list[tuple[int, int, Placement]]:
    """The claims of a stored state: jobs, the numbers of their runs, and placements."""
    index = {name: place for place, name in enumerate(nodes.names)}
    found: list[tuple[int, int, Placement]] = []
    for job, run, pairs in PolicyState.from_bytes(state).claims:
        placement = placed(pairs, index)
        if placement is not None:
            found.append((job, run, placement))
    return found
