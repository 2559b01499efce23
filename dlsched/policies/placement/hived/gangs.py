"""Gangs of pods: what asks for cells, and what holds them.

A pod is the part of a gang that runs on one machine. Pods of equal size are alike; they are kept by
size, the smallest first, which is the order in which they are placed and released.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from dlsched.policies.placement.hived.cells import GUARANTEED, Physical, Virtual

State = Literal["Allocated", "Preempting", "BeingPreempted"]
PodSizes = tuple[tuple[int, int], ...]  # GPUs of a pod, and how many such pods, ascending


def pod_sizes(pods: Iterable[int]) -> PodSizes:
    """Sizes of pods with how often each occurs, the smallest first."""
    counts: dict[int, int] = {}
    for size in pods:
        counts[size] = counts.get(size, 0) + 1
    return tuple(sorted(counts.items()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a gang asks for.

    Attributes:
        name: the gang's.
        vc: the virtual cluster that it belongs to.
        priority: -1 for opportunistic gangs, 0 to 1000 for guaranteed ones.
        pods: sizes of its pods; empty where the gang says only how many GPUs it wants.
        gpus: how many GPUs a gang without pods wants.
        whole: must its machines be its own?
        apart: must each pod be on a machine of its own?
        gpu_type: the type of GPU; empty for any.
        pin: the pinned cell that it wants; empty for none.
        lazy: may it be made opportunistic where it stands, instead of being evicted?
        allowed: the machines that it may use; None for all.
    """

    name: str
    vc: str
    priority: int
    pods: PodSizes = ()
    gpus: int = 0
    whole: bool = False
    apart: bool = False
    gpu_type: str = ""
    pin: str = ""
    lazy: bool = False
    allowed: frozenset[str] | None = None

    @property
    def is_guaranteed(self) -> bool:
        """Does it use cells of its virtual cluster?"""
        return self.priority >= GUARANTEED

    def sizes(self, largest: int) -> list[int]:
        """The size of each pod, the smallest first, where a machine has so many GPUs at most.

        A gang that says only how many GPUs it wants gets pods as large as machines, and one with
        the rest.
        """
        if self.pods:
            sizes = [size for size, count in self.pods for _ in range(count)]
            return [largest] * len(sizes) if self.whole else sizes
        rest = self.gpus % largest
        full = [largest] * (self.gpus // largest)
        return [largest if self.whole else rest, *full] if rest else full


Pods = list[list[Physical]]  # the GPUs of each pod, in the order of `Request.sizes`
VirtualPods = list[list[Virtual]]
HeldVirtual = Sequence[Sequence[Virtual | None]]  # None where no cell was found for a GPU


@dataclass(slots=True, kw_only=True, eq=False)
class Gang:
    """A gang that holds GPUs, or that waits until others have left them.

    Attributes:
        request: what it asked for.
        pods: its GPUs.
        virtual: the virtual GPUs that they stand for; None for an opportunistic gang, and for one
            that was made opportunistic.
        state: in use; waiting for victims; or a victim.
        downgraded_by: the gang that made it opportunistic; empty for none.
    """

    request: Request
    pods: Pods
    virtual: HeldVirtual | None = None
    state: State = "Allocated"
    downgraded_by: str = ""

    @property
    def name(self) -> str:
        """Its name."""
        return self.request.name

    @property
    def gpus(self) -> Iterator[Physical]:
        """Its GPUs, in the order of its pods."""
        return (gpu for pod in self.pods for gpu in pod)

    def pairs(self) -> Iterator[tuple[Physical, Virtual | None]]:
        """Its GPUs with the virtual GPUs that they stand for."""
        if self.virtual is None:
            return ((gpu, None) for gpu in self.gpus)
        virtual = (gpu for pod in self.virtual for gpu in pod)
        return zip(self.gpus, virtual, strict=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """GPUs for a gang, which are all free but for those of victims.

    Attributes:
        pods: the GPUs of each pod.
        virtual: the virtual GPUs; None for an opportunistic gang.
        victims: gangs that use some of the GPUs, in the order in which they are met.
        rivals: gangs that wait for some of the GPUs.
        downgraded: gangs that were made opportunistic for it, with what they had.
    """

    pods: Pods
    virtual: VirtualPods | None = None
    victims: tuple[Gang, ...] = ()
    rivals: tuple[Gang, ...] = ()
    downgraded: tuple[tuple[Gang, HeldVirtual], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """A gang cannot be placed now.

    Attributes:
        reason: why, for the user.
    """

    reason: str
