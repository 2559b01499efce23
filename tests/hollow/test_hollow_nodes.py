"""Hollow nodes under a real daemon: every job ends as it should, and none is lost."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest

from dlsched.core.errors import BadInput
from dlsched.hollow.__main__ import main, parser, settings_of
from dlsched.hollow.jobs import SimulatedEnd, SimulatedJobs
from dlsched.hollow.nodes import HollowNodes
from dlsched.nodeagent.agent.settings import Settings
from dlsched.protocol.messages import JobId, NodeName
from dlsched.rpc.v1 import control_pb2 as c
from dlsched.rpc.v1 import run_pb2
from tests.daemon.cluster_of_tests import BEAT, Caller, Running, eventually, job
from tests.daemon.cluster_of_tests import settings_of as of

pytestmark = pytest.mark.slow

NODES, GPUS = 20, 4
ENDED = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT"}
BRIEF = SimulatedJobs.parse("0.05:0.3")


def hollow_settings(target: str, *words: str) -> list[Settings]:
    beat = str(BEAT["beat_s"])
    given = ["--insecure-loopback", "--daemon", target, "--beat", beat, "--nodes", str(NODES)]
    return settings_of(parser().parse_args([*given, "--gpus", str(GPUS), *words]))


@contextlib.asynccontextmanager
async def hollow_cluster(
    folder: Path, jobs: SimulatedJobs
) -> AsyncIterator[tuple[Running, HollowNodes]]:
    """A daemon and its hollow nodes, all of which have joined."""
    async with (
        Running(of(folder)) as running,
        HollowNodes(hollow_settings(running.target), jobs) as nodes,
    ):
        await nodes.all_joined()
        yield running, nodes


def environment(**variables: str) -> list[c.EnvironmentVariable]:
    return [c.EnvironmentVariable(name=k, value=v) for k, v in variables.items()]


def live(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 100))


async def all_over(user: Caller, jobs: Sequence[int]) -> list[Any]:
    """What `show` has of jobs that have all ended, by number."""
    found: dict[int, Any] = {}

    async def over() -> bool:
        left = [number for number in jobs if number not in found]
        asked = c.ShowRequest(filter=c.Filter(jobs=left[:100]))
        for each in (await user.control.Show(asked, timeout=10)).jobs:
            if each.job.state in ENDED:
                found[each.job.job] = each.job
        return len(found) == len(jobs)

    await eventually(over)
    return [found[number] for number in jobs]


def test_jobs_on_hollow_nodes_all_end_and_none_is_lost(tmp_path: Path) -> None:
    """More jobs than GPUs, gangs over two nodes among them, and codes of their own."""

    async def script() -> None:
        async with hollow_cluster(tmp_path, BRIEF) as (running, nodes):
            user = running.caller()
            plain = [job(gpus=1 + k % GPUS) for k in range(120)]
            gang = {"nodes": 2, "gpus_per_node": GPUS, "mode": run_pb2.LAUNCH_MODE_NODE}
            gangs = [job(**gang) for _ in range(5)]
            told = [job(gpus=1, environment=environment(HOLLOW_EXIT="7")) for _ in range(5)]
            ids = await user.submit(*plain, *gangs, *told)
            ended = await all_over(user, ids)
            assert Counter(each.state for each in ended) == {"COMPLETED": 125, "FAILED": 5}
            assert {each.code for each in ended[-5:]} == {7}
            assert {each.starts for each in ended} == {1}
            where = {node for each in ended for node in each.nodes}
            assert len(where) > NODES // 2
            await eventually(lambda: not any(n.keepers for n in nodes.nodes.values()))
            members = sum(len(each.nodes) for each in ended)  # some plain jobs span nodes, too
            assert nodes.summary() == f"20 nodes; {members} runs executed, {members} over, 0 held"
            assert not nodes.failed.done()

    live(script())


def test_a_simulated_job_is_cancelled_suspended_and_limited_like_a_real_one(tmp_path: Path) -> None:
    async def script() -> None:
        async with hollow_cluster(tmp_path, SimulatedJobs.parse("600")) as (running, _):
            user = running.caller()
            cancelled, limited, brief = await user.submit(
                job(gpus=1),
                job(gpus=1, time_limit_s=1.0),
                job(gpus=1, environment=environment(HOLLOW_SECONDS="2")),
            )
            for number in (cancelled, limited, brief):
                await eventually(lambda n=number: _is(user, n, "RUNNING"))
            await user.act(c.ACTION_SUSPEND, brief)
            await eventually(lambda: _is(user, brief, "SUSPENDED"))
            await user.act(c.ACTION_CANCEL, cancelled)
            ended = await all_over(user, [cancelled, limited])
            assert [each.state for each in ended] == ["CANCELLED", "TIMEOUT"]
            assert await user.state(brief) == "SUSPENDED"
            await user.act(c.ACTION_RESUME, brief)
            [last] = await all_over(user, [brief])
            assert (last.state, last.starts) == ("COMPLETED", 1)

    live(script())


def test_nodes_that_are_switched_off_come_back_and_their_jobs_start_again(tmp_path: Path) -> None:
    async def script() -> None:
        async with Running(of(tmp_path)) as running:
            user = running.caller()
            async with HollowNodes(hollow_settings(running.target), SimulatedJobs.parse("600")):
                [number] = await user.submit(job(gpus=1))
                await eventually(lambda: _is(user, number, "RUNNING"))
            async with HollowNodes(hollow_settings(running.target), BRIEF):
                [ended] = await all_over(user, [number])
                assert (ended.state, ended.starts) == ("COMPLETED", 2)

    live(script())


async def _is(user: Caller, number: int, state: str) -> bool:
    return await user.state(number) == state


# -- the command line ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--nodes", "0"], "--nodes 0: expected 1 to 10000"),
        (["--seconds", "9:3"], "--seconds '9:3': expected seconds, as 60, or a range, as 60:600"),
        (["--seconds", "soon"], "--seconds 'soon'"),
        (["--gpus", "lots"], "N:TYPE is expected"),
        (["--beat", "0"], "--beat 0: expected seconds above 0"),
        (["--daemon", ","], "--daemon is empty: expected HOST:PORT"),
    ],
)
def test_a_wrong_option_is_named_in_one_line(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--insecure-loopback", "--daemon", "127.0.0.1:1", "--nodes", "1", *words]) == 2
    error = capsys.readouterr().err
    assert told in error
    assert error.count("\n") == 1


def test_a_node_without_a_certificate_is_named(tmp_path: Path) -> None:
    words = ["--daemon", "head:7817", "--certificates", str(tmp_path), "--nodes", "1"]
    with pytest.raises(BadInput, match="node hollow1 has none: dlsched admin ca issue"):
        settings_of(parser().parse_args(words))


def test_nodes_are_named_and_numbered_and_differ_in_their_gpus() -> None:
    first, last = (hollow_settings("127.0.0.1:1", "--first", "41")[k] for k in (0, -1))
    assert (first.name, last.name) == (NodeName("hollow41"), NodeName("hollow60"))
    assert first.fake_gpus == "4:v100"


def test_the_time_of_a_job_is_the_same_at_every_start_and_its_own_words_win() -> None:
    jobs = SimulatedJobs.parse("60:600", seed=3)
    drawn = jobs.end_of(JobId(7), {})
    assert drawn == SimulatedJobs.parse("60:600", seed=3).end_of(JobId(7), {})
    assert drawn != jobs.end_of(JobId(8), {})
    assert 60 <= drawn.executes_s <= 600
    own = jobs.end_of(JobId(7), {"HOLLOW_SECONDS": "2.5", "HOLLOW_EXIT": "3"})
    assert own == SimulatedEnd(executes_s=2.5, code=3)
    for variables in ({"HOLLOW_SECONDS": "-1"}, {"HOLLOW_EXIT": "300"}):
        with pytest.raises(BadInput, match="HOLLOW_"):
            jobs.end_of(JobId(7), variables)
