"""Messages of ranks about their training, on their way from the job to the agent, and answers.

Reports of progress are lost while there is no agent. One checkpoint is under way at a time; it is
kept until the daemon has answered, and sent again to each new agent. Of those that come meanwhile
the newest one follows it.
"""

from __future__ import annotations

import time
from dataclasses import fields
from typing import TYPE_CHECKING

from dlsched.job import messages as words
from dlsched.job.reported import LONGEST_NAME, known_names
from dlsched.nodeagent.ranks.rank_plan import MAX_RANKS

if TYPE_CHECKING:
    from dlsched.nodeagent.ranks.job_socket import Peer
    from dlsched.nodeagent.ranks.keeper_interface import KeeperInterface


LONGEST_ERROR = 500  # characters


def _values(message: words.Message) -> dict[str, object]:
    return {each.name: getattr(message, each.name) for each in fields(message)}


class TrainingMessages:
    """The messages between the ranks of one run and the agent."""

    def __init__(self, keeper: KeeperInterface) -> None:
        """Start when no rank has sent anything."""
        self._keeper = keeper
        self._asked: words.CheckpointMade | None = None  # the checkpoint under way
        self._asking: Peer | None = None  # the rank that waits for the answer
        self._next: tuple[Peer | None, words.CheckpointMade] | None = None
        self._number = 0  # of the checkpoint under way: its answer has the same
        self._said_why: dict[int, str] = {}  # errors of ranks that failed
        self._measuring: Peer | None = None  # the rank that reports how the training goes
        self._ready: dict[str, object] = {}  # that all ranks wait for the state

    def from_job(self, peer: Peer, message: words.FromJob) -> None:
        """Take a message of a rank."""
        if peer.is_foreign:
            self.unclear(peer)
            return
        match message:
            case words.StepDone():
                self._report(
                    peer,
                    step=message.step,
                    batch_s=message.batch_s,
                    loss=message.loss,
                    gpu_memory_bytes=message.gpu_memory,
                    metrics={n: message.metrics[n] for n in known_names(message.metrics)},
                    not_finite=known_names(message.not_finite),
                )
            case words.Failed():
                rank = peer.rank or 0
                if rank in self._said_why or len(self._said_why) < MAX_RANKS:
                    self._said_why[rank] = message.error[:LONGEST_ERROR]
                self._report(peer, error=message.error[:LONGEST_ERROR], error_at=message.at)
            case words.Doing():
                self._report(peer, doing=message.what[:LONGEST_NAME])
            case words.Restored():
                self._report(
                    peer,
                    step=message.step,
                    restart_s=message.restart_s,
                    saves=message.saves,
                    save_bytes=message.save_bytes,
                    room_bytes=message.room_bytes,
                    expected_save_s=message.save_s,
                )
            case words.SaveFailed():
                self._report(
                    peer, unsaved_step=message.step, unsaved_why=message.why[:LONGEST_ERROR]
                )
            case words.Ready():
                self._ready = {
                    "rank": peer.rank or 0,
                    "ready_ports": list(message.ports),
                    "ready_word": message.word,
                }
                self._send_ready()
            case words.Trained():
                self._measuring = peer
                self._report(peer, training=_values(message))
            case words.CheckpointMade():
                if message.save_s is not None:
                    self._report(peer, step=message.step, save_s=message.save_s)
                self._next = peer, message
                if self._asked is None:
                    self._begin_next()

    def rank_ended(self, rank: int, code: int, number: int) -> None:
        """Report a rank that has failed, unless it has said why itself."""
        if rank not in self._said_why:
            error = f"signal {number}" if number else f"exit {code}"
            report = {"rank": rank, "error": error, "error_at": time.time()}
            self._keeper.send_to_agent({"report": report})

    def error_of(self, rank: int) -> str:
        """Return why a rank has failed, as it has said itself; empty: it has not."""
        return self._said_why.get(rank, "")

    def unclear(self, peer: Peer) -> None:
        """Count a packet of a rank that cannot be read."""
        self._report(peer, ignored=1)

    def _report(self, peer: Peer, **values: object) -> None:
        known = {name: value for name, value in values.items() if value is not None}
        self._keeper.send_to_agent({"report": {"rank": peer.rank or 0, **known}})

    def _begin_next(self) -> None:
        self._asking, self._asked = self._next or (None, None)
        self._next = None
        self._number += self._asked is not None
        self._send_checkpoint()

    def _send_checkpoint(self) -> None:
        made = self._asked
        if made is not None:
            known = _values(made)
            del known["save_s"]
            self._keeper.send_to_agent({"checkpoint": known, "number": self._number})

    def _send_ready(self) -> None:
        if self._ready and self._keeper.state.desired.follows:
            self._keeper.send_to_agent({"report": self._ready})

    def new_agent(self) -> None:
        """Send again what the old agent may not have passed on."""
        self._send_checkpoint()
        self._send_ready()

    def from_agent(self, message: dict[str, object]) -> None:
        """Take the daemon's answer about a checkpoint, or a batch size that it prefers."""
        batch = message.get("use_batch")
        if isinstance(batch, dict) and self._measuring is not None:
            local, accumulation = int(batch["local"]), int(batch["accumulation"])
            self._measuring.send_message(words.UseBatch(local=local, accumulation=accumulation))
        answer, made = message.get("committed"), self._asked
        if not isinstance(answer, dict) or made is None or answer.get("path") != made.path:
            return
        if message.get("number") not in (self._number, None):  # None: of an agent before this one
            return
        if self._asking is not None:
            self._asking.send_message(
                words.CheckpointAnswer(
                    accepted=bool(answer.get("accepted")),
                    why=str(answer.get("why", "")),
                    path=made.path,
                    held=tuple(map(str, answer.get("held", ()))),
                )
            )
        self._begin_next()

    def closed(self, peer: Peer) -> None:
        """Forget a peer that has closed its connection; its checkpoint is still committed."""
        if self._asking is peer:
            self._asking = None
        if self._next is not None and self._next[0] is peer:
            self._next = None, self._next[1]
        if self._measuring is peer:
            self._measuring = None
