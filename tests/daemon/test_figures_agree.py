"""What a job has received is one figure in lists, sums, exports and snapshots."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from dlsched.daemon.round.snapshot_builder import copy_present
from dlsched.rpc.v1 import control_pb2 as c

from .cluster_of_tests import Caller, Running, job
from .scripted_agent import ScriptedAgent
from .test_daily import play, reaches
from .test_recorded_predictions import begins, says
from .test_replayed import dlsched
from .test_restarted_work import commit, leaves

ROUNDED = 0.02  # seconds, in JSON
# as users see them, and as policies do
FIGURES = {"run_s": "held_s", "lost_s": "lost_s", "starting_s": "overhead_s", "gpu_s": "attained"}


async def shown(running: Running, *words: str) -> Any:
    code, out, err = await dlsched(running, *words, "--json")
    assert code == 0, err
    return json.loads(out)


def in_a_snapshot(running: Running, number: int) -> dict[str, float]:
    cluster = running.daemon.cluster
    table = copy_present(cluster.round_state, cluster.now).table
    row = table.job.tolist().index(number)
    return {name: float(getattr(table, column)[row]) for name, column in FIGURES.items()}


@pytest.mark.slow
def test_all_that_tells_what_a_job_received_tells_the_same(tmp_path: Path, later: Any) -> None:
    """A run that costs a start and saves a part of its work, one that saves none, and the last."""

    async def scene(running: Running, caller: Caller, agent: ScriptedAgent) -> None:
        [number] = await caller.submit(job(gpus=2))
        await says(agent, await begins(agent, 1), restart_s=20.0)
        later(3000.0)
        await commit(agent, next(iter(agent.running())), 3)
        later(2000.0)
        await leaves(running, agent, number, 0.0)
        [waits] = (await shown(running, "show", str(number)))["jobs"]
        figures = {name: waits[name] for name in FIGURES}
        assert figures == pytest.approx(
            {"run_s": 5000.0, "lost_s": 2000.0, "starting_s": 20.0, "gpu_s": 10000.0}, rel=0.03
        )
        assert figures == pytest.approx(in_a_snapshot(running, number), abs=ROUNDED)

        resume = c.SetNodesRequest(names=[agent.name], action=c.NODE_ACTION_RESUME)
        await running.caller("root", 0).control.SetNodes(resume, timeout=60)
        await begins(agent, 2)
        later(1000.0)
        agent.end_job(number)
        await reaches(caller, number, "COMPLETED")
        [ended] = (await shown(running, "show", str(number)))["jobs"]
        [past] = (await shown(running, "history", "-a"))["jobs"]
        figures = {name: past[name] for name in FIGURES}
        assert figures == {name: ended[name] for name in FIGURES}
        assert figures == pytest.approx(in_a_snapshot(running, number), abs=ROUNDED)
        [used] = (await shown(running, "usage", "--by-user"))["usage"]
        assert used["gpu_s"] == pytest.approx(figures["gpu_s"], abs=ROUNDED)
        runs = running.daemon.driver.store.runs(number)
        for name, column in FIGURES.items():
            total = sum(getattr(run.received, column) for run in runs)
            assert total == pytest.approx(figures[name], abs=ROUNDED)
        trace = tmp_path / "trace.csv"
        code, _, err = await dlsched(running, "history", "-a", "--export", str(trace))
        assert code == 0, err
        [row] = csv.DictReader(trace.read_text().splitlines())
        worked = figures["run_s"] - figures["lost_s"] - figures["starting_s"]
        assert float(row["duration"]) == pytest.approx(worked, abs=1.0)
        assert worked == pytest.approx(4000.0, rel=0.03)

    play(tmp_path, scene)
