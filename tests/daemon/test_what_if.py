"""Questions about alternatives, typed as users type them; the nodes are scripted."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Awaitable, Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import grpc
import pytest

from dlsched.daemon.round.worker import PolicyWorker
from dlsched.rpc.v1 import control_pb2 as c

from .cluster_of_tests import Caller, Running, eventually, job
from .scripted_agent import ScriptedAgent
from .test_daily import play, reaches, refused
from .test_replayed import dlsched

pytestmark = pytest.mark.slow


async def asked(running: Running, *words: str) -> dict[str, Any]:
    """The JSON answer of a question, and a table that can be printed too."""
    code, out, err = await dlsched(running, "whatif", *words, "--json")
    assert (code, err) == (0, ""), err
    found: dict[str, Any] = json.loads(out)
    assert found["schema"] == "dlsched.whatif/1"
    return found


def seconds_to(found: dict[str, Any], outcome: dict[str, Any], name: str) -> float:
    at = datetime.fromisoformat(found["at"])
    return (datetime.fromisoformat(outcome[name]) - at).total_seconds()


Queued = Callable[[Running, Caller, int, int, int], Awaitable[None]]


def with_queue(folder: Path, scene: Queued, **sections: Any) -> None:
    """One job of 1000 s holds the 4 GPUs; 500 s on 4 and 100 s on 2 wait behind it."""

    async def whole(running: Running, caller: Caller, agent: ScriptedAgent) -> None:
        [first] = await caller.submit(job(gpus=4, expected_s=1000))
        await reaches(caller, first, "RUNNING")
        second, third = await caller.submit(
            job(gpus=4, expected_s=500), job(gpus=2, expected_s=100)
        )
        await eventually(lambda: running.daemon.cluster.live.position(third))
        await scene(running, caller, first, second, third)

    play(folder, whole, **sections)


def test_a_pending_job_is_predicted_in_each_combination(tmp_path: Path) -> None:
    async def scene(running: Running, caller: Caller, first: int, second: int, third: int) -> None:
        live = running.daemon.cluster.live
        before = (live.jobs.count, set(live.requests.specs), live.requests.highest)
        found = await asked(running, str(second), "--gpus", "2,8", "--policy", "fifo,srtf")
        now, *others = found["outcomes"]
        assert (found["job_id"], found["state"], found["policy"]) == (second, "PENDING", "fifo")
        assert (now["gpus"], now["is_present"], now["policy"]) == (4, True, "fifo")
        assert seconds_to(found, now, "start_at") == pytest.approx(1000, abs=30)
        assert seconds_to(found, now, "start_p10_at") == pytest.approx(500, abs=30)
        assert seconds_to(found, now, "end_p90_at") == pytest.approx(2250, abs=60)
        assert now["basis"] == "expected times"
        assert now["gpu_s"] == pytest.approx(2000)
        told = [(each["gpus"], each["policy"], each["why_not"]) for each in others]
        assert [each[:2] for each in told] == [(2, "fifo"), (2, "srtf"), (8, "fifo"), (8, "srtf")]
        assert [bool(each[2]) for each in told] == [False, False, True, True]
        assert told[2][2].startswith("needs 8 GPUs, and the cluster has 4")
        fewer, shortest = others[:2]
        assert "as long on 2 GPUs as on 4 (speed not measured)" in fewer["basis"]
        assert fewer["others_later_s"] == pytest.approx(-250, abs=60)  # of two, one 500 s earlier
        assert seconds_to(found, shortest, "start_at") < 100
        assert (live.jobs.count, set(live.requests.specs), live.requests.highest) == before
        code, out, _ = await dlsched(running, "whatif", str(second), "--gpus", "2,8")
        assert code == 0
        lines = out.splitlines()
        assert lines[0].split()[:4] == ["ALTERNATIVE", "GPUS", "TYPE", "START"]
        assert [line.split("  ")[0] for line in lines[1:]] == ["as it is", "2 GPUs", "8 GPUs"]

    with_queue(tmp_path, scene)


def test_a_script_as_it_is_has_its_own_gpus(tmp_path: Path) -> None:
    async def scene(running: Running, caller: Caller, first: int, second: int, third: int) -> None:
        said = {"gpus": "--gpus 2", "nodes": "-N 1 --gpus-per-node 2", "none": "--cpus 1"}
        for name, words in said.items():
            script = tmp_path / f"{name}.sh"
            script.write_text(f"#!/bin/sh\n#DLSCHED {words} --expected 100s --open-ended\ntrue\n")
            found = await asked(running, str(script), "--gpus", "1,4")
            gpus = [each["gpus"] for each in found["outcomes"]]
            assert gpus == ([1, 4] if name == "none" else [2, 1, 4])
            if name != "none":
                one = found["outcomes"][1]
                assert "as long on 1 GPU as on 2 (speed not measured)" in one["basis"]

    with_queue(tmp_path, scene)


def test_the_jobs_that_must_move_for_a_deadline_are_named(tmp_path: Path) -> None:
    async def scene(running: Running, caller: Caller, first: int, second: int, third: int) -> None:
        words = ("--gpus", "4", "--expected", "100s", "--deadline", "now+2000seconds")
        found = await asked(running, *words)
        assert found["outcomes"][0]["must_move"] == [second]
        code, out, _ = await dlsched(running, "whatif", *words)
        assert code == 0
        last = f"as it is, the deadline would be kept without 1 job ahead: {second}"
        assert out.splitlines()[-1] == last
        found = await asked(running, *words[:-1], "now+9000seconds")
        assert found["outcomes"][0]["must_move"] == []

    with_queue(tmp_path, scene)


def test_the_latest_submit_that_keeps_a_deadline_is_told(tmp_path: Path) -> None:
    """In the longest case 4 GPUs come free after 1500 s, and 2 more jobs take 900 s before it."""

    async def scene(running: Running, caller: Caller, first: int, second: int, third: int) -> None:
        words = ("--gpus", "4", "--expected", "100s", "--deadline", "now+9000seconds")
        found = await asked(running, *words)
        latest = seconds_to(found, found["outcomes"][0], "latest_submit_at")
        assert latest == pytest.approx(9000 - 150, abs=30)
        code, out, _ = await dlsched(running, "whatif", *words, "--policy", "srtf")
        assert code == 0
        assert "SUBMIT BY" in out.splitlines()[0]
        last = out.splitlines()[-1]
        assert "; the fewest GPUs that keep it: 4; the latest submit that keeps it is " in last
        found = await asked(running, *words[:-1], "now+2000seconds")
        assert found["outcomes"][0]["latest_submit_at"] is None
        found = await asked(running, str(second))  # it is submitted already
        assert found["outcomes"][0]["latest_submit_at"] is None

    with_queue(tmp_path, scene)


def test_a_running_job_and_one_that_is_not_submitted_are_predicted(tmp_path: Path) -> None:
    script = tmp_path / "train.sh"
    script.write_text("#!/bin/sh\n#SBATCH --gpus=2\n#SBATCH --time=10\ntrue\n")

    async def scene(running: Running, caller: Caller, first: int, second: int, third: int) -> None:
        found = await asked(running, str(first), "--gpus", "2")
        now, fewer = found["outcomes"]
        assert (found["state"], now["start_at"]) == ("RUNNING", None)
        assert seconds_to(found, now, "end_at") == pytest.approx(1000, abs=30)
        assert seconds_to(found, fewer, "start_at") < 1  # it gives its GPUs back and keeps its work
        for words in (["--gpus", "1,4", "--expected", "600s"], [str(script), "--gpus", "1,4"]):
            found = await asked(running, *words)
            assert found["job_id"] is None
            as_it_is = [2] if words[0] == str(script) else []
            assert [each["gpus"] for each in found["outcomes"]] == [*as_it_is, 1, 4]
            others = found["outcomes"][len(as_it_is) :]
            starts = [seconds_to(found, each, "start_at") for each in others]
            assert starts == [pytest.approx(1500, abs=30), pytest.approx(1600, abs=30)]
            assert [each["others_later_s"] for each in others] == [0, 0]
        found = await asked(running, str(script))  # what its directives say
        assert [each["gpus"] for each in found["outcomes"]] == [2]
        assert seconds_to(found, found["outcomes"][0], "end_at") == pytest.approx(2100, abs=30)

    with_queue(tmp_path, scene)


def test_all_jobs_are_predicted_under_other_policies(tmp_path: Path) -> None:
    async def scene(running: Running, caller: Caller, first: int, second: int, third: int) -> None:
        found = await asked(running, "--policy", "srtf")
        now, srtf = found["outcomes"]
        assert [each["policy"] for each in (now, srtf)] == ["fifo", "srtf"]
        assert [each["job_id"] for each in now["all"]] == [first, second, third]
        ends = {each["job_id"]: seconds_to(found, each, "end_at") for each in srtf["all"]}
        assert ends[third] < ends[second] < ends[first]
        assert srtf["mean_jct_s"] < now["mean_jct_s"]
        assert srtf["others_later_s"] < now["others_later_s"] == 0
        code, out, _ = await dlsched(running, "whatif", "--policy", "srtf")
        assert code == 0
        assert "END UNDER SRTF" in out
        root = running.caller("root", 0)
        status = await root.control.Status(c.StatusRequest(), timeout=60)
        assert status.policy == "fifo"

    with_queue(tmp_path, scene)


def test_a_job_that_may_not_start_says_why(tmp_path: Path) -> None:
    async def scene(running: Running, caller: Caller, first: int, second: int, third: int) -> None:
        [held] = await caller.submit(job(held=True))
        found = await asked(running, str(held), "--gpus", "1,2")
        assert {each["why_not"] for each in found["outcomes"]} == {"while it waits: JobHeldUser"}
        found = await asked(running, "--begin", "now+1hour", "--gpus", "1,2")
        assert {each["why_not"] for each in found["outcomes"]} == {"while it waits: BeginTime"}

    with_queue(tmp_path, scene)


def test_quotas_hold_for_each_alternative_by_itself(tmp_path: Path) -> None:
    async def scene(running: Running, caller: Caller, first: int, second: int, third: int) -> None:
        root = running.caller("root", 0)
        quota = c.TenantQuota(kind="user", name="bob", gpus=2)
        wanted = c.SetTenantRequest(tenant=c.Tenant(quota=quota), create=True, fields=["gpus"])
        await root.control.SetTenant(wanted, timeout=60)
        described = job(gpus=1, expected_s=100)
        request = c.WhatIfRequest(described=described, gpus=[1, 2, 4])
        reply = await running.caller("bob", 1002).control.WhatIf(request, timeout=60)
        assert [bool(each.why) for each in reply.outcomes] == [False, False, True]
        assert "user bob may have 2" in reply.outcomes[2].why

    with_queue(tmp_path, scene)


def test_wrong_questions_are_refused_in_one_line(tmp_path: Path) -> None:
    async def scene(running: Running, caller: Caller, first: int, second: int, third: int) -> None:
        mine = str(second)
        for code, message, words in (
            (1, "job 77: there is no such job", ["77"]),
            (1, "GPU type 'h100' is not known", [mine, "--type", "h100"]),
            (1, "'nonsense' is not known", [mine, "--policy", "nonsense"]),
            (1, "at most 16", [mine, "--gpus", "1,2,3,4,5,6", "--policy", "las,srtf,easy"]),
            (2, "--time: describes a job that is not submitted", [mine, "--time", "2h"]),
            (2, "neither a job id (12, 12_3) nor a script here", ["nofile"]),
            (2, "names several jobs", ["1_[0-3]"]),
            (2, "GPU types are given with --type", [mine, "--gpus", "v100:4"]),
            (2, "'x' is not a whole number", [mine, "--gpus", "x"]),
            (2, "name one with --policy", [mine, "-o", "a=b"]),
            (2, "is not KEY=VALUE", [mine, "--policy", "las", "-o", "b"]),
        ):
            found, out, err = await dlsched(running, "whatif", *words)
            assert (found, out, err.count("\n")) == (code, "", 1), (words, err)
            assert message in err
        both = c.WhatIfRequest(filter=c.Filter(jobs=[second]), described=job())
        assert "not both" in (await refused(caller.control.WhatIf(both, timeout=60)))[1]
        sizes = c.WhatIfRequest(gpus=[2])
        assert (
            "name or describe one" in (await refused(caller.control.WhatIf(sizes, timeout=60)))[1]
        )
        none = c.WhatIfRequest(filter=c.Filter(jobs=[second]), gpus=[0])
        assert "not at least 1" in (await refused(caller.control.WhatIf(none, timeout=60)))[1]
        secret = tmp_path / "secret"
        secret.write_text("1\npassword\n")
        read = c.WhatIfRequest(policies=["karuna"], options=[f"sample={secret}"])
        assert "not a comma-sep" in (await refused(caller.control.WhatIf(read, timeout=60)))[1]
        root = running.caller("root", 0)
        assert "password" in (await refused(root.control.WhatIf(read, timeout=60)))[1]
        later = job(dependencies=[c.Dependency(kind="afterok", job=first)])
        ties = c.WhatIfRequest(described=later)
        assert "could start now" in (await refused(caller.control.WhatIf(ties, timeout=60)))[1]

    with_queue(tmp_path, scene)


def test_a_user_has_one_question_at_a_time_and_rounds_go_on_meanwhile(tmp_path: Path) -> None:
    async def scene(running: Running, caller: Caller, first: int, second: int, third: int) -> None:
        what_if = running.daemon.what_if
        whole, may_answer = what_if._worker.suppose, asyncio.Event()

        async def slow(*words: Any, **more: Any) -> Any:
            await may_answer.wait()
            return await whole(*words, **more)

        what_if._worker.suppose = slow
        request = c.WhatIfRequest(filter=c.Filter(jobs=[second]))
        waiting = asyncio.ensure_future(caller.control.WhatIf(request, timeout=60))
        await eventually(lambda: what_if._since)
        code, why = await refused(caller.control.WhatIf(request, timeout=60))
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "one question of a user at a time" in why
        rounds = running.daemon.cluster.round_state.number
        await caller.act(c.ACTION_CANCEL, first)
        await reaches(caller, second, "RUNNING")  # a round needs no answer
        assert running.daemon.cluster.round_state.number > rounds
        other = asyncio.ensure_future(
            running.caller("bob", 1002).control.WhatIf(request, timeout=60)
        )
        await eventually(lambda: "bob" in what_if._since)
        may_answer.set()
        assert (await waiting).outcomes
        assert (await other).outcomes
        assert not what_if._since

    with_queue(tmp_path, scene)


def test_a_question_that_takes_too_long_ends_and_the_next_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = str(Path(__file__).parent / "round")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([folder, os.environ.get("PYTHONPATH", "")]))

    async def scene(running: Running, caller: Caller, first: int, second: int, third: int) -> None:
        running.daemon.what_if._worker = PolicyWorker(modules=["bad_parts"])
        request = c.WhatIfRequest(filter=c.Filter(jobs=[second]), policies=["bad-endless"])
        code, why = await refused(caller.control.WhatIf(request, timeout=60))
        assert code is grpc.StatusCode.FAILED_PRECONDITION
        assert "took longer than 3 s and was ended" in why
        assert running.daemon.rounds.failures == 0
        plain = c.WhatIfRequest(filter=c.Filter(jobs=[second]))
        assert (await caller.control.WhatIf(plain, timeout=60)).outcomes[0].end.HasField("at")

    with_queue(tmp_path, scene, what_if={"within_s": 3.0})


def test_the_predicted_schedules_are_drawn_in_one_page(tmp_path: Path) -> None:
    page, everything = tmp_path / "what-if.html", tmp_path / "all.html"

    async def scene(running: Running, caller: Caller, first: int, second: int, third: int) -> None:
        words = [str(second), "--gpus", "2", "--policy", "fifo,srtf", "--html", str(page)]
        code, out, err = await dlsched(running, "whatif", *words)
        assert (code, err) == (0, f"{page}: the predicted schedule\n")
        assert out.startswith("ALTERNATIVE")
        text = page.read_text()
        assert text.startswith("<!DOCTYPE html>")
        assert "default-src 'none'" in text
        assert not re.search(r"(?:src|href)=", text)
        assert f"<h1>What if: job {second}</h1>" in text
        labels = re.findall(r'<label for="gantt-c-\d+">([^<]*)</label>', text)
        assert labels == ["as it is", "2 GPUs", "2 GPUs, under srtf"]
        assert text.count('class="chosen"') == 3
        assert text.count('class="tail"') == 3
        blocks = re.findall(r"<title>(\d+): ([^<]*)</title>", text)
        assert {int(number) for number, _ in blocks} == {first, second, third}
        assert all("user ann" in detail and "ends " in detail for _, detail in blocks)
        code, _, err = await dlsched(
            running, "whatif", "--policy", "srtf", "--html", str(everything)
        )
        assert code == 0, err
        assert "<h1>What if: all jobs</h1>" in everything.read_text()
        assert 'class="chosen"' not in everything.read_text()
        code, _, err = await dlsched(running, "whatif", "--html", str(tmp_path / "no" / "x.html"))
        assert (code, err.count("\n")) == (1, 1)

    with_queue(tmp_path, scene)


def test_an_expected_reward_is_told_and_drawn(tmp_path: Path) -> None:
    page = tmp_path / "reward.html"

    async def scene(running: Running, caller: Caller, first: int, second: int, third: int) -> None:
        words = ("--gpus", "4", "--expected", "100s", "--sla", "soft:2000,100,1000")
        found = await asked(running, *words, "--policy", "sjf")
        now, shortest = found["outcomes"]
        assert found["sla"] == "0:100 2000:100 3000:0"
        # ends at 1700 s, half and one and a half of that: 100, 100 and 45
        assert now["reward"] == pytest.approx(86.25, abs=2)
        assert shortest["reward"] == pytest.approx(100)
        code, out, err = await dlsched(running, "whatif", *words, "--html", str(page))
        assert code == 0, err
        assert "REWARD" in out.splitlines()[0]
        text = page.read_text()
        assert "What the job earns by the time since its submit" in text
        assert "expected 8" in text
        # a job that has a deadline only is worth something until then
        kept = job(gpus=4, expected_s=50, deadline_at=running.daemon.cluster.now + 1e6)
        [late] = await caller.submit(kept)
        [plain] = (await asked(running, str(late)))["outcomes"]
        assert plain["reward"] == pytest.approx(1.0)

    with_queue(tmp_path, scene)
