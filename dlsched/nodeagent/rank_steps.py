"""What the ranks of a job tell their keeper, on its way to the daemon.

Progress is handed to the agent as it comes and lost when there is none. A checkpoint is kept, the
newest, until the daemon has answered.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from dlsched.job import messages as words
from dlsched.nodeagent.plainjson import plain

if TYPE_CHECKING:
    from dlsched.nodeagent.job_socket import Peer
    from dlsched.nodeagent.kept_run import KeptRun


def _values(message: words.Message) -> dict[str, object]:
    return {each.name: plain(getattr(message, each.name)) for each in fields(message)}


class RankSteps:
    """The conversation with the ranks of one run."""

    def __init__(self, keeper: KeptRun) -> None:
        self._keeper = keeper
        self._unanswered: words.CheckpointMade | None = None
        self._asker: Peer | None = None
        self._learner: Peer | None = None  # the rank that tells how the training goes

    def heard(self, peer: Peer, message: words.FromJob) -> None:
        """A rank or a caller has spoken."""
        if peer.is_foreign:
            self.unread(peer)
            return
        match message:
            case words.StepDone():
                self._report(
                    peer,
                    step=message.step,
                    batch_s=message.batch_s,
                    loss=message.loss,
                    gpu_memory_bytes=message.gpu_memory,
                    metrics=dict(message.metrics),
                )
            case words.Restored():
                self._report(peer, step=message.step, restart_s=message.restart_s)
            case words.Trained():
                self._learner = peer
                self._report(peer, training=_values(message))
            case words.CheckpointMade():
                if message.save_s is not None:
                    self._report(peer, step=message.step, save_s=message.save_s)
                self._unanswered, self._asker = message, peer
                self._ask()

    def unread(self, peer: Peer) -> None:
        """A rank or a caller has said what cannot be."""
        self._report(peer, ignored=1)

    def _report(self, peer: Peer, **values: object) -> None:
        told = {name: value for name, value in values.items() if value is not None}
        self._keeper.tell({"report": {"rank": peer.rank or 0, **told}})

    def _ask(self) -> None:
        made = self._unanswered
        if made is not None:
            self._keeper.tell(
                {
                    "checkpoint": {
                        "path": made.path,
                        "step": made.step,
                        "bytes": made.bytes,
                        "sha256": made.sha256,
                    }
                }
            )

    def agent_came(self) -> None:
        """A new agent: ask again what the old one may not have passed on."""
        self._ask()

    def agent_said(self, message: dict[str, object]) -> None:
        """The daemon's answer about a checkpoint, or a batch size that it thinks better."""
        batch = message.get("use_batch")
        if isinstance(batch, dict) and self._learner is not None:
            local, accumulation = int(batch["local"]), int(batch["accumulation"])
            self._learner.say(words.UseBatch(local=local, accumulation=accumulation))
        answer = message.get("committed")
        made = self._unanswered
        if not isinstance(answer, dict) or made is None or answer.get("path") != made.path:
            return
        if self._asker is not None:
            self._asker.say(
                words.CheckpointAnswer(
                    accepted=bool(answer.get("accepted")),
                    why=str(answer.get("why", "")),
                    path=made.path,
                )
            )
        self._unanswered = self._asker = None

    def hung_up(self, peer: Peer) -> None:
        """A peer has gone."""
        if self._asker is peer:
            self._asker = None
        if self._learner is peer:
            self._learner = None
