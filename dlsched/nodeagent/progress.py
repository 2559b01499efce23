"""What ranks tell, on its way from keepers to the daemon.

At most one report a run and rank is on its way; a newer one takes the place of one that waits.
"""

from __future__ import annotations

import asyncio
from typing import Any

from dlsched.nodeagent.leader_link import LeaderLink
from dlsched.protocol.messages import NodeName, RunKey
from dlsched.rpc.conversion import to_wire
from dlsched.rpc.v1 import control_pb2

_FIELDS = ("step", "batch_s", "loss", "gpu_memory_bytes", "restart_s", "save_s")
_WAITING = 1024


class Progress:
    """Passes reports on."""

    def __init__(self, node: NodeName, leader: LeaderLink) -> None:
        self._node, self._leader = node, leader
        self._waiting: dict[tuple[str, int], Any] = {}
        self._wake = asyncio.Event()

    def report(self, key: RunKey | None, told: dict[str, Any]) -> None:
        """Take what a rank has told."""
        if key is None:
            return
        rank = int(told.get("rank", 0))
        report = control_pb2.RunReport(node=self._node, key=to_wire(key), rank=rank)
        for name in _FIELDS:
            if name in told:
                setattr(report, name, told[name])
        for name, value in dict(told.get("metrics", {})).items():
            report.metrics[name] = value
        earlier = self._waiting.get((key.run_id, rank))
        if earlier is not None:
            earlier.MergeFrom(report)
        elif len(self._waiting) < _WAITING:
            self._waiting[(key.run_id, rank)] = report
        self._wake.set()

    async def run(self) -> None:
        """Pass reports on, for ever; while nobody listens they wait, merged."""
        while True:
            await self._wake.wait()
            await self._leader.connected.wait()
            self._wake.clear()
            waiting, self._waiting = self._waiting, {}
            for report in waiting.values():
                await self._leader.report(report)

    async def commit(self, key: RunKey, made: dict[str, Any]) -> Any:
        """Ask the daemon to commit a checkpoint, until it answers."""
        return await self._leader.commit_checkpoint(
            control_pb2.CheckpointCommit(
                node=self._node,
                key=to_wire(key),
                path=str(made["path"]),
                step=int(made["step"]),
                bytes=int(made["bytes"]),
                sha256=str(made["sha256"]),
            )
        )
