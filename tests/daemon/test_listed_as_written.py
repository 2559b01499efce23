"""Listings name things as users wrote them: elements of arrays, lines of --wrap, modes."""

from __future__ import annotations

import json
from pathlib import Path

from .cluster_of_tests import Caller, Running, eventually
from .scripted_agent import ScriptedAgent
from .test_daily import play, reaches
from .test_replayed import dlsched


def test_nodes_are_in_natural_order_and_name_elements_of_arrays(tmp_path: Path) -> None:
    async def scene(running: Running, caller: Caller, agent: ScriptedAgent) -> None:
        async with (
            ScriptedAgent("rack10", running.target, gpus=1),
            ScriptedAgent("rack9", running.target, gpus=1),
            ScriptedAgent("a2", running.target, gpus=1),
        ):
            await eventually(lambda: len(running.daemon.driver.committed.nodes) == 4)
            words = ("-a", "3-4", "-w", "rack9,rack10", "--gpus", "1", "--open-ended", "--", "true")
            code, out, err = await dlsched(running, "submit", "--parsable", *words)
            assert code == 0, err
            first = int(out)
            await reaches(caller, first, "RUNNING")
            await reaches(caller, first + 1, "RUNNING")
            code, out, err = await dlsched(running, "nodes", "-o", "name,jobs", "--noheader")
            assert (code, err) == (0, "")
            listed = [line.split() for line in out.splitlines()]
            assert [name for name, _ in listed] == ["a2", "n1", "rack9", "rack10"]
            assert {jobs for _, jobs in listed} == {"-", f"{first}_3", f"{first}_4"}
            code, out, _ = await dlsched(running, "nodes", "--gpus", "rack9", "--noheader")
            assert f"{first}_" in out
            found = json.loads((await dlsched(running, "nodes", "rack9", "--json"))[1])["nodes"][0]
            assert found["agent_version"] == "0.0.9"
            assert [f"{first}_{job - first + 3}" for job in found["jobs"]] == found["job_names"]

    play(tmp_path, scene)


def test_show_has_the_line_of_wrap_an_octal_umask_and_the_place_once(tmp_path: Path) -> None:
    async def scene(running: Running, caller: Caller, agent: ScriptedAgent) -> None:
        line = "python train.py --lr 0.1 && echo 'done'"
        for words in (("--gpus", "4", "--open-ended", "--wrap", "sleep 5"), ("--wrap", line)):
            code, out, err = await dlsched(running, "submit", "--parsable", *words)
            assert code == 0, err
        number = int(out)
        await eventually(lambda: running.daemon.cluster.live.position(number))
        code, out, err = await dlsched(running, "show", str(number))
        assert (code, err) == (0, "")
        said = dict(row.strip().split(maxsplit=1) for row in out.splitlines() if row[:2] == "  ")
        assert said["command"] == line
        assert said["umask"].startswith("00")
        assert out.count("place 1 in the order of policy fifo") == 1
        _, out, _ = await dlsched(running, "show", str(number), "--why-order")
        assert ("position  1" in out, "place 1 in the order" in out) == (True, False)
        detail = json.loads((await dlsched(running, "show", str(number), "--json"))[1])["jobs"][0]
        assert (detail["wrap"], detail["has_script"]) == (line, True)

    play(tmp_path, scene)


def test_a_submission_and_a_trial_are_told_as_json(tmp_path: Path) -> None:
    async def scene(running: Running, caller: Caller, agent: ScriptedAgent) -> None:
        asked = ("submit", "--json", "--gpus", "4", "--expected", "1:00:00")
        code, out, err = await dlsched(running, *asked, "-a", "1-2", "--", "true")
        told = json.loads(out)
        assert (code, err, told["schema"]) == (0, "", "dlsched.submit/1")
        assert told["jobs"] == [{"job_id": 1, "name": "true", "elements": 2}]
        await reaches(caller, 1, "RUNNING")
        trial = (*asked, "--deadline", "now+10minutes", "--test-only", "--", "true")
        told = json.loads((await dlsched(running, *trial))[1])
        assert told["jobs"] == []
        [predicted] = told["predicted"]
        assert predicted["start_at"] < predicted["end_at"]
        assert predicted["end_p10_at"] <= predicted["end_at"] <= predicted["end_p90_at"]
        assert predicted["deadline"]["verdict"] == "unlikely"
        assert predicted["deadline"]["earliest_at"] > predicted["deadline"]["deadline_at"]
        guarded = (*asked, "--deadline", "now+10minutes", "--require-sla", "--", "true")
        code, out, _ = await dlsched(running, *guarded)
        told = json.loads(out)
        assert (code, told["jobs"]) == (1, [])
        assert told["declined"][0]["deadline"]["verdict"] == "unlikely"
        code, _, err = await dlsched(running, *asked, "--parsable", "--", "true")
        assert (code, err) == (2, "dlsched: --json: not with --logs or --parsable\n")

    play(tmp_path, scene)
