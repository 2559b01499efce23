"""Jobs of one call that wait for each other: ids, refusals, repeated calls, ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
import pytest

from dlsched.rpc.v1 import control_pb2 as c

from .cluster_of_tests import Caller, Running, eventually, job
from .scripted_agent import ScriptedAgent
from .test_bounded_work import forgotten
from .test_daily import play, refused


def waits(*places: int, kind: str = "afterok") -> list[c.Dependency]:
    return [c.Dependency(kind=kind, in_call=place) for place in places]


async def awaited(caller: Caller, number: int) -> list[tuple[str, int]]:
    detail = await caller.show(number)
    return [(each.kind, each.job) for each in detail.job.dependencies]


def test_jobs_of_a_call_wait_for_each_other_by_their_ids(tmp_path: Path) -> None:
    async def scene(running: Running, caller: Caller, agent: ScriptedAgent) -> None:
        [old] = await caller.submit(job(held=True))
        both = [*waits(1), c.Dependency(kind="afterany", job=old), *waits(2, kind="afterany")]
        wanted = [job("a"), job("s", array="0-2", held=True), job("z", dependencies=both)]
        found = await caller.submit(*wanted, request_id="graph")
        first, array, last = found
        assert (array - first, last - array) == (1, 3)  # three elements
        needs = [("afterok", first), ("afterany", old), ("afterany", array)]
        assert await awaited(caller, last) == needs
        for number in (first, array, array + 2, old):
            assert list((await caller.show(number)).awaited_by) == [last]
        # the same call again has the same jobs, also when they have left memory
        assert await caller.submit(*wanted, request_id="graph") == found
        assert await awaited(caller, last) == needs
        other = [*wanted[:2], job("z", dependencies=both[:2])]
        code, _ = await refused(caller.submit(*other, request_id="graph"))
        assert code is grpc.StatusCode.ALREADY_EXISTS
        await forgotten(running, caller, first, *range(array, last + 1))
        assert await caller.submit(*wanted, request_id="graph") == found
        code, _ = await refused(caller.submit(*other, request_id="graph"))
        assert code is grpc.StatusCode.ALREADY_EXISTS

    play(tmp_path, scene)


def test_another_submission_may_come_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ids that the call was prepared with are taken meanwhile; its jobs get others."""

    async def scene(running: Running, caller: Caller, agent: ScriptedAgent) -> None:
        driver = running.daemon.driver
        ask, taken = driver.ask, list[int]()

        async def behind_another(event: Any) -> Any:
            monkeypatch.setattr(driver, "ask", ask)
            taken.extend(await caller.submit(job("other", held=True)))
            return await ask(event)

        expected = driver.reserved.next_job
        monkeypatch.setattr(driver, "ask", behind_another)
        a, b = await caller.submit(job("a", held=True), job("b", dependencies=waits(1)))
        assert (taken, a) == ([expected], expected + 1)
        assert await awaited(caller, b) == [("afterok", a)]
        assert (await caller.show(b)).job.reason == f"Dependency: afterok:{a}"

    play(tmp_path, scene)


def test_what_cannot_be_is_refused_and_nothing_is_left(tmp_path: Path) -> None:
    async def scene(running: Running, caller: Caller, agent: ScriptedAgent) -> None:
        before = running.daemon.driver.committed.next_job
        named = c.Dependency(kind="afterok", in_call=1, job=7)
        element = c.Dependency(kind="afterok", in_call=1, task=0)
        for wanted, why in (
            ([job(), job(dependencies=waits(2))], "job 2 of 2: dependency on job 2 of the call"),
            ([job(dependencies=waits(2)), job()], "job 1 of 2: dependency on job 2 of the call"),
            ([job(), job(dependencies=waits(-1))], "job 2 of 2: dependency on job -1 of the call"),
            ([job(), job(dependencies=[named])], "job 2 of 2: dependency: a job of the same call"),
            ([job(), job(dependencies=[element])], "job 2 of 2: dependency: a job of the same"),
            ([job(array="0-1999"), job(dependencies=waits(1))], "2001 jobs in one call, at most"),
        ):
            _, said = await refused(caller.submit(*wanted))
            assert said.startswith(why)
        [there] = await caller.submit(job(held=True))
        assert there == before
        asked = c.UpdateRequest(
            filter=c.Filter(jobs=[there]), set_dependencies=True, dependencies=waits(1)
        )
        _, said = await refused(caller.control.Update(asked, timeout=60))
        assert said.startswith("dependency: a job of the same call is named by its place there")

    play(tmp_path, scene)


def test_a_test_says_what_waits_and_submits_nothing(tmp_path: Path) -> None:
    async def scene(running: Running, caller: Caller, agent: ScriptedAgent) -> None:
        asked = c.SubmitRequest(jobs=[job(), job(dependencies=waits(1))], test_only=True)
        reply = await caller.control.Submit(asked, timeout=60)
        assert reply.supposed[1].basis == "not predicted while it waits: Dependency"
        assert not reply.jobs
        assert not running.daemon.driver.committed.jobs
        await eventually(lambda: not agent.running())

    play(tmp_path, scene)
