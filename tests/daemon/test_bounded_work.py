"""What one call may cause is bounded: statements, comparisons, elements; nothing is done twice."""

from __future__ import annotations

import asyncio
import getpass
import os
import pwd
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from sqlalchemy import event

from dlsched.daemon import turns
from dlsched.daemon.control import tokens
from dlsched.daemon.control.job_filters import chosen_ids
from dlsched.daemon.control.submission.quotas import JobQuotas
from dlsched.daemon.enforcing.enforcement import AT_ONCE
from dlsched.daemon.round.snapshot_builder import take_snapshot
from dlsched.daemon.rpc_errors import TooMuch
from dlsched.db.reading.filters import ArrayElements, Filter
from dlsched.jobs.task_sets import read_tasks
from dlsched.protocol import leader
from dlsched.protocol.messages import JobId
from dlsched.rpc import request_bounds
from dlsched.rpc.v1 import control_pb2 as c
from dlsched.system.clock import boottime
from tests.counting import python_calls

from .cluster_of_tests import Caller, Running, eventually, job, settings_of

Scene = Callable[[Running, Caller], Awaitable[None]]


def play(folder: Path, scene: Scene) -> None:
    async def whole() -> None:
        async with Running(settings_of(folder)) as running:
            await scene(running, running.caller())

    asyncio.run(whole())


@contextmanager
def statements(running: Running) -> Iterator[list[str]]:
    """The statements that read jobs meanwhile."""
    engine, seen = running.daemon.driver.store.engine, []

    def note(_connection: Any, _cursor: Any, text: str, *_rest: Any) -> None:
        if "FROM jobs" in text:
            seen.append(text)

    event.listen(engine, "before_cursor_execute", note)
    try:
        yield seen
    finally:
        event.remove(engine, "before_cursor_execute", note)


async def refused(call: Awaitable[Any]) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await call
    return error.value.code(), error.value.details() or ""


async def forgotten(running: Running, caller: Caller, *jobs: int) -> None:
    """End some jobs, and have them leave memory as they do after a while."""
    driver = running.daemon.driver
    await caller.act(c.ACTION_CANCEL, *jobs)
    ended = [job for job, row in driver.committed.jobs.items() if row.status.is_terminal]
    driver.step(leader.ForgetAsked(boottime(), tuple(ended)))
    driver.table.forget(ended)
    await eventually(lambda: not any(JobId(job) in driver.committed.jobs for job in ended))


def test_many_ids_that_are_not_in_memory_cost_a_few_statements(tmp_path: Path) -> None:
    async def scene(running: Running, caller: Caller) -> None:
        [gone] = await caller.submit(job(held=True))
        [array] = await caller.submit(job(held=True, array="0-3"))
        await forgotten(running, caller, gone, array)
        unknown = range(100_000, 102_000)
        with statements(running) as seen:
            reply = await caller.act(c.ACTION_CANCEL, gone, array, *unknown)
        assert [(each.subject, each.why) for each in reply.failed[:3]] == [
            (f"job {gone}", "it has ended already"),
            (f"job {array}", "it has ended already"),
            ("job 100000", "there is no such job"),
        ]
        assert len(reply.failed) == 2_002
        assert len(seen) == 1

        wanted = c.Filter(jobs=[gone, *unknown])
        elements = c.ArrayElements(array_job=array, tasks=[1, 7])
        for call in (
            lambda: caller.control.Show(c.ShowRequest(filter=wanted), timeout=60),
            lambda: caller.control.Wait(c.WaitRequest(filter=wanted), timeout=60).read(),
        ):
            with statements(running) as seen:
                code, why = await refused(call())  # type: ignore[no-untyped-call]
            assert (code, why) == (
                grpc.StatusCode.NOT_FOUND,
                "job 100000: there is no such job",
            )
            assert len(seen) < 10
        reply = await caller.control.Act(
            c.ActRequest(action=c.ACTION_CANCEL, filter=c.Filter(elements=[elements])), timeout=20
        )
        assert {(each.subject, each.why) for each in reply.failed} == {
            (f"job {array}_1", "it has ended already"),
            (f"job {array}_7", "there is no such job"),
        }

    play(tmp_path, scene)


def test_history_of_many_ids_is_one_statement_a_page(tmp_path: Path) -> None:
    async def scene(running: Running, caller: Caller) -> None:
        [gone] = await caller.submit(job(held=True))
        [array] = await caller.submit(job(held=True, array="0-3"))
        await forgotten(running, caller, gone, array)
        ids = [gone, *range(100_000, 109_990), array]
        asked = c.HistoryRequest(filter=c.Filter(jobs=ids))
        with statements(running) as seen:
            pages = [page async for page in caller.control.History(asked, timeout=60)]
        assert sorted(j.job for page in pages for j in page.jobs) == [
            gone,
            *range(array, array + 4),
        ]
        assert len(seen) < 10
        asked.filter.jobs.extend(range(20))
        code, why = await refused(caller.control.History(asked, timeout=60).read())
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert why == "Filter.jobs: more than 10000 in one call"
        store = running.daemon.driver.store
        some = tuple(ArrayElements(array_job=JobId(k), tasks=(1, 2)) for k in range(1_000, 1_500))
        assert store.named(Filter(elements=some)) == []

    play(tmp_path, scene)


def test_an_ended_array_that_is_named_often_is_looked_up_once(tmp_path: Path) -> None:
    async def scene(running: Running, caller: Caller) -> None:
        [array] = await caller.submit(job(held=True, array="0-49"))
        cluster = running.daemon.cluster
        for gone in (False, True):
            calls = [
                python_calls(
                    lambda n=n: chosen_ids(cluster, c.Filter(jobs=[array] * n))  # type: ignore[misc]
                )
                for n in (1, 10_000)
            ]
            assert calls[0] == calls[1] < 1_000
            if not gone:  # its first element leaves memory before the others
                await forgotten(running, caller, array, array + 1)
        table = cluster.driver.table
        assert table.elements(JobId(array)) == []
        assert list(chosen_ids(cluster, c.Filter(jobs=[array, array])).missing) == [
            (str(array), array)
        ]

    play(tmp_path, scene)


def test_an_array_whose_first_element_has_left_memory_is_found_by_its_others(
    tmp_path: Path,
) -> None:
    async def scene(running: Running, caller: Caller) -> None:
        [array] = await caller.submit(job(held=True, array="0-9"))
        first = c.ArrayElements(array_job=array, tasks=[0])
        await caller.control.Act(
            c.ActRequest(action=c.ACTION_CANCEL, filter=c.Filter(elements=[first])), timeout=10
        )
        driver = running.daemon.driver
        driver.step(leader.ForgetAsked(boottime(), (JobId(array),)))
        driver.table.forget([JobId(array)])
        rows = chosen_ids(running.daemon.cluster, c.Filter(jobs=[array])).rows
        assert sorted(rows) == list(range(array + 1, array + 10))

    play(tmp_path, scene)


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        ({"names": ["a" * 300]}, "name: longer than 256 bytes"),
        ({"names": ["*a" * 9]}, "name '*a*a*a*a*a*a*a*a*a': more than 8 stars"),
        ({"names": ["x"] * 21}, "Filter.names: more than 20 in one call"),
        ({"users": ["a\nb"]}, "user: has the character \\n, which is not allowed"),
    ],
)
def test_patterns_are_bounded_in_every_call_with_a_filter(
    tmp_path: Path, wanted: dict[str, Any], why: str
) -> None:
    async def scene(running: Running, caller: Caller) -> None:
        found, control = c.Filter(**wanted), caller.control
        for call in (
            control.Show(c.ShowRequest(filter=found), timeout=60),
            control.Act(c.ActRequest(action=c.ACTION_CANCEL, filter=found), timeout=60),
            control.Update(c.UpdateRequest(filter=found), timeout=60),
            control.Checkpoints(c.CheckpointsRequest(filter=found), timeout=60),
            control.Queue(c.QueueRequest(filter=found), timeout=60).read(),
            control.History(c.HistoryRequest(filter=found), timeout=60).read(),
            control.Wait(c.WaitRequest(filter=found), timeout=60).read(),
        ):
            assert await refused(call) == (grpc.StatusCode.INVALID_ARGUMENT, why)

    play(tmp_path, scene)


def test_what_the_jobs_of_a_call_ask_for_together_is_bounded(tmp_path: Path) -> None:
    environment = [c.EnvironmentVariable(name=f"V{k}", value="x" * 1000) for k in range(1000)]

    async def scene(running: Running, caller: Caller) -> None:
        async def why(*jobs: c.JobRequest, **more: Any) -> str:
            asked = c.SubmitRequest(jobs=jobs, **more)
            return (await refused(caller.control.Submit(asked, timeout=60)))[1]

        wide = {"nodes": 10_000, "open_ended": True}
        assert await why(job(nodes=10_001, open_ended=True)) == "nodes: 10001, at most 10000"
        text = "more than 200000 nodes in one call, counted for each element"
        assert await why(job(array="0-20", **wide)) == text
        assert text in await why(*[job(**wide)] * 21)
        many = await why(*[job(open_ended=True, not_nodes=map(str, range(5_001)))] * 20)
        assert many == "JobRequest.not_nodes: more than 100000 in one call"
        text = f"more than {request_bounds.ENVIRONMENT_BYTES} bytes of environments in one call"
        assert text in await why(*[job()] * 300, environment=environment)
        before = running.daemon.driver.committed.next_job
        ids = await caller.submit(*[job(held=True)] * 40, environment=environment)
        specs = [running.daemon.driver.committed.jobs[JobId(k)].request.spec for k in ids]
        assert len({id(spec.body.seal) for spec in specs}) == 1  # type: ignore[attr-defined]
        assert ids[0] == before

    play(tmp_path, scene)


def test_a_user_makes_so_many_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is a record that stays, and that lists have."""
    monkeypatch.setattr(tokens, "MADE_BY_ONE", 3)
    me = getpass.getuser()
    if not os.getuid():  # root gets no token
        me = next(each.pw_name for each in pwd.getpwall() if each.pw_uid not in {0, 65534})

    async def scene(running: Running, caller: Caller) -> None:
        own, root = running.caller(me, 1000), running.caller("root", 0)
        asked = c.CreateTokenRequest(user=me, lifetime_s=1e-6)
        for _ in range(3):
            await own.control.CreateToken(asked, timeout=60)
        code, why = await refused(own.control.CreateToken(asked, timeout=60))
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert why == f"{me} has made 3 tokens in 30 days, at most 3"
        await root.control.CreateToken(asked, timeout=60)

    play(tmp_path, scene)


def test_an_update_tells_the_begin_of_a_long_value(tmp_path: Path) -> None:
    """It is told for each of many jobs, and kept in full."""

    async def scene(running: Running, caller: Caller) -> None:
        [number] = await caller.submit(job(held=True))
        mine, long = c.Filter(jobs=[number]), "x" * 4000
        for _ in range(2):
            asked = c.UpdateRequest(filter=mine, fields={"comment": long})
            [line] = (await caller.control.Update(asked, timeout=60)).lines
        kept = "x" * 197 + "..."
        assert line == f"job {number}: comment {kept} -> {kept}"
        assert running.daemon.cluster.live.requests.specs[number].body.comment == long
        asked = c.UpdateRequest(filter=mine, fields={"only_nodes": "n1,n1,n2,n1"})
        settings = running.daemon.cluster.settings
        assert not settings.nodes, "no node is known, so any name may be said"
        [line] = (await caller.control.Update(asked, timeout=60)).lines
        assert line == f"job {number}: only nodes none -> n1,n2"

    play(tmp_path, scene)


def test_further_columns_of_live_jobs_are_bounded(tmp_path: Path) -> None:
    """Each round has a column of all jobs for each name."""

    def named(*numbers: int) -> c.JobRequest:
        return job(held=True, extra={f"c{k}": "1" for k in numbers})

    async def scene(running: Running, caller: Caller) -> None:
        async def why(user: Caller, *jobs: c.JobRequest) -> str:
            asked = c.SubmitRequest(jobs=jobs)
            return (await refused(user.control.Submit(asked, timeout=60)))[1]

        most, other = request_bounds.COLUMNS_OF_ONE, running.caller("bob", 1002)
        state = running.daemon.cluster.round_state
        first, *_ = await caller.submit(*[named(*range(most))] * 3)
        bound = f"would have {most + 1} further columns, at most {most}"
        assert await why(caller, named(0, most)) == f"the live jobs of ann {bound}"
        each = [named(k, k + 1) for k in range(most)]
        assert await why(other, *each) == f"the live jobs of bob {bound}"
        await other.submit(named(most))
        columns = take_snapshot(state, "full", 1.0).table.extra
        assert sum(name.startswith("c") for name in columns) == most + 1
        many = [job(held=True, array="0-1999", extra={f"c{k}": "1" for k in range(most)})]
        bound = "values in further columns, at most 100000"
        assert await why(caller, *many) == f"the live jobs of ann would have 128192 {bound}"
        await caller.act(c.ACTION_CANCEL, *range(first, first + 3))
        await caller.submit(named(most, most + 1))
        columns = take_snapshot(state, "full", 1.0).table.extra
        assert sorted(n for n in columns if n.startswith("c")) == ["c64", "c65"]

    play(tmp_path, scene)


def test_dependencies_of_a_call_are_looked_up_together(tmp_path: Path) -> None:
    async def scene(running: Running, caller: Caller) -> None:
        gone = await caller.submit(*[job(held=True)] * 30)
        await forgotten(running, caller, *gone)
        needs = [c.Dependency(kind="afterany", job=each) for each in gone]
        with statements(running) as seen:
            await caller.submit(*[job(held=True, dependencies=needs)] * 10)
        assert len(seen) < 10
        needs = [c.Dependency(kind="afterok", job=99_999)]
        asked = c.SubmitRequest(jobs=[job(), job(dependencies=needs)])
        why = (await refused(caller.control.Submit(asked, timeout=60)))[1]
        assert why == "dependency afterok:99999: there is no such job"

    play(tmp_path, scene)


def test_an_array_is_entered_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(running: Running, caller: Caller) -> None:
        driver, most = running.daemon.driver, 0
        step = driver.step

        def counted(asked: leader.Event) -> None:
            nonlocal most
            most = max(most, python_calls(lambda: step(asked)))

        monkeypatch.setattr(driver, "step", counted)
        found = []
        for size in (200, 2_000):
            most = 0
            await caller.submit(job(array=f"0-{size - 1}", held=True))
            found.append(most)
        assert (found[1] - found[0]) / 1_800 < 30

    play(tmp_path, scene)


def test_jobs_that_depend_on_a_cancelled_one_end_in_many_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(running: Running, caller: Caller) -> None:
        driver, most = running.daemon.driver, 0
        [first] = await caller.submit(job(held=True))
        needs = [c.Dependency(kind="afterok", job=first)]
        count = 3 * AT_ONCE + 1
        await caller.submit(job(array=f"0-{count - 1}", dependencies=needs))
        step = driver.step

        def counted(asked: leader.Event) -> None:
            nonlocal most
            if isinstance(asked, leader.Together):
                most = max(most, sum(isinstance(e, leader.CancelAsked) for e in asked.events))
            step(asked)

        monkeypatch.setattr(driver, "step", counted)
        await caller.act(c.ACTION_CANCEL, first)

        async def are_gone() -> bool:
            return not any((await caller.queue())[:2])

        await eventually(are_gone)
        assert most == AT_ONCE

    play(tmp_path, scene)


def test_sums_over_all_jobs_let_others_in_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(running: Running, caller: Caller) -> None:
        await caller.submit(job(array="0-299", held=True))
        monkeypatch.setattr(turns, "TURN_S", -1.0)
        given = 0
        sleep = asyncio.sleep

        async def counted(seconds: float) -> None:
            nonlocal given
            given += seconds == 0
            await sleep(seconds)

        for call in (
            lambda: caller.control.Usage(c.UsageRequest(by_user=True), timeout=60),
            lambda: caller.control.Tenants(c.TenantsRequest(), timeout=60),
        ):
            given = 0
            monkeypatch.setattr(asyncio, "sleep", counted)
            await call()  # type: ignore[no-untyped-call]
            monkeypatch.setattr(asyncio, "sleep", sleep)
            assert given >= 300

    play(tmp_path, scene)


def test_live_jobs_are_counted_without_a_look_at_each(tmp_path: Path) -> None:
    async def scene(running: Running, caller: Caller) -> None:
        requests = running.daemon.cluster.live.requests
        await caller.submit(job(array="0-299", held=True))
        first, *_ = await caller.submit(job(), job())
        bob = running.caller("bob", 1002)
        await bob.submit(job())
        await caller.act(c.ACTION_CANCEL, first)
        assert requests.live_jobs() == {("ann", "", "", ""): 301, ("bob", "", "", ""): 1}
        assert python_calls(requests.live_jobs) < 200
        assert requests.live_job_in("user", "bob") == first + 2
        assert requests.live_job_in("vc", "none") is None
        limit = c.TenantQuota(kind="user", name="ann", jobs=302)
        operator = running.caller("root", 0).control
        await operator.SetTenant(
            c.SetTenantRequest(create=True, tenant=c.Tenant(quota=limit), fields=["jobs"])
        )
        quotas = JobQuotas(running.daemon.cluster)
        assert python_calls(lambda: quotas.check({("ann", "", ""): 1})) < 300
        with pytest.raises(TooMuch, match="user ann has 301 live jobs, at most 302"):
            quotas.check({("ann", "", ""): 2})

    play(tmp_path, scene)


def test_scripts_and_environments_of_live_jobs_are_bounded_by_user(tmp_path: Path) -> None:
    async def whole() -> None:
        async with Running(
            settings_of(tmp_path, limits={"bytes_per_user": 10_000, "bytes": 12_000})
        ) as running:
            ann, bob = running.caller(), running.caller("bob", 1002)
            large = job(script=b"#!/bin/sh\n".ljust(3_990), held=True)
            first, *_ = await ann.submit(
                large, job(held=True, array="0-99", script=b"#!".ljust(3_000))
            )
            code, why = await refused(ann.submit(large))
            assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert "the live jobs of ann would have 111" in why  # an array's script counts once
            await bob.submit(large)
            await ann.act(c.ACTION_CANCEL, first)
            await ann.submit(large)
            more = [c.EnvironmentVariable(name=f"V{k}", value="x" * 100) for k in range(40)]
            code, why = await refused(bob.submit(job(environment=more)))
            assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
            code, why = await refused(running.caller("eve", 1003).submit(large))
            assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert "the live jobs of all users would have 1" in why
            wide = job(nodes=700, open_ended=True, held=True)
            code, why = await refused(running.caller("joe", 1004).submit(wide))
            assert code is grpc.StatusCode.RESOURCE_EXHAUSTED

    asyncio.run(whole())


@pytest.mark.parametrize(
    "text", ["1," * 3_000_000, "0-9999," * 14_000, ",".join(["0-99"] * 101), "0-10000"]
)
def test_an_array_text_costs_no_more_than_its_elements(text: str) -> None:
    def parse() -> None:
        with pytest.raises(ValueError, match=r"more than 10000 elements"):
            read_tasks(text, 10_000)

    assert python_calls(parse) < 100_000
