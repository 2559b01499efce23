"""How much of each GPU is in use: all of it by one run, or parts by runs on the very same GPUs.

Runs that use what others leave take nothing of it.
"""

from __future__ import annotations

from dlsched.core.cluster.occupancy import Placement
from dlsched.core.sums import ordered_sum
from dlsched.protocol.gpu_shares import WHOLE, is_room


class GpuUse:
    """What runs have taken of GPUs, by node and bits."""

    def __init__(self) -> None:
        self._whole: dict[int, int] = {}  # bits, by node
        self._shared: dict[int, dict[Placement, list[float]]] = {}  # shares of runs, by node
        self._opportunistic: dict[int, list[Placement]] = {}  # to runs that take nothing, by node

    def copy(self) -> GpuUse:
        """A copy that can be changed without changing this one."""
        copied = GpuUse()
        copied._whole = dict(self._whole)
        copied._shared = {
            node: {where: shares[:] for where, shares in shared.items()}
            for node, shared in self._shared.items()
        }
        copied._opportunistic = {node: there[:] for node, there in self._opportunistic.items()}
        return copied

    def taken(self, node: int) -> int:
        """The GPUs of a node that any run is on, as bits."""
        mask = self._whole.get(node, 0)
        for placement in (*self._shared.get(node, ()), *self._opportunistic.get(node, ())):
            mask |= _on(placement, node)
        return mask

    def take(self, placement: Placement, share: float) -> None:
        """Enter a run that needs a share of each GPU; the caller has seen that there is room."""
        for node, mask in zip(placement.nodes, placement.masks, strict=True):
            if share >= WHOLE:
                self._whole[node] = self._whole.get(node, 0) | mask
            elif share == 0:
                self._opportunistic.setdefault(node, []).append(placement)
            else:
                self._shared.setdefault(node, {}).setdefault(placement, []).append(share)

    def give_back(self, placement: Placement, share: float) -> None:
        """Remove a run."""
        for node, mask in zip(placement.nodes, placement.masks, strict=True):
            if share >= WHOLE:
                self._whole[node] = self._whole.get(node, 0) & ~mask
                continue
            if share == 0:
                self._opportunistic.get(node, [placement]).remove(placement)
                continue
            shared = self._shared.get(node, {})
            shares = shared.get(placement, [])
            if share in shares:
                shares.remove(share)
            if not shares:
                shared.pop(placement, None)

    def has_room(self, placement: Placement, share: float) -> bool:
        """Whether a run fits; runs that share parts of one GPU share all GPUs that they have."""
        return share == 0 or all(
            self._has_room_on(node, mask, placement, share)
            for node, mask in zip(placement.nodes, placement.masks, strict=True)
        )

    def _has_room_on(self, node: int, mask: int, placement: Placement, share: float) -> bool:
        if mask & self._whole.get(node, 0):
            return False
        shared = self._shared.get(node)
        if not shared:
            return True
        if any(mask & _on(other, node) for other in shared if other != placement):
            return False
        return is_room(ordered_sum(shared.get(placement, ())), share)


def _on(placement: Placement, node: int) -> int:
    return placement.masks[placement.nodes.index(node)]
