"""Wall clocks that jump and rounds that take long change no job."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dlsched.daemon import cluster as cluster_module
from dlsched.daemon.daemon import Daemon
from dlsched.daemon.leader_driver import LeaderDriver
from dlsched.protocol.messages import JobId
from dlsched.rpc.v1 import control_pb2 as c
from dlsched.system import clock

from .cluster_of_tests import Caller, Running, eventually, job, settings_of
from .scripted_agent import ScriptedAgent

pytestmark = pytest.mark.slow


SetClock = Callable[[float], None]


@pytest.fixture
def set_clock(monkeypatch: pytest.MonkeyPatch) -> SetClock:
    """Sets the wall clock some seconds forward, or back."""
    offset = [0.0]
    shifted = SimpleNamespace(
        time=lambda: time.time() + offset[0],
        clock_gettime=time.clock_gettime,
        CLOCK_BOOTTIME=time.CLOCK_BOOTTIME,
    )
    monkeypatch.setattr(clock, "time", shifted)

    def set_it(by_s: float) -> None:
        offset[0] = by_s

    return set_it


@pytest.mark.parametrize("jump_s", [3600.0, -3600.0])
def test_a_jump_of_the_wall_clock_ends_and_starts_nothing(
    tmp_path: Path, set_clock: SetClock, jump_s: float
) -> None:
    """Row C14: limits, windows and begin times go by a clock that does not jump."""

    async def scene() -> None:
        async with (
            Running(settings_of(tmp_path, round={"interval_s": 0.5})) as running,
            ScriptedAgent("n1", running.target) as agent,
        ):
            caller, cluster = running.caller(), running.daemon.cluster
            [first] = await caller.submit(job(time_limit_s=600))
            [later] = await caller.submit(job(begin_at=clock.wall() + 1800))
            await eventually(agent.running)
            set_clock(jump_s)
            rounds = cluster.round_state.number
            [second] = await caller.submit(job(gpus=1))
            await eventually(lambda: len(agent.running()) == 2)
            await eventually(lambda: cluster.round_state.number > rounds + 3)
            view = (await caller.show(first)).job
            assert (view.state, view.starts) == ("RUNNING", 1)
            assert view.run_s < 60
            assert (await caller.show(later)).job.reason == "BeginTime"
            assert cluster.node_state("n1") in ("mixed", "full")
            for number in (first, second):
                agent.end_job(number)

                async def over(number: int = number) -> bool:
                    return await caller.state(number) == "COMPLETED"

                await eventually(over)

    asyncio.run(scene())


@pytest.mark.parametrize("jump_s", [3600.0, -3600.0])
def test_jobs_that_run_while_the_clock_is_set_tell_how_long_they_took(
    tmp_path: Path, set_clock: SetClock, jump_s: float
) -> None:
    """Row C14: the times of a live job move with the clock, in memory and in the database."""

    async def scene() -> None:
        async with (
            Running(settings_of(tmp_path)) as running,
            ScriptedAgent("n1", running.target) as agent,
        ):
            caller, table = running.caller(), running.daemon.driver.table
            over, held = await caller.submit(job(held=True), job(held=True))
            await caller.act(c.ACTION_CANCEL, over)
            [runs] = await caller.submit(job(time_limit_s=600))
            await eventually(agent.running)
            before = (await caller.show(over)).job
            set_clock(jump_s)
            await eventually(lambda: table.of(JobId(runs)).moved_s)
            live = (await caller.show(runs)).job
            assert abs(live.submitted_at - clock.wall()) < 120
            assert abs(live.started_at - clock.wall()) < 120
            agent.end_job(runs)
            await caller.act(c.ACTION_CANCEL, held)

            async def has_ended() -> bool:
                return await caller.state(runs) == "COMPLETED"

            await eventually(has_ended)
            asked = c.HistoryRequest(filter=c.Filter())
            found = {
                view.job: view
                async for page in caller.control.History(asked, timeout=60)
                for view in page.jobs
            }
            for number in (runs, held):
                view = found[number]
                assert 0 <= view.ended_at - view.submitted_at < 120
            assert 0 <= found[runs].first_started_at - found[runs].submitted_at < 120
            assert found[over].submitted_at == before.submitted_at  # it had ended

    asyncio.run(scene())


@pytest.mark.parametrize("jump_s", [3600.0, -3600.0])
def test_what_happens_before_a_jump_is_noticed_does_not_move_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, set_clock: SetClock, jump_s: float
) -> None:
    """Row C14: its times are of the new clock already."""
    notice = LeaderDriver._follow_wall_clock

    async def scene() -> None:
        async with (
            Running(settings_of(tmp_path)) as running,
            ScriptedAgent("n1", running.target) as agent,
        ):
            caller, driver = running.caller(), running.daemon.driver
            [before] = await caller.submit(job(gpus=1))
            await eventually(lambda: len(agent.running()) == 1)
            monkeypatch.setattr(LeaderDriver, "_follow_wall_clock", lambda driver: None)
            notice(driver)
            set_clock(jump_s)
            [after] = await caller.submit(job(gpus=1))
            await eventually(lambda: len(agent.running()) == 2)
            notice(driver)
            await eventually(lambda: driver.table.of(JobId(before)).moved_s)
            for number in (before, after):
                live = (await caller.show(number)).job
                assert abs(live.submitted_at - clock.wall()) < 60, number
                assert abs(live.started_at - clock.wall()) < 60, number
                agent.end_job(number)

            async def are_over() -> bool:
                return {await caller.state(each) for each in (before, after)} == {"COMPLETED"}

            await eventually(are_over)
            asked = c.HistoryRequest(filter=c.Filter())
            async for page in caller.control.History(asked, timeout=60):
                for view in page.jobs:
                    assert 0 <= view.ended_at - view.first_started_at < 60, view.job
                    assert 0 <= view.first_started_at - view.submitted_at < 60, view.job

    asyncio.run(scene())


def test_a_daemon_that_takes_over_applies_no_jump_of_the_time_in_which_it_did_not_lead(
    tmp_path: Path, set_clock: SetClock
) -> None:
    """Row C14: the leader of that time has moved the jobs already."""

    async def ticks_twice(driver: LeaderDriver) -> None:
        for _ in range(2):
            before = driver.state.last_tick
            await eventually(lambda before=before: driver.state.last_tick != before)

    async def scene() -> None:
        settings = settings_of(tmp_path)
        second = Daemon(settings, insecure_loopback=True)
        async with Running(settings) as first:
            [waits] = await first.caller().submit(job(held=True))
            await second.start()
            try:
                assert not second.driver.leading
                set_clock(3600.0)
                table = first.daemon.driver.table
                await eventually(lambda: table.of(JobId(waits)).moved_s)
                await ticks_twice(second.driver)
                await first.daemon.stop()
                await eventually(lambda: second.driver.leading)
                await ticks_twice(second.driver)
                assert not second.driver.table.of(JobId(waits)).moved_s
                caller = Caller(f"127.0.0.1:{second.ports[0]}")
                view = (await caller.show(waits)).job
                assert abs(view.submitted_at - clock.wall()) < 120
                await caller.close()
            finally:
                await second.stop()

    asyncio.run(scene())


def test_a_new_leader_calls_no_node_late_before_its_first_window_has_passed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row A10: while no daemon led, no node could be heard."""
    offset = [0.0]
    monkeypatch.setattr(cluster_module, "boottime", lambda: clock.boottime() + offset[0])

    async def scene() -> None:
        settings = settings_of(tmp_path)
        async with Running(settings) as running, ScriptedAgent("n1", running.target):
            await eventually(lambda: "n1" in running.daemon.cluster.driver.committed.nodes)
        async with Running(settings) as running:
            caller, window_s = running.caller(), running.daemon.driver.state.timing.window_s
            seen = []
            for offset[0] in (0.0, window_s - 20.0, window_s):
                [node] = (await caller.control.Nodes(c.NodesRequest(), timeout=60)).nodes
                told = await caller.control.Status(c.StatusRequest(), timeout=60)
                counts = (told.nodes_up, told.nodes_unheard, told.nodes_late)
                seen.append((node.state, node.why, counts, list(told.problems)))
            awaited = ("unheard", "not heard by this leader yet", (0, 1, 0), [])
            late = ("late", "not heard by this leader yet", (0, 0, 1), ["nodes late: n1"])
            assert seen == [awaited, awaited, late]
            offset[0] = 0.0
            async with ScriptedAgent("n1", running.target):
                await eventually(lambda: running.daemon.cluster.node_state("n1") == "idle")

    asyncio.run(scene())


def test_a_round_longer_than_every_window_loses_no_run(tmp_path: Path) -> None:
    """Row A17: nodes are heard and answered while a policy computes; the status tells of it."""

    async def scene() -> None:
        async with (
            Running(settings_of(tmp_path, round={"interval_s": 0.5})) as running,
            ScriptedAgent("n1", running.target) as agent,
        ):
            caller, cluster = running.caller(), running.daemon.cluster
            worker = running.daemon.rounds._worker
            [first] = await caller.submit(job())
            await eventually(agent.running)
            decide, asked, go_on = worker.decide, asyncio.Event(), asyncio.Event()

            async def slowly(snapshot: Any) -> Any:
                asked.set()
                await go_on.wait()
                go_on.clear()
                return await decide(snapshot)

            worker.decide = slowly  # type: ignore[method-assign]
            [second] = await caller.submit(job())
            await asked.wait()
            timing = cluster.driver.state.timing
            heard, epoch = cluster.driver.state.last_syncs, cluster.driver.state.epoch
            beats = heard["n1"].sequence
            long = time.monotonic() + 2 * timing.witness_beats * timing.beat_s
            await eventually(lambda: time.monotonic() > long)
            assert cluster.driver.state.last_syncs["n1"].sequence > beats
            assert cluster.node_state("n1") in ("mixed", "full")
            assert cluster.driver.state.epoch == epoch
            assert [key.job for key in agent.running()] == [first]
            go_on.set()
            await eventually(lambda: "a round took" in running.daemon.rounds.slow)
            told = await caller.control.Status(c.StatusRequest(), timeout=60)
            assert any("a round took" in problem for problem in told.problems)
            worker.decide = decide  # type: ignore[method-assign]
            go_on.set()
            await eventually(lambda: len(agent.running()) == 2)
            assert await caller.state(second) == "RUNNING"

    asyncio.run(scene())
