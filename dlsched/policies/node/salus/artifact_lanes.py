"""Lanes as the published code of Salus admits sessions to them; see `lanes` for the paper's rules.

A session that opens a lane gets one of exactly its own size. A later one joins the first lane in
which its persistent memory and the largest ephemeral one have room; where a lane's opener still
lives, that is none for any session with persistent memory. A lane keeps its size until its last
session ends. Source: the repository SymbioticLab/Salus.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from dlsched.policies.node.salus.lanes import Admission, Memory

PERSISTENT_MARGIN = 1.1
TOTAL_MARGIN = 1.05


def reserved(need: Memory | None, capacity: float) -> Memory:
    """What the code reserves for a profile: margins on both parts, and at most the whole GPU.

    Without a profile all of the GPU is persistent.
    """
    if need is None:
        return Memory(capacity, 0)
    persistent = math.floor(PERSISTENT_MARGIN * need.persistent)
    limit = min(math.floor(TOTAL_MARGIN * (persistent + need.ephemeral)), capacity)
    return Memory(min(persistent, limit), max(limit - persistent, 0))


@dataclass(slots=True)
class ArtifactLane:
    """A lane.

    Attributes:
        number: of the lane.
        total: its memory.
        sessions: what each needs, by name.
    """

    number: int
    total: float
    sessions: dict[str, Memory] = field(default_factory=dict)

    @property
    def available(self) -> float:
        """What persistent memory leaves of it."""
        return self.total - sum(m.persistent for m in self.sessions.values())

    @property
    def largest(self) -> float:
        """The largest ephemeral memory of its sessions."""
        return max((m.ephemeral for m in self.sessions.values()), default=0)

    def has_room(self, need: Memory) -> bool:
        """Whether a further session fits."""
        return need.persistent + max(need.ephemeral, self.largest) <= self.available


class ArtifactLanes:
    """The lanes of one GPU, with the sessions that wait for one.

    Attributes:
        capacity: memory of the GPU.
        lanes: in the order of the code's list: by the available memory when each was opened.
        next_number: of the lane that is opened next.
        pending: what waiting sessions need, by name, in order of arrival.
    """

    __slots__ = ("capacity", "lanes", "next_number", "pending")

    def __init__(self, capacity: float) -> None:
        """A GPU without sessions."""
        self.capacity = capacity
        self.lanes: list[ArtifactLane] = []
        self.pending: dict[str, Memory] = {}
        self.next_number = 1

    @property
    def free(self) -> float:
        """Memory that no lane has."""
        return self.capacity - sum(lane.total for lane in self.lanes)

    def lane_of(self, session: str) -> int:
        """The number of a session's lane; 0: it has none."""
        return next((lane.number for lane in self.lanes if session in lane.sessions), 0)

    def left_after(self, need: Memory) -> float | None:
        """Memory outside all lanes when a session has got in; None where it has to wait."""
        size = need.persistent + need.ephemeral
        if size <= self.free:
            return self.free - size
        return self.free if any(lane.has_room(need) for lane in self.lanes) else None

    def names(self) -> list[str]:
        """The sessions that have lanes."""
        return [name for lane in self.lanes for name in lane.sessions]

    def rename(self, names: Mapping[str, str]) -> None:
        """Give sessions with lanes other names."""
        for lane in self.lanes:
            lane.sessions = {names[name]: need for name, need in lane.sessions.items()}

    def state(self) -> dict[str, object]:
        """All lanes, as plain values."""
        lanes = [
            (lane.number, lane.total, [(name, *need) for name, need in lane.sessions.items()])
            for lane in self.lanes
        ]
        return {"capacity": self.capacity, "next": self.next_number, "lanes": lanes}

    def submit(self, session: str, need: Memory) -> list[Admission]:
        """Admit a session, or let it wait."""
        admitted = self._admit(session, need)
        if admitted is None:
            self.pending[session] = need
            return []
        return [admitted]

    def finish(self, session: str) -> list[Admission]:
        """End a session; when its lane ends with it, sessions that waited may get in."""
        if self.pending.pop(session, None) is not None:
            return []
        lane = next(lane for lane in self.lanes if session in lane.sessions)
        del lane.sessions[session]
        if lane.sessions:
            return []
        self.lanes.remove(lane)
        admitted = []
        for name, need in list(self.pending.items()):
            found = self._admit(name, need)
            if found is not None:
                del self.pending[name]
                admitted.append(found)
        return admitted

    def _admit(self, session: str, need: Memory) -> Admission | None:
        size = need.persistent + need.ephemeral
        if size <= self.free:
            lane = ArtifactLane(self.next_number, size, {session: need})
            self.next_number += 1
            larger = (n for n, each in enumerate(self.lanes) if each.available > lane.available)
            self.lanes.insert(next(larger, len(self.lanes)), lane)
            return Admission(session, lane.number, "new")
        for lane in self.lanes:
            if lane.has_room(need):
                lane.sessions[session] = need
                return Admission(session, lane.number, "join")
        return None
