"""Jobs that are changed after they were accepted, and ends that no user asked for."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import grpc
import pytest

from dlsched.protocol import messages as m
from dlsched.rpc.v1 import control_pb2 as c

from .cluster_of_tests import Caller, Running, eventually, job, settings_of
from .scripted_agent import ScriptedAgent
from .test_daily import play, reaches, refused

pytestmark = pytest.mark.slow


async def update(caller: Caller, number: int, *after: c.Dependency, **fields: str) -> Any:
    asked = c.UpdateRequest(
        filter=c.Filter(jobs=[number]), fields=fields, set_dependencies=bool(after),
        dependencies=after,
    )  # fmt: skip
    return await caller.control.Update(asked, timeout=60)


def test_a_changed_time_limit_holds_for_the_present_run(tmp_path: Path) -> None:
    async def scene(running: Running, caller: Caller, agent: ScriptedAgent) -> None:
        [number] = await caller.submit(job(time_limit_s=600, retries=1))
        await eventually(agent.running)
        reply = await update(caller, number, time_limit_s="1200", grace_s="7", retries="3")
        assert set(reply.lines) == {
            f"job {number}: time limit 10:00 -> 20:00",
            f"job {number}: grace 0:30 -> 0:07",
            f"job {number}: retries 1 -> 3",
        }
        [key] = agent.running()

        def adopted() -> bool:
            desired = agent.keepers[key.run_id].desired
            return (desired.limits.time_s, desired.grace_s) == (1200.0, 7.0)

        await eventually(adopted)
        assert [each.run for each in agent.executed] == [1]  # nothing was started anew
        detail = await caller.show(number)
        assert (detail.job.time_limit_s, detail.request.retries) == (1200.0, 3)
        code, _ = await refused(update(caller, number, grace_s="1e9"))
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        [failure] = (await update(caller, number, grace_s="3600")).failed
        assert failure.why == "grace_s: 3600 is not within 0 and 600"

    play(tmp_path, scene)


def test_dependencies_can_be_changed_and_never_form_a_circle(tmp_path: Path) -> None:
    async def scene(running: Running, caller: Caller, agent: ScriptedAgent) -> None:
        first, second, third = await caller.submit(*(job(held=True) for _ in range(3)))
        after = c.Dependency(kind="afterok", job=first)
        [line] = (await update(caller, second, after)).lines
        assert line == f"job {second}: dependencies none -> afterok:{first}"
        assert [d.job for d in (await caller.show(second)).job.dependencies] == [first]
        await update(caller, third, c.Dependency(kind="afterany", job=second))
        [failure] = (await update(caller, first, c.Dependency(kind="after", job=third))).failed
        assert failure.why == f"it would wait for itself, through job {third}"
        await caller.act(c.ACTION_RELEASE, second)
        await eventually(lambda: "Dependency" in running.daemon.cluster.live.reason(second))
        asked = c.UpdateRequest(filter=c.Filter(jobs=[second]), set_dependencies=True)
        [line] = (await caller.control.Update(asked, timeout=60)).lines
        assert line == f"job {second}: dependencies afterok:{first} -> none"
        await reaches(caller, second, "RUNNING")

    play(tmp_path, scene)


def test_an_arrays_limit_can_be_raised_and_lowered(tmp_path: Path) -> None:
    async def scene(running: Running, caller: Caller, agent: ScriptedAgent) -> None:
        [first] = await caller.submit(job(array="0-5%1", gpus=1))
        await eventually(lambda: len(agent.running()) == 1)
        one = c.Filter(elements=[c.ArrayElements(array_job=first, tasks=[4])])
        asked = c.UpdateRequest(filter=one, fields={"array_limit": "3"})
        assert list((await caller.control.Update(asked, timeout=60)).lines) == [
            f"job {first}_4: array limit 1 -> 3"
        ]
        await eventually(lambda: len(agent.running()) == 3)
        _, folded, _ = await caller.queue()
        assert [line.tasks for line in folded] == ["3-5%3"]
        [plain] = await caller.submit(job(held=True))
        [failure] = (await update(caller, plain, array_limit="2")).failed
        assert failure.why == "it is no element of an array"

    play(tmp_path, scene)


def test_updates_survive_a_restart(tmp_path: Path) -> None:
    async def whole() -> None:
        settings = settings_of(tmp_path)
        async with (
            Running(settings) as running,
            ScriptedAgent("n1", running.target, gpus=1) as agent,
        ):
            caller = running.caller()
            await eventually(lambda: running.daemon.driver.committed.nodes)
            [held] = await caller.submit(job(held=True, time_limit_s=60))
            [first] = await caller.submit(job(array="0-3%1", held=True))
            [busy] = await caller.submit(job())
            await eventually(agent.running)
            await update(caller, held, time_limit_s="90", retries="2")
            await update(caller, held, c.Dependency(kind="afterok", job=busy))
            await update(caller, first, array_limit="2")
            root = running.caller("root", 0)
            drain = c.SetNodesRequest(
                action=c.NODE_ACTION_DRAIN, names=["n1"], reason="fan", by_at=time.time() + 5000
            )
            await root.control.SetNodes(drain, timeout=60)
        async with Running(settings) as running:
            caller, cluster = running.caller(), running.daemon.cluster
            detail = await caller.show(held)
            assert (detail.job.time_limit_s, detail.request.retries) == (90.0, 2)
            assert [d.job for d in detail.job.dependencies] == [busy]
            _, folded, _ = await caller.queue()
            assert [line.tasks for line in folded] == ["0-3%2"]
            assert cluster.drained["n1"].by_at == drain.by_at  # type: ignore[index]

    asyncio.run(whole())


def test_a_drain_with_a_time_takes_running_jobs_back_at_that_time(tmp_path: Path) -> None:
    async def scene(running: Running, caller: Caller, agent: ScriptedAgent) -> None:
        [number] = await caller.submit(job(no_requeue=True))
        await eventually(agent.running)
        drain = c.SetNodesRequest(
            action=c.NODE_ACTION_DRAIN, names=["n1"], reason="fan", by_at=time.time() + 0.5
        )
        await running.caller("root", 0).control.SetNodes(drain, timeout=60)
        assert agent.running()
        view = await reaches(caller, number, "PREEMPTED")  # it must not begin anew
        assert (view.preemptions, view.reason) == (0, "Preempted")

    play(tmp_path, scene)


def test_a_job_that_must_not_begin_anew_ends_with_its_node(tmp_path: Path) -> None:
    async def scene(running: Running, caller: Caller, agent: ScriptedAgent) -> None:
        once, again = await caller.submit(job(no_requeue=True), job())
        await eventually(lambda: len(agent.running()) == 2)
        agent.obeys = False
        operator = running.caller("root", 0).control
        down = c.SetNodesRequest(action=c.NODE_ACTION_DOWN_CONFIRMED, names=["n1"])
        reply = await operator.SetNodes(down, timeout=60)
        assert not reply.done
        assert "its agent was heard" in reply.failed[0].why
        await agent.stop()

        async def is_taken() -> bool:
            return bool((await operator.SetNodes(down, timeout=60)).done)

        await eventually(is_taken)
        view = await reaches(caller, once, "NODE_FAIL")
        assert view.reason == "NodeFail(n1: lost confirmed down)"
        detail = await caller.show(again)
        assert detail.job.state == "PENDING"
        assert "after its last run: n1: lost confirmed down" in detail.why_pending
        await agent.start()

    play(tmp_path, scene)


def test_a_gpu_that_fails_is_not_the_jobs_failure(tmp_path: Path) -> None:
    async def scene(running: Running, caller: Caller, agent: ScriptedAgent) -> None:
        [number] = await caller.submit(job(gpus=4, no_requeue=True))
        await eventually(agent.running)
        from dlsched.protocol.agent import HealthChanged  # noqa: PLC0415

        agent.take(HealthChanged(time.monotonic(), agent.gpus[1:2]))
        [key] = agent.running()
        agent.end(key.run_id, reason=m.ExitReason.SIGNALLED, signal=6)
        view = await reaches(caller, number, "GPU_FAIL")
        assert (view.failures, view.signal) == (0, 6)
        assert view.reason == "GpuFail(n1: unhealthy GPU-n1-1)"

    play(tmp_path, scene)


def test_a_deadline_cancels_waiting_and_running_jobs(tmp_path: Path) -> None:
    async def scene(running: Running, caller: Caller, agent: ScriptedAgent) -> None:
        numbers = await caller.submit(job(gpus=4), job(gpus=4))
        await eventually(agent.running)
        code, said = await refused(update(caller, numbers[0], deadline_at="978307200"))
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert "deadline: it has passed already" in said
        for number in numbers:
            reply = await update(caller, number, deadline_at=str(time.time() + 1))
            assert reply.lines[0].startswith(f"job {number}: deadline none -> 20")
        for number in numbers:
            view = await reaches(caller, number, "DEADLINE")
            assert (view.reason, view.cancelled_by) == ("Deadline", "daemon")
        pages = caller.control.History(c.HistoryRequest(filter=c.Filter()), timeout=60)
        found = [view async for page in pages for view in page.jobs]
        assert {view.state for view in found} == {"DEADLINE"}

    play(tmp_path, scene)


def test_a_repeated_submission_gets_the_same_jobs_at_any_time(tmp_path: Path) -> None:
    """The answer was lost: live or ended, remembered or not, it is answered as the first time."""

    async def whole() -> None:
        settings = settings_of(tmp_path)
        wanted = job("a", environment=[c.EnvironmentVariable(name="A", value="1")])
        async with (
            Running(settings) as running,
            ScriptedAgent("n1", running.target) as agent,
        ):
            await eventually(lambda: running.daemon.driver.committed.nodes)
            caller = running.caller()
            ids = await caller.submit(wanted, wanted, request_id="r")
            await eventually(lambda: len(agent.running()) == 2)
            assert await caller.submit(wanted, wanted, request_id="r") == ids  # they run
            await update(caller, ids[0], name="other", time_limit_s="99")
            assert await caller.submit(wanted, wanted, request_id="r") == ids  # one was changed
            agent.end_job(ids[0])
            await reaches(caller, ids[0], "COMPLETED")
            assert await caller.submit(wanted, wanted, request_id="r") == ids  # one has ended
        async with Running(settings) as running:  # memory holds the live one only
            caller = running.caller()
            assert await caller.submit(wanted, wanted, request_id="r") == ids
            code, _ = await refused(caller.submit(wanted, job("b"), request_id="r"))
            assert code is grpc.StatusCode.ALREADY_EXISTS
            assert len(running.daemon.driver.committed.jobs) == 1

    asyncio.run(whole())


def test_a_user_who_submits_too_often_learns_when_to_try_again(tmp_path: Path) -> None:
    async def scene(running: Running, caller: Caller, agent: ScriptedAgent) -> None:
        for _ in range(3):
            await caller.submit(job(held=True))
        code, said = await refused(caller.submit(job(held=True)))
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert said.startswith("ann submits more than 0.01 times a second: send many jobs in one")
        assert await running.caller("bob", 1002).submit(job(held=True))

    play(tmp_path, scene, limits={"submits_per_s": 0.01, "submit_burst": 3})


def test_a_node_that_reports_impossible_numbers_is_refused_without_harm(tmp_path: Path) -> None:
    async def scene(running: Running, caller: Caller, agent: ScriptedAgent) -> None:
        from dlsched.rpc.conversion import to_wire  # noqa: PLC0415

        ledger = running.daemon.driver.committed
        most = m.Term(m.Epoch((1 << 63) - 1), m.Revision((1 << 63) - 1))
        key = m.RunKey(m.JobId((1 << 63) - 1), m.RunNumber(1), m.RunId("x"))
        ghost = m.HeldRun(key=key, phase=m.Phase.RUNNING, gpus=(), nodes=(agent.name,))
        plain = m.Sync(
            node=agent.name, boot_id=m.BootId("boot-1"),
            incarnation=agent.state.record.incarnation, sequence=10**6, last=m.Term(),
            applied=m.Term(), held_digest=m.Digest("h"), held=(),
        )  # fmt: skip
        from dataclasses import replace  # noqa: PLC0415

        for sync in (
            replace(plain, last=most),
            replace(plain, applied=replace(most, epoch=m.Epoch(1))),
            replace(plain, sequence=1 << 62),
            replace(plain, held=(ghost,)),
        ):
            code, said = await refused(agent.leader.Sync(to_wire(sync), timeout=60))
            assert (code, "n1" in said) == (grpc.StatusCode.INVALID_ARGUMENT, True)
        assert running.daemon.driver.committed.epoch == ledger.epoch
        [number] = await caller.submit(job())
        await reaches(caller, number, "RUNNING")
        assert number == 1

    play(tmp_path, scene)


def test_a_job_with_gpus_of_several_types_keeps_them(tmp_path: Path) -> None:
    async def scene(running: Running, caller: Caller, agent: ScriptedAgent) -> None:
        types = "a100:2,v100:2"
        asked = job(nodes=1, gpus_per_node=4, gpus_by_type=types, held=True, open_ended=True)
        [number] = await caller.submit(asked)
        for fields in ({"gpu_types": "v100"}, {"constraint": "v100"}):
            [failed] = (await update(caller, number, **fields)).failed
            assert failed.why == f"it has {types} on each node; the types cannot be changed"
        assert not (await update(caller, number, priority="-7")).failed

    play(tmp_path, scene)
