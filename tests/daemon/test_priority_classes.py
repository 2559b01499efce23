"""Priority classes and fair shares while the daemon runs, over real gRPC and a real database."""

from __future__ import annotations

import asyncio
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

CLASSES: list[dict[str, Any]] = [
    {"name": "urgent", "priority": 10, "preempts": ["idle"], "users": ["ann"], "gpus": 2,
     "gpus_per_user": 1, "jobs_per_user": 3, "max_time_s": 3600, "grace_s": 60},
    {"name": "idle", "default": True},
]  # fmt: skip
INVALID, DENIED = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.PERMISSION_DENIED


async def shares(caller: Caller) -> dict[tuple[str, str], Any]:
    reply = await caller.control.Usage(c.UsageRequest(shares=True), timeout=60)
    return {(each.group, each.name): each for each in reply.shares}


def test_a_class_is_known_allowed_and_within_its_limits(tmp_path: Path) -> None:
    async def scene(running: Running, caller: Caller, agent: ScriptedAgent) -> None:
        bob = running.caller("bob", 1002)
        for call, code, said in (
            (caller.submit(job(priority_class="urgen")), INVALID,
             "InvalidQOS: priority class 'urgen' is not known; known: normal, urgent, idle "
             "(did you mean 'urgent'?)"),
            (bob.submit(job(priority_class="urgent")), DENIED,
             "InvalidQOS: priority class urgent is for user ann only"),
            (caller.submit(job(priority_class="urgent", time_limit_s=7200)), INVALID,
             "QOSMaxWallDurationPerJobLimit: time limit 2:00:00 is above priority class urgent's, "
             "1:00:00"),
            (caller.submit(job(priority_class="urgent", grace_s=90)), INVALID,
             "grace: 90 s is above priority class urgent's, 60 s"),
            (caller.submit(job(priority_class="urgent", gpus=3)), INVALID,
             "QOSGrpGRES: needs 3 GPUs, and class urgent may have 2"),
            (caller.submit(job(priority_class="urgent", gpus=2)), INVALID,
             "QOSMaxGRESPerUser: needs 2 GPUs, and user ann in class urgent may have 1"),
        ):  # fmt: skip
            assert await refused(call) == (code, said)
        [plain] = await caller.submit(job(held=True))
        assert (await caller.show(plain)).job.priority_class == "idle"  # the default
        [urgent] = await caller.submit(job(held=True, priority_class="urgent"))
        row = running.daemon.driver.committed.jobs[urgent]
        assert (row.request.limits.time_s, row.terms.grace_s) == (3600.0, 60.0)

        update = c.UpdateRequest(filter=c.Filter(jobs=[plain]), fields={"time_limit_s": "7200"})
        assert not (await caller.control.Update(update, timeout=60)).failed
        for fields, said in (
            ({"priority_class": "x"}, "InvalidQOS: priority class 'x' is not known"),
            ({"priority_class": "urgent"}, "QOSMaxWallDurationPerJobLimit: time limit 2:00:00"),
        ):
            asked = c.UpdateRequest(filter=c.Filter(jobs=[plain]), fields=fields)
            [failed] = (await caller.control.Update(asked, timeout=60)).failed
            assert failed.why.startswith(said)
        both = {"priority_class": "urgent", "time_limit_s": "60"}
        asked = c.UpdateRequest(filter=c.Filter(jobs=[plain]), fields=both)
        assert not (await caller.control.Update(asked, timeout=60)).failed
        assert (await caller.show(plain)).job.priority_class == "urgent"

        await caller.submit(job(held=True, priority_class="urgent"))
        code, said = await refused(caller.submit(job(priority_class="urgent")))
        assert (code, said) == (
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            "QOSMaxSubmitJobPerUserLimit: user ann in class urgent has 3 live jobs, at most 3",
        )

    play(tmp_path, scene, classes=CLASSES)


def test_jobs_wait_for_the_gpus_of_their_class(tmp_path: Path) -> None:
    async def scene(running: Running, caller: Caller, agent: ScriptedAgent) -> None:
        first, second = await caller.submit(*[job(priority_class="urgent") for _ in range(2)])
        await reaches(caller, first, "RUNNING")
        why = await waits(caller, second, "QOSMaxGRESPerUser")
        assert why == "QOSMaxGRESPerUser: user ann in class urgent has 1 of 1 GPU, needs 1"
        await ends(agent, first)
        await reaches(caller, second, "RUNNING")

    play(tmp_path, scene, classes=CLASSES)


def test_operators_make_classes_and_what_cannot_be_is_refused(tmp_path: Path) -> None:
    async def scene(running: Running, caller: Caller, agent: ScriptedAgent) -> None:
        root = Operator(running)
        lines = await root.set("class", name="paid", priority=20.0, preempts=["urgent", "idle"])
        assert lines == ["class paid: added, priority 20, preempts urgent,idle, is_default no"]
        [mine] = await caller.submit(job(held=True, priority_class="paid"))
        for call, message in (
            (root.set("class", create=False, name="paid", preempts=["x"]), "class 'x' is not"),
            (root.set("class", name="two", is_default=True), "class idle is the default already"),
            (root.set("class", name="up", preempts=["paid", "up"]), "class up"),
            (root.set("class", name="g", grace_s=9999.0), "grace_s"),
            (root.set("class", name="a", accounts=["none"]), "account 'none' is not known"),
            (root.remove("class", "paid"), f"class paid: job {mine} is in it"),
            (root.remove("class", "urgent"), "set in the configuration"),
        ):
            _, said = await refused(call)
            assert message in said
        found = (await root.all("class"))["paid"]
        assert (found.jobs_now, found.source) == (1, "operator")
        await caller.act(c.ACTION_CANCEL, mine)
        await root.set("class", name="circle", preempts=["paid"])
        _, said = await refused(root.set("class", create=False, name="paid", preempts=["circle"]))
        assert "preempt each other" in said
        await root.remove("class", "circle")
        await eventually(lambda: "paid" in running.daemon.cluster.tenants.classes())

    play(tmp_path, scene, classes=CLASSES)


def test_the_points_of_a_waiting_job_are_shown_term_by_term(tmp_path: Path) -> None:
    async def scene(running: Running, caller: Caller, agent: ScriptedAgent) -> None:
        [running_] = await caller.submit(job(gpus=4, priority_class="normal"))
        await reaches(caller, running_, "RUNNING")
        numbers = await caller.submit(job(gpus=2), job(gpus=1, priority_class="urgent"))
        await eventually(lambda: all(map(running.daemon.cluster.live.position, numbers)))

        async def order(number: int) -> dict[str, str]:
            asked = c.ShowRequest(filter=c.Filter(jobs=[number]), why_order=True)
            return dict((await caller.control.Show(asked, timeout=60)).jobs[0].order_numbers)

        plain, urgent = [await order(number) for number in numbers]
        assert (plain["position"], urgent["position"]) == ("2", "1")
        assert set(plain) == {
            "policy", "position", "age", "fair_share", "size", "class", "nice", "total",
        }  # fmt: skip
        assert (plain["class"], urgent["class"]) == ("0.0", "10000.0")
        assert (plain["size"], urgent["size"]) == ("50.0", "25.0")
        parts = [float(urgent[name]) for name in ("age", "fair_share", "size", "class", "nice")]
        assert abs(sum(parts) - float(urgent["total"])) < 0.5

    play(tmp_path, scene, classes=CLASSES, round={"policy": "multifactor", "interval_s": 0.3})


def test_usage_survives_a_restart_of_the_daemon(tmp_path: Path, later: Any) -> None:
    async def whole() -> None:
        settings = settings_of(tmp_path, fair_share={"half_life_s": 3600.0})
        async with Running(settings) as running:
            root = Operator(running)
            await root.set("account", name="lab", weight=2.0)
            await root.set("user", name="ann", account="lab")
            caller = running.caller()
            async with ScriptedAgent("n1", running.target, gpus=4) as agent:
                [done, going] = await caller.submit(job(gpus=1), job(gpus=2))
                await reaches(caller, going, "RUNNING")
                await eventually(
                    lambda: (
                        running.daemon.cluster.live.jobs.usage.as_of(running.daemon.cluster.now)[0]
                        > 1.0
                    )
                )
                later(500.0)
                await ends(agent, done)
                await reaches(caller, done, "COMPLETED")
                before = await shares(caller)
                assert before["lab", "ann"].share == 1.0
                assert before["", "lab"].weight == 2.0
                assert ("", "bob") not in before
        async with Running(settings) as running:
            after = await shares(running.caller())
            usage = running.daemon.cluster.live.jobs.usage
            number = usage.owners.index(("ann", "lab", ""))
            assert usage.gpus[number] == 2  # the job that still runs
            assert after["lab", "ann"].used_gpu_s >= 490
            other = await shares(running.caller("bob", 1002))
            assert set(other) == {("", "lab")}  # other users are not for him

    asyncio.run(whole())


def test_a_half_life_of_the_policy_that_is_not_the_clusters_is_refused(tmp_path: Path) -> None:
    async def scene(running: Running, caller: Caller, agent: ScriptedAgent) -> None:
        root = running.caller("root", 0)
        for has_job in (False, True):  # it may wait or run already
            if has_job:
                await caller.submit(job(gpus=4))
            asked = c.SetPolicyRequest(
                parts={"scheduling": "multifactor"}, options=["half_life_s=60"]
            )
            code, said = await refused(root.control.SetPolicy(asked, timeout=60))
            assert code is INVALID
            assert "this cluster counts usage with 604800 s" in said
        asked = c.SetPolicyRequest(parts={"scheduling": "multifactor"}, options=["age=5"])
        await root.control.SetPolicy(asked, timeout=60)

    play(tmp_path, scene)
