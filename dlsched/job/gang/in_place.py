"""A resize or move without a checkpoint: the ranks of the next run take over from running ones.

The next run's processes start while the present ones train. Their script runs up to `restore`,
where they say that they are ready. Then the present ranks are asked to stop: after the step on
which they agree they bring their states to the new ranks, and leave. When the daemon knows that
their run is over, the new ranks go on. Whatever fails before that leaves things as they were, or
ends in the usual way, with a checkpoint.
"""

from __future__ import annotations

import atexit
import logging
import os
import secrets
import sys
import time
from collections.abc import Callable

from dlsched.job import messages as words
from dlsched.job.errors import JobError
from dlsched.job.gang.agreement import Agreement, Numbers
from dlsched.job.gang.hand_over import FROM_BEFORE, Parcel, Plan, Receiver, bring
from dlsched.job.keeper_link import KeeperLink
from dlsched.job.runtime import PREEMPTED, Runtime
from dlsched.job.saving.states import States

STOP_S = 5.0  # that a rank waits for its own stop when others have agreed to stop
LOOK_S = 1.0  # between two looks whether the keeper is gone


class InPlace:
    """One rank's part, of a run that hands over or of one that takes over.

    Attributes:
        hands_over_to: where the ranks of the next run wait, as a stop says; empty: none do.
        may_take_over: whether the run that this one follows is over.
        copied: bytes that this rank has received.
    """

    def __init__(self, runtime: Runtime, link: KeeperLink, states: States) -> None:
        self._runtime, self._link, self._states = runtime, link, states
        self.hands_over_to = ""
        self.may_take_over = False
        self.copied = 0
        self._handed_over = False
        if runtime.in_place:
            atexit.register(self._leave_at_once)

    def take_over(
        self,
        agreement: Agreement,
        take_messages: Callable[[], None],
        must_stop: Callable[[], bool],
    ) -> int:
        """Wait for the states of the run before, and load them; return the steps done by then.

        Args:
            agreement: of the ranks of this run.
            take_messages: takes the keeper's messages.
            must_stop: whether this rank is asked to stop.

        Raises:
            JobError: there is no keeper, or a state is missing.
            SystemExit: this run is not needed any more.
        """
        if self._states.shards:
            raise JobError("states in shards cannot be taken over from a run in place")
        runtime = self._runtime
        receiver = Receiver(runtime.rank)
        mine: Numbers = (receiver.port, secrets.randbits(62), secrets.randbits(62), 0, 0)
        shared = agreement.share(mine)
        word = f"{shared[0][1]:x}-{shared[0][2]:x}"
        receiver.expect(word)
        if runtime.rank == 0:
            ports = tuple(each[0] for each in shared)
            self._link.send(words.Ready(ports=ports, word=word), must_arrive=True)
        while receiver.step is None or not self.may_take_over:
            if not self._link.is_open:
                raise JobError("the keeper is gone, so nothing can be taken over")
            if self._link.wait_with(receiver, LOOK_S):
                receiver.take()
            take_messages()
            if must_stop():
                raise SystemExit(PREEMPTED)
        receiver.close()
        self.copied = receiver.copied
        self._states.load_contents(receiver.states())
        return receiver.step

    def hand_over(
        self,
        agreement: Agreement,
        step: int,
        take_messages: Callable[[], None],
        must_stop: Callable[[], bool],
    ) -> bool:
        """Bring this rank's states to ranks of the next run; every rank calls it at its stop.

        Args:
            agreement: of the ranks of this run.
            step: how many steps are done.
            take_messages: takes the keeper's messages.
            must_stop: whether this rank itself is asked to stop.

        Returns:
            Whether the next run has the states of all ranks; else the stop needs a checkpoint.
        """
        until = time.monotonic() + STOP_S
        while not must_stop() and self._link.is_open and time.monotonic() < until:
            self._link.wait(until - time.monotonic())
            take_messages()
        knows = bool(self.hands_over_to) and not self._states.shards
        if not agreement.all_succeeded(knows):
            return False
        why = self._bring(step)
        if why:
            print(f"dlsched.job: the state is not handed over: {why}", file=sys.stderr)
        if not agreement.all_succeeded(not why):
            return False
        self._link.send(words.Leaving(finished=False, handed_over=True), must_arrive=True)
        self._handed_over = True
        return True

    def _leave_at_once(self) -> None:
        """End the process after a hand-over; the next run waits for its end.

        The interpreter would take about half a second to remove PyTorch. This is the last handler
        but those that were registered before `attach`.
        """
        if self._handed_over:
            if "multiprocessing" in sys.modules:
                for child in sys.modules["multiprocessing"].active_children():
                    child.kill()  # a loader's workers, which ignore TERM
            logging.shutdown()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(PREEMPTED)

    def _bring(self, step: int) -> str:
        """Bring this rank's states to the new ranks; returns why not, or nothing."""
        runtime = self._runtime
        try:
            plan = Plan.of(self.hands_over_to)
            own = self._states.contents(each_rank=True)
            if own and runtime.rank < len(plan.places):
                bring(plan, Parcel(step, True, 0, own), [runtime.rank])
            if runtime.rank == 0:
                common = self._states.contents(each_rank=False)
                # a rank that did not exist before has no states of its own to wait for
                both = min(runtime.world_size, len(plan.places)) if own else 0
                bring(plan, Parcel(step, False, both, common), plan.served_by(FROM_BEFORE))
        except Exception as error:  # the script's own code can raise any
            return f"{type(error).__name__}: {error}"
        return ""
