"""What many short jobs cost agents and the leader, as counted messages and transactions a job."""

from __future__ import annotations

from collections import Counter
from functools import partial

from dlsched.protocol import leader
from dlsched.protocol import messages as m
from dlsched.protocol.ledger import Request
from dlsched.protocol.messages import RequestId
from tests.protocol.simulation import Behaviour, World
from tests.protocol.simulation.world import LeaderBox

JOBS, NODES, GPUS = 160, 4, 8
FILL_S = 0.02  # between two rounds


class BusyWorld(World):
    """All jobs come at once, and free GPUs are filled soon; what is sent is counted."""

    def __init__(self) -> None:
        self.counted: Counter[str] = Counter()
        jobs = [
            (Request(request_id=RequestId(f"q{k}")), Behaviour(work_s=0.02 + k % 7 / 50))
            for k in range(JOBS)
        ]
        super().__init__(nodes=NODES, gpus=GPUS, jobs=jobs, unrest=0.0)

    def _begin(self) -> None:
        super()._begin()
        for request, _ in self.jobs:
            self.after(2.9, partial(self.submit, request))  # those that follow are known already

    def round(self) -> None:
        """Decide, and again soon."""
        super().round()
        for name, box in self.leaders.items():
            for k in range(1, round(1.0 / FILL_S)):
                self.after(k * FILL_S, partial(self._fill, name, box))

    def _fill(self, name: str, box: LeaderBox) -> None:
        if box.state is not None and box.state.role is leader.Role.LEADING:
            self.decide(name, box.state)

    def send_to_leaders(self, source: str, sync: m.Sync) -> None:
        """Count the syncs."""
        self.counted["syncs"] += 1
        super().send_to_leaders(source, sync)

    def do_leader(self, name: str, box: LeaderBox, command: leader.Command) -> None:
        """Count the commands."""
        self.counted[type(command).__name__] += 1
        super().do_leader(name, box, command)


def test_events_of_short_jobs_travel_together() -> None:
    world = BusyWorld()
    world.run_until_done(60.0)
    assert sum(job.status.is_terminal for job in world.database.ledger.jobs.values()) == JOBS
    a_job = {name: count / JOBS for name, count in world.counted.items()}
    # each job starts, executes and ends, and its node learns that its end is committed
    assert a_job["syncs"] < 0.6
    assert a_job["SendNudge"] < 0.6
    assert a_job["Persist"] < 0.75
