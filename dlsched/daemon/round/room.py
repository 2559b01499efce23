"""How much of each GPU is taken: wholly by one run, or in parts by runs on the very same GPUs."""

from __future__ import annotations

from dlsched.core.occupancy import Placement
from dlsched.protocol.gpu_shares import WHOLE, is_room

__all__ = ["Room"]


class Room:
    """What runs have taken of GPUs, by (node, bits)."""

    def __init__(self) -> None:
        self._whole: dict[int, int] = {}  # bits, by node
        self._parts: dict[int, dict[Placement, list[float]]] = {}  # by node

    def copy(self) -> Room:
        """A twin that can be changed without touching this one."""
        twin = Room()
        twin._whole = dict(self._whole)
        twin._parts = {
            node: {where: parts[:] for where, parts in shared.items()}
            for node, shared in self._parts.items()
        }
        return twin

    def taken(self, node: int) -> int:
        """The GPUs of a node that somebody is on, as bits."""
        mask = self._whole.get(node, 0)
        for placement in self._parts.get(node, ()):
            mask |= _on(placement, node)
        return mask

    def take(self, placement: Placement, part: float) -> None:
        """A run comes; there must be room for it."""
        for node, mask in zip(placement.nodes, placement.masks, strict=True):
            if part >= WHOLE:
                self._whole[node] = self._whole.get(node, 0) | mask
            else:
                self._parts.setdefault(node, {}).setdefault(placement, []).append(part)

    def give_back(self, placement: Placement, part: float) -> None:
        """It has left."""
        for node, mask in zip(placement.nodes, placement.masks, strict=True):
            if part >= WHOLE:
                self._whole[node] = self._whole.get(node, 0) & ~mask
                continue
            shared = self._parts.get(node, {})
            parts = shared.get(placement, [])
            if part in parts:
                parts.remove(part)
            if not parts:
                shared.pop(placement, None)

    def has(self, placement: Placement, part: float) -> bool:
        """Is there room for a run? Those who share GPUs share all that they have."""
        return all(
            self._has_on(node, mask, placement, part)
            for node, mask in zip(placement.nodes, placement.masks, strict=True)
        )

    def _has_on(self, node: int, mask: int, placement: Placement, part: float) -> bool:
        if mask & self._whole.get(node, 0):
            return False
        shared = self._parts.get(node)
        if not shared:
            return True
        if any(mask & _on(other, node) for other in shared if other != placement):
            return False
        return is_room(sum(shared.get(placement, ())), part)


def _on(placement: Placement, node: int) -> int:
    return placement.masks[placement.nodes.index(node)]
