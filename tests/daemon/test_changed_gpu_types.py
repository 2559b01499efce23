"""A job whose GPU type only nodes with several types have: its updates, and nodes that join."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest

from dlsched.daemon.control.submission import types_of_waiting_jobs
from dlsched.rpc.v1 import control_pb2 as c
from dlsched.rpc.v1 import node_pb2

from .cluster_of_tests import Caller, Running, eventually, job, settings_of
from .scripted_agent import ScriptedAgent


class MixedAgent(ScriptedAgent):
    """A node whose GPUs have these types."""

    def __init__(self, name: str, daemon: str, types: Sequence[str]) -> None:
        super().__init__(name, daemon, len(types), types[0] if len(set(types)) == 1 else "")
        self.types = types

    async def describe(self) -> None:
        if not self.state.registered:
            return
        gpus = [
            node_pb2.GpuFacts(uuid=gpu, index=k, type=self.types[k])
            for k, gpu in enumerate(self.gpus)
        ]
        facts = node_pb2.NodeFacts(
            version="0.0.9", address=f"127.0.0.1:{self.port}", cpus=16, memory_bytes=64 << 30,
            launcher="scripted", gpus=gpus, capabilities=["container"],
        )  # fmt: skip
        await self.leader.Describe(node_pb2.NodeDescription(node=self.name, facts=facts))

    async def known(self, running: Running) -> None:
        """Wait until the daemon knows the types."""
        kinds = {kind for kind in self.types if len(set(self.types)) > 1}

        def is_known() -> bool:
            host = running.daemon.cluster.capacity().hosts.get(self.name)
            return host is not None and set(host.gpu_types) == kinds and host.gpus > 0

        await eventually(lambda: self.state.registered)
        await self.describe()
        await eventually(is_known)


async def update(caller: Caller, number: int, **fields: str) -> list[str]:
    """What an update changes, or the reason why it does not."""
    asked = c.UpdateRequest(filter=c.Filter(jobs=[number]), fields=fields)
    try:
        reply = await caller.control.Update(asked, timeout=60)
    except grpc.aio.AioRpcError as error:
        return [error.details() or ""]
    return sorted([*reply.lines, *(each.why for each in reply.failed)])


async def wish(caller: Caller, number: int) -> tuple[int, list[int], list[str], str]:
    """GPUs, on each node, types, and how many of each type."""
    view = (await caller.show(number)).job
    return view.gpus, list(view.gang), list(view.gpu_types), view.gpus_by_type


def test_an_update_takes_the_types_that_a_submission_takes(tmp_path: Path) -> None:
    """It is stored as a submission is, also after a restart, and gets these GPUs."""
    mixed = ("a100", "a100", "v100", "v100", "v100")

    async def scene() -> None:
        async with (
            Running(settings_of(tmp_path)) as running,
            MixedAgent("n1", running.target, mixed) as n1,
            MixedAgent("n2", running.target, ("v100",)) as n2,
        ):
            await n1.known(running)
            await n2.known(running)
            caller = running.caller()
            fields: dict[str, Any] = {"gpus": 2, "gpu_types": ["a100"], "held": True}
            [submitted] = await caller.submit(job(**fields))
            as_submitted = await wish(caller, submitted)
            assert as_submitted == (2, [2], [], "a100:2")
            [number] = await caller.submit(job(gpus=1, held=True))
            [shared] = await caller.submit(job(gpus=1, share=0.5, held=True))
            assert await update(caller, number, gpus="2", gpu_types="a100") == [
                f"job {number}: gpus 1 -> 2",
                f"job {number}: gpus by type none -> a100:2",
            ]
            assert await wish(caller, number) == as_submitted
            assert await update(caller, number, gpus="1") == [
                f"job {number}: gpus 2 -> 1",
                f"job {number}: gpus by type a100:2 -> a100:1",
            ]
            [why] = await update(caller, number, gpus="3")
            assert "no node has 3 a100; n1 has 2 a100" in why
            [why] = await update(caller, shared, gpu_types="a100")
            assert "only nodes with several types have it (n1), so --share cannot be kept" in why
            [why] = await update(caller, number, gpu_types="h100")
            assert why.startswith("GPU type 'h100' is not known; known: v100")
            await update(caller, number, gpu_types="v100")  # n2 has it alone
            assert await wish(caller, number) == (1, [], ["v100"], "")
            await update(caller, number, only_nodes="n1")
            assert await wish(caller, number) == (1, [1], [], "v100:1")
            await update(caller, number, constraint="a100", only_nodes="")
            assert await wish(caller, number) == (1, [1], [], "a100:1")
            await update(caller, submitted, gpus="1")
            [one] = await caller.submit(job(gpus_per_node=1, held=True))  # as Slurm's --gres says
            [two] = await caller.submit(job(nodes=2, gpus_per_node=1, held=True))
            await update(caller, one, gpus="2", gpu_types="a100")
            assert await wish(caller, one) == as_submitted
            [why] = await update(caller, two, gpus="4")
            assert why == "its GPUs are given by node; gpus cannot be changed"
            [why] = await update(caller, two, gpu_types="a100")
            assert "needs 2 nodes with 1 a100; n1 has 2 a100" in why
            await caller.act(c.ACTION_RELEASE, number)
            await eventually(n1.running)
            [status] = n1.keepers.values()
            [gpu] = status.desired.layout[0].gpus
            assert mixed[int(gpu.rpartition("-")[2])] == "a100"
        async with Running(settings_of(tmp_path)) as running:
            caller = running.caller()
            assert await wish(caller, submitted) == (1, [1], [], "a100:1")
            assert await wish(caller, one) == as_submitted

    asyncio.run(scene())


def test_a_container_job_stays_on_nodes_with_containers_whatever_is_changed(tmp_path: Path) -> None:
    async def scene() -> None:
        async with (
            Running(settings_of(tmp_path)) as running,
            MixedAgent("n1", running.target, ("a100", "v100")) as n1,
            MixedAgent("n2", running.target, ("v100",)) as n2,
        ):
            await n1.known(running)
            await n2.known(running)
            caller, live = running.caller(), running.daemon.cluster.live
            wanted = job(container="image.sif", constraint="v100&container", held=True)
            [number] = await caller.submit(wanted)
            assert live.requests.specs[number].body.constraint == "container&v100"
            for constraint, kept in (
                ("v100", "container"),
                ("", "container"),
                ("a100", "container"),
            ):
                await update(caller, number, constraint=constraint)
                assert live.requests.specs[number].body.constraint == kept
            assert await wish(caller, number) == (1, [1], [], "a100:1")

    asyncio.run(scene())


def test_what_if_keeps_a_type_of_mixed_nodes_with_other_gpus(tmp_path: Path) -> None:
    mixed = ("a100", "a100", "v100", "v100", "v100")

    async def scene() -> None:
        async with (
            Running(settings_of(tmp_path)) as running,
            MixedAgent("n1", running.target, mixed) as n1,
            MixedAgent("n2", running.target, mixed) as n2,
        ):
            await n1.known(running)
            await n2.known(running)
            caller = running.caller()

            async def told(**asked: Any) -> list[tuple[int, str, str]]:
                reply = await caller.control.WhatIf(c.WhatIfRequest(**asked), timeout=60)
                return [(each.gpus, ",".join(each.gpu_types), each.why) for each in reply.outcomes]

            one = job(gpus=2, gpu_types=["a100"], expected_s=100)
            assert await told(described=one, gpus=[1, 3], gpu_types=["a100", "v100"]) == [
                (2, "a100", ""),
                (1, "a100", ""),
                (1, "v100", ""),
                (
                    3,
                    "a100",
                    "no node has 3 a100; n[1-2] have 2 a100 (--open-ended waits for others)",
                ),
                (3, "v100", ""),
            ]
            two = job(nodes=2, gpus_per_node=1, gpu_types=["a100"], expected_s=100)
            whole, less = (4, "a100", ""), (1, "a100", "")
            assert await told(described=two, gpus=[4, 1]) == [(2, "a100", ""), whole, less]
            each = job(gpus_per_node=2, nodes=1, gpus_by_type="a100:1,v100:1", expected_s=100)
            assert await told(described=each) == [(2, "a100:1,v100:1", "")]
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await told(described=each, gpus=[4])
            assert "a100:1,v100:1 on each node, so no other number" in refused.value.details()

    asyncio.run(scene())


@pytest.mark.parametrize(("gpus", "moves"), [(2, True), (3, False)])
def test_a_waiting_job_is_left_to_nodes_of_its_type_that_join(
    tmp_path: Path, gpus: int, moves: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if it were submitted now; but not where they could not run it."""
    monkeypatch.setattr(types_of_waiting_jobs, "AT_ONCE", 1)

    async def scene() -> None:
        async with (
            Running(settings_of(tmp_path)) as running,
            MixedAgent("n1", running.target, ("a100", "a100", "a100", "v100")) as n1,
        ):
            await n1.known(running)
            caller = running.caller()
            [number] = await caller.submit(job(gpus=gpus, gpu_types=["a100"], held=True))
            [other] = await caller.submit(job(gpus=gpus, gpu_types=["a100"], held=True))
            assert await wish(caller, number) == (gpus, [gpus], [], f"a100:{gpus}")
            async with MixedAgent("n2", running.target, ("a100", "a100")) as n2:
                await n2.known(running)
                if moves:
                    for each in (number, other):
                        await eventually(partial(is_wish, caller, each, (gpus, [], ["a100"], "")))
                    await caller.act(c.ACTION_RELEASE, number)
                    await eventually(n2.running)
                    [event] = [e for e in (await caller.show(number)).events if e.kind == "update"]
                    assert event.actor == "daemon"
                    assert event.text.startswith("GPU type a100: on the nodes that have it alone")
                else:
                    await caller.act(c.ACTION_RELEASE, number)
                    await eventually(n1.running)
                    assert await wish(caller, number) == (gpus, [gpus], [], f"a100:{gpus}")

    asyncio.run(scene())


async def is_wish(caller: Caller, number: int, wanted: object) -> bool:
    return await wish(caller, number) == wanted
