"""What a user who asks for a deadline is told: whether it can be kept, and else which one can."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

import pytest

from dlsched.rpc.v1 import control_pb2 as c

from .cluster_of_tests import Caller, Running, job
from .scripted_agent import ScriptedAgent
from .test_daily import ends, play, reaches
from .test_replayed import dlsched

pytestmark = pytest.mark.slow

FIFO = "policy fifo does not know of deadlines, and does not plan for them"


def clock(at: float) -> str:
    return f"{datetime.fromtimestamp(at):%H:%M}"


def test_a_deadline_is_answered_with_the_earliest_that_can_be_kept(tmp_path: Path) -> None:
    async def scene(running: Running, caller: Caller, agent: ScriptedAgent) -> None:
        [first] = await caller.submit(job(gpus=4, expected_s=1000))
        await reaches(caller, first, "RUNNING")
        for deadline_s, verdict, on_time in (
            (2000.0, "at-risk", 0.75),
            (1000.0, "unlikely", 0.25),
            (9000.0, "ok", 1.0),
        ):
            now = running.daemon.cluster.now
            wanted = job(gpus=4, expected_s=500, deadline_at=now + deadline_s)
            reply = await caller.control.Submit(c.SubmitRequest(jobs=[wanted]), timeout=60)
            [told] = reply.deadlines
            assert (told.job, told.verdict, told.on_time) == (reply.jobs[0].job, verdict, on_time)
            assert told.end.at == pytest.approx(now + 1500, abs=60)
            assert told.earliest_at == told.end.p90 == pytest.approx(now + 2250, abs=90)
            # asked with that deadline, it is kept
            wanted.deadline_at = told.earliest_at + 1
            await caller.act(c.ACTION_CANCEL, told.job)
            tried = c.SubmitRequest(jobs=[wanted], test_only=True)
            [supposed] = (await caller.control.Submit(tried, timeout=60)).supposed
            assert supposed.deadline.verdict == "ok"
            assert supposed.end.p10 < supposed.end.at < supposed.end.p90
        [plain] = (await caller.control.Submit(c.SubmitRequest(jobs=[job()]), timeout=60)).jobs
        assert plain.job

    play(tmp_path, scene)


def test_the_command_line_says_which_deadline_can_be_kept(tmp_path: Path) -> None:
    async def scene(running: Running, caller: Caller, agent: ScriptedAgent) -> None:
        [first] = await caller.submit(job(gpus=4, expected_s=7200))
        await reaches(caller, first, "RUNNING")
        words = ["--gpus", "4", "--expected", "1h", "--deadline", "now+1hour", "--", "true"]
        code, out, err = await dlsched(running, "submit", *words)
        assert (code, out) == (0, "Submitted job 2\n")
        unknown, line = err.splitlines()
        assert unknown == f"dlsched: {FIFO}"
        assert line.startswith("dlsched: job 2: deadline ")
        assert ": unlikely, kept in 0% of the cases; predicted end ~" in line
        assert "; the earliest deadline that can be kept is " in line
        code, out, err = await dlsched(running, "submit", "--test-only", *words)
        assert code == 0
        when, deadline = out.splitlines()
        assert ", and end ~" in when
        assert " (from " in when
        assert "the earliest deadline that can be kept is " in deadline
        early = ["--gpus", "4", "--expected", "1h", "--deadline", "now+2days", "--", "true"]
        code, _, err = await dlsched(running, "submit", *early)
        assert (code, err) == (0, f"dlsched: {FIFO}\n")

    play(tmp_path, scene)


def test_a_required_deadline_is_kept_and_makes_no_other_job_late(tmp_path: Path) -> None:
    """Under `sjf` a shorter job goes first, and so may cost another one its deadline."""

    async def scene(running: Running, caller: Caller, agent: ScriptedAgent) -> None:
        async def submit(*words: str) -> tuple[int, str, str]:
            return await dlsched(running, "submit", "--gpus", "4", *words, "--", "true")

        required = ("--require-sla", "--expected", "1h", "--deadline")
        code, out, err = await submit("--require-sla")
        assert (code, out) == (1, "")
        assert err == "dlsched: --require-sla: the job has no --deadline\n"
        assert (await submit(*required, "now+100minutes"))[:2] == (0, "Submitted job 1\n")
        await reaches(caller, 1, "RUNNING")
        # one that ends an hour later than asked is declined, and nothing is left of it
        code, out, err = await submit(*required, "now+90minutes")
        assert (code, out) == (1, "")
        assert err.startswith("dlsched: not submitted: deadline ")
        assert ": unlikely, kept in " in err
        assert "; the earliest deadline that can be kept is " in err
        assert (await submit(*required, "now+4hours"))[:2] == (0, "Submitted job 2\n")
        # one that is in time, but would be served before job 2
        passing = ("--require-sla", "--expected", "50m", "--deadline", "now+3hours")
        code, out, err = await submit(*passing)
        assert (code, out) == (1, "")
        late = "1 other job would no longer be sure to keep the deadline"
        assert err == f"dlsched: not submitted: {late}\n"
        code, out, _ = await submit(*passing[1:])
        assert (code, out) == (0, "Submitted job 3\n")
        code, _, err = await submit("--hold", *required, "now+20hours")
        assert code == 1
        assert "a job that is held" in err

    play(tmp_path, scene, round={"policy": "sjf"})


def test_a_reward_curve_says_the_deadline_and_only_a_strict_one_ends_the_job(
    tmp_path: Path,
) -> None:
    async def scene(running: Running, caller: Caller, agent: ScriptedAgent) -> None:
        async def submit(*words: str) -> tuple[int, str, str]:
            return await dlsched(running, "submit", *words, "--", "true")

        assert (await submit("--sla", "soft:2h,100,30m"))[0] == 0
        code, out, _ = await dlsched(running, "show", "1", "--json")
        [shown] = json.loads(out)["jobs"]
        assert shown["sla"] == "0:100 7200:100 9000:0"
        assert (shown["deadline_kind"], shown["deadline_value"]) == ("soft", 100)
        until = datetime.fromisoformat(shown["deadline_at"]).timestamp()
        submitted = datetime.fromisoformat(shown["submitted_at"]).timestamp()
        assert until - submitted == pytest.approx(7200, abs=1)
        await ends(agent, 1)
        await reaches(caller, 1, "COMPLETED")
        code, out, _ = await dlsched(running, "history", "-o", "id,late,reward", "-h")
        number, late, reward = out.split()
        assert (number, reward) == ("1", "100")
        assert late.startswith("-1:59:") or late == "-2:00:00"
        soon = ("--deadline", "now+8seconds")
        assert (await submit(*soon, "--deadline-kind", "soft"))[:2] == (0, "Submitted job 2\n")
        assert (await submit(*soon, "--best-effort"))[:2] == (0, "Submitted job 3\n")
        assert (await submit(*soon))[:2] == (0, "Submitted job 4\n")
        await reaches(caller, 4, "DEADLINE")
        for number in (2, 3):
            assert (await caller.show(number)).job.state in ("PENDING", "RUNNING")
        for words, message in (
            (("--sla", "0:1 5:1 5:2 5:3"), "no function of time: it has three values at 5 s"),
            (("--sla", "soft:1h,100"), "soft is soft:D,V,G"),
            (("--sla", "step:soon,1"), "is not a duration"),
            (("--deadline-kind", "soft"), "only with --deadline or --sla"),
            (("--deadline-kind", "hard", *soon), "'hard' is not known"),
            (("--set", "sla=x"), "column sla: say it with --sla"),
            (("--set", "deadline_steps=9:1 8:1"), "column deadline_steps is not TIME:VALUE"),
        ):
            code, out, err = await submit(*words)
            refused_by = 1 if words[0] == "--set" else 2
            assert (code, out, err.count("\n")) == (refused_by, "", 1), err
            assert message in err
        code, out, err = await submit("--sla", "0:1 1h:2 2h:0")
        assert (code, out) == (0, "Submitted job 5\n")
        assert "the curve rises" in err
        # a kind needs a deadline in updates, too
        assert (await submit())[:2] == (0, "Submitted job 6\n")
        alone = "job 6: deadline kind: strict, and the job has no deadline"
        code, _, err = await dlsched(running, "update", "6", "--deadline-kind", "strict")
        assert (code, alone in err) == (1, True), err
        later = ("--deadline", "now+9hours")
        both = ("update", "6", "--deadline-kind", "strict", *later)
        assert (await dlsched(running, *both))[0] == 0
        code, _, err = await dlsched(running, "update", "6", "--deadline", "")
        assert (code, alone in err) == (1, True), err
        cleared = ("update", "6", "--deadline", "", "--deadline-kind", "")
        assert (await dlsched(running, *cleared))[0] == 0

    play(tmp_path, scene)
