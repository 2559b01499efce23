"""The description of a node that its agent sends beside its syncs: facts and state of the GPUs."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Protocol

import psutil

from dlsched import __version__
from dlsched.nodeagent.agent.health_check import HealthCheck
from dlsched.nodeagent.agent.leader_link import LeaderLink
from dlsched.nodeagent.agent.other_agents import OtherAgents
from dlsched.nodeagent.agent.settings import Settings
from dlsched.nodeagent.gpus.backend import Inventory
from dlsched.nodeagent.gpus.watch import GpuWatch
from dlsched.protocol.agent.state import AgentState
from dlsched.rpc.v1 import node_pb2

EVERY_BEATS = 4


class Described(Protocol):
    """The parts of an agent that a description is made of, or sent with."""

    @property
    def settings(self) -> Settings:
        """Of the agent."""

    @property
    def gpus(self) -> GpuWatch:
        """Watches this node's GPUs."""

    @property
    def leader(self) -> LeaderLink:
        """Calls the daemon."""

    @property
    def other_agents(self) -> OtherAgents:
        """Learn their addresses from the daemon's answers."""

    @property
    def health(self) -> HealthCheck:
        """The site's health check."""

    @property
    def state(self) -> AgentState:
        """Of the protocol."""

    def check_starts(self) -> None:
        """Begin to check whether the node can start jobs."""

    def take_start_check(self) -> str | None:
        """Why that check failed, empty when it passed; None: it is not done, or was taken."""

    @property
    def news(self) -> asyncio.Event:
        """Set when the description has changed."""


def measured(settings: Settings) -> dict[str, int]:
    """Return what is measured of this machine, or pretended, by the fields of `NodeFacts`."""
    fake = round(settings.fake_memory_gb * 1e9)
    return {
        "cpus": settings.fake_cpus or psutil.cpu_count() or 1,
        "memory_bytes": fake or psutil.virtual_memory().total,
        "tmp_bytes": temporary_bytes(),
    }


def temporary_bytes() -> int:
    """Return the size of the file system of /tmp; 0 where it cannot be asked."""
    try:
        return int(psutil.disk_usage("/tmp").total)
    except OSError:
        return 0


def node_facts(
    inventory: Inventory,
    address: str,
    *,
    machine: Mapping[str, int],
    launcher: str,
    capabilities: Sequence[str],
) -> node_pb2.NodeFacts:
    """Return what does not change while the agent runs.

    Args:
        inventory: the GPUs.
        address: where the agent is reached.
        machine: see `measured`.
        launcher: the name of what starts jobs.
        capabilities: of that launcher.
    """
    return node_pb2.NodeFacts(
        address=address,
        launcher=launcher,
        capabilities=capabilities,
        driver=inventory.driver,
        version=__version__,
        **machine,
        gpus=[
            node_pb2.GpuFacts(
                uuid=gpu.uuid,
                index=gpu.index,
                type=gpu.type,
                memory_bytes=gpu.memory_bytes,
                numa_node=gpu.numa_node,
                linked=gpu.linked,
            )
            for gpu in inventory.gpus
        ],
    )


def gpu_uses(gpus: GpuWatch) -> list[node_pb2.GpuUse]:
    """Return how busy, how full and how healthy each GPU is now."""
    found = []
    for uuid, state in gpus.states.items():
        reasons = (gpus.why.get(uuid), state.misused, state.slow, gpus.foreign.get(uuid))
        use = node_pb2.GpuUse(
            uuid=uuid,
            problem="; ".join(filter(None, reasons)),
            foreign=uuid in gpus.foreign,
            usable=uuid not in gpus.why,
        )
        if state.utilization is not None:
            use.utilization = state.utilization
        if state.memory_used_bytes is not None:
            use.memory_used_bytes = state.memory_used_bytes
        if state.temperature_c is not None:
            use.temperature_c = state.temperature_c
        found.append(use)
    return found


def node_faults(agent: Described) -> list[str]:
    """Return why the node is to be drained until an operator resumes it."""
    found = [agent.health.fault] if agent.health.fault else []
    found += agent.gpus.node_faults.values()
    if agent.settings.gpu_fault == "node":
        index_of = {gpu.uuid: gpu.index for gpu in agent.gpus.inventory.gpus}
        found += [f"GPU {index_of[uuid]}: {why}" for uuid, why in agent.gpus.why.items()]
    return found


async def send_descriptions(agent: Described, facts: node_pb2.NodeFacts) -> None:
    """Send descriptions, for ever: with the facts to a new leader or when asked, else without."""
    in_full = True
    while True:
        await agent.leader.connected.wait()
        if agent.leader.new_leader.is_set():
            agent.leader.new_leader.clear()
            in_full = True
        agent.news.clear()
        message = node_pb2.NodeDescription(
            node=agent.settings.name,
            uses=gpu_uses(agent.gpus),
            problems=agent.gpus.problems,
            faults=node_faults(agent),
            starts=(agent.state.writing or agent.state.record).starts,
        )
        if in_full:
            message.facts.CopyFrom(facts)
        checked = agent.take_start_check()
        if checked is not None:
            message.start_check = checked
        reply = await agent.leader.describe(message)
        wait = agent.settings.timing.beat_s
        if reply is not None:
            agent.other_agents.set_addresses(dict(reply.peers))
            if reply.check_starts:
                agent.check_starts()
            if reply.want_facts and not in_full:
                in_full = True
                continue
            in_full = False
            wait *= EVERY_BEATS
        waits = [asyncio.create_task(e.wait()) for e in (agent.news, agent.leader.new_leader)]
        try:
            await asyncio.wait(waits, timeout=wait, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waits:
                task.cancel()
