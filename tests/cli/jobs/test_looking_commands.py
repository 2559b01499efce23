"""`show`, `history`, `usage`, `nodes`, `top`, `admin status`: what they print."""

from __future__ import annotations

import json
import time

import pytest

from dlsched.rpc.v1 import control_pb2 as pb
from dlsched.rpc.v1 import run_pb2


@pytest.fixture
def local_is_utc(monkeypatch):
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_a_pending_job_ends_with_why(dlsched, control, job_view, local_is_utc):
    job = job_view(
        11157, name="gpt", state="PENDING", gpus=32, reason="Resources", position=2,
        predicted_start_at=1795243620.0, predicted_basis="las, user estimates",
        predicted_start_p10_at=1795243620.0 - 420, predicted_start_p90_at=1795243620.0 + 600,
        priority_class="high",
    )  # fmt: skip
    detail = pb.JobDetail(
        job=job,
        request=pb.JobRequest(script=b"#!/bin/sh\n", argv=["--lr", "0.1"], working_directory="/w"),
        events=[pb.EventView(at=1795242340.0, kind="submitted", actor="alice")],
        why_pending=["32 GPUs are wanted, 16 are free"],
        order_numbers={"attained": "0"},
    )
    control.answers["Show"] = pb.ShowReply(jobs=[detail])
    done = dlsched("show", "11157", "--why-order")
    assert done.out == (
        "job 11157  gpt\n"
        "  state      PENDING (Resources)\n"
        "  owner      user alice, vc research, class high\n"
        "  gpus       32 (any type)\n"
        "  submitted  2026-11-21 06:25:40+00:00\n"
        "  command    (script) --lr 0.1\n"
        "  directory  /w\n"
        "In the policy's order:\n"
        "  attained  0\n"
        "Events:\n"
        "  2026-11-21 06:25:40+00:00  submitted by alice\n"
        "Why pending:\n"
        "  32 GPUs are wanted, 16 are free\n"
        "  predicted start 2026-11-21 06:47:00+00:00, from 11-21 06:40 to 11-21 06:57"
        " (las, user estimates)\n"
    )
    assert control.request("Show").why_order


def test_seconds_that_a_job_asks_for_are_shown_as_a_time(dlsched, control, job_view):
    asked = pb.JobRequest(expected_s=5400.0)
    detail = pb.JobDetail(job=job_view(7, state="PENDING"), request=asked)
    control.answers["Show"] = pb.ShowReply(jobs=[detail])
    assert "  expected time  1:30:00\n" in dlsched("show", "7").out


def test_a_training_shows_its_model_and_what_one_more_gpu_would_give(dlsched, control, job_view):
    training = pb.TrainingView(
        gpu_type="v100", model=[0.05, 0.002, 0.1, 0.01, 0.02, 0.003, 1.5], observations=8,
        gradient_sqr=0.5, gradient_var=4.0, initial=128, maximum=4096, local_min=32, local_max=256,
        may_accumulate=True, batch=pb.Batch(local=87, accumulation=1), nodes=1, replicas=4,
        progress=12.5, restart_s=4.0, save_s=0.25, ignored=3,
        sizes=[
            pb.ExpectedGoodput(gpus=gpus, nodes=1, goodput=goodput, throughput=2 * goodput,
                               batch=pb.Batch(local=100))
            for gpus, goodput in ((3, 900.0), (4, 1000.0), (5, 1100.0))
        ],
    )  # fmt: skip
    detail = pb.JobDetail(job=job_view(job=7, state="RUNNING"), training=training)
    control.answers["Show"] = pb.ShowReply(jobs=[detail])
    lines = dlsched("show", "7").out.split("Training:\n")[1].splitlines()
    told = {line[2:15].strip(): line[15:] for line in lines}
    assert told == {
        "batch": "696 samples a step, 4 x 87 in 2 passes (initial 128, at most 4096)",
        "progress": "12.5 steps of 128",
        "noise scale": "1024 samples",
        "model": "pass 50 ms + 2 ms a sample; synchronising 20 ms + 3 ms a GPU, over nodes "
        "100 ms + 10 ms; overlap 1.5 (v100, 8 observations)",
        "3 GPUs": "900 useful samples/s, -10% (batch 300, 1800 samples/s)",
        "4 GPUs": "1000 useful samples/s (batch 400, 2000 samples/s)",
        "5 GPUs": "1100 useful samples/s, +10% (batch 500, 2200 samples/s)",
        "restart": "4 s to start and load, 0.25 s to save",
        "ignored": "3 reports that made no sense",
    }
    (entry,) = json.loads(dlsched("show", "7", "--json").out)["jobs"]
    assert entry["training"]["model_ms"]["beta_c"] == 2
    assert entry["training"]["sizes"][2]["goodput"] == 1100
    control.answers["Show"] = pb.ShowReply(jobs=[pb.JobDetail(job=job_view(job=7))])
    assert "Training" not in dlsched("show", "7").out


def test_a_job_that_ran_shows_its_runs(dlsched, control, job_view, local_is_utc):
    run = pb.RunView(
        run=2,
        layout=[run_pb2.Share(node="n3", gpus=["a", "b"]), run_pb2.Share(node="n4", gpus=["c"])],
        started_at=1795242340.0, ended_at=1795242440.0, end="exited", code=3, executed_s=100,
        last_step=700,
    )  # fmt: skip
    job = job_view(7, state="FAILED", code=3, signal=0, ended_at=1795242440.0, starts=2, run=2,
                   preemptions=1, run_s=150.0, time_limit_s=3600)  # fmt: skip
    control.answers["Show"] = pb.ShowReply(jobs=[pb.JobDetail(job=job, runs=[run])])
    out = dlsched("show", "7").out
    assert "  state      FAILED, run 2\n  exit       3:0\n" in out
    assert "  executed   2:30 of 1:00:00\n" in out
    assert "  2: 2026-11-21 06:25:40+00:00, 3 GPUs on n[3-4], 1:40, exited 3:0, step 700\n" in out
    assert "Why pending" not in out
    (told,) = json.loads(dlsched("show", "7", "--json").out)["jobs"]
    assert (told["job_id"], told["exit_code"], told["runs"][0]["nodes"]) == (7, 3, ["n3", "n4"])


@pytest.fixture
def ended(control, job_view):
    first = 1795242340.0
    control.answers["History"] = [
        pb.HistoryPage(
            jobs=[
                job_view(7, state="COMPLETED", code=0, run_s=3600.0, gpu_s=28800.0, starts=2,
                         preemptions=1, submitted_at=first, first_started_at=first + 10,
                         ended_at=first + 4000, gpu_types=["v100"]),
                job_view(8, state="CANCELLED", gpus=2, submitted_at=first + 5,
                         ended_at=first + 9),
                job_view(9, name="oops", state="FAILED", code=0, signal=11, run_s=1.5, gpus=1,
                         submitted_at=first + 2.25, first_started_at=first + 3, starts=1,
                         ended_at=first + 5),
            ]
        )
    ]  # fmt: skip
    return control


def test_history_lists_the_gpu_time_of_jobs(dlsched, ended):
    out = dlsched("history", "-o", "id,state,exit,time,gpu_hours,jct,delay,starts,preempted").out
    assert out == (
        "ID  STATE      EXIT     TIME  GPU-HOURS      JCT  DELAY  STARTS  PREEMPTED\n"
        " 7  COMPLETED   0:0  1:00:00       8.00  1:06:40   0:10       2          1\n"
        " 8  CANCELLED     -        -          -     0:04   0:04       0          0\n"
        " 9  FAILED     0:11     0:01          -     0:02   0:00       1          0\n"
    )
    assert ended.request("History").since > 0


def test_history_takes_the_usual_filters(dlsched, ended):
    dlsched("history", "-S", "2026-11-21", "-E", "2026-11-22", "-s", "F", "-l", "10", "-a")
    request = ended.request("History")
    assert (list(request.filter.states), request.limit) == (["FAILED"], 10)
    assert request.until - request.since == 86400
    assert request.filter.all_users


def test_the_export_of_a_history_can_be_replayed(dlsched, ended, tmp_path):
    path = tmp_path / "trace.csv"
    done = dlsched("history", "--export", path)
    assert done == (
        0, "", f"dlsched: 2 jobs written to {path}; 1 left out that never ran on a GPU\n",
    )  # fmt: skip
    assert path.read_text().splitlines()[:2] == [
        "job_id,submit_time,num_gpus,duration,user,vc,status,name,gpu_type,start_time,end_time,"
        "attempts",
        "7,0,8,3600,alice,research,completed,resnet50,v100,10,4000,2",
    ]
    replayed = dlsched("replay", path, "--cluster", "2x8:v100", "--policy", "fifo,srtf",
                       "--executor", "processes:1")  # fmt: skip
    assert replayed.code == 0, replayed.err
    assert not ended.request("History").HasField("since")


def test_a_wrong_export_file_is_refused_before_a_request_is_sent(dlsched, ended):
    assert dlsched("history", "--export", "x.xls").code == 2
    assert not ended.asked


def test_nodes(dlsched, control, local_is_utc):
    control.answers["Nodes"] = pb.NodesReply(
        nodes=[
            pb.NodeView(name="n1", state="mixed", gpu_type="v100", gpus=8, busy_gpus=4, cpus=16,
                        memory_bytes=200 << 30, jobs=[7], job_names=["7"]),
            pb.NodeView(name="n2", state="drained*", gpu_type="v100", gpus=8, why="bad NVLink",
                        why_actor="root", why_at=1795242344.0,
                        devices=[pb.GpuView(index=3, type="v100", state="quarantined",
                                            why="Xid 79", utilization=0.5,
                                            memory_used_bytes=1 << 30, memory_bytes=16 << 30,
                                            temperature_c=41)]),
        ]
    )  # fmt: skip
    assert dlsched("nodes").out == (
        "NODE  STATE     GPUS  TYPE  CPUS  MEMORY  JOBS  WHY\n"
        "n1    mixed      4/8  v100    16    200G  7     -\n"
        "n2    drained*   0/8  v100     -       -  -     bad NVLink\n"
    )
    assert dlsched("nodes", "-R").out == (
        "WHY         BY    SINCE                      NODE\n"
        "bad NVLink  root  2026-11-21 06:25:44+00:00  n2\n"
    )
    assert dlsched("nodes", "--gpus").out == (
        "NODE  GPU  TYPE  STATE        JOBS  UTIL  MEMORY  TEMP  WHY\n"
        "n2      3  v100  quarantined  -     50 %  1G/16G  41 C  Xid 79\n"
    )
    told = json.loads(dlsched("nodes", "--json", "n[1-2]").out)
    assert told["schema"] == "dlsched.nodes/1"
    assert [node["cpus"] for node in told["nodes"]] == [16, None]
    assert told["nodes"][1]["devices"][0]["temperature_c"] == 41
    assert list(control.asked[-1][1].names) == ["n1", "n2"]


def test_usage(dlsched, control):
    control.answers["Usage"] = pb.UsageReply(
        usage=[
            pb.UsageView(name="vision", gpu_s=3600),
            pb.UsageView(name="nlp", gpu_s=10800, gpu_parts_now=4, entitlement=16, pending=2),
        ]
    )
    assert dlsched("usage").out == (
        "VC      GPU-HOURS   SHARE  GPUS NOW  ENTITLED  PENDING\n"
        "nlp          3.00  75.0 %         4        16        2\n"
        "vision       1.00  25.0 %         0         -        0\n"
    )


def test_status(dlsched, control):
    control.answers["Status"] = pb.StatusReply(
        health="yellow", problems=["agent n2 late"], leader="host:1", epoch=3, database="sqlite",
        policy="las", parts={"scheduling": "las", "placement": "min-nodes"}, round=812,
        round_s=0.014, nodes_up=3, nodes_late=1, pending=2, running=4, up_s=61, version="0.1.0",
        cluster="lab", standbys=["host:2"],
    )  # fmt: skip
    assert dlsched("admin", "status").out == (
        "health    yellow\n"
        "problem   agent n2 late\n"
        "cluster   lab, dlsched 0.1.0\n"
        "role      leads, up 1:01\n"
        "leader    host:1, epoch 3\n"
        "standbys  host:2\n"
        "database  sqlite\n"
        "policy    las (placement min-nodes)\n"
        "round     812, 14 ms\n"
        "nodes     3 up, 1 late, 0 down\n"
        "jobs      4 running, 2 pending\n"
    )
    told = json.loads(dlsched("admin", "status", "--json").out)
    assert (told["schema"], told["status"]["health"]) == ("dlsched.status/1", "yellow")


def test_top_once_prints_nodes_and_jobs(dlsched, control, job_view):
    control.answers["Nodes"] = pb.NodesReply(nodes=[pb.NodeView(name="n1", state="idle", gpus=4)])
    control.answers["Queue"] = [pb.QueuePage(jobs=[job_view()], summary=pb.QueueSummary(running=1))]
    out = dlsched("top", "--once").out
    assert "n1" in out
    assert "11151" in out
    assert control.request("Queue").filter.all_users


def test_calibration_prints_the_errors_of_predicted_starts(dlsched, control):
    control.answers["Calibration"] = pb.CalibrationReply(
        by_basis=[
            pb.CalibrationView(
                basis="time limits", jobs=12, mean_error_s=-90, median_abs_error_s=60,
                p90_abs_error_s=3600, mean_lead_s=7200,
            )
        ]
    )  # fmt: skip
    done = dlsched("admin", "calibration", "--since", "2h")
    assert done.code == 0
    assert done.out.splitlines()[1].split() == [
        "time", "limits", "12", "-1:30", "1:00", "1:00:00", "2:00:00", "-", "-", "0", "-", "-",
    ]  # fmt: skip
    assert control.request("Calibration").HasField("since")
    found = dlsched("admin", "calibration", "--json")
    assert json.loads(found.out)["by_basis"][0]["mean_error_s"] == -90
    wrong = dlsched("admin", "calibration", "--by", "user")
    assert (wrong.code, wrong.err) == (
        2, "dlsched: --by: 'user' is not known; known: basis, policy, class\n",
    )  # fmt: skip


def test_the_error_of_a_predicted_start_is_a_column(dlsched, control, job_view):
    view = job_view(7, first_started_at=1000.0, predicted_start_at=1090.0, state="COMPLETED")
    control.answers["History"] = [pb.HistoryPage(jobs=[view])]
    done = dlsched("history", "-o", "id,start_error,lost", "-h")
    assert done.out.split() == ["7", "-1:30", "0:00"]


def test_status_of_a_standby_names_the_leader(dlsched, control):
    control.answers["Status"] = pb.StatusReply(
        health="green", standby=True, leader="head1.77", epoch=4, database="postgres: fine"
    )
    out = dlsched("admin", "status").out
    assert "role      standby, up 0:00: jobs, nodes and rounds are the leader's\n" in out
    assert "leader    head1.77, epoch 4\n" in out
    assert "nodes" not in out.split("leader's")[1]
    assert json.loads(dlsched("admin", "status", "--json").out)["status"]["standby"] is True


def test_show_of_many_jobs_says_how_many_more_there_are(dlsched, control, job_view):
    jobs = [pb.JobDetail(job=job_view(job)) for job in range(1, 101)]
    control.answers["Show"] = pb.ShowReply(jobs=jobs, total=250)
    done = dlsched("show", "7", "--page", "2", "--json")
    assert done.err == "dlsched: jobs 101 to 200 of 250; --page 3 has more\n"
    assert control.request("Show").skip == 100
    assert len(json.loads(done.out)["jobs"]) == 100
    control.answers["Show"] = pb.ShowReply(total=250)
    done = dlsched("show", "7", "--page", "4")
    assert done == (2, "", "dlsched: --page 4: there are 250 jobs\n")


def test_a_failing_policy_is_told_to_users(dlsched, control):
    summary = pb.QueueSummary(policy="gavel", policy_failure="3 rounds in a row have failed: oh")
    control.answers["Queue"] = [pb.QueuePage(summary=summary)]
    done = dlsched("queue")
    assert done.err == (
        "dlsched: nothing starts: policy gavel: 3 rounds in a row have failed: oh\n"
    )
    told = json.loads(dlsched("queue", "--json").out)["summary"]
    assert told["policy_failure"] == "3 rounds in a row have failed: oh"


def test_a_pending_jobs_place_is_explained_term_by_term(dlsched, control, job_view):
    numbers = {
        "policy": "lucid", "position": "3", "gpu_seconds": "52063.6",
        "estimate base": "5210.4", "estimate gpus": "-410.7", "estimate user": "8216.2",
    }  # fmt: skip
    detail = pb.JobDetail(job=job_view(7, state="PENDING"), order_numbers=numbers)
    control.answers["Show"] = pb.ShowReply(jobs=[detail])
    assert dlsched("explain", "7").out == (
        "job 7: rank 3 under lucid\n"
        "  base                5,210.4\n"
        "  user               +8,216.2\n"
        "  gpus                 -410.7\n"
        "  predicted seconds  13,015.9\n"
        "  gpu seconds        52,063.6\n"
    )
    told = json.loads(dlsched("explain", "7", "--json").out)
    assert (told["schema"], told["rank"], told["policy"]) == ("dlsched.explained/1", 3, "lucid")
    assert told["numbers"]["estimate user"] == 8216.2


def test_a_running_job_has_no_place_to_explain(dlsched, control, job_view):
    detail = pb.JobDetail(job=job_view(7, state="RUNNING"), order_numbers={"policy": "lucid"})
    control.answers["Show"] = pb.ShowReply(jobs=[detail])
    done = dlsched("explain", "7")
    assert done.code == 1
    assert done.err == "dlsched: job 7 is RUNNING: only a pending job has a place\n"


@pytest.mark.parametrize(("own", "types"), [("v100:2", ["v100"]), ("2", ["a100"])])
def test_a_script_is_asked_about_with_its_own_type_or_the_first_one(
    dlsched, control, tmp_path, own, types
):
    script = tmp_path / "train.sh"
    script.write_text(f"#!/bin/sh\n#DLSCHED --gpus {own}\ntrue\n")
    control.answers["WhatIf"] = pb.WhatIfReply(outcomes=[pb.WhatIfOutcome(gpus=2)])
    assert dlsched("whatif", script, "--type", "a100,v100", "--gpus", "4").code == 0
    asked = control.request("WhatIf").described
    assert (list(asked.gpu_types), asked.gpus) == (types, 2)
