"""Ranks on this node of `dlsched run` calls whose callers are on the first node of the run.

The keeper of the first node is reached through two agents, either of which may restart. So what
ranks write and how they end is numbered, and kept until the caller has taken it. When the stream
to the caller breaks, the ranks go on for a while: a new stream goes on with what has not arrived.
`ranks_elsewhere` is the other end.
"""

from __future__ import annotations

import base64
import signal
from collections import deque
from typing import TYPE_CHECKING, Any

from dlsched.nodeagent.host.used import Used
from dlsched.nodeagent.json_values import plain, value_of
from dlsched.nodeagent.ranks.local_ranks import LocalRanks
from dlsched.nodeagent.ranks.rank_plan import RankCommand, RankPlace
from dlsched.system import clock

if TYPE_CHECKING:
    from dlsched.nodeagent.ranks.keeper_interface import KeeperInterface

PAST = 1000  # calls that are over and that no late request starts again


class RankShare:
    """One call's ranks on this node.

    Attributes:
        ranks: the processes.
        attempt: number of the newest stream that the caller's keeper has opened, from 1.
        until: when the ranks end unless there is a stream again; None while there is one.
        has_stopped: whether the ranks were told to end, and nothing they write is passed on.
    """

    def __init__(self, keeper: KeeperInterface, number: int, attempt: int) -> None:
        """Start no rank yet; `number` is the call's, and the first stream is there."""
        self._keeper, self._number = keeper, number
        self.attempt = attempt
        self.until: float | None = None
        self._last = 0  # number of the newest event
        # number, bytes of output, and the event itself
        self._kept: deque[tuple[int, int, dict[str, object]]] = deque()
        self.has_stopped = False
        self.ranks = LocalRanks(
            keeper,
            on_output=self._written,
            on_exit=self._exited,
            on_input_taken=lambda count: self._tell({"input_taken": count}),
        )

    @property
    def over(self) -> bool:
        """Whether no rank is left, and the caller has taken all."""
        return not self.ranks.running and not self._kept

    def start(self, command: RankCommand, places: list[RankPlace]) -> None:
        """Start the ranks.

        Raises:
            OSError: when no process or descriptor is left; no rank is left either.
        """
        self._tell_of_stream()
        try:
            self.ranks.start(command, places, streams=None, inputs={})
        except OSError:
            self.stop()
            raise

    def _tell(self, event: dict[str, object]) -> None:
        if self.until is None:
            known = {"call": self._number, "attempt": self.attempt}
            self._keeper.send_to_agent({"rank_event": known | event})

    def _tell_of_stream(self) -> None:
        self._tell({"started": True, "input_taken": self.ranks.input.received})

    def _written(self, rank: int, stream: int, data: bytes) -> None:
        text = base64.b64encode(data).decode()
        self._keep({"rank": rank, "stream": stream, "data": text}, len(data))

    def _exited(self, rank: int, code: int, ended_by: int, used: Used) -> None:
        self._keep({"rank": rank, "exited": True, "code": code, "signal": ended_by} | plain(used))

    def _keep(self, event: dict[str, object], size: int = 0) -> None:
        """Tell what must not be lost, and keep it until it is taken."""
        if self.has_stopped:
            return
        self._last += 1
        event |= {"number": self._last}
        self._kept.append((self._last, size, event))
        self._tell(event)

    # -- streams -------------------------------------------------------------------------------

    def resume(self, attempt: int, received: int) -> None:
        """Go on over a new stream, whose other end has the first `received` events."""
        self.attempt, self.until = attempt, None
        self._tell_of_stream()
        self._tell({"input_taken": self.ranks.input.taken})
        for number, _, event in self._kept:
            if number > received:
                self._tell(event)

    def taken(self, number: int) -> None:
        """Keep the events up to this one no longer."""
        while self._kept and self._kept[0][0] <= number:
            _, size, _ = self._kept.popleft()
            if size:
                self.ranks.taken(size)

    def lose(self, attempt: int, now: float) -> None:
        """Wait for another stream than this one, which has broken."""
        if attempt == self.attempt and not self.has_stopped and self.until is None:
            self.until = now + self._keeper.spec.timing.away_s

    def stop(self) -> None:
        """End the ranks; what they write from now on is dropped."""
        self.has_stopped, self.until = True, None
        self._kept.clear()
        self.ranks.stop()


class RankShares:
    """All such calls of one run on this node."""

    def __init__(self, keeper: KeeperInterface, ended: int) -> None:
        """Know no call yet; `ended` is how many of those that are over are reported."""
        self._keeper = keeper
        self._shares: dict[int, RankShare] = {}  # by call
        self._past: deque[int] = deque(maxlen=PAST)
        self._ended: deque[tuple[int, Used]] = deque(maxlen=ended)

    def used(self) -> list[tuple[int, Used]]:
        """Return what the newest calls have used here, each with its number."""
        return [*self._ended, *((call, each.ranks.used) for call, each in self._shares.items())]

    @property
    def ranks(self) -> list[LocalRanks]:
        """The ranks of each call."""
        return [share.ranks for share in self._shares.values()]

    @property
    def deadline(self) -> float | None:
        """When ranks end whose stream has not come back; None when all have theirs."""
        times = [each.until for each in self._shares.values() if each.until is not None]
        return min(times, default=None)

    def wake(self, now: float) -> None:
        """End the ranks whose stream has not come back in time."""
        for share in self._shares.values():
            if share.until is not None and now >= share.until:
                share.stop()

    def tidy(self) -> None:
        """Forget the calls that are over."""
        for call in [call for call, share in self._shares.items() if share.over]:
            self._ended.append((call, self._shares.pop(call).ranks.used))
            self._past.append(call)

    def agent_gone(self) -> None:
        """Wait for the streams that the next agent opens."""
        for share in self._shares.values():
            share.lose(share.attempt, clock.boottime())

    def from_agent(self, message: dict[str, Any]) -> None:
        """Take a message about ranks here."""
        if "start_ranks" in message:
            self._start(message["start_ranks"])
        elif "resume_ranks" in message:  # over a later stream
            self._start(message["resume_ranks"])
        elif "stop_ranks" in message:
            self._stop(int(message["stop_ranks"]), message.get("attempt"))
        elif "signal_ranks" in message:
            request = message["signal_ranks"]
            share = self._shares.get(int(request["call"]))
            if share is not None and 0 < int(request["number"]) < signal.NSIG:
                share.ranks.send(int(request["number"]))
        elif "rank_input" in message:
            given = message["rank_input"]
            share = self._shares.get(int(given["call"]))
            if share is not None:
                share.ranks.input.give(base64.b64decode(given["data"]), int(given["at"]))
        elif "ranks_taken" in message:
            taken = message["ranks_taken"]
            share = self._shares.get(int(taken["call"]))
            if share is not None:
                share.taken(int(taken["number"]))

    def _stop(self, call: int, attempt: object) -> None:
        """End a call's ranks; with an attempt, only its stream has broken."""
        share = self._shares.get(call)
        if isinstance(attempt, int):
            if share is not None:
                share.lose(attempt, clock.boottime())
        elif share is not None:
            share.stop()
        else:
            self._past.append(call)  # its start may come late

    def _start(self, request: dict[str, Any]) -> None:
        call, attempt = int(request["call"]), int(request["attempt"])
        known = self._shares.get(call)
        has_ended = call in self._past if known is None else known.has_stopped
        why = ""
        if has_ended:
            why = "its ranks have ended"
        elif known is not None and attempt > known.attempt:
            known.resume(attempt, int(request["received"]))
        elif known is not None or self._keeper.state.stage.value != "running":
            why = "the run does not run here"
        else:
            places = [value_of(RankPlace, each) for each in request["ranks"]]
            command = value_of(RankCommand, request | {"call": call})  # JSON has int64 as a text
            share = self._shares[call] = RankShare(self._keeper, call, attempt)
            try:
                share.start(command, places)
            except OSError as error:  # no process or descriptor is left
                why = str(error)
        if why:
            refusal = {"call": call, "attempt": attempt, "refused": why}
            self._keeper.send_to_agent({"rank_event": refusal})
