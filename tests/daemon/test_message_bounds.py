"""What a node may say of itself and of jobs: the impossible is refused."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from dlsched.core.errors import BadInput
from dlsched.daemon.message_bounds import LONGEST_PROBLEM, check_description
from dlsched.protocol import agent
from dlsched.protocol import messages as m
from dlsched.protocol.ledger import JobStatus
from dlsched.rpc.v1 import control_pb2 as c
from dlsched.rpc.v1.node_pb2 import NodeDescription

from .cluster_of_tests import Running, eventually, job, settings_of
from .scripted_agent import ScriptedAgent

WRONG: dict[str, Callable[[NodeDescription], object]] = {
    "cpus is -3": lambda d: setattr(d.facts, "cpus", -3),
    "cpus is 100000": lambda d: setattr(d.facts, "cpus", 100_000),
    "memory_bytes is -1": lambda d: setattr(d.facts, "memory_bytes", -1),
    "memory_bytes is 4.61169e+18": lambda d: setattr(d.facts, "memory_bytes", 1 << 62),
    "index of GPU g0 is -1": lambda d: d.facts.gpus.add(uuid="g0", index=-1),
    "memory of GPU g0": lambda d: d.facts.gpus.add(uuid="g0", memory_bytes=-5),
    "GPUs is 1025": lambda d: [d.facts.gpus.add(uuid=f"x{k}") for k in range(1025)],
    "not up to 1024 different": lambda d: [d.facts.gpus.add(uuid="same") for _ in range(2)],
    "capabilities is 65": lambda d: d.facts.capabilities.extend("x" * 65),
    "'a\\nb' is longer": lambda d: setattr(d.facts, "driver", "a\nb"),
    "names of starts is 100": lambda d: d.starts.extend("x" * 100),
    "'xxx": lambda d: setattr(d.facts, "address", "x" * 300),
    "utilization of g0 is nan": lambda d: d.uses.add(uuid="g0", utilization=float("nan")),
    "utilization of g0 is 7": lambda d: d.uses.add(uuid="g0", utilization=7),
    "memory in use on g0": lambda d: d.uses.add(uuid="g0", memory_used_bytes=-1),
    "temperature of g0": lambda d: d.uses.add(uuid="g0", temperature_c=1e9),
}  # fmt: skip


def description() -> NodeDescription:
    return NodeDescription(node="n1", facts={"cpus": 8, "memory_bytes": 1 << 30, "address": "h:1"})


@pytest.mark.parametrize("why", WRONG)
def test_impossible_facts_of_a_node_are_refused_by_name(why: str) -> None:
    message = description()
    check_description(message)
    WRONG[why](message)
    with pytest.raises(BadInput) as refused:
        check_description(message)
    assert str(refused.value).startswith("description of n1: ")
    assert why in str(refused.value)
    assert len(str(refused.value)) < 300


def test_long_words_of_a_problem_are_cut_and_not_refused() -> None:
    message = description()
    message.uses.add(uuid="g0", problem="x" * 100_000)
    message.problems.extend(["y" * 100_000] * 3)
    check_description(message)
    assert [len(each) for each in (message.uses[0].problem, *message.problems)] == [
        LONGEST_PROBLEM
    ] * 4


def made_up_end(key: m.RunKey, node: m.NodeName, request_id: str) -> m.ExitRecord:
    return m.ExitRecord(
        key=key, node=node, reason=m.ExitReason.EXITED, code=0, ran_s=1.0, nodes=(node,),
        request_id=m.RequestId(request_id),
    )  # fmt: skip


def test_a_node_ends_no_job_that_it_never_held(tmp_path: Path) -> None:
    """It makes up ends of a job that waits, and of one that runs elsewhere under its own key."""

    async def scene() -> None:
        async with (
            Running(settings_of(tmp_path)) as running,
            ScriptedAgent("n1", running.target) as honest,
            ScriptedAgent("n2", running.target) as liar,
        ):
            caller, driver = running.caller(), running.daemon.driver
            [waits] = await caller.submit(job(held=True))
            [runs] = await caller.submit(job(only_nodes=["n1"]))
            await eventually(honest.running)
            own = honest.running()[0]
            keys = [
                m.RunKey(job=m.JobId(waits), run=m.RunNumber(1), run_id=m.RunId("made-up-1")),
                m.RunKey(job=m.JobId(waits), run=m.RunNumber(1), run_id=m.RunId("made-up-2")),
                m.RunKey(job=m.JobId(runs), run=m.RunNumber(2), run_id=m.RunId("made-up-3")),
                own,
            ]
            await eventually(lambda: liar.state.registered)
            ends = [made_up_end(key, liar.name, "") for key in keys]
            liar.state = replace(liar.state, ended={each.key.run_id: each for each in ends})
            liar.take(agent.Tick(time.monotonic()))
            await eventually(lambda: not liar.state.ended)  # all are committed as history
            assert await caller.state(waits) == "PENDING"
            assert await caller.state(runs) == "RUNNING"
            assert driver.committed.jobs[m.JobId(runs)].status is JobStatus.RUNNING
            await caller.act(c.ACTION_RELEASE, waits)
            await eventually(lambda: len(honest.running() + liar.running()) == 2)

    asyncio.run(scene())
