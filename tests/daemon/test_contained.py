"""Failures outside the daemon do not harm it: policies, the database, a second daemon."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest

from dlsched.core.errors import PolicyFailed
from dlsched.db.errors import StoreUnavailable
from dlsched.rpc.v1 import control_pb2 as c

from .cluster_of_tests import Running, eventually, job, settings_of
from .scripted_agent import ScriptedAgent


async def status(caller: Any) -> Any:
    return await caller.control.Status(c.StatusRequest(), timeout=60)


def test_a_failing_policy_changes_no_job_and_turns_the_status_red(tmp_path: Path) -> None:
    """Row A7."""

    async def scene() -> None:
        async with (
            Running(settings_of(tmp_path, round={"red_after": 2})) as running,
            ScriptedAgent("n1", running.target) as agent,
        ):
            caller, rounds = running.caller(), running.daemon.rounds
            [first] = await caller.submit(job(gpus=1))
            await eventually(agent.running)
            good = rounds._worker.decide

            async def raises(snapshot: Any) -> Any:
                raise PolicyFailed("policy broken: job 7: it was given GPUs twice")

            rounds._worker.decide = raises
            [second] = await caller.submit(job(gpus=1))
            await eventually(lambda: rounds.failures >= 2)
            told = await status(caller)
            assert told.health == "red"
            assert "policy broken: job 7" in told.problems[0]
            assert [key.job for key in agent.running()] == [first]
            rounds._worker.decide = good
            rounds.policy_switched()
            await eventually(lambda: len(agent.running()) == 2)
            assert (await status(caller)).health == "green"
            assert await caller.state(second) == "RUNNING"

    asyncio.run(scene())


def test_a_policy_is_tried_before_it_is_switched(tmp_path: Path) -> None:
    async def scene() -> None:
        async with Running(settings_of(tmp_path)) as running:
            root, ann = running.caller("root", 0), running.caller()

            async def switch(caller: Any, name: str, *options: str) -> Any:
                asked = c.SetPolicyRequest(parts={"scheduling": name}, options=options)
                return await caller.control.SetPolicy(asked, timeout=60)

            for caller, name, options in (
                (root, "no-such", ()), (root, "las", ("no_such_option=1",)), (ann, "las", ()),
            ):  # fmt: skip
                with pytest.raises(grpc.aio.AioRpcError):
                    await switch(caller, name, *options)
                assert (await status(ann)).policy == "fifo"
            await switch(root, "las")
            assert (await status(ann)).policy == "las"
        async with Running(settings_of(tmp_path)) as running:
            assert (await status(running.caller())).policy == "las"  # it was durable

    asyncio.run(scene())


def test_without_a_database_submissions_are_refused_and_jobs_run_on(tmp_path: Path) -> None:
    """Row B4."""

    async def scene() -> None:
        async with (
            Running(settings_of(tmp_path)) as running,
            ScriptedAgent("n1", running.target) as agent,
        ):
            caller, store = running.caller(), running.daemon.driver.store
            [first] = await caller.submit(job())
            await eventually(agent.running)
            persist, confirm = store.persist, store.confirm

            def full(*_: Any) -> Any:
                raise StoreUnavailable("database or disk is full")

            store.persist, store.confirm = full, full
            for _ in range(2):
                with pytest.raises(grpc.aio.AioRpcError) as error:
                    await caller.submit(job(held=True), request_id="again")
                assert error.value.code() is grpc.StatusCode.UNAVAILABLE
                assert "cannot store: database or disk is full" in (error.value.details() or "")
            told = await status(caller)
            assert told.health == "red"
            assert agent.running()
            store.persist, store.confirm = persist, confirm

            async def back() -> bool:
                return (await status(caller)).health == "green"

            await eventually(back)
            again = await caller.submit(job(held=True), request_id="again")
            assert again == await caller.submit(job(held=True), request_id="again")
            jobs, _, _ = await caller.queue()
            assert sorted(view.job for view in jobs) == [first, *again]

    asyncio.run(scene())


def test_of_two_daemons_one_leads_and_the_other_takes_over(tmp_path: Path) -> None:
    """Row A9."""

    async def scene() -> None:
        from dlsched.daemon.daemon import Daemon  # noqa: PLC0415

        settings = settings_of(tmp_path)
        second = Daemon(settings, insecure_loopback=True)
        async with Running(settings) as first:
            await first.caller().submit(job(held=True))
            await second.start()
            try:
                await eventually(second.driver.settled.is_set) if second.driver.leading else None
                assert not second.driver.leading
                target = Running.__new__(Running)
                target.target, target._callers = f"127.0.0.1:{second.ports[0]}", []
                other = target.caller()
                with pytest.raises(grpc.aio.AioRpcError) as error:
                    await other.submit(job())
                assert error.value.code() is grpc.StatusCode.UNAVAILABLE
                told = await status(other)
                leads = first.daemon.driver
                assert (told.standby, told.leader) == (True, leads.name)
                assert told.epoch == leads.state.epoch
                assert not (await status(first.caller())).standby
                await first.daemon.stop()
                await eventually(lambda: second.driver.leading)
                jobs, _, _ = await other.queue()
                assert [view.job for view in jobs] == [1]
                await other.close()
            finally:
                await second.stop()

    asyncio.run(scene())


def test_ended_jobs_leave_memory_and_are_still_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row A16: what has ended is in the database only, and a repeated request still finds it."""
    monkeypatch.setattr("dlsched.daemon.leader_driver.REMEMBERED_S", 0.0)

    async def scene() -> None:
        async with (
            Running(settings_of(tmp_path)) as running,
            ScriptedAgent("n1", running.target) as agent,
        ):
            caller, driver = running.caller(), running.daemon.driver
            [number] = await caller.submit(job(), request_id="r")
            await eventually(agent.running)
            agent.end_job(number, code=3)
            await eventually(lambda: number not in driver.committed.jobs)
            assert not driver.committed.runs
            assert number not in driver.table.facts
            detail = await caller.show(number)
            assert (detail.job.state, detail.job.code) == ("FAILED", 3)
            assert await caller.submit(job(), request_id="r") == [number]
            [failure] = (await caller.act(c.ACTION_CANCEL, number)).failed
            assert failure.why == "it has ended already"

    asyncio.run(scene())


@pytest.mark.slow
def test_ten_thousand_submissions_in_one_call(tmp_path: Path) -> None:
    async def scene() -> None:
        async with Running(settings_of(tmp_path)) as running:
            caller, driver = running.caller(), running.daemon.driver
            before = driver.transactions
            ids = await caller.submit(*(job(held=True) for _ in range(10_000)))
            assert ids == list(range(1, 10_001))
            assert driver.transactions - before <= 2
            [first] = await caller.submit(job(held=True, array="0-9999"))
            assert first == 10_001
            jobs, folded, _ = await caller.queue()
            assert (len(jobs), folded[0].count) == (10_000, 10_000)

    asyncio.run(scene())


def test_changes_during_a_round_are_seen_by_the_next_round(tmp_path: Path) -> None:
    """A decision of an older snapshot must not mark a newer submission as seen."""

    async def scene() -> None:
        async with (
            Running(settings_of(tmp_path)) as running,
            ScriptedAgent("n1", running.target) as agent,
        ):
            caller, worker = running.caller(), running.daemon.rounds._worker
            await eventually(lambda: running.daemon.driver.committed.nodes)
            await eventually(lambda: running.daemon.rounds._full_at > 0)
            decide, asked, go_on = worker.decide, asyncio.Event(), asyncio.Event()

            async def slowly(snapshot: Any) -> Any:
                decided = await decide(snapshot)
                asked.set()
                await go_on.wait()
                return decided

            worker.decide = slowly  # type: ignore[method-assign]
            [first] = await caller.submit(job(gpus=1))
            await asked.wait()
            [second] = await caller.submit(job(gpus=1))
            go_on.set()
            await eventually(lambda: {key.job for key in agent.running()} == {first, second})

    asyncio.run(scene())
