"""Reported steps become measured speeds, which are stored and shown."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest

from dlsched.daemon.training.run_reports import speed_key
from dlsched.protocol.messages import RunKey
from dlsched.rpc.conversion import to_wire
from dlsched.rpc.v1 import control_pb2 as c

from .cluster_of_tests import Caller, Running, eventually, job, settings_of
from .scripted_agent import ScriptedAgent
from .test_daily import play, reaches, refused

QUICK = {"interval_s": 30.0, "measure_s": 0.001}


async def tells(agent: ScriptedAgent, key: RunKey, step: int, rank: int = 0) -> None:
    report = c.RunReport(node=agent.name, key=to_wire(key), rank=rank, step=step)
    await agent.runs.Report(report, timeout=60)


async def trains(agent: ScriptedAgent, number: int, caller: Caller) -> tuple[int, list[Any]]:
    """A run tells of its steps until it has been measured; returns how many it has told of."""
    [key] = [key for key in agent.running() if key.job == number]
    for step in range(1, 1000):
        await tells(agent, key, step)
        if found := await known(caller):
            return step, found
    raise AssertionError("it was never measured")


async def known(caller: Caller, **asked: Any) -> list[Any]:
    return list((await caller.control.Speeds(c.SpeedsRequest(**asked), timeout=60)).speeds)


def test_reported_progress_survives_a_restart(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, round=QUICK)

    async def first() -> int:
        async with (
            Running(settings) as running,
            ScriptedAgent("n1", running.target) as agent,
        ):
            caller = running.caller()
            [number] = await caller.submit(job(gpus=2, model="cnn", batch_size=64))
            await eventually(agent.running)
            await reaches(caller, number, "RUNNING")
            [key] = agent.running()
            for step in range(0, 50_000, 1000):  # of another rank: not counted
                await tells(agent, key, step, rank=1)
            assert not await known(caller)
            steps, rows = await trains(agent, number, caller)
            check(*rows, steps=steps)
            return steps

    async def second(steps: int) -> None:
        async with Running(settings) as running:
            check(*await known(running.caller()), steps=steps)

    def check(row: Any, *, steps: int) -> None:
        assert (row.model, row.batch_size, row.gpu_type, row.gpus) == ("cnn", 64, "v100", 2)
        assert 1 < row.steps_per_s <= steps / QUICK["measure_s"]  # with the other rank's: 1000 more
        assert row.measurements >= 1
        assert row.source == "measured"

    asyncio.run(second(asyncio.run(first())))


def test_speeds_are_imported_refused_and_forgotten(tmp_path: Path) -> None:
    def view(model: str, **more: Any) -> c.SpeedView:
        return c.SpeedView(**{"model": model, "gpu_type": "v100", "gpus": 1, **more})

    async def scene(running: Running, caller: Caller, agent: ScriptedAgent) -> None:
        root = running.caller("root", 0)
        rows = [
            view("cnn", steps_per_s=10.0), view("cnn", gpu_type="k80", steps_per_s=2.0),
            view("cnn", batch_size=64, steps_per_s=3.0), view("rnn", partner="cnn"),
        ]  # fmt: skip
        asked = c.SetSpeedsRequest(speeds=rows)
        code, text = await refused(caller.control.SetSpeeds(asked, timeout=60))
        assert code is grpc.StatusCode.PERMISSION_DENIED
        assert "operators only" in text
        assert (await root.control.SetSpeeds(asked, timeout=60)).count == 4
        found = await known(caller)
        assert [(row.model, row.gpu_type, row.batch_size) for row in found] == [
            ("cnn", "k80", 0), ("cnn", "v100", 0), ("cnn", "v100", 64), ("rnn", "v100", 0)
        ]  # fmt: skip
        assert {row.source for row in found} == {"root"}
        for wrong, said in (
            (view(""), "row 1: no model"),
            (view("x", gpus=0), "row 1: gpus: 0 is not within 1 and 1000000"),
            (view("x", steps_per_s=-1.0), "row 1: steps_per_s: -1 is not within 0 and 1e+12"),
            (view("x", steps_per_s=float("nan")), "row 1: steps_per_s: nan is not within"),
            (view("x", batch_size=-1), "row 1: batch_size: -1 is not within"),
            (view("x\n"), "row 1: model: has the character"),
        ):
            call = root.control.SetSpeeds(c.SetSpeedsRequest(speeds=[wrong]), timeout=60)
            code, text = await refused(call)
            assert code is grpc.StatusCode.INVALID_ARGUMENT
            assert text.startswith(said)
        twice = c.SetSpeedsRequest(speeds=[view("x"), view("x")])
        assert (await refused(root.control.SetSpeeds(twice, timeout=60)))[1] == (
            "row 2: x on 1 v100 is there twice"
        )
        size = c.SpeedsRequest(model="cnn", batch_size=0)
        assert (await root.control.ForgetSpeeds(size, timeout=60)).count == 2
        assert [(row.model, row.batch_size) for row in await known(caller)] == [
            ("cnn", 64), ("rnn", 0)
        ]  # fmt: skip
        assert (await root.control.ForgetSpeeds(c.SpeedsRequest(), timeout=60)).count == 2
        assert not await known(caller)

    play(tmp_path, scene)


def test_a_mix_of_types_and_a_job_without_a_name_are_not_measured(tmp_path: Path) -> None:
    async def scene(running: Running, caller: Caller, agent: ScriptedAgent) -> None:
        async with ScriptedAgent("n2", running.target, gpu_type="k80") as other:
            await eventually(lambda: len(running.daemon.driver.committed.nodes) == 2)
            [mixed] = await caller.submit(job(gpus=8, model="cnn"))
            await eventually(lambda: agent.running() and other.running())
            run = next(iter(running.daemon.driver.committed.runs.values()))
            assert run.key.job == mixed
            assert speed_key(running.daemon.cluster.live, run) is None

    play(tmp_path, scene, round=QUICK)


@pytest.mark.slow
def test_a_solve_that_exceeds_its_time_limit_keeps_the_last_shares(tmp_path: Path) -> None:
    """A solve that would take too long ends in the worker, and the round goes on."""

    async def scene(running: Running, caller: Caller, agent: ScriptedAgent) -> None:
        numbers = await caller.submit(*(job(model=f"m{k}") for k in range(6)))
        await eventually(lambda: len(agent.running()) == 4)
        rounds = running.daemon.cluster.round_state.number
        await eventually(lambda: running.daemon.cluster.round_state.number > rounds + 1)
        assert running.daemon.rounds.failures == 0
        states = [await caller.state(number) for number in numbers]
        assert states.count("RUNNING") == 4

    options = ("objective=water-filling", "solve_limit_s=1e-9")
    play(tmp_path, scene, round={"policy": "gavel", "interval_s": 0.2, "options": options})


@pytest.mark.slow
def test_a_solve_that_never_ends_is_killed_and_the_plan_stays(tmp_path: Path) -> None:
    async def scene(running: Running, caller: Caller, agent: ScriptedAgent) -> None:
        [first] = await caller.submit(job(gpus=2))
        await reaches(caller, first, "RUNNING")
        worker = running.daemon.rounds._worker
        worker.time_limit_s = 1e-4  # no decision is as quick
        [second] = await caller.submit(job(gpus=2))
        await eventually(lambda: running.daemon.rounds.failures >= 1)
        assert await caller.state(first) == "RUNNING"
        assert "was ended" in running.daemon.rounds.last_failure
        worker.time_limit_s = 20.0
        await reaches(caller, second, "RUNNING")

    play(tmp_path, scene, round={"policy": "gavel", "interval_s": 0.2})


def test_a_policy_that_would_fail_in_every_round_cannot_be_switched_on(tmp_path: Path) -> None:
    async def scene(running: Running, caller: Caller, agent: ScriptedAgent) -> None:
        root = running.caller("root", 0)
        await caller.submit(job(model="cnn"), job(model="rnn"))
        await eventually(lambda: len(agent.running()) == 2)

        async def refusal(*options: str) -> str:
            asked = c.SetPolicyRequest(parts={"scheduling": "gavel"}, options=options)
            code, text = await refused(root.control.SetPolicy(asked, timeout=60))
            assert code is grpc.StatusCode.INVALID_ARGUMENT
            assert "\n" not in text
            return text

        text = await refusal("objective=ftf-agnostic", "reference=h100")
        assert "uses the speeds on h100 only, but the cluster has v100" in text
        text = await refusal("objective=cost", "prices=k80:1")
        assert "cost needs the price of v100" in text
        text = await refusal("mechanism=published")
        assert "mechanism must be one of corrected, plain, not 'published'" in text
        for name in ("gavel", "blox", "no-such"):
            text = await refusal(f"semantics={name}")
            assert f"semantics={name}: a live cluster has rounds and events; only a replay" in text
        status = await root.control.Status(c.StatusRequest(), timeout=60)
        assert (status.policy, status.policy_failures) == ("fifo", 0)
        for objective in ("max-min-packed", "gandiva", "allox", "hierarchical", "cost-slo"):
            asked = c.SetPolicyRequest(
                parts={"scheduling": "gavel"}, options=[f"objective={objective}"]
            )
            await root.control.SetPolicy(asked, timeout=60)
            assert len(agent.running()) == 2

    play(tmp_path, scene)
