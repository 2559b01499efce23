"""The keeper of a simulated run: the protocol's own step, with a timer in place of processes.

What it would write to a disk is durable at once, in memory: when the program ends, everything is
lost, as with a node that is switched off and comes back with an empty disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from dlsched.hollow.jobs import SimulatedEnd
from dlsched.protocol import keeper
from dlsched.protocol import messages as m
from dlsched.protocol.event_queue import EventQueue
from dlsched.protocol.timing import Timing
from dlsched.system import clock


class HollowKeeper:
    """One run on one node.

    Attributes:
        state: of the protocol's keeper.
        executed: whether the run has begun to execute.
    """

    def __init__(
        self,
        node: m.NodeName,
        desired: m.DesiredRun,
        timing: Timing,
        end: SimulatedEnd,
        *,
        executed_s: float,
        report: Callable[[m.KeeperStatus], None],
        leave: Callable[[], None],
    ) -> None:
        """Make the keeper of a run; `begin` starts it.

        Args:
            node: of the run.
            desired: the run.
            timing: of the cluster.
            end: of the job, if it is left alone.
            executed_s: by earlier runs of the job, which this one continues.
            report: takes each status.
            leave: called when the keeper is gone.
        """
        self.state = keeper.KeeperState(node=node, desired=desired, timing=timing)
        self.executed = False
        self._code = end.code
        self._left_s = max(0.0, end.executes_s - executed_s)
        self._report, self._leave = report, leave
        self._since: float | None = None  # start of the current time of execution
        self._loop = asyncio.get_running_loop()
        self._exit: asyncio.TimerHandle | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._rings_at: float | None = None
        self._events = EventQueue(self._step)

    def begin(self, covered_until: float | None) -> None:
        """Start; `covered_until` is the end of a node lease that lists the run."""
        self._take(keeper.Began(clock.boottime(), covered_until))

    def order(self, order: m.Order) -> None:
        """Take an order of the agent."""
        self._take(keeper.OrderArrived(clock.boottime(), order))

    def lease(self, until: float, covers: frozenset[m.RunId], *, by_leader: bool) -> None:
        """Take over what a keeper reads in the lease file."""
        covered = self.state.desired.key.run_id in covers
        self._take(keeper.LeaseChanged(clock.boottime(), until, covered, by_leader))

    def close(self) -> None:
        """Stop the timers."""
        for timer in (self._exit, self._alarm):
            if timer is not None:
                timer.cancel()

    def _take(self, event: keeper.Event) -> None:
        self._events.take(event)
        self._set_alarm()

    def _step(self, event: keeper.Event) -> None:
        self.state, commands = keeper.step(self.state, event)
        for command in commands:
            self._do(command)

    def _do(self, command: keeper.Command) -> None:
        now = clock.boottime()
        match command:
            case keeper.Reserve():
                self._events.take(keeper.Reserved(now, mine=True))
            case keeper.WriteReleased():
                self._events.take(keeper.ReleaseWritten(now))
            case keeper.WriteExit():
                self._pause()
                self._events.take(keeper.ExitWritten(now))
            case keeper.Execute():
                self.executed = True
                self._go_on()
            case keeper.ThawJob():
                self._go_on()
            case keeper.FreezeJob():
                self._pause()
                self._events.take(keeper.JobSuspended(now, let_go=True))
            case keeper.SendSignal(number=number) if number in (keeper.SIGTERM, keeper.SIGKILL):
                self._events.take(self._exited(signal=number))
            case keeper.SendSignal():
                pass  # no simulated job handles any other signal
            case keeper.Report(status=status):
                self._report(status)
            case keeper.Leave():
                self.close()
                self._leave()

    # -- the job ---------------------------------------------------------------------------------

    def _go_on(self) -> None:
        self._since = clock.boottime()
        self._exit = self._loop.call_later(self._left_s, self._end)

    def _pause(self) -> None:
        if self._exit is not None:
            self._exit.cancel()
            self._exit = None
        if self._since is not None:
            self._left_s = max(0.0, self._left_s - (clock.boottime() - self._since))
            self._since = None

    def _end(self) -> None:
        self._take(self._exited(code=self._code))

    @staticmethod
    def _exited(*, code: int = 0, signal: int = 0) -> keeper.JobExited:
        term_s = 0.0 if signal == keeper.SIGTERM else None
        return keeper.JobExited(
            clock.boottime(), code=code, signal=signal, term_s=term_s, at=clock.wall()
        )

    # -- deadlines -------------------------------------------------------------------------------

    def _set_alarm(self) -> None:
        deadline = self.state.deadline()
        if deadline == self._rings_at:
            return
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm, self._rings_at = None, deadline
        if deadline is not None:
            wait = max(0.0, deadline - clock.boottime())
            self._alarm = self._loop.call_later(wait, self._ring)

    def _ring(self) -> None:
        self._rings_at = None
        self._take(keeper.DeadlinePassed(clock.boottime()))
