"""What the daemon does every second or two costs no more for jobs that concern it not at all."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from dlsched.daemon import long_lived
from dlsched.daemon.enforcing import enforcement
from dlsched.daemon.enforcing.enforcement import enforce
from dlsched.daemon.long_lived import MANY, SOME, LongLivedObjects
from dlsched.daemon.metrics.metrics import Metrics
from dlsched.protocol import leader
from dlsched.protocol.ledger import Ledger
from dlsched.protocol.messages import GpuId, JobId, NodeName
from dlsched.system.clock import boottime, wall
from tests.counting import python_calls
from tests.daemon.cluster_of_tests import Running, eventually, job, settings_of
from tests.daemon.scripted_agent import ScriptedAgent


def in_one_turn(work: Coroutine[Any, Any, None]) -> None:
    with pytest.raises(StopIteration):
        work.send(None)


def test_a_look_at_limits_and_deadlines_reads_no_job_without_one(tmp_path: Path) -> None:
    async def script() -> None:
        async with Running(settings_of(tmp_path)) as running:
            user, cluster = running.caller(), running.daemon.cluster
            counted = []
            for count in (10, 2000):
                await user.submit(*[job(gpus=1) for _ in range(count)])
                counted.append(python_calls(lambda: in_one_turn(enforce(cluster))))
            assert counted[1] <= counted[0] + 5
            [late] = await user.submit(job(gpus=1, deadline_at=wall() + 0.5))

            def over() -> bool:
                row = cluster.driver.reserved.jobs[JobId(late)]
                return row.status.is_terminal and row.reason == "Deadline"

            await eventually(over)

    asyncio.run(script())


def test_a_look_that_lets_others_in_between_sees_what_they_have_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jobs that end while others are being ended are left alone."""
    monkeypatch.setattr(enforcement, "AT_ONCE", 1)

    async def script() -> None:
        async with Running(settings_of(tmp_path)) as running:
            user, cluster = running.caller(), running.daemon.cluster
            driver, step = cluster.driver, cluster.driver.step
            await running.daemon.rounds.stop()
            first, second = await user.submit(*[job(deadline_at=wall() + 0.1) for _ in range(2)])
            await eventually(
                lambda: (
                    wall() > driver.table.field(driver.reserved.jobs[JobId(second)], "deadline_at")
                )
            )
            cancelled = []

            def noted(asked: leader.Event) -> None:
                step(asked)
                for each in asked.events if isinstance(asked, leader.Together) else ():
                    if isinstance(each, leader.CancelAsked):
                        cancelled.append(each.job)
                        step(leader.CancelAsked(boottime(), -1, JobId(second), "Cancelled"))

            monkeypatch.setattr(driver, "step", noted)
            await enforce(cluster)
            assert cancelled == [first]

    asyncio.run(script())


def test_busy_gpus_are_counted_anew_only_for_another_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[NodeName] = []
    genuine = Ledger.busy

    def noted(ledger: Ledger, node: NodeName, *rest: Any, **more: Any) -> set[GpuId]:
        counted.append(node)
        return genuine(ledger, node, *rest, **more)

    async def script() -> None:
        async with Running(settings_of(tmp_path)) as running:
            cluster, metrics = running.daemon.cluster, Metrics()
            async with ScriptedAgent("n1", running.target):
                await eventually(lambda: NodeName("n1") in cluster.driver.committed.nodes)
                monkeypatch.setattr(Ledger, "busy", noted)
                for _ in range(3):  # without a turn of the loop in between
                    metrics.gather(cluster)
                assert counted == ["n1"]
                await running.caller().submit(job(gpus=1))
                counted.clear()
                metrics.gather(cluster)
                assert "n1" in counted

    asyncio.run(script())


def test_what_lives_long_is_not_searched_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each collection after `settle` sees the new objects only, however many there are in all."""
    given_back: list[bool] = []
    genuine = long_lived.give_back_memory
    monkeypatch.setattr(
        long_lived, "give_back_memory", lambda: given_back.append(genuine() is None)
    )
    frozen, kept = gc.get_freeze_count(), []
    objects = LongLivedObjects()
    try:
        for _ in range(2):
            while gc.get_count()[2] < SOME:
                kept.append([[]])
            objects.settle()
            assert gc.get_count()[2] < SOME
        assert gc.get_freeze_count() - frozen > len(kept)
        before = gc.get_freeze_count()
        assert not given_back
        objects.settle()  # nothing has grown: what both times needed for a moment is given back
        assert gc.get_freeze_count() == before
        assert given_back == [True]
        while gc.get_count()[2] < MANY:
            kept.append([[]])
        objects.settle()  # many at once: they are taken out unsearched
        assert gc.get_freeze_count() - frozen > len(kept)
        assert given_back == [True]
        objects.settle()
        objects.settle()
        assert given_back == [True, True]
    finally:
        objects.close()
    assert gc.get_freeze_count() == 0
