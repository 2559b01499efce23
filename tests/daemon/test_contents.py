"""Scripts and environments stay in the database; launches read those of a round together."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from pathlib import Path

import pytest

from dlsched.daemon import contents, leader_service
from dlsched.daemon.rpc_errors import NotPossible
from dlsched.daemon.writer import TermBegun
from dlsched.db.errors import StoreUnavailable
from dlsched.protocol.messages import JobId
from dlsched.rpc.v1 import control_pb2 as c
from dlsched.rpc.v1.run_pb2 import RunKey
from tests.daemon.cluster_of_tests import Caller, Running, eventually, job, settings_of
from tests.daemon.scripted_agent import ScriptedAgent

LONG = 10_000  # bytes of a script
KEPT = 300_000


def scripted(number: int, size: int = 20, **fields: object) -> c.JobRequest:
    script = f"#!/bin/sh\n# {number}\n".encode().ljust(size, b"x")
    secret = c.EnvironmentVariable(name="TOKEN", value=f"{number}".rjust(size // 10, "t"))
    return c.JobRequest(name="train", script=script, environment=[secret], **fields)  # type: ignore[arg-type]


async def submit(caller: Caller, count: int, size: int) -> None:
    for first in range(0, count, 100):
        await caller.submit(*(scripted(first + k, size, held=True) for k in range(100)))


def traced() -> int:
    """The bytes of this process, its client and database included."""
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def largest() -> tuple[str, int]:
    """The source file with the most bytes, and how many."""
    gc.collect()
    most = tracemalloc.take_snapshot().statistics("filename")[0]
    return str(most.traceback), most.size


@pytest.mark.slow
@pytest.mark.parametrize("count", [500, pytest.param(10_000, marks=pytest.mark.exhaustive)])
def test_waiting_jobs_with_long_scripts_take_no_more_memory_than_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    monkeypatch.setattr(contents, "KEPT_BYTES", KEPT)

    async def whole() -> None:
        limits = {"submits_per_s": 1e6, "submit_burst": 1_000_000}
        async with Running(settings_of(tmp_path, limits=limits)) as running:
            caller, kept = running.caller(), running.daemon.cluster.contents
            await submit(caller, 100, LONG)  # what is made once
            begin = traced()
            await submit(caller, count, 20)
            short, most = traced() - begin, count * LONG / 5
            assert kept.kept_bytes <= KEPT
            begin = traced()
            await submit(caller, count, LONG)
            # what was on its way to the database when it was answered goes a moment later
            await eventually(lambda: traced() - begin - short < most)
            assert KEPT / 2 - LONG < kept.kept_bytes <= KEPT
        async with Running(settings_of(tmp_path)) as running:  # as after a fail-over
            assert running.daemon.cluster.contents.kept_bytes == 0
            assert len(running.daemon.driver.committed.jobs) == 2 * count + 100
            limit, seen = (2 * count + 100) * LONG / 4, [largest()]
            while seen[-1][1] >= limit and len(seen) < 30:  # what a start needs goes after it
                await asyncio.sleep(1.0)
                seen.append(largest())
            assert seen[-1][1] < limit, seen

    tracemalloc.start()
    try:
        asyncio.run(whole())
    finally:
        tracemalloc.stop()


def test_a_round_reads_what_its_jobs_execute_with_one_query(tmp_path: Path) -> None:
    async def whole() -> None:
        async with Running(settings_of(tmp_path)) as running:
            caller = running.caller()
            ids = await caller.submit(*(scripted(k, held=True) for k in range(6)))
            [array] = await caller.submit(job("train", "{x}", script=b"#!/bin/sh\n", held=True))
            kept = running.daemon.cluster.contents
            assert (kept.queries, kept.kept_bytes > 0) == (0, True)
        async with Running(settings_of(tmp_path)) as running:
            kept, caller = running.daemon.cluster.contents, running.caller()
            async with (
                ScriptedAgent("n1", running.target) as one,
                ScriptedAgent("n2", running.target) as two,
            ):
                driver = running.daemon.driver
                await eventually(lambda: len(driver.committed.nodes) == 2)
                await caller.act(c.ACTION_RELEASE, *ids, array)
                launched = one.launched, two.launched
                await eventually(lambda: sum(map(len, launched)) == len(ids) + 1)
                found = {spec.key.job: spec for each in launched for spec in each.values()}
                for k, number in enumerate(ids):
                    wanted = scripted(k)
                    assert found[number].script == wanted.script
                    assert {v.name: v.value for v in found[number].environment}["TOKEN"] == (
                        wanted.environment[0].value
                    )
                assert kept.queries == 1
                # a job that starts at once is not read again
                [now] = await caller.submit(scripted(7))
                await eventually(lambda: sum(map(len, launched)) == len(ids) + 2)
                assert kept.queries == 1
                assert (await caller.show(now)).request.script == scripted(7).script
                other = running.caller("bob", 1002)
                assert (await other.show(now)).request.script == b""

    asyncio.run(whole())


def test_one_call_says_how_to_launch_several_runs_as_far_as_they_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def whole() -> None:
        async with (
            Running(settings_of(tmp_path)) as running,
            ScriptedAgent("n1", running.target) as agent,
        ):
            caller = running.caller()
            ids = await caller.submit(*(scripted(k) for k in range(3)))
            await eventually(lambda: len(agent.launched) == len(ids))
            keys = {spec.key.job: spec.key for spec in agent.launched.values()}
            first, second, third = (keys[number] for number in ids)
            unknown = RunKey(job=ids[0], run=1, run_id="unknown")
            asked = c.LaunchRequest(node="n1", key=first, more=[unknown, second, third])
            found = await agent.runs.Launch(asked, timeout=5)
            assert (found.key, found.script) == (first, scripted(0).script)
            assert [(spec.key, spec.script) for spec in found.more] == [
                (second, scripted(1).script),
                (third, scripted(2).script),
            ]
            monkeypatch.setattr(leader_service, "LAUNCHED_BYTES", found.more[0].ByteSize())
            fewer = await agent.runs.Launch(asked, timeout=5)
            assert [spec.key for spec in fewer.more] == [second]

    asyncio.run(whole())


def test_what_is_kept_is_bounded_and_what_was_let_go_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contents, "KEPT_BYTES", KEPT)

    async def whole() -> None:
        async with Running(settings_of(tmp_path)) as running:
            caller, kept = running.caller(), running.daemon.cluster.contents
            ids = await caller.submit(*(scripted(k, LONG, held=True) for k in range(60)))
            found = await asyncio.gather(*(kept.of(JobId(k)) for k in [*ids, *ids]))
            scripts = [scripted(k, LONG).script for k in range(60)]
            assert [each.script for each in found] == scripts * 2
            assert kept.kept_bytes <= KEPT
            assert kept.queries <= 2  # what is asked while one is on its way is the next one
            await caller.act(c.ACTION_CANCEL, *ids)
            assert kept.kept_bytes == 0  # with its secrets

    asyncio.run(whole())


def test_a_new_term_reads_again_what_another_leader_may_have_changed(tmp_path: Path) -> None:
    async def whole() -> None:
        async with Running(settings_of(tmp_path)) as running:
            [number] = await running.caller().submit(scripted(1, held=True))
            kept, driver = running.daemon.cluster.contents, running.daemon.driver
            await kept.of(JobId(number))
            assert kept.queries == 0
            loaded = await driver.read(driver.store.load)
            kept.term_began(TermBegun(asked_at=0.0, loaded=loaded, ended={}, learn_from=()))
            assert kept.kept_bytes == 0
            assert (await kept.of(JobId(number))).script == scripted(1).script
            assert kept.queries == 1

    asyncio.run(whole())


def test_what_cannot_be_read_now_is_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def whole() -> None:
        async with Running(settings_of(tmp_path)) as running:
            [number] = await running.caller().submit(scripted(1, held=True))
        async with Running(settings_of(tmp_path)) as running:
            kept, store = running.daemon.cluster.contents, running.daemon.driver.store

            def away(jobs: object) -> object:
                raise StoreUnavailable("cannot read: away")

            with monkeypatch.context() as patched:
                patched.setattr(store, "contents", away)
                with pytest.raises(StoreUnavailable, match="cannot read: away"):
                    await kept.of(JobId(number))  # a node asks again
            assert (await kept.of(JobId(number))).script == scripted(1).script
            with pytest.raises(NotPossible, match="not known"):
                await kept.of(JobId(number + 1))

    asyncio.run(whole())
