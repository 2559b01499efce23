"""The reported time of a start is shown, stored, and not counted as work."""

from __future__ import annotations

import asyncio
import csv
import math
from pathlib import Path
from typing import Any

import pytest

from dlsched.protocol.messages import RunKey
from dlsched.rpc.conversion import to_wire
from dlsched.rpc.v1 import control_pb2 as c

from .cluster_of_tests import Caller, Running, eventually, job, settings_of
from .scripted_agent import ScriptedAgent
from .test_daily import play, reaches
from .test_replayed import dlsched


async def says(agent: ScriptedAgent, key: RunKey, **told: Any) -> None:
    report = c.RunReport(node=agent.name, key=to_wire(key), **told)
    await agent.runs.Report(report, timeout=60)


async def begins(agent: ScriptedAgent, run: int) -> RunKey:
    """The key of a run, once it runs."""

    async def there() -> RunKey | None:
        return next((key for key in agent.running() if key.run == run), None)

    found = await eventually(there)
    assert isinstance(found, RunKey)
    return found


def test_the_time_of_a_start_is_measured_once_for_each_run(tmp_path: Path) -> None:
    settings = settings_of(tmp_path)

    async def first() -> int:
        async with Running(settings) as running, ScriptedAgent("n1", running.target) as agent:
            caller = running.caller()
            [number] = await caller.submit(job(gpus=1))
            one = await begins(agent, 1)
            await says(agent, one, restart_s=4.0)
            await says(agent, one, restart_s=5.0)  # a script that attaches twice
            await says(agent, one, rank=1, restart_s=90.0)  # another rank of the same start
            await eventually(lambda: shown(caller, number, (4.0, 4.0)))
            await caller.act(c.ACTION_REQUEUE, number)
            await says(agent, await begins(agent, 2), restart_s=7.0, step=12)
            await eventually(lambda: shown(caller, number, (5.5, 11.0)))
            return int(number)

    async def second(number: int) -> None:
        async with Running(settings) as running:
            await eventually(lambda: shown(running.caller(), number, (5.5, 11.0)))
            assert (await running.caller().show(number)).job.progress == 12  # as before the restart

    async def shown(caller: Caller, number: int, expected: tuple[float, float]) -> bool:
        view = (await caller.show(number)).job
        return bool((view.restart_s, view.starting_s) == expected)

    number = asyncio.run(first())
    asyncio.run(second(number))


@pytest.mark.slow
def test_an_export_excludes_start_times_from_work(tmp_path: Path, later: Any) -> None:
    trace = tmp_path / "trace.csv"

    async def scene(running: Running, caller: Caller, agent: ScriptedAgent) -> None:
        tells, silent = await caller.submit(job(gpus=1), job(gpus=1))
        one = await begins(agent, 1)
        for number in (tells, silent):
            await reaches(caller, number, "RUNNING")
        one = next(key for key in agent.running() if key.job == tells)
        other = next(key for key in agent.running() if key.job == silent)
        await says(agent, one, restart_s=20.0)
        later(1200.0)
        agent.end(one.run_id)
        agent.end(other.run_id)
        for number in (tells, silent):
            await reaches(caller, number, "COMPLETED")
        _, out, _ = await dlsched(running, "show", str(tells))
        assert "20 s each to the first step" in out
        _, out, _ = await dlsched(running, "history", "-a", "-o", "id,restart", "--noheader")
        assert sorted(line.split()[1] for line in out.splitlines()) == ["-", "0:20"]
        code, _, err = await dlsched(running, "history", "-a", "--export", str(trace))
        assert code == 0, err
        rows = list(csv.DictReader(trace.read_text().splitlines()))
        assert [row["restart_overhead"] for row in rows] == ["20", ""]
        worked = [float(row["duration"]) for row in rows]
        assert worked == pytest.approx([1180.0, 1200.0], abs=60.0)
        database = running.daemon.settings.daemon.database
        for words, jcts in (
            ([str(trace)], [1200.0, 1200.0]),
            ([str(trace), "--restart-overhead", "5"], [1185.0, 1205.0]),  # what is said wins
            (["--from-db", database], [1200.0, 1200.0]),
        ):
            jobs_out = tmp_path / "jobs.csv"
            code, _, err = await dlsched(
                running, "replay", *words, "--cluster", "1x8", "--clock", "events",
                "--jobs-out", str(jobs_out),
            )  # fmt: skip
            assert code == 0, err
            ended = list(csv.DictReader(jobs_out.read_text().splitlines()))
            assert [float(row["jct"]) for row in ended] == pytest.approx(jcts, abs=60.0)

    play(tmp_path, scene)


NONSENSE: list[dict[str, Any]] = [
    {"restart_s": math.nan}, {"restart_s": -5.0}, {"restart_s": 1e300}, {"save_s": math.inf},
    {"step": -7}, {"step": (1 << 63) - 1}, {"loss": math.nan}, {"loss": -1e300},
    {"batch_s": -1.0}, {"gpu_memory_bytes": -1}, {"metrics": {"good": 1.0, "bad": math.inf}},
    {"ignored": 1},
]  # fmt: skip


def test_invalid_reports_of_a_rank_are_counted_and_change_nothing(tmp_path: Path) -> None:
    async def scene(running: Running, caller: Caller, agent: ScriptedAgent) -> None:
        [number] = await caller.submit(job(gpus=1))
        await reaches(caller, number, "RUNNING")
        key = await begins(agent, 1)
        cluster = running.daemon.cluster
        await says(agent, key, step=3, loss=0.5, restart_s=2.0)
        before = cluster.live.jobs.get("steps_done", 0), cluster.live.jobs.get("loss", 0)
        assert before == (3.0, 0.5)
        for count, nonsense in enumerate(NONSENSE, 1):
            await says(agent, key, **nonsense)
            assert cluster.trainings.ignored == count, nonsense
            assert (
                cluster.live.jobs.get("steps_done", 0), cluster.live.jobs.get("loss", 0)
            ) == before, nonsense  # fmt: skip
        await eventually(lambda: shows(caller, number, 3.0, 2.0))
        await says(agent, key, step=4, ignored=(1 << 63) - 1)  # as much as a report can say
        await eventually(lambda: shows(caller, number, 4.0, 2.0))

    async def shows(caller: Caller, number: int, progress: float, restart_s: float) -> bool:
        view = (await caller.show(number)).job
        return bool((view.progress, view.restart_s) == (progress, restart_s))

    play(tmp_path, scene)
