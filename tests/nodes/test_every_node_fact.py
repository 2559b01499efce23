"""Every fact of the table of nodes, from an agent's report to the database, and to a policy.

A real daemon with its gRPC server and database gets a report with every fact. Then a second daemon
reads it from that database: what its live nodes know, what rounds see, what `dlsched nodes --json`
shows and which jobs are refused. What files may say of a node goes the same way.
"""

from __future__ import annotations

import asyncio
import json
import math
from pathlib import Path
from typing import Any

import grpc
import pytest

from dlsched.core.cluster.description import Node, cluster_from_tables
from dlsched.daemon.round.restore import cluster_of
from dlsched.daemon.round.snapshot_builder import take_snapshot
from dlsched.nodeagent.agent.node_description import measured
from dlsched.nodeagent.agent.settings import Settings as AgentSettings
from dlsched.nodes.fields import REPORTED, ROWS, Row
from dlsched.rpc.v1 import node_pb2
from tests.daemon.cluster_of_tests import Running, eventually, job, settings_of
from tests.daemon.scripted_agent import ScriptedAgent
from tests.running import dlsched

REPORT = {row.reported: 7 + k if row.whole else (7 + k) << 30
          for k, row in enumerate(REPORTED.values())}  # fmt: skip
# what is found out of the GPUs that a node reports, and not said for the whole of it
OF_GPUS = {"gpu_memory_gib"}


class Reporting(ScriptedAgent):
    """An agent that reports every fact of the table."""

    async def describe(self) -> None:
        """Report it."""
        gpus = [node_pb2.GpuFacts(uuid=u, index=k, type="x") for k, u in enumerate(self.gpus)]
        facts = node_pb2.NodeFacts(address=f"127.0.0.1:{self.port}", gpus=gpus, **REPORT)
        message = node_pb2.NodeDescription(node=self.name, facts=facts)
        await self.leader.Describe(message, timeout=5)


def node_of_rounds(running: Running) -> Node:
    """The node as a policy sees it while a job says how much it needs of it."""
    cluster = running.daemon.cluster
    found = cluster_of(take_snapshot(cluster.round_state, "full", cluster.now))
    assert found is not None
    return found.nodes[0]


async def checked(running: Running, expected: dict[str, Any]) -> None:
    """Check what live nodes, rounds and `dlsched nodes` know of the only node."""
    await running.caller().submit(job(cpus=1, memory_bytes=1, held=True))
    live, seen = running.daemon.cluster.live.nodes[0], node_of_rounds(running)
    to = ("--daemon", running.target, "--insecure-loopback")
    listed = json.loads(await asyncio.to_thread(dlsched, "nodes", "--json", *to))["nodes"][0]
    for name, value in expected.items():
        row = ROWS[name]
        assert getattr(live.facts, name) == value, name
        if row.simulated:
            assert getattr(seen, name) == value, name
        if row.shown:
            assert listed[row.shown] == REPORT[row.reported], name


def test_every_fact_that_a_node_reports_is_kept_and_known(tmp_path: Path) -> None:
    expected = {name: REPORT[row.reported] / row.per for name, row in REPORTED.items()}

    async def first() -> None:
        async with (
            Running(settings_of(tmp_path)) as running,
            Reporting("n1", running.target, gpus=1),
        ):
            await eventually(lambda: running.daemon.cluster.agents.described)
            await checked(running, expected)
            for row in filter(lambda row: row.need, REPORTED.values()):
                more = {row.need: REPORT[row.reported] + (1 << 30)}
                with pytest.raises(grpc.aio.AioRpcError, match=f"of {row.label}, .* is asked"):
                    await running.caller().submit(job(held=True, **more))

    async def second() -> None:
        async with Running(settings_of(tmp_path)) as running:
            await checked(running, expected)

    asyncio.run(first())
    asyncio.run(second())


def test_a_report_beyond_the_bounds_is_refused(tmp_path: Path) -> None:
    async def whole() -> None:
        async with (
            Running(settings_of(tmp_path)) as running,
            ScriptedAgent("n1", running.target, gpus=1) as agent,
        ):
            for row in REPORTED.values():
                facts = node_pb2.NodeFacts(**{row.reported: row.most + 1})
                message = node_pb2.NodeDescription(node="n1", facts=facts)
                said = f"{row.reported} is .*, not from 0 to"
                with pytest.raises(grpc.aio.AioRpcError, match=said):
                    await agent.leader.Describe(message, timeout=5)

    asyncio.run(whole())


def in_file(row: Row) -> object:
    return f"{row.name}-a" if row.form == "text" else 5


def test_every_fact_of_the_daemons_file_counts(tmp_path: Path) -> None:
    said = {name: in_file(row) for name, row in ROWS.items() if row.configured}

    async def whole() -> None:
        nodes = [{"name": "n1", "gpus": 1, **said}]
        async with (
            Running(settings_of(tmp_path, nodes=nodes)) as running,
            Reporting("n1", running.target, gpus=1),
        ):
            await eventually(lambda: running.daemon.cluster.agents.described)
            await running.caller().submit(job(cpus=1, memory_bytes=1, held=True))
            seen, live = node_of_rounds(running), running.daemon.cluster.live.nodes[0]
            assert {name: getattr(live.facts, name) for name in said} == said
            assert {name: getattr(seen, name) for name in said} == said

    asyncio.run(whole())


def test_every_fact_of_a_cluster_file_is_in_the_nodes_of_a_replay() -> None:
    said = {name: in_file(row) for name, row in ROWS.items() if row.simulated}
    (node,) = cluster_from_tables({"nodes": [{"gpus": 2, **said}]}, where="x").nodes
    assert {name: getattr(node, name) for name in said} == said


def test_the_table_has_every_number_of_a_report_and_an_agent_measures_it() -> None:
    numbers = {f.name for f in node_pb2.NodeFacts.DESCRIPTOR.fields
               if f.cpp_type in (f.CPPTYPE_INT32, f.CPPTYPE_INT64, f.CPPTYPE_DOUBLE)}  # fmt: skip
    assert {row.reported for row in REPORTED.values()} == numbers
    found = measured(AgentSettings(name="n1", daemon=()))
    assert found.keys() == numbers
    assert all(0 < number <= row.most for row in REPORTED.values()
               if (number := found[row.reported]))  # fmt: skip
    unsaid = {n for n, r in ROWS.items() if not (r.reported or r.configured)}
    assert unsaid == OF_GPUS
    assert all(math.isnan(getattr(Node(name="n", gpus=1), n)) for n in REPORTED)
