"""Lanes of a GPU's memory: which session gets into which lane (Salus, section 3).

A session is a job on one GPU. Its persistent memory P lives from iteration to iteration; its
ephemeral memory E is freed at the end of each. A lane of size L lets one of its sessions run an
iteration at a time; different lanes run at once. With C the GPU's memory, always

    Σ P + Σ L <= C,   L >= the largest E of the lane's sessions,

so no iteration of an admitted session can fail for want of memory, and none ever waits for it.
Amounts may be in any one unit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Self

from dlsched.core.sums import ordered_sum

How = Literal["new", "join", "enlarge"]


class Memory(NamedTuple):
    """What a session needs.

    Attributes:
        persistent: from its first iteration to its last one.
        ephemeral: the most within an iteration, beside the persistent part.
    """

    persistent: float
    ephemeral: float


class Admission(NamedTuple):
    """A session that got into a lane.

    Attributes:
        session: its name.
        lane: number of the lane.
        how: whether the lane is new, was large enough, or was enlarged.
    """

    session: str
    lane: int
    how: How


class Found(NamedTuple):
    """A lane that has room, and the size that it needs; `lane` is 0 for a new one."""

    lane: int
    size: float
    how: How


@dataclass(slots=True)
class Lane:
    """A lane.

    Attributes:
        size: of its memory.
        sessions: what each needs, by name, in order of admission.
    """

    size: float
    sessions: dict[str, Memory] = field(default_factory=dict)


class AnyLanes(ABC):
    """What lanes have in common whatever the rules of admission are, on one GPU.

    Attributes:
        capacity: memory of the GPU.
        next_number: of the lane that is opened next.
        pending: what waiting sessions need, by name, in order of arrival.
    """

    __slots__ = ("capacity", "next_number", "pending")

    def __init__(self, capacity: float) -> None:
        """A GPU without sessions."""
        self.capacity = capacity
        self.pending: dict[str, Memory] = {}
        self.next_number = 1

    @abstractmethod
    def numbered(self) -> Iterable[tuple[int, Lane]]:
        """All lanes, each with its number."""

    @classmethod
    @abstractmethod
    def of_state(cls, state: Mapping[str, Any]) -> Self:
        """The lanes of a `state`."""

    @staticmethod
    def reserved(need: Memory, capacity: float) -> Memory:
        """What a session with such a need gets."""
        return need

    @abstractmethod
    def left_after(self, need: Memory) -> float | None:
        """Memory that is left when a session has got into a lane; None where it has to wait."""

    @abstractmethod
    def finish(self, session: str) -> list[Admission]:
        """End a session; sessions that waited may get in."""

    @abstractmethod
    def admit(self, session: str, need: Memory) -> Admission | None:
        """Let a session into a lane; None where it has to wait."""

    def lane_of(self, session: str) -> int:
        """The number of a session's lane; 0: it has none."""
        return next((n for n, lane in self.numbered() if session in lane.sessions), 0)

    def names(self) -> list[str]:
        """The sessions that have lanes."""
        return [name for _, lane in self.numbered() for name in lane.sessions]

    def rename(self, names: Mapping[str, str]) -> None:
        """Give sessions with lanes other names."""
        for _, lane in self.numbered():
            lane.sessions = {names[name]: need for name, need in lane.sessions.items()}

    def state(self) -> dict[str, object]:
        """All lanes, as plain values."""
        lanes = [
            (number, lane.size, [(name, *need) for name, need in lane.sessions.items()])
            for number, lane in self.numbered()
        ]
        return {"capacity": self.capacity, "next": self.next_number, "lanes": lanes}

    def submit(self, session: str, need: Memory) -> list[Admission]:
        """Admit a session, or let it wait; later and smaller ones may pass those that wait."""
        admitted = self.admit(session, need)
        if admitted is None:
            self.pending[session] = need
            return []
        return [admitted]

    def scan(self) -> list[Admission]:
        """Admit all waiting sessions that fit now, in order of their arrival."""
        admitted = []
        for session, need in list(self.pending.items()):
            found = self.admit(session, need)
            if found is not None:
                del self.pending[session]
                admitted.append(found)
        return admitted


class Lanes(AnyLanes):
    """Lanes by the paper's rules.

    Attributes:
        outside: memory that is held outside all lanes, such as by jobs that have no lane.
        lanes: by number; numbers grow and are not used again.
    """

    __slots__ = ("lanes", "outside")

    def __init__(self, capacity: float) -> None:
        """A GPU without sessions."""
        super().__init__(capacity)
        self.outside: float = 0
        self.lanes: dict[int, Lane] = {}

    @classmethod
    def of_state(cls, state: Mapping[str, Any]) -> Self:
        """The lanes of a `state`."""
        lanes = cls(state["capacity"])
        lanes.lanes = {n: Lane(size, sessions_of(each)) for n, size, each in state["lanes"]}
        lanes.next_number = state["next"]
        return lanes

    def numbered(self) -> Iterable[tuple[int, Lane]]:
        """All lanes, each with its number."""
        return self.lanes.items()

    @property
    def used(self) -> float:
        """All persistent memory and all lanes, with what is held outside of them."""
        persistent = ordered_sum(m.persistent for lane in self.lanes.values() for m in _needs(lane))
        return self.outside + persistent + ordered_sum(lane.size for lane in self.lanes.values())

    def find(self, need: Memory) -> Found | None:
        """The lane for a session: a new one, else the smallest that fits, else one that may grow.

        None where it has to wait.
        """
        used, persistent, ephemeral = self.used, need.persistent, need.ephemeral
        if used + persistent + ephemeral <= self.capacity:
            return Found(0, ephemeral, "new")
        fits = [(lane.size, n) for n, lane in self.lanes.items() if lane.size >= ephemeral]
        if fits and used + persistent <= self.capacity:
            size, number = min(fits)
            return Found(number, size, "join")
        smaller = [(-lane.size, n) for n, lane in self.lanes.items() if lane.size < ephemeral]
        for size, number in sorted(smaller):
            if used + persistent + size + ephemeral <= self.capacity:
                return Found(number, ephemeral, "enlarge")
        return None

    def left_after(self, need: Memory) -> float | None:
        """Memory that is left when a session has got into a lane; None where it has to wait."""
        found = self.find(need)
        if found is None:
            return None
        before = self.lanes[found.lane].size if found.lane else 0
        return self.capacity - (self.used + need.persistent + found.size - before)

    def finish(self, session: str) -> list[Admission]:
        """End a session; its lane shrinks or goes, and sessions that waited may get in."""
        if self.pending.pop(session, None) is None:
            self.remove(session)
        return self.scan()

    def remove(self, session: str) -> None:
        """Take a session out of its lane, which is empty between iterations and so may shrink.

        Raises:
            KeyError: when it has no lane.
        """
        number = self.lane_of(session)
        lane = self.lanes[number]
        del lane.sessions[session]
        if lane.sessions:
            lane.size = max(m.ephemeral for m in _needs(lane))
        else:
            del self.lanes[number]

    def admit(self, session: str, need: Memory) -> Admission | None:
        """Let a session into a lane; None where it has to wait."""
        found = self.find(need)
        if found is None:
            return None
        number = found.lane
        if not number:
            number, self.next_number = self.next_number, self.next_number + 1
            self.lanes[number] = Lane(found.size)
        lane = self.lanes[number]
        lane.size = found.size
        lane.sessions[session] = need
        return Admission(session, number, found.how)


def sessions_of(entries: Iterable[Any]) -> dict[str, Memory]:
    """The sessions of a lane in a state."""
    return {str(name): Memory(persistent, ephemeral) for name, persistent, ephemeral in entries}


def _needs(lane: Lane) -> Iterator[Memory]:
    return iter(lane.sessions.values())
