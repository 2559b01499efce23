"""Under any policy GPUs that become free are given to jobs that wait, whatever made them free."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from dlsched.db.records import Drained, HoldChanged
from dlsched.policies.registry import names
from dlsched.protocol.ledger import Attach
from dlsched.protocol.messages import JobId, NodeName, StopReason

ROUND_S = 60.0
MOST_ROUNDS = 12  # of leases, trials and profiling, after which a job has had its turn
OPTIONS = {"what-if": ("what-if.scheduling=las,srtf", "what-if.admission=accept-all")}


@dataclass
class Scene:
    """A node of four GPUs with a job on all of them, and a second job that waits for four."""

    lab: Any
    now: float = 0.0
    first: JobId = field(init=False)
    second: JobId = field(init=False)

    def begin(self) -> None:
        self.first = self.lab.submit(self.now, 4, expected_s=5000.0)
        self.round()
        assert self.first in self.lab.running()
        self.second = self.lab.submit(self.now, 4, expected_s=50_000.0)
        self.round()

    def round(self) -> None:
        self.now += ROUND_S
        self.lab.round(self.now)

    def leave(self, job: JobId, reason: StopReason) -> None:
        if job in self.lab.running():
            self.lab.stop(self.now, job, reason)
            self.lab.end(self.now, job, code=143)

    def hold(self, job: JobId, held: str) -> None:
        self.lab.write(self.now, Attach(HoldChanged(job=job, held=held, actor="ann")))

    def drain(self, name: str, *, drained: bool) -> None:
        row = Drained(node=NodeName(name), drained=drained, reason="x", actor="root", at=0.0)
        self.lab.write(self.now, Attach(row))

    def until_on(self, count: int) -> None:
        """Rounds until so many GPUs are used."""
        for _ in range(MOST_ROUNDS):
            self.round()
            if sum(map(self.lab.gpus_of, self.lab.running())) == count:
                return
        raise AssertionError(f"{sorted(self.lab.running())} run; {self.reasons()}")

    def reasons(self) -> dict[int, str]:
        return {job: self.lab.live.reason(job) for job in (self.first, self.second)}


def failed(scene: Scene) -> None:
    [job] = scene.lab.running()
    scene.lab.end(scene.now, job, code=3)
    scene.until_on(4)


def cancelled(scene: Scene) -> None:
    [job] = scene.lab.running()
    scene.leave(job, StopReason.CANCEL)
    scene.until_on(4)


def cancelled_while_nothing_is_decided(scene: Scene) -> None:
    [job] = scene.lab.running()
    scene.leave(job, StopReason.CANCEL)
    scene.lab.restart(scene.now)
    scene.until_on(4)


def requeued(scene: Scene) -> None:
    [job] = scene.lab.running()
    scene.leave(job, StopReason.REQUEUE)
    scene.until_on(4)


def held_and_released(scene: Scene) -> None:
    [job] = scene.lab.running()
    other = ({scene.first, scene.second} - {job}).pop()
    scene.hold(other, "user")
    scene.hold(job, "user")
    scene.leave(job, StopReason.REQUEUE)
    scene.round()
    assert not scene.lab.running()
    scene.hold(other, "")
    scene.until_on(4)


def joined(scene: Scene) -> None:
    scene.lab.add_node("n2", 4, now=scene.now)
    scene.until_on(8)


def drained_and_resumed(scene: Scene) -> None:
    scene.drain("n1", drained=True)
    [job] = scene.lab.running()
    scene.leave(job, StopReason.MIGRATE)
    scene.round()
    assert not scene.lab.running()
    scene.drain("n1", drained=False)
    scene.until_on(4)


@pytest.mark.parametrize(
    "happens",
    [
        failed, cancelled, cancelled_while_nothing_is_decided, requeued, held_and_released, joined,
        drained_and_resumed,
    ],
)  # fmt: skip
@pytest.mark.parametrize("policy", names("scheduling"))
def test_gpus_that_become_free_are_given_to_jobs_that_wait(
    live: Any, policy: str, happens: Callable[[Scene], None]
) -> None:
    scene = Scene(live.LiveLab((4,), parts={"scheduling": policy}, options=OPTIONS.get(policy, ())))
    scene.begin()
    happens(scene)
