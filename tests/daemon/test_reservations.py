"""Reservations while the daemon runs, over real gRPC and a real database."""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path
from typing import Any

import grpc
import pytest

from dlsched.rpc.v1 import control_pb2 as c

from .cluster_of_tests import Caller, Running, eventually, job, settings_of
from .scripted_agent import ScriptedAgent
from .test_daily import ends, play, reaches, refused
from .test_tenants import Operator, waits

pytestmark = pytest.mark.slow

HOUR = 3600.0


async def reserve(root: Operator, name: str, start: float, length: float, **more: Any) -> list[str]:
    """Reserve from `start` seconds after now on."""
    begin = time.time() + start
    nodes = more.pop("nodes", "n1")
    return await root.set(
        "reservation", name=name, nodes=nodes, start_at=begin, end_at=begin + length, **more
    )


def test_what_cannot_be_reserved_is_refused(tmp_path: Path) -> None:
    async def scene(running: Running, caller: Caller, agent: ScriptedAgent) -> None:
        root = Operator(running)
        [endless] = await caller.submit(job())
        await reaches(caller, endless, "RUNNING")
        for call, message in (
            (reserve(root, "a", 0, HOUR, nodes="n7"), "reservation a: node 'n7' is not known"),
            (reserve(root, "a", 0, HOUR, nodes=""), "reservation a: names no nodes"),
            (reserve(root, "a", 10, -20), "ends before it begins"),
            (reserve(root, "a", -HOUR, 60), "has ended already"),
            (reserve(root, "a", HOUR, HOUR), f"job {endless} may run into it (--ignore-jobs"),
            (reserve(root, "a b", 0, HOUR), "not a name"),
            (reserve(root, "a", HOUR, HOUR, accounts=["x"]), "account 'x' is not known"),
            (reserve(root, "a", HOUR, HOUR, maintenance=True, users=["ann"]), "is for no users"),
        ):
            _, said = await refused(call)
            assert message in said
        await ends(agent, endless)
        await reaches(caller, endless, "COMPLETED")
        (added,) = await reserve(root, "a", HOUR, HOUR)
        assert re.match(
            r"reservation a: added, nodes n1, start_at 2\d{3}-\d\d-\d\dT[\d:]{8}[+-]", added
        )
        _, said = await refused(reserve(root, "b", 1.5 * HOUR, HOUR))
        assert "node n1 is reserved by a then" in said
        mallory = Operator(running)
        mallory.control = caller.control
        status, _ = await refused(reserve(mallory, "b", 9 * HOUR, HOUR))
        assert status is grpc.StatusCode.PERMISSION_DENIED

    play(tmp_path, scene)


def test_jobs_do_not_run_into_a_reservation_and_it_is_for_its_users(tmp_path: Path) -> None:
    async def scene(running: Running, caller: Caller, agent: ScriptedAgent) -> None:
        root = Operator(running)
        await reserve(root, "course", HOUR, HOUR, users=["ann"])
        [short] = await caller.submit(job(time_limit_s=600))
        await reaches(caller, short, "RUNNING")
        [long] = await caller.submit(job(time_limit_s=2 * HOUR))
        why = await waits(caller, long, "ReqNodeNotAvail")
        assert why.startswith(
            "ReqNodeNotAvail: n1: reserved (course) in 60 min, into which the job"
        )
        [endless, hosts] = await caller.submit(job(), job(gpus=0))
        assert "a job without a time limit" in await waits(caller, endless, "ReqNodeNotAvail")
        assert (await caller.state(hosts)) == "PENDING"  # nor does one without GPUs start

        [mine] = await caller.submit(job(reservation="course", time_limit_s=600))
        assert "course begins in" in await waits(caller, mine, "Reservation")
        bob = running.caller("bob", 1002)
        for call, message in (
            (caller.submit(job(reservation="curse")), "reservation 'curse' is not known; known: c"),
            (bob.submit(job(reservation="course", time_limit_s=60)), "course is for user ann only"),
            (
                caller.submit(job(reservation="course")),
                "course has 3600 s, and the job has no",
            ),
            (caller.submit(job(reservation="course", time_limit_s=4000)), "time limit of 4000 s"),
        ):
            _, said = await refused(call)
            assert message in said
        _, said = await refused(root.remove("reservation", "course"))
        assert said == f"reservation course: job {mine} is in it"
        asked = c.UpdateRequest(filter=c.Filter(jobs=[long]), fields={"time_limit_s": "600"})
        await caller.control.Update(asked, timeout=60)
        await reaches(caller, long, "RUNNING")

    play(tmp_path, scene)


def test_inside_only_jobs_of_the_reservation_start_and_afterwards_all(tmp_path: Path) -> None:
    async def scene(running: Running, caller: Caller, agent: ScriptedAgent) -> None:
        root = Operator(running)
        await reserve(root, "now", 0, HOUR)
        nodes = (await caller.control.Nodes(c.NodesRequest(), timeout=60)).nodes
        assert [node.state for node in nodes] == ["reserved"]
        [other] = await caller.submit(job(time_limit_s=5))
        why = await waits(caller, other, "ReqNodeNotAvail")
        assert why == "ReqNodeNotAvail: n1: reserved (now) for 60 min more"
        [mine] = await caller.submit(job(reservation="now", time_limit_s=5))
        await reaches(caller, mine, "RUNNING")
        await ends(agent, mine)
        await reaches(caller, mine, "COMPLETED")
        await root.remove("reservation", "now")
        await reaches(caller, other, "RUNNING")

    play(tmp_path, scene)


def test_a_reservation_that_is_over_goes_and_waiting_jobs_start(tmp_path: Path) -> None:
    async def scene(running: Running, caller: Caller, agent: ScriptedAgent) -> None:
        root = Operator(running)
        await reserve(root, "repair", 0, HOUR, maintenance=True)
        [waiting] = await caller.submit(job())
        assert "maintenance (repair)" in await waits(caller, waiting, "ReqNodeNotAvail")
        nodes = (await caller.control.Nodes(c.NodesRequest(), timeout=60)).nodes
        assert [node.state for node in nodes] == ["maint"]
        await root.set("reservation", create=False, name="repair", end_at=time.time() + 1.5)
        await reaches(caller, waiting, "RUNNING")
        await eventually(lambda: not running.daemon.cluster.tenants.reservations())

    play(tmp_path, scene)


def test_predictions_know_reservations_and_they_survive_a_restart(tmp_path: Path) -> None:
    async def whole() -> None:
        settings = settings_of(tmp_path)
        async with Running(settings) as running, ScriptedAgent("n1", running.target, gpus=4):
            await eventually(lambda: running.daemon.driver.committed.nodes)
            await reserve(Operator(running), "repair", 600, HOUR, maintenance=True)
        async with Running(settings) as running, ScriptedAgent("n1", running.target, gpus=4):
            assert set(running.daemon.cluster.tenants.reservations()) == {"repair"}
            caller = running.caller()
            [long] = await caller.submit(job(time_limit_s=1200))
            await waits(caller, long, "ReqNodeNotAvail")
            over = running.daemon.cluster.tenants.reservations()["repair"].end_at

            async def predicted() -> float | None:
                view = (await caller.show(long)).job
                return view.predicted_start_at if view.HasField("predicted_start_at") else None

            at = await eventually(predicted)
            assert abs(at - over) < 5.0

    asyncio.run(whole())
