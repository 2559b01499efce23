"""`dlsched run`: ranks inside an allocation, for a caller on the first node.

The keeper of the first node plans the ranks, starts those of its own node and asks the keepers of
the other nodes, through the agents, for theirs. Each of these answers with what its ranks write and
how they end. The agents may restart meanwhile: see `ranks_elsewhere` and `rank_shares`.
"""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dlsched.job import messages as words
from dlsched.nodeagent.host.used import Used
from dlsched.nodeagent.json_values import plain
from dlsched.nodeagent.ranks.job_environment import CHANGEABLE, STEP
from dlsched.nodeagent.ranks.local_ranks import LocalRanks
from dlsched.nodeagent.ranks.rank_call import Call
from dlsched.nodeagent.ranks.rank_plan import CannotPlace
from dlsched.nodeagent.ranks.rank_shares import RankShares
from dlsched.protocol.messages import StepRecord

if TYPE_CHECKING:
    from dlsched.nodeagent.ranks.job_socket import Peer
    from dlsched.nodeagent.ranks.keeper_interface import KeeperInterface

STEPS = 40  # calls that the exit record has room for


class RankCalls:
    """All calls of one run on one node: of callers here, and shares of callers elsewhere.

    A call that wants GPUs of its own waits until other such calls have given them back.
    """

    def __init__(self, keeper: KeeperInterface) -> None:
        """Start without any call."""
        self._keeper = keeper
        self._count = 0
        self._calls: dict[int, Call] = {}
        self.script_environment: Mapping[str, str] = {}  # of the job's first process here
        self._shares = RankShares(keeper, STEPS)
        # as they are reported, and as the exit record has them
        self._ended: deque[tuple[StepRecord, StepRecord]] = deque(maxlen=STEPS)
        self.used = Used()  # by all ranks here that have ended

    def steps(self) -> tuple[StepRecord, ...]:
        """Return the newest calls for the exit record, with what they have used on this node.

        Calls that go on end with the run. Of calls of another node, only their use is known.
        """
        return (
            *self._newest(ends=True),
            *(
                StepRecord(
                    number=number - 1, cpu_s=used.cpu_s, peak_memory_bytes=used.peak_memory_bytes
                )
                for number, used in self._shares.used()[-STEPS:]
            ),
        )

    def _newest(self, *, ends: bool) -> list[StepRecord]:
        """The newest calls that have begun, in their order."""
        live = (call.record(ends=ends) for call in self._calls.values() if call.begun)
        found = (*(pair[ends] for pair in self._ended), *live)
        return sorted(found, key=lambda each: each.number)[-STEPS:]

    def report(self) -> None:
        """Tell the agent of all calls, as they are now."""
        if self._count:
            records = [plain(each) for each in self._newest(ends=False)]
            self._keeper.send_to_agent({"report": {"rank": 0, "calls": records}})

    @property
    def deadline(self) -> float | None:
        """When `wake` has something to do, in seconds since the boot; None: not at all."""
        times = [each.kill_at for each in self._all_ranks()]
        times += [*(call.deadline for call in self._calls.values()), self._shares.deadline]
        return min((time for time in times if time is not None), default=None)

    @property
    def callers(self) -> set[int]:
        """The processes here that wait for ranks, by id."""
        return {call.peer.pid for call in self._calls.values() if not call.abandoned}

    @property
    def have_ranks(self) -> bool:
        """Whether a rank runs here, of a caller here or on another node."""
        return any(each.executing for each in self._all_ranks())

    def signal_all(self, number: int) -> None:
        """Signal the ranks here of all calls."""
        for each in self._all_ranks():
            each.send(number)

    def signal(self, step: int, number: int) -> None:
        """Signal the ranks of one call on all nodes.

        Args:
            step: of the run, counted from 0; one that is over is left out.
            number: of the signal; SIGKILL also ends a call that waits for GPUs.
        """
        call = self._calls.get(step + 1)
        if call is None:
            return
        if call.begun:
            call.send(number)
        elif number == signal.SIGKILL:
            call.peer.send_message(words.Refused(why="the step is cancelled"))
            del self._calls[step + 1]
        self._tidy()

    def run_stops(self) -> None:
        """Let the ranks have the grace period of the run."""
        for each in self._all_ranks():
            each.kill_at = None

    def _all_ranks(self) -> list[LocalRanks]:
        return [*(call.ranks for call in self._calls.values()), *self._shares.ranks]

    def wake(self, now: float) -> None:
        """Kill ranks that have had their grace period, and look for those on other nodes."""
        for each in self._all_ranks():
            each.wake(now)
        for call in self._calls.values():
            call.wake(now)
        self._shares.wake(now)
        self._tidy()

    # -- callers here --------------------------------------------------------------------------

    def from_job(self, peer: Peer, message: words.FromJob) -> None:
        """Take a message of a caller."""
        if isinstance(message, words.RunRanks):
            if any(call.peer is peer for call in self._calls.values()):
                return
            if self._keeper.spec.rank != 0:
                peer.send_message(
                    words.Refused(why="only the first node of an allocation starts ranks")
                )
                return
            self._count += 1
            call = Call(self._keeper, peer, message, self._count, self._changed(message))
            self._calls[self._count] = call
            self._begin(self._count)
            if call.begun:
                self.report()
        elif isinstance(message, words.SignalRanks):
            for call in self._calls.values():
                if call.peer is peer and 0 < message.number < signal.NSIG:
                    call.send(message.number)
        elif isinstance(message, words.Input):
            for call in self._calls.values():
                if call.peer is peer:
                    call.take_input(message.data)
            self._tidy()

    def _changed(self, message: words.RunRanks) -> tuple[str, ...]:
        """The variables of the runtime that the caller, a script, has set to another value."""
        given, now = self.script_environment, message.environment
        if not given or STEP in now:  # a rank's own variables are not the script's
            return ()
        return tuple(name for name in CHANGEABLE if name in now and now[name] != given.get(name))

    def _begin(self, number: int) -> None:
        """Start the ranks of a call if its GPUs are free; tell the caller why they cannot start."""
        call = self._calls[number]
        taken = {gpu for each in self._calls.values() if each is not call for gpu in each.gpus}
        try:
            call.begin(taken)
        except CannotPlace as error:
            call.peer.send_message(words.Refused(why=str(error)))
            del self._calls[number]
        except OSError as error:  # no process or descriptor is left
            call.peer.send_message(words.Refused(why=str(error)))
            call.abandon()

    def closed(self, peer: Peer) -> None:
        """End the ranks of a caller that has closed its connection."""
        for call in self._calls.values():
            if call.peer is peer:
                call.abandon()
        self._tidy()

    def flush(self, peer: Peer) -> None:
        """Send a caller what it takes, now that it reads again."""
        for call in list(self._calls.values()):
            if call.peer is peer:
                call.flush()
        self._tidy()

    def ended(self, pid: int, code: int, number: int, detail: str, used: Used) -> bool:
        """Whether the process that has ended is a rank of any call.

        Args:
            pid: of the process.
            code: its exit code.
            number: of the signal that has ended it, or 0.
            detail: why it could not be started, or empty.
            used: by it.
        """
        found = any(each.ended(pid, code, number, detail, used) for each in self._all_ranks())
        if found:
            self.used += used
        self._tidy()
        return found

    def _tidy(self) -> None:
        over = [key for key, call in self._calls.items() if call.over]
        for key in over:
            call = self._calls.pop(key)
            if call.begun:
                self._ended.append((call.record(), call.record(ends=True)))
            for number in [each for each, call in self._calls.items() if not call.begun]:
                self._begin(number)
        if over:
            self.report()
        self._shares.tidy()

    # -- the agent -----------------------------------------------------------------------------

    def from_agent(self, message: dict[str, Any]) -> None:
        """Take a message about ranks of, or for, another node."""
        if "ranks_event" in message:
            event = message["ranks_event"]
            call = self._calls.get(int(event["call"]))
            if call is not None:
                call.take_event(event)
        else:
            self._shares.from_agent(message)
        self._tidy()

    def agent_gone(self) -> None:
        """Wait for the next agent, which joins the nodes again."""
        for call in self._calls.values():
            call.agent_gone()
        self._shares.agent_gone()
        self._tidy()

    def new_agent(self) -> None:
        """Tell an agent that has just connected of all calls, and have it join the nodes again."""
        self.report()
        for call in self._calls.values():
            call.new_agent()
