"""From submission to the end, over real gRPC and a real database, with scripted nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from dlsched.protocol import leader
from dlsched.protocol.messages import ExitReason, ExitRecord, JobId, NodeName, Reply, RunId, Sync
from dlsched.rpc.v1 import control_pb2 as c
from dlsched.system.clock import boottime

from .cluster_of_tests import Caller, Running, eventually, job, settings_of
from .scripted_agent import ScriptedAgent

Scene = Callable[[Running, Caller, ScriptedAgent], Awaitable[None]]


def play(folder: Path, scene: Scene, gpus: int = 4, **sections: Any) -> None:
    async def whole() -> None:
        async with (
            Running(settings_of(folder, **sections)) as running,
            ScriptedAgent("n1", running.target, gpus=gpus) as agent,
        ):
            await eventually(lambda: running.daemon.cluster.agents.described)
            await eventually(lambda: running.daemon.driver.committed.nodes)
            await scene(running, running.caller(), agent)

    asyncio.run(whole())


async def reaches(caller: Caller, number: int, state: str) -> Any:
    async def there() -> Any:
        view = (await caller.show(number)).job
        return view if view.state == state else None

    return await eventually(there)


async def ends(agent: ScriptedAgent, number: int, **how: Any) -> None:
    """A job ends, as soon as its node has begun it."""
    await eventually(lambda: any(key.job == number for key in agent.running()))
    agent.end_job(number, **how)


async def refused(call: Awaitable[Any]) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await call
    return error.value.code(), error.value.details() or ""


def test_a_job_runs_and_ends_with_its_own_code(tmp_path: Path) -> None:
    async def scene(running: Running, caller: Caller, agent: ScriptedAgent) -> None:
        [number] = await caller.submit(job("python", "train.py", gpus=2, comment="hi"))
        await eventually(agent.running)
        await reaches(caller, number, "RUNNING")
        [spec] = agent.launched.values()
        assert (spec.user, spec.uid, list(spec.argv)) == ("ann", 1001, ["python", "train.py"])
        assert spec.output == f"dlsched-{number}.out"
        agent.end_job(number, code=7)
        view = await reaches(caller, number, "FAILED")
        assert (view.code, view.signal, list(view.nodes)) == (7, 0, ["n1"])
        detail = await caller.show(number)
        assert [run.code for run in detail.runs] == [7]
        assert [event.kind for event in detail.events][:2] == ["submit", "start"]

    play(tmp_path, scene)


def test_an_end_that_is_reported_again_later_leaves_the_job_as_it_was(tmp_path: Path) -> None:
    """The job has left memory; its node has not heard that the end is stored."""

    async def scene(running: Running, caller: Caller, agent: ScriptedAgent) -> None:
        driver = running.daemon.driver
        told_again: list[ExitRecord] = []
        acknowledged: list[RunId] = []
        hear = driver.hear

        async def kept(sync: Sync) -> Reply:
            if not told_again:
                return await hear(sync)
            reply = await hear(replace(sync, ended=tuple(told_again)))
            acknowledged.extend(reply.acknowledged)
            return reply

        driver.hear = kept  # type: ignore[method-assign]
        [number] = await caller.submit(job())
        await ends(agent, number, code=7)
        before = await reaches(caller, number, "FAILED")
        [run] = driver.committed.runs_of_job(JobId(number))
        driver.step(leader.ForgetAsked(boottime(), (JobId(number),)))
        driver.table.forget([JobId(number)])
        await eventually(lambda: JobId(number) not in driver.committed.jobs)
        told = run.members[NodeName("n1")].exit
        assert told is not None
        told_again.append(told)
        await eventually(lambda: run.key.run_id in acknowledged)
        assert JobId(number) in driver.committed.jobs
        view = (await caller.show(number)).job
        assert (view.starts, view.run_s) == (1, before.run_s)
        assert view.started_at == pytest.approx(before.started_at, abs=5.0)
        assert view.ended_at == pytest.approx(before.ended_at, abs=5.0)

    play(tmp_path, scene)


def test_the_same_request_id_is_the_same_job_and_other_content_is_a_conflict(
    tmp_path: Path,
) -> None:
    async def scene(running: Running, caller: Caller, agent: ScriptedAgent) -> None:
        first = await caller.submit(job("a"), job("b"), request_id="r")
        assert await caller.submit(job("a"), job("b"), request_id="r") == first
        for others in ([job("a"), job("c")], [job("a")], [job("a"), job("b"), job("c")]):
            code, said = await refused(caller.submit(*others, request_id="r"))
            assert code is grpc.StatusCode.ALREADY_EXISTS
            assert said.startswith(f"request id 'r' stands for job {first[0]}, submitted with")
        assert await running.caller("bob", 1002).submit(job("a"), request_id="r") != first[:1]

    play(tmp_path, scene, gpus=1)


def test_the_jobs_of_one_call_are_taken_all_or_none_in_one_transaction(tmp_path: Path) -> None:
    async def scene(running: Running, caller: Caller, agent: ScriptedAgent) -> None:
        driver = running.daemon.driver
        code, said = await refused(caller.submit(job("a"), job("b", gpus=99)))
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert said.startswith("job 2 of 2: needs 99 GPUs")
        assert not driver.committed.jobs
        before = driver.transactions
        ids = await caller.submit(*(job("x", held=True) for _ in range(300)))
        assert ids == list(range(1, 301))
        assert driver.transactions - before <= 2

    play(tmp_path, scene)


def test_show_of_an_array_comes_in_pages_of_few_reads(tmp_path: Path) -> None:
    """Each page reads the database as often as one job does, so that others are answered too."""

    async def scene(running: Running, caller: Caller, agent: ScriptedAgent) -> None:
        driver, control = running.daemon.driver, caller.control
        [first] = await caller.submit(job(array="0-249", held=True))
        await caller.act(c.ACTION_CANCEL, *range(first + 120, first + 130))
        reads: list[object] = []
        read = driver.read

        async def counted(call: Any) -> Any:
            reads.append(call)
            return await read(call)

        driver.read = counted  # type: ignore[method-assign]
        seen: list[int] = []
        for page, size in enumerate((100, 100, 50)):
            reads.clear()
            asked = c.ShowRequest(filter=c.Filter(jobs=[first]), skip=100 * page)
            reply = await control.Show(asked, timeout=60)
            assert (len(reply.jobs), reply.total) == (size, 250)
            assert len(reads) <= 3
            seen += [each.job.job for each in reply.jobs]
            assert all(each.events[0].kind == "submit" for each in reply.jobs[:1] if not page)
        assert sorted(seen) == list(range(first, first + 250))

    play(tmp_path, scene)


def test_a_held_job_waits_for_its_release(tmp_path: Path) -> None:
    async def scene(running: Running, caller: Caller, agent: ScriptedAgent) -> None:
        [number] = await caller.submit(job(held=True))
        detail = await caller.show(number)
        assert detail.job.held
        reply = await caller.act(c.ACTION_RELEASE, number)
        assert list(reply.done) == [str(number)]
        await reaches(caller, number, "RUNNING")

    play(tmp_path, scene)


def test_cancel_ends_pending_and_running_jobs_and_records_the_user(tmp_path: Path) -> None:
    async def scene(running: Running, caller: Caller, agent: ScriptedAgent) -> None:
        one, two = await caller.submit(job(gpus=4), job(gpus=4))
        await reaches(caller, one, "RUNNING")
        await caller.act(c.ACTION_CANCEL, one, two)
        for number in (one, two):
            assert (await reaches(caller, number, "CANCELLED")).cancelled_by == "ann"

    play(tmp_path, scene)


def test_only_the_owner_and_operators_may_change_a_job(tmp_path: Path) -> None:
    async def scene(running: Running, caller: Caller, agent: ScriptedAgent) -> None:
        [number] = await caller.submit(job(held=True))
        bob, root = running.caller("bob", 1002), running.caller("root", 0)
        for action in (c.ACTION_CANCEL, c.ACTION_HOLD, c.ACTION_RELEASE, c.ACTION_SUSPEND):
            [failure] = (await bob.act(action, number)).failed
            assert failure.why == "not yours (owner ann)"
        asked = c.LogsRequest(job=number, tail_lines=-1)
        code, _ = await refused(anext(aiter(bob.control.Logs(asked, timeout=60))))
        assert code in (grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.NOT_FOUND)
        assert (await bob.show(number)).request.argv == []
        assert list((await root.act(c.ACTION_CANCEL, number)).done) == [str(number)]

    play(tmp_path, scene)


def test_a_requeued_job_runs_again_uncharged(tmp_path: Path) -> None:
    async def scene(running: Running, caller: Caller, agent: ScriptedAgent) -> None:
        [number] = await caller.submit(job())
        await reaches(caller, number, "RUNNING")
        await caller.act(c.ACTION_REQUEUE, number)
        await eventually(lambda: [key.run for key in agent.running()] == [2])
        agent.end_job(number)
        view = await reaches(caller, number, "COMPLETED")
        assert (view.run, view.failures, view.preemptions, view.starts) == (2, 0, 0, 2)
        assert 0 < view.lost_s < view.run_s  # its first run saved nothing

    play(tmp_path, scene)


def test_a_user_suspends_resumes_signals_and_reads_the_output(tmp_path: Path) -> None:
    async def scene(running: Running, caller: Caller, agent: ScriptedAgent) -> None:
        [number] = await caller.submit(job())
        await reaches(caller, number, "RUNNING")
        await eventually(agent.running)
        await caller.act(c.ACTION_SIGNAL, number, signal=10)
        assert [number_ for _, number_ in agent.signals] == [10]
        asked = c.LogsRequest(job=number, tail_lines=-1)
        chunks = [chunk.data async for chunk in caller.control.Logs(asked, timeout=60)]
        assert chunks == [b"line\n"]
        await caller.act(c.ACTION_SUSPEND, number)
        await reaches(caller, number, "SUSPENDED")
        await eventually(lambda: not agent.running())
        await caller.act(c.ACTION_RESUME, number)
        await eventually(agent.running)
        await reaches(caller, number, "RUNNING")

    play(tmp_path, scene)


def test_a_suspended_job_whose_run_is_lost_is_released_not_resumed(tmp_path: Path) -> None:
    async def scene(running: Running, caller: Caller, agent: ScriptedAgent) -> None:
        [number] = await caller.submit(job())
        await reaches(caller, number, "RUNNING")
        [run] = await eventually(agent.running)
        await caller.act(c.ACTION_SUSPEND, number)
        await reaches(caller, number, "SUSPENDED")
        await eventually(lambda: not agent.running())
        agent.end(run.run_id, reason=ExitReason.NODE_LOST)
        await reaches(caller, number, "PENDING")
        [failure] = (await caller.act(c.ACTION_RESUME, number)).failed
        assert failure.why == f"it is pending, not suspended, and held: dlsched release {number}"
        await caller.act(c.ACTION_RELEASE, number)
        await eventually(agent.running)
        await reaches(caller, number, "RUNNING")

    play(tmp_path, scene)


def test_wait_reports_each_end(tmp_path: Path) -> None:
    async def scene(running: Running, caller: Caller, agent: ScriptedAgent) -> None:
        one, two = await caller.submit(job(), job())
        await eventually(lambda: len(agent.running()) == 2)
        call = caller.control.Wait(c.WaitRequest(filter=c.Filter(jobs=[one, two])), timeout=60)
        told = aiter(call)
        agent.end_job(two, code=3)
        first = (await anext(told)).job
        assert (first.job, first.state, first.code) == (two, "FAILED", 3)
        agent.end_job(one)
        assert (await anext(told)).job.state == "COMPLETED"
        code, said = await refused(
            anext(aiter(caller.control.Wait(c.WaitRequest(filter=c.Filter(jobs=[999])))))
        )
        assert (code, said) == (grpc.StatusCode.NOT_FOUND, "job 999: there is no such job")

    play(tmp_path, scene)


def test_dependencies_hold_release_and_cancel(tmp_path: Path) -> None:
    async def scene(running: Running, caller: Caller, agent: ScriptedAgent) -> None:
        [first] = await caller.submit(job(gpus=1))
        after = c.Dependency(kind="afterok", job=first)
        [good] = await caller.submit(job(gpus=1, dependencies=[after]))
        against = c.Dependency(kind="afternotok", job=first)
        [broken] = await caller.submit(job(gpus=1, dependencies=[against]))
        await eventually(lambda: first in [key.job for key in agent.running()])
        assert "Dependency" in (await caller.show(good)).job.reason
        agent.end_job(first)
        await reaches(caller, good, "RUNNING")
        view = await reaches(caller, broken, "CANCELLED")
        assert view.reason == "DependencyNeverSatisfied"
        unknown = c.Dependency(kind="after", job=4242)
        code, said = await refused(caller.submit(job(dependencies=[unknown])))
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert said == "dependency after:4242: there is no such job"

    play(tmp_path, scene)


def test_an_array_is_folded_limited_and_cancelled_as_one(tmp_path: Path) -> None:
    async def scene(running: Running, caller: Caller, agent: ScriptedAgent) -> None:
        [first] = await caller.submit(job(array="0-9%2"))
        await eventually(lambda: len(agent.running()) == 2)
        jobs, folded, summary = await caller.queue()
        assert [view.state for view in jobs] == ["RUNNING", "RUNNING"]
        assert [(line.tasks, line.count) for line in folded] == [("2-9%2", 8)]
        assert (summary.running, summary.pending) == (2, 8)
        unfolded, _, _ = await caller.queue(unfold=True)
        assert len(unfolded) == 10
        one = c.Filter(elements=[c.ArrayElements(array_job=first, tasks=[5])])
        reply = await caller.control.Act(c.ActRequest(action=c.ACTION_CANCEL, filter=one))
        assert list(reply.done) == [f"{first}_5"]
        reply = await caller.act(c.ACTION_CANCEL, first)
        assert len(reply.done) == 9
        await eventually(lambda: not agent.running())

    play(tmp_path, scene)


def test_update_prints_old_and_new_values_and_refuses_other_fields(tmp_path: Path) -> None:
    async def scene(running: Running, caller: Caller, agent: ScriptedAgent) -> None:
        [number] = await caller.submit(job(held=True, time_limit_s=60))

        async def update(**fields: str) -> Any:
            asked = c.UpdateRequest(filter=c.Filter(jobs=[number]), fields=fields)
            return await caller.control.Update(asked, timeout=60)

        reply = await update(time_limit_s="120", name="other")
        assert set(reply.lines) == {
            f"job {number}: time limit 1:00 -> 2:00", f"job {number}: name train -> other",
        }  # fmt: skip
        assert (await caller.show(number)).job.name == "other"
        assert (await refused(update(argv="x")))[0] is grpc.StatusCode.INVALID_ARGUMENT
        assert (await refused(update(time_limit_s="nan")))[0] is grpc.StatusCode.INVALID_ARGUMENT

    play(tmp_path, scene)


def test_a_drained_node_needs_a_reason_and_takes_no_new_runs(tmp_path: Path) -> None:
    async def scene(running: Running, caller: Caller, agent: ScriptedAgent) -> None:
        root = running.caller("root", 0)

        async def drain(reason: str, action: int = c.NODE_ACTION_DRAIN, **more: Any) -> Any:
            asked = c.SetNodesRequest(action=action, names=["n1"], reason=reason, **more)
            return await root.control.SetNodes(asked, timeout=60)

        [held] = await caller.submit(job(gpus=1))
        await eventually(lambda: held in [key.job for key in agent.running()])
        assert (await refused(drain("")))[1] == "drain: a reason is required"
        [line] = (await drain("bad NVLink")).lines
        assert f"job {held}" in line
        [number] = await caller.submit(job(gpus=1))
        [node] = (await caller.control.Nodes(c.NodesRequest(), timeout=60)).nodes
        assert (node.state, node.why, node.why_actor) == ("draining", "bad NVLink", "root")
        agent.end_job(held)
        await reaches(caller, held, "COMPLETED")
        assert await caller.state(number) == "PENDING"
        await drain("", c.NODE_ACTION_RESUME)
        await reaches(caller, number, "RUNNING")

    play(tmp_path, scene)


def test_history_lists_ended_jobs_and_usage_their_gpu_time(tmp_path: Path) -> None:
    async def scene(running: Running, caller: Caller, agent: ScriptedAgent) -> None:
        ids = await caller.submit(*(job(gpus=1) for _ in range(3)))
        await eventually(lambda: len(agent.running()) == 3)
        for number in ids:
            agent.end_job(number)
            await reaches(caller, number, "COMPLETED")
        pages = caller.control.History(c.HistoryRequest(filter=c.Filter()), timeout=60)
        found = [view async for page in pages for view in page.jobs]
        assert [view.job for view in found] == ids
        assert {view.state for view in found} == {"COMPLETED"}
        reply = await caller.control.Usage(c.UsageRequest(by_user=True), timeout=60)
        assert [each.name for each in reply.usage] == ["ann"]

    play(tmp_path, scene)


def test_a_gang_that_fails_on_one_node_starts_nowhere(tmp_path: Path) -> None:
    async def whole() -> None:
        async with (
            Running(settings_of(tmp_path)) as running,
            ScriptedAgent("n1", running.target) as one,
            ScriptedAgent("n2", running.target) as two,
        ):
            await eventually(lambda: len(running.daemon.driver.committed.nodes) == 2)
            caller = running.caller()
            one_job = job(nodes=2, gpus_per_node=4)
            two.refuse.add(1)  # type: ignore[arg-type]
            [number] = await caller.submit(one_job)
            await eventually(lambda: running.daemon.driver.table.of(number).job and two.launched)
            await reaches(caller, number, "PENDING")
            assert not one.executed
            two.refuse.clear()
            await eventually(lambda: one.running() and two.running())
            assert [key.run for key in one.running()] == [key.run for key in two.running()]

    asyncio.run(whole())


def test_an_idle_daemon_hardly_writes(tmp_path: Path) -> None:
    async def scene(running: Running, caller: Caller, agent: ScriptedAgent) -> None:
        [number] = await caller.submit(job())
        await reaches(caller, number, "RUNNING")
        driver, rounds = running.daemon.driver, running.daemon.rounds
        quiet = agent.state.sequence + 4  # the first full round is over by then
        await eventually(lambda: rounds._full_at > 0 and agent.state.sequence >= quiet)
        await eventually(lambda: driver.state.in_flight is None)
        before, syncs = driver.transactions, agent.state.sequence
        await eventually(lambda: agent.state.sequence >= syncs + 4)
        assert driver.transactions == before  # heartbeats never write

    play(tmp_path, scene)
