"""Reports of ranks about their training, on their way from keepers to the daemon.

One report for each run and rank waits at most; a newer one is merged into it. A run has so many
ranks at most, whatever numbers its processes give.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from dlsched.nodeagent.agent.leader_link import LeaderLink
from dlsched.protocol.messages import NodeName, RunId, RunKey
from dlsched.rpc.conversion import to_wire
from dlsched.rpc.v1 import control_pb2

log = logging.getLogger(__name__)
_FIELDS = (
    "step", "batch_s", "loss", "gpu_memory_bytes", "restart_s", "save_s", "ignored", "saves",
    "error", "error_at", "doing", "stacks", "unsaved_step", "unsaved_why", "save_bytes",
    "room_bytes", "expected_save_s",
)  # fmt: skip
_MOST_RANKS = 1024  # of a run, whose reports wait
_MOST_NAMES = 256  # of a report that waits


@dataclass(eq=False, slots=True)
class RankReports:
    """Passes the reports of all ranks on this node to the daemon."""

    node: NodeName
    leader: LeaderLink
    send_to_keeper: Callable[[RunId, dict[str, Any]], bool]
    # of each run, by rank
    _waiting: dict[RunId, dict[int, control_pb2.RunReport]] = field(
        default_factory=dict, init=False
    )
    # the newest calls of `srun` of each run, for a daemon that does not know them
    _calls: dict[RunId, control_pb2.RunReport] = field(default_factory=dict, init=False)
    _wake: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    def add(self, key: RunKey | None, values: dict[str, Any]) -> None:
        """Take a report of a rank; one of a run that is not held (None) is dropped."""
        if key is None:
            return
        try:
            report = self._message(key, values)
        except (ValueError, TypeError) as error:  # a number that the message cannot hold
            log.debug("report-unclear run=%s why=%.200s", key, error)  # it is counted
            report = self._message(key, {"rank": 0, "ignored": 1})
        if report.calls:
            self._calls[key.run_id] = control_pb2.RunReport(
                node=self.node, key=report.key, calls=report.calls
            )
        self._wait(key.run_id, report)

    def tell_again(self) -> None:
        """Tell a daemon that may not know them which calls of `srun` there are."""
        for run_id, report in self._calls.items():
            again = control_pb2.RunReport()
            again.CopyFrom(report)  # one that waits is changed
            self._wait(run_id, again)

    def forget(self, run_id: RunId) -> None:
        """A run has left this node."""
        self._calls.pop(run_id, None)

    def _wait(self, run_id: RunId, report: control_pb2.RunReport) -> None:
        of_run = self._waiting.setdefault(run_id, {})
        earlier = of_run.get(report.rank)
        if earlier is not None:
            _merge(earlier, report)
        elif len(of_run) < _MOST_RANKS:
            of_run[report.rank] = report
        self._wake.set()

    def _message(self, key: RunKey, values: dict[str, Any]) -> control_pb2.RunReport:
        report = control_pb2.RunReport(
            node=self.node, key=to_wire(key), rank=int(values.get("rank", 0))
        )
        for name in _FIELDS:
            if name in values:
                setattr(report, name, values[name])
        for name, value in dict(values.get("metrics", {})).items():
            report.metrics[name] = value
        report.not_finite.extend(values.get("not_finite", ()))
        report.ready_ports.extend(values.get("ready_ports", ()))
        report.ready_word = values.get("ready_word", "")
        for each in values.get("calls", ()):
            report.calls.add(**each)
        if "training" in values:
            known = {k: v for k, v in dict(values["training"]).items() if v is not None}
            report.training.CopyFrom(control_pb2.TrainingReport(**known))
        return report

    async def run(self) -> None:
        """Pass reports on, for ever; while no daemon answers they wait, merged."""
        while True:
            await self._wake.wait()
            await self.leader.connected.wait()
            self._wake.clear()
            waiting, self._waiting = self._waiting, {}
            for turn in zip_longest(*(of_run.items() for of_run in waiting.values())):
                for run_id, each in zip(waiting, turn, strict=True):  # no run waits for another's
                    if each is not None:
                        await self._pass_on(run_id, each[1])

    async def _pass_on(self, run_id: RunId, report: control_pb2.RunReport) -> None:
        answer = await self.leader.report(report)
        if answer is not None and answer.HasField("batch"):
            batch = {"local": answer.batch.local, "accumulation": answer.batch.accumulation}
            self.send_to_keeper(run_id, {"use_batch": batch})

    async def commit(self, key: RunKey, checkpoint: dict[str, Any]) -> control_pb2.CheckpointReply:
        """Ask the daemon to commit a checkpoint, until it answers; return its answer."""
        try:
            commit = control_pb2.CheckpointCommit(
                node=self.node,
                key=to_wire(key),
                path=str(checkpoint["path"]),
                step=int(checkpoint["step"]),
                bytes=int(checkpoint["bytes"]),
                sha256=str(checkpoint["sha256"]),
                loss=checkpoint.get("loss"),
                keep=int(checkpoint.get("keep", 0)),
            )
        except (ValueError, TypeError) as error:  # a value that the message cannot hold
            return control_pb2.CheckpointReply(accepted=False, why=f"unclear: {error}")
        return await self.leader.commit_checkpoint(commit)


def _merge(earlier: control_pb2.RunReport, report: control_pb2.RunReport) -> None:
    """Merge a newer report into one that waits: counts add up, columns are replaced."""
    ignored = earlier.ignored + report.ignored
    if report.HasField("training"):
        earlier.ClearField("training")
    if report.HasField("step"):  # only the newest values can be finite or not
        earlier.ClearField("not_finite")
        earlier.ClearField("doing")
    if report.ready_ports:
        earlier.ClearField("ready_ports")
    if report.calls:
        earlier.ClearField("calls")
    if len(earlier.metrics) > _MOST_NAMES:
        earlier.ClearField("metrics")
    earlier.MergeFrom(report)
    earlier.ignored = ignored
