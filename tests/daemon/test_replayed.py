"""Replays of a live cluster: of its state under other policies, and of its history."""

from __future__ import annotations

import asyncio
import csv
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from dlsched.daemon.round.decide import decide
from dlsched.daemon.round.snapshot import LiveSnapshot
from dlsched.rpc.v1 import control_pb2 as c

from .cluster_of_tests import Caller, Running, eventually, job
from .scripted_agent import ScriptedAgent
from .test_daily import ends, play, reaches


async def dlsched(running: Running, *words: str) -> tuple[int, str, str]:
    port = running.daemon.ports[0]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "dlsched", *words,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        env={
            **os.environ, "DLSCHED_DAEMON": f"127.0.0.1:{port}", "DLSCHED_INSECURE_LOOPBACK": "1",
        },
    )  # fmt: skip
    out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


@pytest.mark.slow
def test_the_present_state_is_simulated_under_other_policies(tmp_path: Path) -> None:
    file, jobs_out, told = tmp_path / "now", tmp_path / "jobs.csv", tmp_path / "told.json"

    async def scene(running: Running, caller: Caller, agent: ScriptedAgent) -> None:
        [long] = await caller.submit(job(gpus=4, expected_s=4000))
        await reaches(caller, long, "RUNNING")
        big, small = await caller.submit(job(gpus=4, expected_s=2000), job(gpus=2, expected_s=100))
        await eventually(lambda: running.daemon.cluster.live.position(small))
        root = running.caller("root", 0)
        chunks = [p.data async for p in root.control.Snapshot(c.SnapshotRequest(), timeout=60)]
        file.write_bytes(b"".join(chunks))
        assert decide(LiveSnapshot.from_bytes(file.read_bytes())).policy == "fifo"
        code, out, err = await dlsched(
            running, "replay", "--snapshot", str(file), "--policy", "srtf,las",
            "--jobs-out", str(jobs_out), "--summary-out", str(told),
        )  # fmt: skip
        assert (code, err) == (0, "")
        assert [line.split()[0] for line in out.splitlines()[2:]] == ["as", "srtf", "las"]
        rows = list(csv.DictReader(jobs_out.read_text().splitlines()))
        ends = {(row["name"], int(row["job_id"])): float(row["finish_in"]) for row in rows}
        starts = {(row["name"], int(row["job_id"])): row["start_in"] for row in rows}
        # first come first served: the small one waits for both, begun work is not done again
        assert 3900 < ends["as it is", long] <= 4000
        assert 5900 < ends["as it is", big] <= 6000 < ends["as it is", small] <= 6100
        assert starts["as it is", long] == ""
        # the shortest first takes the GPUs back
        assert ends["srtf", small] < 200
        assert ends["srtf", long] > 5900
        by_name = {each["name"]: each for each in json.loads(told.read_text())}
        assert by_name["srtf"]["avg_jct"] < by_name["as it is"]["avg_jct"]
        assert by_name["as it is"]["policy"] == "fifo"

        for words, message in (
            (["--policy", "nonsense"], "nonsense"),
            (["--cluster", "1x8"], "--cluster: does not go with --snapshot"),
            (["trace.csv"], "only one of them"),
            (["--since", "2h"], "--since: only with --from-db"),
        ):
            code, out, err = await dlsched(running, "replay", "--snapshot", str(file), *words)
            assert (code, out, err.count("\n")) == (2, "", 1)
            assert message in err
        broken = tmp_path / "broken"
        broken.write_bytes(b"x" + file.read_bytes()[:200])
        code, out, err = await dlsched(running, "replay", "--snapshot", str(broken))
        assert (code, out, err.count("\n")) == (2, "", 1)

    play(tmp_path, scene)


@pytest.mark.slow
def test_the_stored_history_is_replayed_on_the_nodes_of_the_database(tmp_path: Path) -> None:
    told = tmp_path / "told.json"

    async def scene(running: Running, caller: Caller, agent: ScriptedAgent) -> None:
        url = running.daemon.settings.daemon.database
        code, _, err = await dlsched(running, "replay", "--from-db", url)
        assert (code, err.count("\n")) == (2, 1)
        assert "nothing to export" in err
        ids = await caller.submit(*(job(gpus=4) for _ in range(3)))
        for number in ids:
            await reaches(caller, number, "RUNNING")
            await ends(agent, number)
            await reaches(caller, number, "COMPLETED")
        words = ["--policy", "fifo,las", "--summary-out", str(told)]
        code, out, err = await dlsched(running, "replay", "--from-db", url, *words)
        assert (code, err) == (0, "")
        assert re.match(
            r"history \(dlsched\): 3 jobs over .*, offered load \S+ on 1x4:\w+ \(4", out
        )
        found: Any = json.loads(told.read_text())
        assert [(each["policy"], each["completed"]) for each in found] == [("fifo", 3), ("las", 3)]
        words = ["--from-db", url, "--since", "2200-01-01"]
        code, _, err = await dlsched(running, "replay", *words)
        assert (code, err.count("\n")) == (2, 1)
        code, _, err = await dlsched(running, "replay", "--from-db", "sqlite:////nowhere/x.db")
        assert (code, err) == (2, "dlsched: --from-db sqlite:////nowhere/x.db: no such file\n")

    play(tmp_path, scene)


@pytest.mark.slow
def test_an_exported_history_says_what_its_jobs_asked_for(tmp_path: Path) -> None:
    file, jobs_out = tmp_path / "history.csv", tmp_path / "jobs.csv"

    async def scene(running: Running, caller: Caller, agent: ScriptedAgent) -> None:
        async def submit(*words: str) -> int:
            code, out, err = await dlsched(running, "submit", "--parsable", *words, "--", "true")
            assert code == 0, err
            return int(out.split(";")[0])

        async def run(number: int) -> None:
            await reaches(caller, number, "RUNNING")
            await ends(agent, number)
            await reaches(caller, number, "COMPLETED")

        first = await submit("--gpus", "4", "--open-ended")
        second = await submit(
            *("-N", "1", "--gpus-per-node", "2", "-d", f"afterok:{first}"),
            *("--expected", "90", "-c", "3", "--mem", "2G", "--deadline", "now+2hours"),
        )
        formula = ("--name", "=cmd|' /C calc'!A0")
        started = await submit("--gpus", "1", "--open-ended", "-d", f"after:{first}", *formula)
        whole = await submit("-a", "0-1%1", "--gpus", "1", "--exclusive", "--begin", "now+3")
        for number in (first, second, started, whole, whole + 1):
            await run(number)
        code, _, err = await dlsched(running, "history", "--all", "--export", str(file))
        assert code == 0
        assert "5 jobs written" in err
        assert "; 1 waited for others as no trace can say" in err
        rows = {row["job_id"]: row for row in csv.DictReader(file.read_text().splitlines())}
        assert list(rows) == [str(first), str(second), str(started), f"{whole}_0", f"{whole}_1"]
        asked = rows[str(second)]
        assert (asked["gang"], asked["parents"], asked["expected"]) == ("2", str(first), "5400")
        assert (asked["num_cpus"], asked["memory_gb"]) == ("3", "2.147483648")
        assert 7100 < float(asked["deadline"]) <= 7200
        assert rows[str(started)]["parents"] == ""
        assert rows[str(started)]["name"] == "'=cmd|' /C calc'!A0"  # no formula for a spreadsheet
        for element in (rows[f"{whole}_0"], rows[f"{whole}_1"]):
            assert (element["array"], element["array_limit"]) == (str(whole), "1")
            assert (element["exclusive"], 0 < float(element["begin"]) <= 3) == ("yes", True)

        words = ("--cluster", "1x4", "--policy", "fifo", "--clock", "events")
        url = running.daemon.settings.daemon.database
        code, _, err = await dlsched(
            running, "replay", "--from-db", url, *words, "--jobs-out", str(jobs_out)
        )
        assert (code, err) == (0, "dlsched: --from-db: 1 waited for others as no trace can say\n")
        from_database = jobs_out.read_text()
        code, _, err = await dlsched(
            running, "replay", str(file), *words, "--jobs-out", str(jobs_out)
        )
        assert (code, err) == (0, "")
        assert jobs_out.read_text() == from_database
        replayed = {row["job_id"]: row for row in csv.DictReader(jobs_out.read_text().splitlines())}
        start = {job: float(row["first_start_time"]) for job, row in replayed.items()}
        finish = {job: float(row["finish_time"]) for job, row in replayed.items()}
        assert start[str(second)] >= finish[str(first)]
        assert start[f"{whole}_1"] >= finish[f"{whole}_0"]

    play(tmp_path, scene)
