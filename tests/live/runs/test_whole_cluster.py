"""What a new user does first: submit, look, wait, cancel; before a release also on Postgres."""

from __future__ import annotations

import json
import stat

from dlsched.torture.local_cluster import LocalCluster, eventually


def test_a_job_runs_and_is_in_the_history(shared: LocalCluster) -> None:
    job = shared.submit("echo hello from $DLSCHED_JOB_ID on $CUDA_VISIBLE_DEVICES", gpus="2")
    ended = shared.until(job, "COMPLETED")
    assert (ended.exit_code, ended.starts, ended.gpus) == (0, 1, 2)
    words = shared.output(job).split()
    assert words[:3] == ["hello", "from", str(job)]
    assert len(words[-1].split(",")) == 2
    history = json.loads(shared.cli("history", "--json"))
    assert job in [row["job_id"] for row in history["jobs"]]


def test_the_exit_code_and_the_signal_are_the_jobs_own(shared: LocalCluster) -> None:
    seven = shared.submit("exit 7")
    fault = shared.submit("kill -SEGV $$")
    assert shared.until(seven, "FAILED").exit_code == 7
    assert shared.until(fault, "FAILED").exit_signal == 11
    done = shared.run("wait", str(seven))
    assert done.returncode == 7
    assert shared.run("wait", str(fault)).returncode == 128 + 11


def test_on_a_full_cluster_jobs_wait_with_a_reason(shared: LocalCluster) -> None:
    first = shared.submit("sleep 600", gpus="12")
    shared.until(first, "RUNNING")
    second = shared.submit("true", gpus="4")
    assert eventually("it has a reason", lambda: shared.job(second).reason)
    assert shared.job(second).state == "PENDING"
    listed = shared.cli("queue")
    assert str(first) in listed
    assert str(second) in listed
    shared.cli("cancel", str(first))
    assert shared.until(first, "CANCELLED").starts == 1
    shared.until(second, "COMPLETED")


def test_hold_release_and_update(shared: LocalCluster) -> None:
    job = shared.submit("true", hold="yes")
    assert shared.job(job).reason == "JobHeldUser"
    assert "time limit none -> 10:00" in shared.cli("update", str(job), "--time", "10m")
    shared.cli("release", str(job))
    assert shared.until(job, "COMPLETED").time_limit_s == 600


def test_a_time_limit_ends_a_job(shared: LocalCluster) -> None:
    job = shared.submit("sleep 60", time="1s", grace="1s")
    shared.until(job, "TIMEOUT")


def test_a_suspended_job_is_cancelled_at_once(shared: LocalCluster) -> None:
    job = shared.submit("sleep 600", grace="5m")
    shared.until(job, "RUNNING")
    shared.cli("suspend", str(job))
    shared.until(job, "SUSPENDED")
    shared.cli("cancel", str(job))
    shared.until(job, "CANCELLED")


def test_arrays_and_dependencies(shared: LocalCluster) -> None:
    array = shared.submit("exit $DLSCHED_ARRAY_TASK_ID", array="0-2%1")
    after = shared.submit("true", dependency=f"afterany:{array}")
    never = shared.submit("true", dependency=f"afterok:{array}")
    shared.until(after, "COMPLETED")
    assert shared.until(never, "CANCELLED").reason == "DependencyNeverSatisfied"
    codes = [job.exit_code for job in shared.jobs([array, array + 1, array + 2])]
    assert codes == [0, 1, 2]


def test_a_graph_from_one_file_runs_in_its_order(shared: LocalCluster) -> None:
    """Typed on the command line; one job fails, and what waits for its success is cancelled."""
    marks = shared.folder / "marks"
    (shared.folder / "graph.toml").write_text(f"""
[[jobs]]
name = "report"
command = "echo report >> {marks}"
after = ["afterany:left", "afterany:right"]

[[jobs]]
name = "never"
command = "echo never >> {marks}"
after = ["right"]

[[jobs]]
name = "behind"
command = "echo behind >> {marks}"
after = ["never"]

[[jobs]]
name = "left"
command = "echo left >> {marks}"
gpus = 2
after = ["prepare"]

[[jobs]]
name = "right"
command = "exit 3"
after = ["prepare", "left"]

[[jobs]]
name = "prepare"
command = "until [ -e {marks}.go ]; do sleep 0.1; done; echo prepare >> {marks}"
""")
    lines = shared.cli("submit", "-o", "none", "--dag", "graph.toml").splitlines()
    ids = {name: int(job) for job, name in (line.split() for line in lines)}
    assert list(ids) == ["prepare", "left", "right", "report", "never", "behind"]
    shared.until(ids["prepare"], "RUNNING")
    told = shared.cli("show", str(ids["left"]))
    assert f"depends on  afterok:{ids['prepare']}" in told.replace("   ", "  ")
    assert f"awaited by  {ids['right']},{ids['report']}" in told.replace("   ", "  ")
    listed = shared.cli("queue", "--json")
    reasons = {row["job_id"]: row["reason"] for row in json.loads(listed)["jobs"]}
    assert reasons[ids["never"]] == f"Dependency: afterok:{ids['right']}"
    (shared.folder / "marks.go").touch()
    shared.until(ids["report"], "COMPLETED")
    assert shared.until(ids["right"], "FAILED").exit_code == 3
    for name in ("never", "behind"):
        assert shared.until(ids[name], "CANCELLED").reason == "DependencyNeverSatisfied"
    assert marks.read_text().split() == ["prepare", "left", "report"]
    (shared.folder / "graph.toml").write_text("[[jobs]]\nname = 'a'\nafter = 'a'\ncommand = 'x'\n")
    refused = shared.run("submit", "--dag", "graph.toml")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr == "dlsched: graph.toml: jobs wait for each other: a after a\n"


def test_a_drained_node_takes_no_new_runs_and_keeps_its_own(shared: LocalCluster) -> None:
    job = shared.submit("sleep 600", gpus="4")
    where = shared.until(job, "RUNNING").nodes[0]
    others = ",".join(name for name in shared.names if name != where)
    shared.cli("drain", where, "--reason", "bad fan")
    eventually("it is draining", lambda: shared.node(where).state == "draining")
    more = shared.submit("true", exclude=others)
    assert eventually("it has a reason", lambda: shared.job(more).reason)
    assert shared.job(more).state == "PENDING"
    shared.cli("cancel", str(job))
    eventually("it is drained", lambda: shared.node(where).state == "drained")
    shared.cli("resume-node", where)
    shared.until(more, "COMPLETED")


def test_the_policy_changes_while_jobs_run(shared: LocalCluster) -> None:
    job = shared.submit("sleep 600")
    shared.until(job, "RUNNING")
    shared.cli("admin", "set-policy", "las")
    with shared.client() as client:
        assert client.status().policy == "las"
    assert shared.job(job).starts == 1
    shared.cli("cancel", str(job))
    refused = shared.run("admin", "set-policy", "nonsense")
    assert refused.returncode == 1
    assert len(refused.stderr.strip().splitlines()) == 1


def test_files_have_the_mode_that_the_submitting_umask_leaves(shared: LocalCluster) -> None:
    made = shared.folder / "made"
    for umask, mode in ((0o077, 0o600), (0o002, 0o664)):
        words = ("submit", "--parsable", "-o", f"{shared.out}/%j.out", "--wrap", f"touch {made}")
        job = int(shared.run(*words, umask=umask).stdout)
        shared.until(job, "COMPLETED")
        modes = [stat.S_IMODE(each.stat().st_mode) for each in (made, shared.out / f"{job}.out")]
        assert modes == [mode, mode]
        made.unlink()
