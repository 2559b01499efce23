"""A node registers in one exchange: the reply to its agent's first sync has all that it needs."""

from __future__ import annotations

import asyncio
from pathlib import Path

from dlsched.protocol import messages as m
from dlsched.protocol.ledger import NodeStatus
from dlsched.rpc.channels import ClientTrust, open_channel
from dlsched.rpc.conversion import from_wire, to_wire
from dlsched.rpc.identity import node
from dlsched.rpc.v1 import node_pb2_grpc

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
