"""Clients of jobs as the daemon sees them: which it lets in, how many, and which it misses."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from dlsched.daemon import interactive
from dlsched.daemon.control import attachments
from dlsched.rpc.v1 import control_pb2 as c
from dlsched.rpc.v1.attach_pb2 import AttachInput, AttachTarget
from tests.daemon.cluster_of_tests import Caller, Running, eventually, job, settings_of
from tests.daemon.scripted_agent import ScriptedAgent

pytestmark = pytest.mark.slow

CODE = grpc.StatusCode


def play(scene: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scene, 100))


def shell(**fields: Any) -> c.JobRequest:
    """An interactive job."""
    return job("sh", terminal="24x80", no_requeue=True, gpus=1, **fields)


@asynccontextmanager
async def running(folder: Path, **sections: Any) -> AsyncIterator[tuple[Running, ScriptedAgent]]:
    settings = settings_of(folder, **sections)
    async with Running(settings) as daemon, ScriptedAgent("n1", daemon.target) as agent:
        await eventually(lambda: agent.state.registered)
        yield daemon, agent


def target(number: int, **more: Any) -> AttachInput:
    more = {"ticket": "a" * 32, **more}
    return AttachInput(target=AttachTarget(job=number, **more))


async def begin(caller: Caller, number: int, **more: Any) -> Any:
    """A client that waits for the start of a job, once the daemon has it."""
    call = caller.control.Attach()
    await call.write(target(number, wait=True, **more))
    assert (await call.read()).waits == "pending"
    return call


async def refused(call: Any, *messages: AttachInput) -> tuple[grpc.StatusCode, str]:
    """How a call ends that the daemon does not let in."""
    for message in messages:
        await call.write(message)
    with contextlib.suppress(grpc.aio.AioRpcError):
        while await call.read() is not grpc.aio.EOF:
            pass
    return await call.code(), await call.details()


def test_an_interactive_job_whose_client_has_left_before_the_start_is_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interactive, "ALONE_S", 0.0)

    async def scene() -> None:
        async with running(tmp_path) as (daemon, _):
            ann = daemon.caller()
            [held] = await ann.submit(shell(held=True))
            [plain] = await ann.submit(job(held=True))
            monkeypatch.setattr(interactive, "ALONE_S", 1e9)
            [kept] = await ann.submit(shell(held=True))
            client = await begin(ann, kept)
            monkeypatch.setattr(interactive, "ALONE_S", 0.0)

            async def ended(number: int) -> bool:
                return await ann.state(number) == "CANCELLED"

            await until(lambda: ended(held))
            assert await ann.state(kept) == "PENDING"  # its client waits
            assert await ann.state(plain) == "PENDING"  # it needs none
            client.cancel()  # as when its machine is lost
            await until(lambda: ended(kept))
            shown = (await ann.show(kept)).job
            assert shown.cancelled_by == "daemon"
            assert shown.reason == "NoClient"

    play(scene())


async def until(condition: Any) -> None:
    async with asyncio.timeout(60):
        while not await condition():
            await asyncio.sleep(0.02)


def test_every_client_that_waits_is_told_of_the_end(tmp_path: Path) -> None:
    async def scene() -> None:
        async with running(tmp_path) as (daemon, _):
            ann = daemon.caller()
            [number] = await ann.submit(shell(held=True))
            clients = [await begin(ann, number) for _ in range(3)]
            clients.pop().cancel()  # its wait is not that of the others
            await ann.act(c.ACTION_CANCEL, number)
            for client in clients:
                found = await refused(client)
                assert found == (CODE.FAILED_PRECONDITION, f"job {number} has ended")

    play(scene())


def test_an_element_of_an_array_is_named_as_users_name_it(tmp_path: Path) -> None:
    async def scene() -> None:
        async with running(tmp_path) as (daemon, _):
            ann, bob = daemon.caller(), daemon.caller("bob", 1002)
            [array] = await ann.submit(job(held=True, array="4-5"))
            name = f"job {array}_5"
            code, why = await refused(ann.control.Attach(), target(array + 1))
            assert (code, why) == (
                CODE.FAILED_PRECONDITION,
                f"{name} does not run: it is pending",
            )
            _, why = await refused(bob.control.Attach(), target(array + 1))
            assert why == f"{name} belongs to ann, not to bob"
            await ann.act(c.ACTION_CANCEL, array)
            code, why = await refused(ann.control.Attach(), target(array + 1))
            assert (code, why) == (CODE.FAILED_PRECONDITION, f"{name} has ended")

    play(scene())


def test_the_connections_into_a_job_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attachments, "OF_JOB", 2)
    monkeypatch.setattr(attachments, "OF_ONE", 3)

    async def scene() -> None:
        async with running(tmp_path) as (daemon, _):
            ann = daemon.caller()
            first, second = await ann.submit(shell(held=True), shell(held=True))
            clients = [await begin(ann, first), await begin(ann, first)]
            code, why = await refused(ann.control.Attach(), target(first))
            assert code is CODE.RESOURCE_EXHAUSTED
            assert why == f"job {first} has 2 connections into jobs, which is the most"
            clients.append(await begin(ann, second))
            code, why = await refused(ann.control.Forward(), target(second, port=80))
            assert (code, why[:20]) == (CODE.RESOURCE_EXHAUSTED, "ann has 3 connection")
            clients.pop().cancel()
            await until(lambda: taken(ann, second))

    async def taken(ann: Caller, number: int) -> bool:
        call = ann.control.Attach()
        await call.write(target(number, wait=True))
        try:
            return bool(await call.read())
        except grpc.aio.AioRpcError:
            return False
        finally:
            call.cancel()

    play(scene())


@pytest.mark.parametrize("rule", ["operators", "owner"])
def test_operators_enter_jobs_where_the_site_lets_them(tmp_path: Path, rule: str) -> None:
    async def scene() -> None:
        trust = {"mode": "insecure-loopback", "operators": ("olga",), "attach": rule}
        async with running(tmp_path, trust=trust) as (daemon, _):
            [number] = await daemon.caller().submit(shell(held=True))
            bob, olga = daemon.caller("bob", 1002), daemon.caller("olga", 1003)
            asked = target(number)
            for method in ("Attach", "Forward"):
                asked.target.port = 80
                code, why = await refused(getattr(bob.control, method)(), asked)
                assert (code, why) == (
                    CODE.PERMISSION_DENIED,
                    f"job {number} belongs to ann, not to bob",
                )
                code, why = await refused(getattr(olga.control, method)(), asked)
                if rule == "owner":
                    assert code is CODE.PERMISSION_DENIED
                    assert why == f"job {number} belongs to ann; here only owners enter jobs"
                else:
                    assert why == f"job {number} does not run: it is pending"

    play(scene())


def test_what_is_malformed_is_refused_before_any_node_is_asked(tmp_path: Path) -> None:
    async def scene() -> None:
        async with running(tmp_path) as (daemon, _):
            ann = daemon.caller()
            [number] = await ann.submit(shell(held=True))
            for message, why in (
                (AttachInput(data=b"x"), "the first message of a connection says to what"),
                (target(number, ticket="short"), "ticket: not 8 to 64 letters and digits"),
                (target(number, ticket="../../../etc"), "ticket: not 8 to 64"),
                (target(number, argv=["a\0b"]), "command: has a NUL character"),
                (target(number, argv=["x" * 9000]), "command: 9001 bytes, at most 8192"),
                (target(number, term="\x1b]0;x"), "terminal: "),
            ):
                code, told = await refused(ann.control.Attach(), message)
                assert (code, why in told) == (CODE.INVALID_ARGUMENT, True), told
            code, told = await refused(ann.control.Forward(), target(number, port=0))
            assert (code, told) == (CODE.INVALID_ARGUMENT, "port 0: not within 1 and 65535")
            code, told = await refused(ann.control.Attach(), target(999))
            assert code is CODE.NOT_FOUND

    play(scene())


def test_a_shell_on_a_node_that_the_job_is_not_on_is_refused(tmp_path: Path) -> None:
    async def scene() -> None:
        async with running(tmp_path) as (daemon, _):
            ann = daemon.caller()
            [number] = await ann.submit(job("sleep"))

            async def runs() -> bool:
                return await ann.state(number) == "RUNNING"

            await until(runs)
            code, why = await refused(ann.control.Attach(), target(number, node="n2"))
            assert (code, why) == (CODE.NOT_FOUND, f"node n2: job {number} is on n1")

    play(scene())


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"terminal": "80"}, "terminal '80': not rows and columns, as 24x80"),
        ({"terminal": "0x80"}, "terminal '0x80': not rows"),
        ({"array": "0-3"}, "no array, no script"),
        ({"mode": 3}, "no array, no script"),
        ({"script": b"#!/bin/sh\n"}, "no array, no script"),
        ({"no_requeue": False}, "starts once: no requeue, no retries"),
        ({"retries": 1}, "starts once: no requeue, no retries"),
    ],
)
def test_what_no_interactive_job_can_be_is_refused(
    tmp_path: Path, fields: dict[str, Any], why: str
) -> None:
    async def scene() -> None:
        async with running(tmp_path) as (daemon, _):
            asked = {"terminal": "24x80", "no_requeue": True, "gpus": 1, **fields}
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await daemon.caller().submit(job("sh", **asked))
            assert caught.value.code() is CODE.INVALID_ARGUMENT
            assert why in caught.value.details()

    play(scene())
