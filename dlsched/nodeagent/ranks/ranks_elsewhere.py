"""One call's ranks on another node, as the keeper of the caller sees them.

Two agents are between the two keepers, and either may restart: then the stream is opened again, for
a while, and goes on with what has not arrived. `rank_shares` is the other end.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

from dlsched.nodeagent.ranks.local_ranks import LEAST, WINDOW
from dlsched.nodeagent.ranks.shared_input import KeptBytes

AGAIN_S = 0.25  # between a stream that broke and the next
MOST_SIGNALS = 64  # that wait for the next stream
Send = Callable[[dict[str, object]], bool]


class RanksElsewhere:
    """The stream to the ranks of one call on one node.

    Attributes:
        node: that the ranks are on.
        left: how many of them have not ended.
        received: how many of their events have come, in order.
        over: whether there is nothing more to do for them.
        is_open: whether input and signals get there.
    """

    def __init__(self, send: Send, request: dict[str, Any], away_s: float) -> None:
        """Open no stream yet.

        Args:
            send: to the agent; returns False when there is none.
            request: starts the ranks; it has the call and the node.
            away_s: how long an agent may be away.
        """
        self._send, self._request, self._away_s = send, request, away_s
        self.node = str(request["node"])
        self._known = {"call": request["call"], "node": self.node}
        self.left = len(request["ranks"])
        self.received = 0
        self.over = False
        self._attempt = 0
        self.is_open = False
        self._taken = 0  # bytes, since the other keeper was told
        self._ends = False
        self._until: float | None = None  # given up then
        self._again_at: float | None = None
        self._whose, self._why = "", ""  # agent that is away
        self._signals: list[int] = []  # that wait for the next stream

    # -- streams -------------------------------------------------------------------------------

    def open(self, now: float) -> None:
        """Open a stream, or wait for an agent that does."""
        self._again_at = None
        more = {"attempt": self._attempt + 1, "received": self.received, "stop": self._ends}
        if not self._send({"ranks": self._request | more}):
            self.agent_gone(now)
            return
        self._attempt += 1
        if self._attempt == 1:  # nothing was lost
            self._until = None
            self._open_for_signals()

    def agent_gone(self, now: float) -> None:
        """The agent of this node is away, and all streams with it."""
        self._lose(now, "the agent of the first node", "")

    def new_agent(self, now: float) -> None:
        """Open the stream again."""
        if not self.over:
            self.open(now)

    def broke(self, now: float, why: str) -> None:
        """The stream has broken; the ranks are not lost yet.

        Args:
            now: in seconds since the boot.
            why: as the agent has found it.
        """
        self._lose(now, "its agent", why)
        self._again_at = now + AGAIN_S

    def _lose(self, now: float, whose: str, why: str) -> None:
        self.is_open, self._again_at = False, None
        self._whose, self._why = whose, f" ({why})" if why else ""
        if self._until is None:
            self._until = now + self._away_s

    def opened(self) -> bool:
        """The other keeper has the stream; return whether an earlier one was lost."""
        self._until = None
        was_open = self.is_open
        self._open_for_signals()
        return not was_open

    def _open_for_signals(self) -> None:
        self.is_open = True
        waiting, self._signals = self._signals, []
        for number in waiting:
            self.signal(number)

    @property
    def deadline(self) -> float | None:
        """When `wake` has something to do, in seconds since the boot."""
        times = [each for each in (self._until, self._again_at) if each is not None]
        return min(times, default=None)

    def wake(self, now: float) -> str:
        """Open the stream again if it is time; return why the ranks are given up, or nothing."""
        if self._until is not None and now >= self._until:
            return f"its ranks end, because {self._whose} has been away for {self._away_s:g} s" + (
                self._why
            )
        if self._again_at is not None and now >= self._again_at:
            self.open(now)
        return ""

    # -- events --------------------------------------------------------------------------------

    def is_news(self, event: dict[str, Any]) -> bool:
        """Whether an event is of the present stream, and the next one if they are numbered."""
        if self.over or int(event["attempt"]) != self._attempt:
            return False
        if self._ends and not event.keys() & {"ended", "broke", "refused"}:
            return False
        number = int(event.get("number", 0))
        if number:
            if number != self.received + 1:
                return False
            self.received = number
        return True

    def taken(self, number: int, size: int) -> None:
        """Note that the caller has taken an event with so many bytes of output.

        The other keeper is told of many events at once.
        """
        self._taken += max(size, LEAST)
        last = not self.left and number == self.received
        if last or self._taken >= WINDOW // 8:
            self._taken = 0
            self._tell("ranks_received", number=number, last=last)
        if last:
            self.finish()

    # -- to the ranks --------------------------------------------------------------------------

    def _tell(self, what: str, **more: object) -> None:
        self._send({what: self._known | more})

    def give(self, data: bytes, at: int) -> None:
        """Pass on input that comes after `at` bytes; while there is no stream, it is kept."""
        if self.is_open:
            self._tell("ranks_input", data=base64.b64encode(data).decode(), at=at)

    def give_again(self, kept: KeptBytes, received: int, *, is_over: bool) -> None:
        """Pass on the kept input of which so many bytes have arrived."""
        at = max(received, kept.first)
        while at < kept.end:
            piece = kept.piece(at)
            self.give(piece, at)
            at += len(piece)
        if is_over:
            self.give(b"", at)

    def signal(self, number: int) -> None:
        """Send a signal to the ranks, as soon as there is a stream."""
        if self.is_open:
            self._tell("ranks_signal", number=number)
        elif len(self._signals) < MOST_SIGNALS:
            self._signals.append(number)

    def end(self, now: float) -> None:
        """End the ranks; without a stream, as soon as there is one."""
        if self.over or self._ends:
            return
        if not self._attempt:
            self.finish()
            return
        self._ends = True
        if self._until is None:
            self._until = now + self._away_s
        self._tell("ranks_end")

    def give_up(self) -> None:
        """Open no stream any more."""
        if not self.over:
            self._tell("ranks_end")
            self.finish()

    def finish(self) -> None:
        """Have nothing more to do for the ranks, which have ended."""
        self.over, self.is_open = True, False
        self._until = self._again_at = None
