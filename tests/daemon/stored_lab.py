"""A small live cluster whose every write goes into a database, too."""

from __future__ import annotations

import itertools
from typing import Any

from dlsched.daemon.live.live_state import LiveState
from dlsched.daemon.round.decided import Decided
from dlsched.daemon.round.ended_jobs import read_ended
from dlsched.daemon.round.round_state import RoundState
from dlsched.db.records import PolicyState, RoundDone
from dlsched.db.store import Store
from dlsched.protocol.ledger import Attach, Changes, Restart, Write, apply_all
from dlsched.protocol.messages import JobId


def lab_on(live: Any, store: Store, nodes: tuple[int, ...] = (4, 4, 2), **given: Any) -> Any:
    """A laboratory with a database, beside it a state that is never restarted.

    Args:
        live: the module `ledger_walk`.
        store: an empty database.
        nodes: GPUs of each node.
        given: to `LiveLab`.
    """

    class StoredLab(live.LiveLab):  # type: ignore[misc]
        def __init__(self) -> None:
            term = store.contend("test")
            assert term is not None
            self.epoch, self.numbers = term.epoch, itertools.count(1)
            self.never_restarted = LiveState()
            super().__init__(nodes, **given)

        def write(self, now: float, *writes: Write) -> None:
            self.ledger = apply_all(self.ledger, writes)
            for state in (self.live, self.never_restarted):
                state.apply(Changes(writes), self.ledger, now)
            self.persist(now, writes)

        def persist(self, now: float, writes: tuple[Write, ...] = ()) -> None:
            self.never_restarted.rows_to_store()
            rows = map(Attach, self.live.rows_to_store())
            store.persist(self.epoch, next(self.numbers), (*writes, *rows), now)

        def restart_job(self, now: float, job: JobId) -> None:
            """A job that has ended is to run again."""
            (stored,) = store.jobs([job])
            self.ledger = apply_all(self.ledger, [Restart(job)])
            for state in (self.live, self.never_restarted):
                state.revive({job: (self.ledger.jobs[job], stored.facts)}, now)
                state.apply(Changes([Restart(job)]), self.ledger, now)
            self.persist(now, (Restart(job),))

        def round(self, now: float, mode: Any = "full", *, at_once: bool = True) -> Decided:
            """One round, stored as the daemon does it."""
            decided: Decided = super().round(now, mode, at_once=at_once)
            if mode == "full" or not decided.changes_nothing:
                done = RoundDone(
                    number=decided.number, at=now, mode=mode, policy=decided.policy, wall_s=0.0,
                    cpu_s=0.0, pending=0, running=0, starts=0, stops=0,
                )  # fmt: skip
                self.persist(now, (Attach(done), Attach(PolicyState(state=decided.state))))
            return decided

        def loaded(self, now: float) -> LiveState:
            return self.begun_anew(now).live

        def begun_anew(self, now: float) -> RoundState:
            """What another daemon begins with."""
            loaded = store.load()
            new = LiveState(self.live.rules, learn_from=self.live.learn_from)
            live = new.successor(loaded, now, learn_from=read_ended(store, loaded))
            return RoundState.of_loaded(live, self.state.settings, loaded)

        def restart(self, now: float) -> None:
            self.state = self.begun_anew(now)

    return StoredLab()
