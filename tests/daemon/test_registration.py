"""A node registers in one exchange: the reply to its agent's first sync has all that it needs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from dlsched.protocol import messages as m
from dlsched.protocol.ledger import NodeStatus
from dlsched.rpc.channels import ClientTrust, open_channel
from dlsched.rpc.conversion import from_wire, to_wire
from dlsched.rpc.identity import node
from dlsched.rpc.v1 import node_pb2, node_pb2_grpc

from .cluster_of_tests import Running, settings_of

NAME = m.NodeName("n1")


def first_sync(*starts: str, ended: tuple[m.ExitRecord, ...] = ()) -> m.Sync:
    """The first sync of an agent process: the last one of `starts`."""
    return m.Sync(
        node=NAME,
        boot_id=m.BootId("boot-1"),
        incarnation=m.Incarnation(len(starts)),
        sequence=0,
        last=m.Term(),
        applied=m.Term(),
        held_digest=m.Digest("none"),
        held=(),
        ended=ended,
        inventory=m.Inventory(gpus=(m.GpuId("g0"),), gpu_type="v100", agent_version="test"),
        starts=starts,
    )


def test_the_first_sync_of_an_agent_is_answered_at_once(tmp_path: Path) -> None:
    """Of a new node, and of an agent that starts again with the end of a run."""

    async def scene() -> None:
        async with Running(settings_of(tmp_path)) as running:
            channel = open_channel(running.target, ClientTrust.claimed_role(node(NAME)))
            stub = node_pb2_grpc.LeaderStub(channel)

            async def exchange(sync: m.Sync) -> m.Reply:
                reply: m.Reply = from_wire(m.Reply, await stub.Sync(to_wire(sync), timeout=60))
                return reply

            reply = await exchange(first_sync("a"))
            committed = running.daemon.driver.committed
            assert committed.nodes[NAME].status is NodeStatus.UP
            assert reply.term == m.Term(committed.epoch, committed.nodes[NAME].revision)
            assert (reply.register, reply.desired) == (False, ())
            assert reply.lease is not None
            key = m.RunKey(job=m.JobId(7), run=m.RunNumber(1), run_id=m.RunId("r"))
            end = m.ExitRecord(key=key, node=NAME, reason=m.ExitReason.EXITED, nodes=(NAME,))
            reply = await exchange(first_sync("a", "b", ended=(end,)))
            assert reply.acknowledged == ("r",)
            assert (NAME, key.run_id) in running.daemon.driver.committed.history
            await channel.close()

    asyncio.run(scene())


def test_an_agent_that_is_not_the_registered_one_describes_no_node(tmp_path: Path) -> None:
    """The daemon would reach the clone at its address, and drain the node for its faults."""

    async def scene() -> None:
        async with Running(settings_of(tmp_path)) as running:
            channel = open_channel(running.target, ClientTrust.claimed_role(node(NAME)))
            stub = node_pb2_grpc.LeaderStub(channel)
            cluster = running.daemon.cluster

            async def describe(address: str, *starts: str, **more: Any) -> bool:
                facts = node_pb2.NodeFacts(address=address) if address else None
                message = node_pb2.NodeDescription(node=NAME, facts=facts, starts=starts, **more)
                reply = await stub.Describe(message, timeout=60)
                known = cluster.agents.described[NAME].facts.address
                assert known == cluster.address(NAME)
                assert not address or not starts or (known == address) == (starts[-1] != "z")
                return bool(reply.want_facts)

            assert not await describe("n1:1", "a")  # before it is registered
            await stub.Sync(to_wire(first_sync("a")), timeout=60)
            assert not await describe("clone:1", "z", faults=["burning"])
            assert not cluster.driver.committed.nodes[NAME].why
            assert cluster.live.nodes[0].is_open
            assert not await describe("n1:2", "a", "b")  # started again, before its first sync
            await stub.Sync(to_wire(first_sync("a", "b")), timeout=60)
            assert not await describe("n1:3", "a", "b")
            await stub.Sync(to_wire(first_sync("a", "b", "c")), timeout=60)
            assert not await describe("", "a", "b", "c")  # its facts of before are its own
            assert not await describe("n1:4")  # an earlier version
            cluster.agents.described[NAME].start = "y"  # as those of an agent that is gone
            assert await describe("", "a", "b", "c")
            await channel.close()

    asyncio.run(scene())
