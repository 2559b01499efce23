"""Verbs that change something, or wait for it: requests, lines, exit codes."""

from __future__ import annotations

import grpc
import pytest

from dlsched.cli.main import run
from dlsched.rpc.v1 import control_pb2 as pb


@pytest.mark.parametrize(
    ("verb", "action", "done"),
    [
        ("cancel", pb.ACTION_CANCEL, "cancelled"),
        ("hold", pb.ACTION_HOLD, "held"),
        ("release", pb.ACTION_RELEASE, "released"),
        ("requeue", pb.ACTION_REQUEUE, "requeued"),
        ("suspend", pb.ACTION_SUSPEND, "suspended"),
        ("resume", pb.ACTION_RESUME, "resumed"),
    ],
)
def test_an_action_on_several_jobs(dlsched, control, verb, action, done):
    control.answers["Act"] = pb.ActReply(
        done=["11151"], failed=[pb.Failure(subject="job 11157", why="not yours (owner alice)")]
    )
    called = dlsched(verb, "11151", "11157", "11160_[2-5]")
    assert called == (
        1,
        f"{done} 1 job\n",
        "dlsched: job 11157: not yours (owner alice)\n",
    )
    request = control.request("Act")
    assert request.action == action
    assert list(request.filter.jobs) == [11151, 11157]
    assert list(request.filter.elements[0].tasks) == [2, 3, 4, 5]


def test_a_signal_is_sent_and_nothing_else(dlsched, control):
    control.answers["Act"] = pb.ActReply(done=["7"])
    assert dlsched("cancel", "-s", "USR1", "7") == (0, "signalled 1 job\n", "")
    assert (control.request("Act").action, control.request("Act").signal) == (pb.ACTION_SIGNAL, 10)


def test_a_filter_cancels_the_users_own_jobs(dlsched, control):
    control.answers["Act"] = pb.ActReply(done=["7", "8"])
    assert dlsched("cancel", "-t", "PD", "-p", "main", "-Q") == (0, "", "")
    chosen = control.request("Act").filter
    assert (list(chosen.states), list(chosen.partitions)) == (["PENDING"], ["main"])
    assert not chosen.all_users


def test_a_request_that_must_not_be_repeated_is_sent_once(dlsched, control, refusal, one_a_call):
    away = refusal(grpc.StatusCode.UNAVAILABLE, "cannot store: try again")
    control.answers["Act"] = one_a_call(away, pb.ActReply(done=["7"]))
    assert dlsched("requeue", "7") == (1, "", "dlsched: cannot store: try again\n")
    control.answers["Act"] = one_a_call(away, pb.ActReply(done=["7"]))
    assert dlsched("hold", "7").code == 0


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["cancel"], "give job ids, a filter, or --me for all of your own jobs"),
        (["cancel", "-s", "FOO", "7"], "--signal: 'FOO' is not a signal"),
        (["hold", "0"], "'0' is not a job id (11160, 11160_3 or 11160_[2-5])"),
        (["hold", "7_[5-2]"], "7_[5-2]: '5-2' holds no task"),
        (["update", "7"], "nothing to change: give at least one option"),
        (["update", "7", "--time", "x"], "--time: 'x' is not a duration (90, 1:30:00, 2-12:00 or "
         "1h30m)"),
        (["update", "7", "-d", "later:3"], "--dependency: 'later' is not known; known: after, "
         "afterok, afterany, afternotok, aftercorr, singleton (did you mean 'after'?)"),
        (["drain", "n2", "--reason", ""], "--reason: is empty"),
        (["drain", "n2"], "missing option '--reason'."),
        (["admin", "set-policy"], "name a policy, a part or an option"),
        (["admin", "node-down", "n2"], "--confirmed is needed: if the node still runs its jobs, "
         "they will run twice"),
        (["logs", "7_[1-2]"], "7_[1-2]: name one element (7_1)"),
    ],
)  # fmt: skip
def test_wrong_use(dlsched, control, words, line):
    assert dlsched(*words) == (2, "", f"dlsched: {line}\n")
    assert not control.asked


def test_update_prints_old_and_new_values(dlsched, control):
    control.answers["Update"] = pb.ActReply(
        done=["7"], lines=["job 7: time limit 1:00:00 -> 2:00:00"]
    )
    words = "--time 2h --priority 5 --gpus a100:8 -w n[1-2] --deadline= --retries 3"
    done = dlsched("update", "7", *words.split())
    assert done == (0, "job 7: time limit 1:00:00 -> 2:00:00\nupdated 1 job\n", "")
    assert dict(control.request("Update").fields) == {
        "time_limit_s": "7200",
        "priority": "5.0",
        "gpus": "8",
        "gpu_types": "a100",
        "only_nodes": "n1,n2",
        "deadline_at": "",
        "retries": "3",
    }


def test_update_sets_and_removes_dependencies(dlsched, control):
    control.answers["Update"] = pb.ActReply(done=["7"])
    words = ["--array-limit", "3", "--grace", "90", "--time", "1-12", "-d"]
    assert dlsched("update", "7", *words, "afterok:5_2?after:6+2").code == 0
    request = control.request("Update")
    assert dict(request.fields) == {"array_limit": "3", "grace_s": "90", "time_limit_s": "129600"}
    assert request.set_dependencies
    assert list(request.dependencies) == [
        pb.Dependency(kind="afterok", job=5, task=2, or_next=True),
        pb.Dependency(kind="after", job=6, delay_s=120),
    ]
    control.asked.clear()
    assert dlsched("update", "7", "--dependency", "").code == 0
    request = control.request("Update")
    assert request.set_dependencies
    assert not request.dependencies
    control.asked.clear()
    assert dlsched("update", "7", "--comment", "x").code == 0
    assert not control.request("Update").set_dependencies


# -- waiting --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ended", "code", "line"),
    [
        ({"state": "COMPLETED", "code": 0, "run_s": 5}, 0, "COMPLETED 0:0 after 0:05"),
        ({"state": "FAILED", "code": 7, "run_s": 101}, 7, "FAILED 7:0 after 1:41"),
        ({"state": "FAILED", "code": 0, "signal": 11}, 139, "FAILED 0:11"),
        ({"state": "TIMEOUT", "code": 0, "signal": 15, "reason": "time limit 1:00"}, 143,
         "TIMEOUT 0:15 (time limit 1:00)"),
        ({"state": "CANCELLED", "cancelled_by": "root", "code": 0}, 1, "CANCELLED by root 0:0"),
        ({"state": "CANCELLED", "reason": "DependencyNeverSatisfied"}, 1,
         "CANCELLED (DependencyNeverSatisfied)"),
        ({"state": "NODE_FAIL", "code": 0}, 1, "NODE_FAIL 0:0"),
    ],
)  # fmt: skip
def test_wait_exits_with_the_code_of_the_job(dlsched, control, job_view, ended, code, line):
    control.answers["Wait"] = [pb.WaitReply(job=job_view(7, **ended))]
    assert dlsched("wait", "7") == (code, "", f"dlsched: job 7: {line}\n")


def test_of_several_jobs_the_highest_code_counts(dlsched, control, job_view):
    codes = {7: 0, 8: 9, 9: 3}
    control.answers["Wait"] = [
        pb.WaitReply(job=job_view(job, state="FAILED" if code else "COMPLETED", code=code))
        for job, code in codes.items()
    ]
    assert dlsched("wait", "7", "8", "9").code == 9


def test_wait_reconnects_to_a_daemon_that_stopped(dlsched, control, job_view, refusal, one_a_call):
    first, second = (pb.WaitReply(job=job_view(job, state="COMPLETED", code=0)) for job in (7, 8))
    away = refusal(grpc.StatusCode.UNAVAILABLE, "stopping")
    control.answers["Wait"] = one_a_call([first, away], [first, second])
    done = dlsched("wait", "7", "8")
    assert done.code == 0
    assert done.err.splitlines() == [
        "dlsched: job 7: COMPLETED 0:0",
        "dlsched: stopping; trying again",
        "dlsched: job 8: COMPLETED 0:0",
    ]


def test_an_unknown_job_is_not_waited_for(dlsched, control, refusal):
    control.answers["Wait"] = refusal(grpc.StatusCode.NOT_FOUND, "job 9: not known")
    assert dlsched("wait", "9") == (1, "", "dlsched: job 9: not known\n")


def test_logs_are_unchanged_bytes(control, capfdbinary, monkeypatch):
    control.answers["Logs"] = [pb.LogChunk(data=b"\xff\x1b[1m"), pb.LogChunk(data=b"end")]
    monkeypatch.setattr("sys.argv", ["dlsched", "logs", "7", "-n", "5", "--rank", "2", "--stderr"])
    with pytest.raises(SystemExit) as stop:
        run()
    assert not stop.value.code
    assert capfdbinary.readouterr().out == b"\xff\x1b[1mend"
    request = control.request("Logs")
    assert (request.job, request.tail_lines, request.rank, request.error) == (7, 5, 2, True)
    assert not request.HasField("run")


def test_followed_logs_continue_after_a_lost_connection(dlsched, control, refusal, one_a_call):
    away = refusal(grpc.StatusCode.UNAVAILABLE, "stopping")
    one, two = pb.LogChunk(data=b"step 1\nst"), pb.LogChunk(data=b"step 1\nstep 2\n")
    control.answers["Logs"] = one_a_call([one, away], [two])
    done = dlsched("logs", "-f", "7")
    assert (done.code, done.out) == (0, "step 1\nstep 2\n")


def test_logs_of_an_element(dlsched, control, job_view):
    element = job_view(11163, array_job=11160, array_task=3)
    control.answers["Show"] = pb.ShowReply(jobs=[pb.JobDetail(job=element)])
    control.answers["Logs"] = [pb.LogChunk(data=b"x\n")]
    assert dlsched("logs", "11160_3") == (0, "x\n", "")
    assert control.request("Logs").job == 11163


def test_many_jobs_are_cancelled_in_parts(dlsched, control, one_a_call, refusal):
    parts = [pb.ActReply(done=["1", "2"], next=2), pb.ActReply(done=["3"])]
    control.answers["Act"] = one_a_call(*parts)
    assert dlsched("cancel", "-u", "ann").out == "cancelled 3 jobs\n"
    assert [(request.limit, request.after) for _, request in control.asked] == [
        (1000, 0),
        (1000, 2),
    ]
    control.answers["Act"] = one_a_call(parts[0], refusal(grpc.StatusCode.INTERNAL, "disk"))
    code, _, said = dlsched("cancel", "-u", "ann")
    assert (code, said.endswith("; 2 jobs were done before\n")) == (1, True)


# -- nodes and the cluster ------------------------------------------------------------------------


def test_drain_lists_the_jobs_that_still_run_on_the_node(dlsched, control):
    control.answers["SetNodes"] = pb.ActReply(done=["n2"])
    control.answers["Nodes"] = pb.NodesReply(
        nodes=[
            pb.NodeView(
                name="n2", state="draining", jobs=[11151, 11152], job_names=["11151", "11152"]
            )
        ]
    )
    done = dlsched("drain", "n[2-3]", "--reason", "bad NVLink on gpu3")
    assert done == (0, "n2: still held by 2 jobs: 11151, 11152\ndraining 1 node\n", "")
    request = control.request("SetNodes")
    assert (list(request.names), request.reason) == (["n2", "n3"], "bad NVLink on gpu3")
    assert request.action == pb.NODE_ACTION_DRAIN


def test_resume_and_down(dlsched, control, refusal):
    control.answers["SetNodes"] = pb.ActReply(done=["n2"])
    assert dlsched("resume-node", "n2").out == "resumed 1 node\n"
    assert dlsched("admin", "node-down", "n2", "--confirmed").out == "declared down 1 node\n"
    assert [request.action for _, request in control.asked] == [
        pb.NODE_ACTION_RESUME,
        pb.NODE_ACTION_DOWN_CONFIRMED,
    ]
    control.answers["SetNodes"] = refusal(grpc.StatusCode.PERMISSION_DENIED, "operators only")
    assert dlsched("resume-node", "n2") == (1, "", "dlsched: operators only\n")


def test_the_policy_is_switched(dlsched, control):
    control.answers["SetPolicy"] = pb.SetPolicyReply(
        parts={"scheduling": "tiresias", "placement": "min-nodes"}, options=["knob=0.5"]
    )
    done = dlsched("admin", "set-policy", "tiresias", "--estimate", "user", "-o", "knob=0.5")
    assert done.out == "now placement min-nodes, scheduling tiresias, knob=0.5\n"
    request = control.request("SetPolicy")
    assert dict(request.parts) == {"scheduling": "tiresias", "estimator": "user"}
    assert list(request.options) == ["knob=0.5"]


def test_reload_prints_what_changed(dlsched, control):
    control.answers["Reload"] = pb.ReloadReply(changes=["round.interval_s 60 -> 30"])
    assert dlsched("admin", "reload").out == "round.interval_s 60 -> 30\n"


def test_a_snapshot_is_a_file(dlsched, control, tmp_path):
    control.answers["Snapshot"] = [pb.SnapshotChunk(data=b"ab"), pb.SnapshotChunk(data=b"c")]
    path = tmp_path / "state"
    assert dlsched("admin", "snapshot", "-o", path) == (0, f"{path}: 3 bytes\n", "")
    assert path.read_bytes() == b"abc"
    assert [each.name for each in tmp_path.iterdir() if each.name != "config"] == ["state"]


def test_followed_logs_wait_for_the_start(dlsched, control, job_view, refusal, one_a_call):
    early = refusal(grpc.StatusCode.NOT_FOUND, "job 7 has not run yet")
    control.answers["Logs"] = one_a_call(early, early, [pb.LogChunk(data=b"x\n")])
    waits, starts = (
        pb.ShowReply(jobs=[pb.JobDetail(job=job_view(7, state=state))])
        for state in ("PENDING", "STARTING")
    )
    control.answers["Show"] = one_a_call(waits, starts)
    assert dlsched("logs", "-f", "7") == (0, "x\n", "")


def test_followed_logs_of_a_job_that_never_ran(dlsched, control, job_view, refusal):
    control.answers["Logs"] = refusal(grpc.StatusCode.NOT_FOUND, "job 7 has not run yet")
    over = job_view(7, state="CANCELLED", ended_at=1795242441.0)
    control.answers["Show"] = pb.ShowReply(jobs=[pb.JobDetail(job=over)])
    assert dlsched("logs", "-f", "7") == (1, "", "dlsched: job 7 has not run yet\n")
