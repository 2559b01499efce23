"""What has ended continues: warnings, checkpoints, and jobs that begin where others have ended."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import pwd
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from dlsched.client.daemon_client import Client, filter_of
from dlsched.rpc.channels import ClientTrust, open_channel
from dlsched.rpc.v1 import control_pb2 as pb
from dlsched.rpc.v1 import control_pb2_grpc
from dlsched.torture.local_cluster import LocalCluster, eventually

pytestmark = pytest.mark.slow

COUNTING = Path(__file__).with_name("counting_program.py")


def counting(*words: object) -> tuple[str, ...]:
    """The command of the counting program."""
    return ("--", sys.executable, str(COUNTING), *map(str, words))


def submit(cluster: LocalCluster, *words: str) -> int:
    """Submit as a user types it; returns the id."""
    output = ("-o", f"{cluster.out}/%j.out")
    return int(cluster.cli("submit", "--parsable", *output, *words).strip())


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """One node of four GPUs."""
    with LocalCluster(nodes=1) as running:
        yield running


def test_a_training_saves_when_the_warning_comes_and_goes_on(cluster: LocalCluster) -> None:
    job = submit(cluster, "--time", "12s", "--signal", "USR1@4", *counting(100_000, 0.05))
    ended = cluster.until(job, "TIMEOUT")
    warned, at_the_limit = (
        int(x.split()[1]) for x in cluster.output(job).split("\n") if "sav" in x
    )
    assert warned < at_the_limit
    assert ended.starts == 1


def test_the_registry_knows_which_checkpoints_are_there(cluster: LocalCluster) -> None:
    job = submit(cluster, "--keep", "3", *counting(22, 0.01, "every=5", "keep=1"))
    cluster.until(job, "COMPLETED")
    eventually("the last is committed", lambda: registered(cluster, job, 20))
    found = json.loads(cluster.cli("checkpoints", str(job), "--json"))
    assert found["schema"] == "dlsched.checkpoints/1"
    rows = found["checkpoints"]
    assert [(row["step"], row["next"]) for row in rows] == [(20, True), (15, False), (10, False)]
    assert [row["loss"] for row in rows] == pytest.approx([1 / 20, 1 / 15, 1 / 10], rel=0.01)
    folder = cluster.folder / ".dlsched" / "checkpoints" / str(job)
    # the program may end before it has deleted what its last checkpoint makes superfluous
    assert {row["path"] for row in rows} <= {str(path) for path in folder.iterdir()}
    assert all(row["bytes"] == 2 and row["run"] == 1 and row["at"] for row in rows)
    title, first, *_ = cluster.cli("checkpoints").splitlines()
    assert title.split() == ["ID", "RUN", "STEP", "SIZE", "WRITTEN", "LOSS", "USE", "WHERE"]
    assert first.split()[:4] == [str(job), "1", "20", "2B"]
    done = cluster.run("checkpoints", "999")
    assert (done.returncode, done.stderr) == (1, "dlsched: job 999: there is no such job\n")
    done = cluster.run("submit", "--keep", "0", "--", "true")
    assert (done.returncode, done.stdout) == (2, "")


def test_other_users_do_not_see_where_checkpoints_are(cluster: LocalCluster) -> None:
    job = submit(cluster, *counting(2, 0.01, "every=1"))
    eventually("it is committed", lambda: registered(cluster, job, 2))
    with Client(f"127.0.0.1:{cluster.port}", insecure_loopback=True) as mine:
        assert mine.checkpoints(filter_of([str(job)]))[0].path
    trust = ClientTrust.claimed_user("bob", 4242)

    async def as_bob() -> tuple[list[str], str]:
        async with open_channel(f"127.0.0.1:{cluster.port}", trust) as channel:
            stub = control_pb2_grpc.ControlStub(channel)
            named = pb.Filter(jobs=[job])
            listed = await stub.Checkpoints(pb.CheckpointsRequest(filter=named))
            shown = await stub.Show(pb.ShowRequest(filter=named))
            return [each.path for each in listed.checkpoints], shown.jobs[0].last_checkpoint

    assert asyncio.run(as_bob()) == (["", ""], "")


def test_a_job_goes_on_after_its_time_limit(cluster: LocalCluster) -> None:
    never = cluster.folder / "never"  # half way it waits for its limit
    words = ("--time", "8s", "--requeue-on-timeout", *counting(8, 0.01, f"gate={never}"))
    job = submit(cluster, *words)
    ended = cluster.until(job, "COMPLETED")
    said = cluster.output(job).splitlines()
    begun = [line.split()[1:] for line in said if line.startswith("from")]
    saved = ["0", *(line.split()[1] for line in said if line.startswith("saved"))]
    assert begun == [[step, "with", step] for step in saved]
    assert said[-1] == "done 8"
    assert ended.starts == len(begun) > 1
    assert (ended.failures, ended.preemptions) == (0, 0)
    assert "TimeLimit(1 of 100)" in cluster.cli("show", str(job))
    refused = cluster.run("submit", "--requeue-on-timeout", "--no-requeue", "--", "true")
    line = "dlsched: --requeue-on-timeout: not together with --no-requeue\n"
    assert (refused.returncode, refused.stderr) == (2, line)
    refused = cluster.run("submit", "--requeue-on-timeout", "--", "true")
    line = "dlsched: requeue on timeout: the job has no time limit\n"
    assert (refused.returncode, refused.stderr) == (1, line)


def test_the_warning_for_the_script_alone(cluster: LocalCluster, tmp_path: Path) -> None:
    script = tmp_path / "train.sh"
    child = "trap 'echo child' USR1; while :; do sleep 0.05; done"
    script.write_text(
        "#!/bin/bash\n#SBATCH --signal=B:USR1@56\n#SBATCH --time=1\n"
        f"trap 'echo script; kill $!; exit 7' USR1\nbash -c \"{child}\" &\nwhile :; do wait; done\n"
    )
    job = submit(cluster, str(script))
    cluster.until(job, "FAILED")
    assert cluster.output(job) == "script\n"


# -- submit --resume-from --------------------------------------------------------------------------


def test_a_new_job_begins_where_a_running_one_has_saved_and_the_files_stay(
    cluster: LocalCluster,
) -> None:
    gate = cluster.folder / "gate"
    old = submit(cluster, "--keep", "1", *counting(40, 0.01, "every=5", f"gate={gate}"))
    eventually("it saves", lambda: "saved 20" in cluster.output(old))
    rows = eventually("it is committed", lambda: registered(cluster, old, 20))
    resume = ("--resume-from", str(old), "-H", "--keep", "1")
    new = submit(cluster, *resume, *counting(50, 0.01, "every=25"))
    (borrowed,) = registered(cluster, new, 20)
    assert (borrowed["source"], borrowed["path"]) == (old, rows[0]["path"])
    gate.touch()
    cluster.until(old, "COMPLETED")
    eventually("the last is committed", lambda: registered(cluster, old, 40))
    listed = json.loads(cluster.cli("checkpoints", str(old), "--json"))["checkpoints"]
    assert (listed[-1]["step"], listed[-1]["used_by"]) == (20, [new])
    assert Path(rows[0]["path"]).exists()
    cluster.cli("release", str(new))
    cluster.until(new, "COMPLETED")
    assert cluster.output(new).startswith("from 20 with 20\nsaved 25\n")
    eventually("the last is committed", lambda: registered(cluster, new, 50))
    listed = json.loads(cluster.cli("checkpoints", str(old), "--json"))["checkpoints"]
    assert all(row["used_by"] == [] for row in listed)


def registered(cluster: LocalCluster, job: int | str, step: int) -> list[dict[str, Any]]:
    """The rows of a job's checkpoint after one step."""
    rows = json.loads(cluster.cli("checkpoints", str(job), "--json"))["checkpoints"]
    return [row for row in rows if row["step"] == step]


def test_which_jobs_can_be_resumed_from(cluster: LocalCluster) -> None:
    array = submit(cluster, "--array", "3,7", *counting(4, 0.01, "every=2"))
    empty = submit(cluster, "-H", "--", "true")
    for task in (3, 7):
        eventually("it ends", lambda t=task: state(cluster, f"{array}_{t}") == "COMPLETED")
    eventually("it is committed", lambda: registered(cluster, f"{array}_7", 4))
    new = submit(cluster, "--resume-from", f"{array}_7", *counting(6, 0.01))
    cluster.until(new, "COMPLETED")
    assert cluster.output(new).startswith("from 4 with 4\n")
    for word, code, line in (
        ("x", 2, "--resume-from: 'x' is not a job id (11160, 11160_3 or 11160_[2-5])"),
        (f"{array}_[3,7]", 2, f"--resume-from: '{array}_[3,7]' names several jobs"),
        (str(array), 1, f"resume from {array}: it is an array; name a task: {array}_3"),
        (f"{array}_5", 1, f"resume from {array}_5: there is no such task"),
        (f"{new}_1", 1, f"resume from {new}_1: job {new} is not an array"),
        (str(empty), 1, f"resume from {empty}: job {empty} has no checkpoint yet"),
        ("999", 1, "resume from 999: there is no such job"),
    ):
        done = cluster.run("submit", "--resume-from", word, "--", "true")
        assert (done.returncode, done.stdout, done.stderr) == (code, "", f"dlsched: {line}\n")
    cluster.cli("cancel", str(empty))


def state(cluster: LocalCluster, name: str) -> str:
    """The state of a job or an element."""
    with cluster.client() as client:
        return str(client.show(filter_of([name]))[0].job.state)


def test_a_job_of_another_user_is_resumed_from_within_an_account(cluster: LocalCluster) -> None:
    cluster.cli("admin", "account", "add", "team")
    job = submit(cluster, "-A", "team", *counting(2, 0.01, "every=1"))
    cluster.until(job, "COMPLETED")
    cluster.cli("admin", "user", "add", "bob", "--account", "team")
    (saved,) = eventually("it is committed", lambda: registered(cluster, job, 2))

    async def submitted_by(user: str, uid: int) -> str:
        trust = ClientTrust.claimed_user(user, uid)
        wanted = pb.JobRequest(argv=["true"], held=True, resume_from=str(job))
        async with open_channel(f"127.0.0.1:{cluster.port}", trust) as channel:
            stub = control_pb2_grpc.ControlStub(channel)
            try:
                reply = await stub.Submit(pb.SubmitRequest(jobs=[wanted]))
            except grpc.aio.AioRpcError as error:
                return str(error.details())
            made = reply.jobs[0].job
            rows = await stub.Checkpoints(pb.CheckpointsRequest(filter=pb.Filter(jobs=[made])))
            return str(rows.checkpoints[0].path)

    assert asyncio.run(submitted_by("bob", 4242)) == saved["path"]
    user = pwd.getpwuid(os.getuid()).pw_name
    line = f"resume from {job}: job {job} belongs to {user}, not to eve"
    assert asyncio.run(submitted_by("eve", 4243)) == line


def test_a_checkpoint_that_cannot_be_read_fails_the_new_job(cluster: LocalCluster) -> None:
    old = submit(cluster, *counting(2, 0.01, "every=2"))
    cluster.until(old, "COMPLETED")
    (saved,) = eventually("it is committed", lambda: registered(cluster, old, 2))
    (Path(saved["path"]) / "manifest.json").unlink()
    new = submit(cluster, "--resume-from", str(old), *counting(4, 0.01))
    cluster.until(new, "FAILED")
    assert "JobError: cannot begin where another job was: checkpoint" in cluster.output(new)


@pytest.mark.exhaustive  # that a gang goes on with another number of ranks, test_job_torch shows
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs PyTorch")
def test_a_training_is_resumed_on_another_number_of_gpus(cluster: LocalCluster) -> None:
    program = ("--", sys.executable, str(COUNTING.with_name("torch_program.py")))
    said = []
    for words in (("-G2", "6"), ("-G1", "--resume-from", "%", "9"), ("-G1", "9")):
        *options, steps = (str(said[-1][0]) if word == "%" else word for word in words)
        job = submit(cluster, "--launch", "gpu", *options, *program, steps)
        cluster.until(job, "COMPLETED")
        eventually("it is committed", lambda j=job, n=int(steps): registered(cluster, j, n))
        said.append((job, cluster.output(job).splitlines()[-1]))
    _, resumed, whole = (line.split() for _, line in said)
    assert resumed[:4] == ["from", "6", "on", "1:"]
    assert float(resumed[4]) == pytest.approx(float(whole[4]), abs=1e-5)


# -- what the site deletes -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pruning() -> Iterator[LocalCluster]:
    """A site that keeps one checkpoint of each ended job."""
    rule = {"keep": 1, "prune_every_s": 0.5}
    with LocalCluster(nodes=1, tables={"checkpoints": rule}) as running:
        yield running


def test_the_site_prunes_ended_jobs_and_nothing_that_a_job_begins_at(pruning: LocalCluster) -> None:
    gate = pruning.folder / "gate"
    old = submit(pruning, "--keep", "9", *counting(40, 0.01, "every=10", f"gate={gate}"))
    (saved,) = eventually("it saves", lambda: registered(pruning, old, 20))
    new = submit(pruning, "--resume-from", str(old), "-H", *counting(30, 0.01, "every=5"))
    gate.touch()
    folder = Path(saved["path"]).parent

    eventually("the others are deleted", lambda: steps_in(folder) == [20, 40])
    assert len(registered(pruning, old, 20)) == 1
    pruning.cli("release", str(new))
    pruning.until(new, "COMPLETED")
    assert pruning.output(new).startswith("from 20 with 20\n")
    eventually("it is not needed any more", lambda: steps_in(folder) == [40])
    assert registered(pruning, old, 20) == []
    mine = folder.with_name(str(new))
    eventually("the new job is pruned too", lambda: steps_in(mine) == [30])


def steps_in(folder: Path) -> list[int]:
    """The steps of the checkpoints in a folder."""
    return sorted(int(path.name[5:]) for path in folder.glob("[0-9]*-[0-9]*[0-9]"))


# -- requeue of what has ended ---------------------------------------------------------------------


def test_a_failed_job_goes_on_from_its_checkpoint_and_its_dependents_wait(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    mended = tmp_path / "mended"
    job = submit(cluster, *counting(40, 0.01, "every=10", f"fails={mended}"))
    after = submit(cluster, "-d", f"afterok:{job}", "--keep-on-broken-dependency", "--", "true")
    lost = submit(cluster, "-d", f"afterok:{job}", "--", "true")
    cluster.until(job, "FAILED")
    cluster.until(lost, "CANCELLED")
    eventually("it is committed", lambda: registered(cluster, job, 20))
    mended.touch()
    assert cluster.cli("requeue", str(job)) == "requeued 1 job\n"
    ended = cluster.until(job, "COMPLETED")
    assert [line for line in cluster.output(job).splitlines() if line.startswith("from")] == [
        "from 0 with 0",
        "from 20 with 20",
    ]
    assert (ended.starts, ended.failures, ended.run, ended.exit_code) == (2, 0, 2, 0)
    cluster.until(after, "COMPLETED")
    assert cluster.job(lost).state == "CANCELLED"
    cluster.cli("requeue", str(lost))
    cluster.until(lost, "COMPLETED")
    with cluster.client() as client:
        (detail,) = client.show(filter_of([str(job)]))
    assert [run.exit_code for run in detail.runs] == [3, 0]
    assert ended.run_s == pytest.approx(sum(run.run_s or 0.0 for run in detail.runs), abs=0.01)
    listed = json.loads(cluster.cli("history", "-j", str(job), "--json"))["jobs"]
    assert [row["state"] for row in listed] == ["COMPLETED"]


def test_ended_jobs_start_again_only_as_far_as_their_user_may_have_live_jobs() -> None:
    with LocalCluster(nodes=1, tables={"limits": {"jobs_per_user": 2}}) as small:
        jobs = [small.submit("exit 3") for _ in range(2)]
        for job in jobs:
            small.until(job, "FAILED")
        running = small.submit("sleep 600")
        done = small.run("requeue", *map(str, jobs))
        user = small.job(running).user
        line = f"dlsched: job {jobs[1]}: {user} would have 3 live jobs, at most 2\n"
        assert (done.returncode, done.stdout, done.stderr) == (1, "requeued 1 job\n", line)
        eventually("the first runs again", lambda: small.job(jobs[0]).run == 2)
        assert small.job(jobs[1]).run == 1


def test_jobs_that_have_left_memory_start_again_with_a_new_environment(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLOUR", "red")
    said = submit(cluster, "--wrap", "echo $COLOUR; exit 4")
    count = submit(cluster, "--time", "6s", "--grace", "5", *counting(100_000, 0.05, "every=5"))
    for job, how in ((said, "FAILED"), (count, "TIMEOUT")):
        cluster.until(job, how)
    before = max(int(x.split()[1]) for x in cluster.output(count).splitlines() if "saved" in x)
    eventually("it is committed", lambda: registered(cluster, count, before))
    cluster.kill("daemon")
    cluster.start_daemon()
    eventually("it leads", lambda: cluster.node("n1").state == "idle")
    monkeypatch.setenv("COLOUR", "blue")
    done = cluster.run("requeue", str(said), str(count), "999")
    assert (done.returncode, done.stdout) == (1, "requeued 2 jobs\n")
    assert done.stderr == "dlsched: job 999: there is no such job\n"
    eventually("it has started again", lambda: cluster.job(said).run == 2)
    cluster.until(said, "FAILED")
    assert cluster.output(said) == "red\nblue\n"
    eventually("it goes on", lambda: f"from {before} with {before}" in cluster.output(count))
    cluster.until(count, "TIMEOUT")
    cluster.cli("requeue", "--fresh", str(count))
    eventually("it begins anew", lambda: cluster.output(count).count("from 0 with 0") == 2)
    cluster.run("cancel", str(count))  # it may have reached its time limit again
    cluster.until(count, "CANCELLED", "TIMEOUT")


def test_which_jobs_do_not_start_again(cluster: LocalCluster) -> None:
    job = submit(cluster, "--", "sleep", "600")
    cluster.until(job, "RUNNING")
    refused = cluster.run("requeue", "--fresh", str(job))
    line = f"dlsched: job {job}: it is running; only an ended job begins anew\n"
    assert (refused.returncode, refused.stderr) == (1, line)
    cluster.cli("cancel", str(job))
    cluster.until(job, "CANCELLED")

    async def as_bob() -> str:
        wanted = pb.ActRequest(action=pb.ACTION_REQUEUE, filter=pb.Filter(jobs=[job]))
        trust = ClientTrust.claimed_user("bob", 4242)
        async with open_channel(f"127.0.0.1:{cluster.port}", trust) as channel:
            reply = await control_pb2_grpc.ControlStub(channel).Act(wanted)
            return str(reply.failed[0].why)

    assert asyncio.run(as_bob()) == f"not yours (owner {pwd.getpwuid(os.getuid()).pw_name})"
    array = submit(cluster, "--array", "1-2%1", "--", "false")
    for task in (1, 2):
        eventually("it fails", lambda t=task: state(cluster, f"{array}_{t}") == "FAILED")
    assert cluster.cli("requeue", f"{array}_2") == "requeued 1 job\n"
    eventually("it fails again", lambda: state(cluster, f"{array}_2") == "FAILED")
