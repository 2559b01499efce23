"""Who disturbs whom: units that span nodes and meet on one of them share its network."""

from __future__ import annotations

from dlsched.core.occupancy import Occupancy

__all__ = ["interfering"]


def interfering(occupancy: Occupancy) -> set[int]:
    """Rows on several nodes that share one of them with another such row."""
    spanning: dict[int, list[int]] = {}
    for row, placement in occupancy.held.items():
        if len(placement.nodes) > 1:
            for node in placement.nodes:
                spanning.setdefault(node, []).append(row)
    return {row for rows in spanning.values() if len(rows) > 1 for row in rows}
