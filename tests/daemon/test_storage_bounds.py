"""What one user may have stored is bounded, and ends are stored when nothing new is taken."""

from __future__ import annotations

import asyncio
import errno
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from dlsched.db.retention import JobsRemoved, LinesRemoved
from dlsched.db.stored_bytes import ROW_BYTES
from dlsched.protocol.messages import JobId
from dlsched.rpc.v1 import control_pb2 as c
from dlsched.system.clock import wall

from .cluster_of_tests import Caller, Running, eventually, job, settings_of

MIB = 1 << 20


def large(number: int, size: int = 3 * MIB) -> c.JobRequest:
    """A job with a script of its own."""
    return c.JobRequest(name="large", script=b"#!/bin/sh\n# %9d" % number * (size // 20), held=True)


async def refused(asked: Any) -> str:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await asked
    assert raised.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    return str(raised.value.details())


async def submit_and_cancel(caller: Caller, request: c.JobRequest) -> int:
    [number] = await caller.submit(request)
    await caller.act(c.ACTION_CANCEL, number)
    return number


def test_a_user_s_jobs_are_bounded_in_bytes_when_they_have_ended_too(tmp_path: Path) -> None:
    async def scene() -> None:
        limits = {"stored_bytes_per_user": 8 * MIB}
        async with Running(settings_of(tmp_path, limits=limits)) as running:
            bob, ann = running.caller("bob", 1002), running.caller("ann", 1001)
            driver = running.daemon.driver
            numbers = [await submit_and_cancel(bob, large(k)) for k in range(2)]
            said = await refused(bob.submit(large(2)))
            assert said.startswith("the jobs of bob would take ")
            assert f"at most {8 * MIB:,} bytes" in said
            assert len(await bob.submit(job(held=True))) == 1  # a small one has room
            assert len(await ann.submit(large(2))) == 1
            await driver.attach(JobsRemoved(jobs=tuple(map(JobId, numbers))))
            assert driver.store.stored_bytes("bob") < MIB

            async def again() -> Any:
                try:
                    return await bob.submit(large(2))
                except grpc.aio.AioRpcError:
                    return None

            await eventually(again)

    asyncio.run(scene())


def test_the_same_script_is_stored_once_and_counts_once(tmp_path: Path) -> None:
    async def scene() -> None:
        limits = {"stored_bytes_per_user": 8 * MIB}
        async with Running(settings_of(tmp_path, limits=limits)) as running:
            bob, store = running.caller("bob", 1002), running.daemon.driver.store
            for _ in range(2):
                await submit_and_cancel(bob, large(1))
            script = len(large(1).script)
            assert script < store.stored_bytes("bob") < script + 2 * (ROW_BYTES + 2000)

    asyncio.run(scene())


def test_a_user_submits_so_many_bytes_an_hour(tmp_path: Path) -> None:
    async def scene() -> None:
        limits = {"submitted_bytes_per_hour": 8 * MIB}
        async with Running(settings_of(tmp_path, limits=limits)) as running:
            bob, ann = running.caller("bob", 1002), running.caller("ann", 1001)
            for _ in range(2):
                await submit_and_cancel(bob, large(1))  # the same one: it is sent all the same
            said = await refused(bob.submit(large(1)))
            assert said.startswith(f"bob submits more than {8 * MIB:,} bytes an hour")
            assert "again in " in said
            assert len(await bob.submit(job(held=True))) == 1
            assert len(await ann.submit(large(2))) == 1

    asyncio.run(scene())


WORDS = "again and again " * 30


async def hold_and_release(caller: Caller, number: int) -> None:
    for action in (c.ACTION_HOLD, c.ACTION_RELEASE):
        assert (await caller.act(action, number, reason=WORDS)).done


async def release(caller: Caller, number: int) -> None:
    await caller.act(c.ACTION_RELEASE, number)


async def update(caller: Caller, number: int) -> None:
    request = c.UpdateRequest(filter=c.Filter(jobs=[number]), fields={"comment": WORDS[:99]})
    assert (await caller.control.Update(request, timeout=60)).done


async def requeue_and_cancel(caller: Caller, number: int) -> None:
    for action in (c.ACTION_CANCEL, c.ACTION_REQUEUE):
        await caller.act(action, number)


@pytest.mark.parametrize("do", [hold_and_release, release, update, requeue_and_cancel])
@pytest.mark.parametrize("bound", ["stored_bytes_per_user", "submitted_bytes_per_hour"])
def test_what_a_user_does_again_and_again_counts_for_this_user(
    tmp_path: Path, bound: str, do: Callable[[Caller, int], Awaitable[None]]
) -> None:
    async def scene() -> None:
        most = 40 * ROW_BYTES
        async with Running(settings_of(tmp_path, limits={bound: most})) as running:
            bob, ann = running.caller("bob", 1002), running.caller("ann", 1001)
            store = running.daemon.driver.store
            [mine] = await bob.submit(job(held=do is not hold_and_release))
            [other] = await ann.submit(job(held=True))
            times = [0]

            async def without_end() -> None:
                while times[0] < 1000:
                    await do(bob, mine)
                    times[0] += 1

            assert f"{most:,} bytes" in await refused(without_end())
            assert 10 < times[0] < 300
            assert store.stored_bytes("bob") > most // 2
            assert store.stored_bytes("ann") < 2 * ROW_BYTES
            await update(ann, other)
            await bob.act(c.ACTION_CANCEL, mine)  # always possible
            await running.daemon.driver.attach(JobsRemoved(jobs=(JobId(mine),)))
            assert store.stored_bytes("bob") == 0

    asyncio.run(scene())


def test_a_short_disk_keeps_no_user_from_releasing_or_ending_a_job(tmp_path: Path) -> None:
    async def scene() -> None:
        async with Running(settings_of(tmp_path)) as running:
            bob, driver = running.caller("bob", 1002), running.daemon.driver
            [mine] = await bob.submit(job(held=True))
            driver.store.disk_room = lambda: (1000, 100 << 30)  # type: ignore[method-assign]
            for action in (c.ACTION_RELEASE, c.ACTION_CANCEL):
                assert not (await bob.act(action, mine)).failed
            await refused(bob.submit(job()))

    asyncio.run(scene())


def test_old_events_that_leave_count_no_more(tmp_path: Path) -> None:
    async def scene() -> None:
        async with Running(settings_of(tmp_path)) as running:
            bob, store = running.caller("bob", 1002), running.daemon.driver.store
            [mine] = await bob.submit(job())
            before = store.stored_bytes("bob")
            await hold_and_release(bob, mine)
            assert store.stored_bytes("bob") > before + 2 * len(WORDS)
            await running.daemon.driver.attach(LinesRemoved(before=wall() + 60, most=1000))
            assert store.stored_bytes("bob") == before

    asyncio.run(scene())


async def fill(caller: Caller) -> str:
    """Submit and cancel large jobs until one is refused; returns why."""
    for number in range(100):
        try:
            await submit_and_cancel(caller, large(number))
        except grpc.aio.AioRpcError as error:
            assert number > 0
            return str(error.details())
    raise AssertionError("it was never refused")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 48 MiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=48m,mode=0700", "small", str(disk)]
    mounted = subprocess.run(mount, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"no small disk can be mounted here: {mounted.stderr.strip()}")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def test_a_disk_that_one_user_fills_still_stores_ends_and_cancels(small_disk: Path) -> None:
    async def scene() -> None:
        async with Running(settings_of(small_disk)) as running:
            ann = running.caller("ann", 1001)
            mine = await ann.submit(*(job(held=True) for _ in range(500)))
            said = await fill(running.caller("bob", 1002))
            assert said.startswith("the jobs of bob would take ")  # a quarter of the disk
            mine += await ann.submit(large(1000))
            for number in range(2, 9):
                said = await fill(running.caller(f"bob{number}", 1000 + number))
                if said.startswith("the database's disk"):
                    break
            assert said.startswith("the database's disk has ")
            assert said.endswith("are kept for the ends of jobs: nothing new is taken")
            free, total = running.daemon.driver.store.disk_room() or (0, 0)
            (small_disk / "filler").write_bytes(bytes(max(free - total // 10 + MIB // 2, 0)))
            assert (await refused(ann.submit(job()))).startswith("the database's disk has ")
            update = c.UpdateRequest(filter=c.Filter(jobs=mine[:1]), fields={"comment": "x"})
            assert (await refused(ann.control.Update(update, timeout=60))).startswith(
                "the database"
            )
            status = await ann.control.Status(c.StatusRequest(), timeout=60)
            assert (status.health, running.daemon.driver.store_down) == ("yellow", "")
            assert any("the database's disk" in each for each in status.problems)
            for number in mine:  # each a transaction
                await ann.act(c.ACTION_CANCEL, number)
            assert await ann.state(mine[-1]) == "CANCELLED"
            assert running.daemon.driver.store_down == ""

    asyncio.run(scene())


def test_a_disk_that_does_not_answer_has_no_known_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the daemon does every second goes on, and nothing is refused for it."""

    def stale(path: object) -> object:
        raise OSError(errno.ESTALE, "Stale file handle", str(path))

    async def scene() -> None:
        async with Running(settings_of(tmp_path)) as running:
            caller = running.caller()
            monkeypatch.setattr("dlsched.db.store.os.statvfs", stale)
            assert running.daemon.driver.store.disk_room() is None
            assert running.daemon._status().startswith("green")
            [stored] = await caller.submit(job(held=True))
            assert await caller.state(stored) == "PENDING"

    asyncio.run(scene())
