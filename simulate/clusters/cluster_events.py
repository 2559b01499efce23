"""Cluster events during a replay: nodes join, leave, fail, drain, come back, change their type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from simulate.world import World

Kind = Literal["join", "leave", "fail", "drain", "undrain", "retype"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterEvent:
    """Something happens to a node.

    Attributes:
        time: seconds from the trace's start.
        kind: `join` (into service, empty), `leave` (jobs suspended with their work, then out of
            service), `fail` (jobs fall back to their last checkpoint, then out of service), `drain`
            (no new jobs), `undrain`, `retype` (jobs suspended, another GPU type from now on).
        node: its index in the cluster.
        gpu_type: the new type of a `retype`, as an index into the cluster's types.
    """

    time: float
    kind: Kind
    node: int
    gpu_type: int = -1

    def apply(
        self, world: World, now: float
    ) -> Literal["node-up", "node-down", "node-drain", "retype"] | None:
        """Change the node in the world; returns the change that policies see, if any."""
        occupancy = world.occupancy
        match self.kind:
            case "join":
                occupancy.set_service(self.node, serving=True)
                occupancy.set_draining(self.node, draining=False)
                return "node-up"
            case "fail":
                for row in occupancy.rows_on(self.node):
                    world.crash(row, now)
                occupancy.set_service(self.node, serving=False)
                return "node-down"
            case "leave":
                self._suspend_all(world, now)
                occupancy.set_service(self.node, serving=False)
                return "node-down"
            case "drain" | "undrain":
                occupancy.set_draining(self.node, draining=self.kind == "drain")
                return "node-drain" if self.kind == "drain" else "node-up"
            case "retype":
                self._suspend_all(world, now)
                occupancy.type_of[self.node] = self.gpu_type
                return "retype"

    def _suspend_all(self, world: World, now: float) -> None:
        for row in world.occupancy.rows_on(self.node):
            world.evict(row, now)
