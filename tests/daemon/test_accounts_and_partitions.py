"""What accounts and partitions use: `usage --by account`, and metrics of both."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest
from prometheus_client.parser import text_string_to_metric_families

from dlsched.rpc.v1 import control_pb2 as c

from .cluster_of_tests import Running, eventually, job, settings_of
from .scripted_agent import ScriptedAgent
from .test_tenants import Operator


def scraped(running: Running, name: str) -> dict[tuple[str, ...], float]:
    """The values of a metric, by the values of its labels."""
    running.daemon._metrics.gather(running.daemon.cluster)
    from prometheus_client import generate_latest  # noqa: PLC0415  # only this needs it

    text = generate_latest(running.daemon._metrics.registry).decode()
    return {
        tuple(each.labels.values()): each.value
        for family in text_string_to_metric_families(text)
        for each in family.samples
        if each.name == name
    }


def test_accounts_and_partitions_have_their_use_and_made_up_names_are_no_labels(
    tmp_path: Path,
) -> None:
    async def scene() -> None:
        settings = settings_of(tmp_path, partitions=[{"name": "all"}, {"name": "short"}])
        async with Running(settings) as running:
            agent = ScriptedAgent("n1", running.target)
            await agent.start()
            root, caller = Operator(running), running.caller()
            await eventually(lambda: running.daemon.driver.committed.nodes)
            [made_up] = await caller.submit(job(gpus=1, vc="made-up"))
            await eventually(agent.running)
            await caller.act(c.ACTION_CANCEL, made_up)
            await root.set("account", name="lab")
            await root.set("user", name="ann", accounts=["lab"], account="lab")
            await caller.submit(job(gpus=3, vc="lab"), job(gpus=2, vc="lab", partition="short"))
            await eventually(lambda: len(agent.running()) == 1)

            def held() -> Any:
                return scraped(running, "dlsched_account_gpus_held")

            await eventually(lambda: held() == {("-",): 0.0, ("lab",): 3.0})
            assert scraped(running, "dlsched_partition_gpus_held") == {
                ("-",): 0.0, ("all",): 3.0, ("short",): 0.0,
            }  # fmt: skip
            assert scraped(running, "dlsched_partition_jobs")["short", "pending"] == 1.0
            asked = c.UsageRequest(by="account")
            found = await caller.control.Usage(asked, timeout=60)
            use = {each.name: (each.gpus_now, each.pending) for each in found.usage}
            assert use == {"lab": (3, 1), "made-up": (0, 0)}
            with pytest.raises(grpc.aio.AioRpcError, match="by vc, account or user"):
                await caller.control.Usage(c.UsageRequest(by="name"), timeout=60)
            await agent.stop()

    asyncio.run(scene())


def test_thousands_of_jobs_are_acted_on_in_parts(tmp_path: Path) -> None:
    async def scene() -> None:
        async with Running(settings_of(tmp_path)) as running:
            ann, bob = running.caller(), running.caller("bob", 1002)
            jobs = await ann.submit(*(job() for _ in range(25)))
            [others] = await bob.submit(job())
            parts, after = [], 0
            while True:
                asked = c.ActRequest(
                    action=c.ACTION_CANCEL, filter=c.Filter(jobs=[9999, others, *jobs]),
                    limit=10, after=after,
                )  # fmt: skip
                reply = await ann.control.Act(asked, timeout=60)
                parts.append((len(reply.done), sorted(each.subject for each in reply.failed)))
                after = reply.next
                if not after:
                    break
            unknown = ["job 9999", f"job {others}"]
            assert parts == [(10, sorted(unknown)), (10, []), (5, [])]
            assert await ann.state(jobs[-1]) == "CANCELLED"
            assert await bob.state(others) == "PENDING"

    asyncio.run(scene())
