"""Users, accounts, virtual clusters and quotas while the daemon runs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from dlsched.core.sharing.fair_shares import fair_shares
from dlsched.daemon.settings import Settings
from dlsched.daemon.tenants import Tenants
from dlsched.db.records import TenantSet
from dlsched.rpc.v1 import control_pb2 as c
from dlsched.tenants.fields import Account

from .cluster_of_tests import Caller, Running, eventually, job, settings_of
from .scripted_agent import ScriptedAgent
from .test_daily import ends, play, reaches, refused


class Operator:
    """Says things of tenants."""

    def __init__(self, running: Running) -> None:
        self.control = running.caller("root", 0).control

    async def set(self, what: str, create: bool = True, **given: Any) -> list[str]:
        asked = c.SetTenantRequest(create=create)
        message = getattr(asked.tenant, what)
        message.SetInParent()
        for name, value in given.items():
            if isinstance(value, list):
                getattr(message, name).extend(value)
            elif value is not None:
                setattr(message, name, value)
        keys = ("name", "kind") if what == "quota" else ("name",)
        asked.fields.extend(name for name in given if name not in keys)
        return list((await self.control.SetTenant(asked, timeout=60)).lines)

    async def remove(self, kind: str, name: str) -> list[str]:
        asked = c.RemoveTenantRequest(kind=kind, name=name)
        return list((await self.control.RemoveTenant(asked, timeout=60)).lines)

    async def all(self, kind: str = "") -> dict[str, Any]:
        found = await self.control.Tenants(c.TenantsRequest(kind=kind), timeout=60)
        return {getattr(each, each.WhichOneof("tenant")).name: each for each in found.tenants}


async def waits(caller: Caller, number: int, word: str) -> str:
    async def reason() -> str | None:
        view = (await caller.show(number)).job
        return view.reason if view.state == "PENDING" and view.reason.startswith(word) else None

    return str(await eventually(reason, within_s=60))


def test_only_operators_change_tenants(tmp_path: Path) -> None:
    vcs = [{"name": "speech", "gpus": 2}]

    async def scene(running: Running, caller: Caller, agent: ScriptedAgent) -> None:
        root = Operator(running)
        assert await root.set("vc", name="vision", gpus=4, borrow=True) == [
            "vc vision: added, gpus 4, borrow yes"
        ]
        await root.set("account", name="lab")
        await root.set("account", name="robots", parent="lab", vc="vision", weight=2.0)
        await root.set("user", name="ann", account="robots")
        lines = await root.set("vc", create=False, name="vision", gpus=3, guaranteed=1)
        assert lines == ["vc vision: gpus 4 -> 3", "vc vision: guaranteed none -> 1"]
        found = await root.all()
        assert set(found) == {"ann", "lab", "robots", "speech", "vision"}
        assert (found["speech"].source, found["vision"].source) == ("file", "operator")
        assert list(found["robots"].account.users) == ["ann"]
        assert found["vision"].set_by == "root"

        # her jobs go where her account's go
        [mine] = await caller.submit(job(held=True))
        view = (await caller.show(mine)).job
        assert (view.account, view.vc) == ("robots", "vision")
        [there] = await caller.submit(job(held=True, vc="speech"))
        view = (await caller.show(there)).job
        assert (view.account, view.vc) == ("robots", "speech")
        bob = running.caller("bob", 1002)
        code, said = await refused(bob.submit(job(vc="robots")))
        assert (code, said) == (
            grpc.StatusCode.PERMISSION_DENIED, "account robots: bob is no member of it"
        )  # fmt: skip
        code, said = await refused(bob.submit(job(vc="nowhere")))
        assert said.startswith("vc 'nowhere' is not known; known: lab, robots, speech, vision")
        asked = c.UpdateRequest(filter=c.Filter(jobs=[there]), fields={"vc": "robots"})
        await caller.control.Update(asked, timeout=60)
        assert (await caller.show(there)).job.vc == "vision"
        jobs, _, _ = await caller.queue(vcs=["robots"])
        assert {each.job for each in jobs} == {mine, there}

        for call, code, message in (
            (root.set("vc", name="vision", gpus=1), "INVALID", "vc vision is there already"),
            (root.set("vc", create=False, name="x", gpus=1), "INVALID", "there is no vc x"),
            (root.set("vc", create=False, name="speech", gpus=1), "PERMISSION",
             "vc speech is set in the configuration; change it there"),
            (root.set("vc", create=False, name="vision", guaranteed=9), "INVALID",
             "vc vision: guarantees 9 of 3 GPUs"),
            (root.set("vc", name="a b", gpus=1), "INVALID", "not a name"),
            (root.set("vc", name="y", gpus=-1), "INVALID", "gpus"),
            (root.set("account", create=False, name="lab", parent="robots"), "INVALID",
             "would be below itself"),
            (root.set("account", name="z", parent="none"), "INVALID", "parent 'none'"),
            (root.set("quota", kind="team", name="x", gpus=1), "INVALID", "a quota is of a user"),
            (root.set("quota", kind="user", name="x"), "INVALID", "has no limit"),
            (root.remove("account", "lab"), "INVALID", "account robots names it"),
            (root.remove("vc", "vision"), "INVALID", "account robots names it"),
            (root.remove("vc", "speech"), "PERMISSION", "set in the configuration"),
            (root.remove("user", "carl"), "INVALID", "there is no user carl"),
        ):  # fmt: skip
            status, said = await refused(call)
            assert status.name.startswith(code), said
            assert message in said
        mallory = Operator(running)
        mallory.control = caller.control
        for call in (mallory.set("vc", name="mine", gpus=9), mallory.remove("vc", "vision")):
            status, _ = await refused(call)
            assert status is grpc.StatusCode.PERMISSION_DENIED
        assert set(await mallory.all()) == set(found)  # every user may look

    play(tmp_path, scene, vcs=vcs)


def test_tenants_survive_a_restart(tmp_path: Path) -> None:
    async def whole() -> None:
        settings = settings_of(tmp_path, vcs=[{"name": "speech", "gpus": 2}])
        async with Running(settings) as running:
            root = Operator(running)
            await root.set("vc", name="vision", gpus=4)
            await root.set("quota", kind="user", name="*", gpus=2)
            await root.set("user", name="ann", vc="vision")
            await root.remove("user", "ann")
        async with Running(settings) as running:
            found = await Operator(running).all()
            assert set(found) == {"speech", "vision", "*"}
            assert found["*"].quota.gpus == 2
            assert {vc.name for vc in running.daemon.cluster.live.rules.vcs} == {
                "speech", "vision"
            }  # fmt: skip
            stored = {row.source for row in running.daemon.driver.store.load().tenants}
            assert stored == {"file", "operator"}

    asyncio.run(whole())


@pytest.mark.parametrize(
    ("quota", "word", "told"),
    [
        ({"kind": "user", "name": "ann"}, "QOSMaxGRESPerUser", "user ann has 2 of 3 GPUs"),
        ({"kind": "user", "name": "*"}, "QOSMaxGRESPerUser", "user ann has 2 of 3 GPUs"),
        ({"kind": "account", "name": "lab"}, "AssocGrpGRES", "account lab has 2 of 3 GPUs"),
        ({"kind": "vc", "name": "speech"}, "QOSGrpGRES", "vc speech has 2 of 3 GPUs"),
    ],
)
def test_a_quota_makes_jobs_wait_and_is_the_reason(
    tmp_path: Path, quota: dict[str, str], word: str, told: str
) -> None:
    async def scene(running: Running, caller: Caller, agent: ScriptedAgent) -> None:
        root = Operator(running)
        await root.set("account", name="lab")
        await root.set("account", name="robots", parent="lab", vc="speech")
        await root.set("user", name="ann", account="robots")
        await root.set("quota", gpus=3, **quota)
        first, second, third = await caller.submit(job(gpus=2), job(gpus=2), job(gpus=1))
        await reaches(caller, first, "RUNNING")
        await reaches(caller, third, "RUNNING")  # fits what is left
        reason = await waits(caller, second, word)
        assert reason.startswith(f"{word}: {told.split(' has ', maxsplit=1)[0]} has ")
        [other] = await running.caller("bob", 1002).submit(job(gpus=2))
        if quota["name"] not in ("*", "speech"):
            await reaches(running.caller("bob", 1002), other, "RUNNING")
        view = (await root.all("quota"))[quota["name"]]
        assert (view.gpus_now >= 3, view.jobs_now >= 3) == (True, True)
        code, said = await refused(caller.submit(job(gpus=4)))
        assert (code, said.split(":")[0]) == (grpc.StatusCode.INVALID_ARGUMENT, word)
        asked = c.UpdateRequest(filter=c.Filter(jobs=[second]), fields={"gpus": "4"})
        [failure] = (await caller.control.Update(asked, timeout=60)).failed
        assert failure.why.startswith(f"{word}: needs 4 GPUs, and ")
        await ends(agent, first)
        await reaches(caller, second, "RUNNING")
        [fourth] = await caller.submit(job(gpus=2))
        await waits(caller, fourth, word)
        await root.remove("quota", f"{quota['kind']} {quota['name']}")
        await reaches(caller, fourth, "RUNNING")

    play(tmp_path, scene, gpus=8, vcs=[{"name": "speech"}])


def test_a_waiting_job_holds_no_quota_and_is_shown_in_its_place(tmp_path: Path) -> None:
    async def scene(running: Running, caller: Caller, agent: ScriptedAgent) -> None:
        root = Operator(running)
        await root.set("account", name="team")
        await root.set("user", name="ann", account="team")
        await root.set("user", name="eve", account="team")
        await root.set("quota", kind="account", name="team", gpus=8)
        bob, eve = running.caller("bob", 1002), running.caller("eve", 1003)
        [others] = await bob.submit(job(gpus=4))
        await reaches(bob, others, "RUNNING")
        [large] = await caller.submit(job(gpus=8))
        await waits(caller, large, "Resources")
        [small] = await eve.submit(job(gpus=1))
        await reaches(eve, small, "RUNNING")
        reason = await waits(caller, large, "AssocGrpGRES")
        view = (await root.all("quota"))["team"]
        assert reason == f"AssocGrpGRES: account team has {view.gpus_now:g} of 8 GPUs, needs 8"
        [last] = await eve.submit(job(gpus=4))
        await waits(eve, last, "Resources")
        for number, place in ((large, "1"), (last, "2")):
            asked = c.ShowRequest(filter=c.Filter(jobs=[number]), why_order=True)
            [shown] = (await caller.control.Show(asked, timeout=60)).jobs
            assert dict(shown.order_numbers)["position"] == place

    play(tmp_path, scene, gpus=8, round={"policy": "first-fit", "interval_s": 0.3})


def test_quotas_of_jobs_and_of_gpu_hours_hold(tmp_path: Path) -> None:
    async def scene(running: Running, caller: Caller, agent: ScriptedAgent) -> None:
        root = Operator(running)
        await root.set("quota", kind="user", name="ann", jobs=2)
        first, second = await caller.submit(job(gpus=1), job(gpus=1))
        code, said = await refused(caller.submit(job()))
        assert (code, said) == (
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            "QOSMaxSubmitJobPerUserLimit: user ann has 2 live jobs, at most 2",
        )
        code, _ = await refused(running.caller("ann", 1001).submit(job(array="0-2")))
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        for number in (first, second):
            await reaches(caller, number, "RUNNING")
            await ends(agent, number)
            await reaches(caller, number, "COMPLETED")

        [third] = await caller.submit(job(held=True))  # with it, one of the two may start again
        both = (await caller.act(c.ACTION_REQUEUE, first, second)).failed
        said = "QOSMaxSubmitJobPerUserLimit: user ann has 1 live job, at most 2"
        assert [each.why for each in both] == [said]
        for number in (first, third):
            await caller.act(c.ACTION_CANCEL, number)
            await reaches(caller, number, "CANCELLED")
        lines = await root.set(
            "quota", create=False, kind="user", name="ann", jobs=None, gpu_hours=1e-9
        )
        assert lines == [
            "quota user ann: jobs 2 -> none",
            "quota user ann: gpu_hours none -> 1e-09",
            "quota user ann: window_s none -> 2592000",
        ]
        await eventually(lambda: running.daemon.cluster.live.eligibility.tenant_limits.used_hours)
        [third] = await caller.submit(job())
        reason = await waits(caller, third, "AssocGrpGRESMinutes")
        assert "user ann has used 0.0 of 1e-09 GPU-hours" in reason
        [theirs] = await running.caller("bob", 1002).submit(job())
        await reaches(running.caller("bob", 1002), theirs, "RUNNING")
        assert (await root.all("quota"))["ann"].gpu_hours_now > 0
        await root.set("quota", create=False, kind="user", name="ann", gpu_hours=100.0)
        await reaches(caller, third, "RUNNING")

    play(tmp_path, scene)


def test_a_borrower_gives_way_when_the_owner_comes(tmp_path: Path) -> None:
    async def scene(running: Running, caller: Caller, agent: ScriptedAgent) -> None:
        root = Operator(running)
        await root.set("vc", name="speech", gpus=4, guaranteed=4, borrow=True)
        await root.set("vc", name="vision", gpus=4, guaranteed=4, borrow=True)
        await root.set("vc", name="small", gpus=1)
        bob = running.caller("bob", 1002)
        mine, lent = await caller.submit(
            job(gpus=4, vc="speech", expected_s=1000), job(gpus=4, vc="speech", expected_s=2000)
        )
        await reaches(caller, mine, "RUNNING")
        await reaches(caller, lent, "RUNNING")  # on GPUs that no other job wants
        [theirs] = await bob.submit(job(gpus=4, vc="vision", expected_s=3000))
        await reaches(bob, theirs, "RUNNING")
        back = (await caller.show(lent)).job
        assert (back.state, back.preemptions) == ("PENDING", 1)
        assert (await caller.state(mine)) == "RUNNING"  # what is guaranteed stays
        # a tenant that may not borrow stops at the ceiling though GPUs are idle
        await ends(agent, theirs)
        await ends(agent, mine)
        await reaches(caller, lent, "RUNNING")
        one, two = await bob.submit(job(gpus=1, vc="small"), job(gpus=1, vc="small"))
        await reaches(bob, one, "RUNNING")
        assert "vc small: 1 of 1 GPU used" in await waits(bob, two, "Quota")

    play(tmp_path, scene, gpus=8, round={"interval_s": 0.3, "policy": "srtf"})


def test_a_name_of_an_account_that_is_not_there_is_worth_no_share() -> None:
    """On a site without accounts users may name any."""
    settings = Settings()
    rules = Tenants(settings).site_rules(settings)
    owners = [("ann", "", ""), ("bob", "", ""), ("ann", "x1", "")]
    used, here = np.array([1e6, 1e5, 0.0]), np.ones(3, np.bool_)
    found = fair_shares(rules, {}, owners, used, here)
    plain = fair_shares(rules, {}, owners[:2], used[:2], here[:2])
    assert found.factors[[0, 1]].tolist() == plain.factors.tolist()
    assert found.factors[2] == found.factors[0]
    lab = TenantSet(tenant=Account(name="lab"), actor="root", at=0.0)
    assert Tenants.stored([lab]).site_rules(settings).level == "account"
