"""What ranks tell, on its way from keepers to the daemon.

At most one report a run and rank is on its way; a newer one takes the place of one that waits.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from dlsched.nodeagent.leader_link import LeaderLink
from dlsched.protocol.messages import NodeName, RunId, RunKey
from dlsched.rpc.conversion import to_wire
from dlsched.rpc.v1 import control_pb2

log = logging.getLogger("dlsched.agent.progress")
_FIELDS = ("step", "batch_s", "loss", "gpu_memory_bytes", "restart_s", "save_s", "ignored")
_WAITING = 1024


class Progress:
    """Passes reports on."""

    def __init__(
        self,
        node: NodeName,
        leader: LeaderLink,
        tell_keeper: Callable[[RunId, dict[str, Any]], bool],
    ) -> None:
        self._node, self._leader, self._tell_keeper = node, leader, tell_keeper
        self._waiting: dict[tuple[str, int], Any] = {}
        self._wake = asyncio.Event()

    def report(self, key: RunKey | None, told: dict[str, Any]) -> None:
        """Take what a rank has told."""
        if key is None:
            return
        try:
            report = self._read(key, told)
        except (ValueError, TypeError) as error:  # a number that no wire can carry
            log.warning("report-unclear run=%s why=%s", key, error)
            report = self._read(key, {"rank": 0, "ignored": 1})
        earlier = self._waiting.get((key.run_id, report.rank))
        if earlier is not None:
            _merge(earlier, report)
        elif len(self._waiting) < _WAITING:
            self._waiting[(key.run_id, report.rank)] = report
        self._wake.set()

    def _read(self, key: RunKey, told: dict[str, Any]) -> Any:
        report = control_pb2.RunReport(
            node=self._node, key=to_wire(key), rank=int(told.get("rank", 0))
        )
        for name in _FIELDS:
            if name in told:
                setattr(report, name, told[name])
        for name, value in dict(told.get("metrics", {})).items():
            report.metrics[name] = value
        if "training" in told:
            known = {k: v for k, v in dict(told["training"]).items() if v is not None}
            report.training.CopyFrom(control_pb2.TrainingReport(**known))
        return report

    async def run(self) -> None:
        """Pass reports on, for ever; while nobody listens they wait, merged."""
        while True:
            await self._wake.wait()
            await self._leader.connected.wait()
            self._wake.clear()
            waiting, self._waiting = self._waiting, {}
            for (run_id, _), report in waiting.items():
                answer = await self._leader.report(report)
                if answer is not None and answer.HasField("batch"):
                    batch = {"local": answer.batch.local, "accumulation": answer.batch.accumulation}
                    self._tell_keeper(RunId(run_id), {"use_batch": batch})

    async def commit(self, key: RunKey, made: dict[str, Any]) -> Any:
        """Ask the daemon to commit a checkpoint, until it answers."""
        try:
            commit = control_pb2.CheckpointCommit(
                node=self._node,
                key=to_wire(key),
                path=str(made["path"]),
                step=int(made["step"]),
                bytes=int(made["bytes"]),
                sha256=str(made["sha256"]),
            )
        except (ValueError, TypeError) as error:  # a number or a text that no wire can carry
            return control_pb2.CheckpointReply(accepted=False, why=f"unclear: {error}")
        return await self._leader.commit_checkpoint(commit)


def _merge(earlier: Any, report: Any) -> None:
    """A newer report over one that waits: what was counted adds up, columns are replaced."""
    ignored = earlier.ignored + report.ignored
    if report.HasField("training"):
        earlier.ClearField("training")
    earlier.MergeFrom(report)
    earlier.ignored = ignored
