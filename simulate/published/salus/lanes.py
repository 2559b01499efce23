"""Lanes as the published code of Salus admits sessions to them, and not as the paper does.

A session that opens a lane gets one of exactly its own size. A later one joins the first lane in
which its persistent memory and the largest ephemeral one have room; where a lane's opener still
lives, that is none for any session with persistent memory. A lane keeps its size until its last
session ends. Source: the repository SymbioticLab/Salus.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from dlsched.core.sums import ordered_sum
from dlsched.policies.node.salus.lanes import Admission, AnyLanes, Lane, Memory, sessions_of

PERSISTENT_MARGIN = 1.1
TOTAL_MARGIN = 1.05


@dataclass(slots=True, kw_only=True)
class ArtifactLane(Lane):
    """A lane, whose size holds the persistent memory of its sessions as well.

    Attributes:
        number: of the lane.
    """

    number: int

    @property
    def available(self) -> float:
        """What persistent memory leaves of it."""
        return self.size - ordered_sum(m.persistent for m in self.sessions.values())

    @property
    def largest(self) -> float:
        """The largest ephemeral memory of its sessions."""
        return max((m.ephemeral for m in self.sessions.values()), default=0)

    def has_room(self, need: Memory) -> bool:
        """Whether a further session fits."""
        return need.persistent + max(need.ephemeral, self.largest) <= self.available


class ArtifactLanes(AnyLanes):
    """Lanes as the published code has them.

    Attributes:
        lanes: in the order of the code's list: by the available memory when each was opened.
    """

    __slots__ = ("lanes",)

    def __init__(self, capacity: float) -> None:
        """A GPU without sessions."""
        super().__init__(capacity)
        self.lanes: list[ArtifactLane] = []

    @classmethod
    def of_state(cls, state: Mapping[str, Any]) -> Self:
        """The lanes of a `state`."""
        lanes = cls(state["capacity"])
        lanes.lanes = [
            ArtifactLane(number=n, size=size, sessions=sessions_of(each))
            for n, size, each in state["lanes"]
        ]
        lanes.next_number = state["next"]
        return lanes

    @staticmethod
    def reserved(need: Memory | None, capacity: float) -> Memory:
        """What the code reserves for a profile: margins on both parts, and at most the whole GPU.

        Without a profile all of the GPU is persistent.
        """
        if need is None:
            return Memory(capacity, 0)
        persistent = math.floor(PERSISTENT_MARGIN * need.persistent)
        limit = min(math.floor(TOTAL_MARGIN * (persistent + need.ephemeral)), capacity)
        return Memory(min(persistent, limit), max(limit - persistent, 0))

    def numbered(self) -> Iterable[tuple[int, Lane]]:
        """All lanes, each with its number."""
        return [(lane.number, lane) for lane in self.lanes]

    @property
    def free(self) -> float:
        """Memory that no lane has."""
        return self.capacity - ordered_sum(lane.size for lane in self.lanes)

    def left_after(self, need: Memory) -> float | None:
        """Memory outside all lanes when a session has got in; None where it has to wait."""
        size = need.persistent + need.ephemeral
        if size <= self.free:
            return self.free - size
        return self.free if any(lane.has_room(need) for lane in self.lanes) else None

    def finish(self, session: str) -> list[Admission]:
        """End a session; when its lane ends with it, sessions that waited may get in."""
        if self.pending.pop(session, None) is not None:
            return []
        lane = next(lane for lane in self.lanes if session in lane.sessions)
        del lane.sessions[session]
        if lane.sessions:
            return []
        self.lanes.remove(lane)
        return self.scan()

    def admit(self, session: str, need: Memory) -> Admission | None:
        """Let a session into a lane; None where it has to wait."""
        size = need.persistent + need.ephemeral
        if size <= self.free:
            lane = ArtifactLane(number=self.next_number, size=size, sessions={session: need})
            self.next_number += 1
            larger = (n for n, each in enumerate(self.lanes) if each.available > lane.available)
            self.lanes.insert(next(larger, len(self.lanes)), lane)
            return Admission(session, lane.number, "new")
        for lane in self.lanes:
            if lane.has_room(need):
                lane.sessions[session] = need
                return Admission(session, lane.number, "join")
        return None
