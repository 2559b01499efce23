"""What a user who asks for a deadline is told: whether it can be kept, and else which one can."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

from dlsched.rpc.v1 import control_pb2 as c

from .cluster_of_tests import Caller, Running, job
from .scripted_agent import ScriptedAgent
from .test_daily import play, reaches
from .test_replayed import dlsched


def clock(at: float) -> str:
    return f"{datetime.fromtimestamp(at):%H:%M}"


@pytest.mark.parametrize(
    ("deadline_s", "verdict", "on_time"),
    [(2000.0, "at-risk", 0.75), (1000.0, "unlikely", 0.25), (9000.0, "ok", 1.0)],
)
def test_a_deadline_is_answered_with_the_earliest_that_can_be_kept(
    tmp_path: Path, deadline_s: float, verdict: str, on_time: float
) -> None:
    async def scene(running: Running, caller: Caller, agent: ScriptedAgent) -> None:
        [first] = await caller.submit(job(gpus=4, expected_s=1000))
        await reaches(caller, first, "RUNNING")
        now = running.daemon.cluster.now
        wanted = job(gpus=4, expected_s=500, deadline_at=now + deadline_s)
        reply = await caller.control.Submit(c.SubmitRequest(jobs=[wanted]), timeout=20)
        [told] = reply.deadlines
        assert (told.job, told.verdict, told.on_time) == (reply.jobs[0].job, verdict, on_time)
        assert told.end.at == pytest.approx(now + 1500, abs=30)
        assert told.earliest_at == told.end.p90 == pytest.approx(now + 2250, abs=45)
        # asked with that deadline, it is kept
        wanted.deadline_at = told.earliest_at + 1
        await caller.act(c.ACTION_CANCEL, told.job)
        tried = c.SubmitRequest(jobs=[wanted], test_only=True)
        [supposed] = (await caller.control.Submit(tried, timeout=20)).supposed
        assert supposed.deadline.verdict == "ok"
        assert supposed.end.p10 < supposed.end.at < supposed.end.p90
        [plain] = (await caller.control.Submit(c.SubmitRequest(jobs=[job()]), timeout=20)).jobs
        assert plain.job

    play(tmp_path, scene)


def test_the_command_line_says_which_deadline_can_be_kept(tmp_path: Path) -> None:
    async def scene(running: Running, caller: Caller, agent: ScriptedAgent) -> None:
        [first] = await caller.submit(job(gpus=4, expected_s=7200))
        await reaches(caller, first, "RUNNING")
        words = ["--gpus", "4", "--expected", "1h", "--deadline", "now+1hour", "--", "true"]
        code, out, err = await dlsched(running, "submit", *words)
        assert (code, out) == (0, "Submitted job 2\n")
        [line] = err.splitlines()
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
        assert (code, err) == (0, "")

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
