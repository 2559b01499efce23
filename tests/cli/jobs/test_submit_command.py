"""`dlsched submit`: what is sent, what is printed, and what never leaves the client."""

from __future__ import annotations

import grpc
import pytest

from dlsched.rpc.v1 import control_pb2 as pb
from dlsched.rpc.v1 import run_pb2


@pytest.fixture
def accepts(control):
    control.answers["Submit"] = lambda request: pb.SubmitReply(
        jobs=[pb.Submitted(job=11151 + place) for place in range(len(request.jobs))]
    )
    return control


@pytest.fixture
def script(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "train.sh"

    def write(*lines: str, interpreter: str = "#!/bin/bash") -> str:
        path.write_text("\n".join([interpreter, *lines, "python train.py", ""]))
        return "train.sh"

    return write


def test_a_script_is_sent_with_its_arguments_and_directives(dlsched, accepts, script, tmp_path):
    name = script("#SBATCH -J bert --gres=gpu:a100:4 -N 2", "#DLSCHED --retries 3", "", "# why")
    done = dlsched("submit", "-t", "1:30:00", name, "--lr", "0.1")
    assert done == (0, "Submitted job 11151\n", "")
    (job,) = accepts.request("Submit").jobs
    assert job.name == "bert"
    assert list(job.argv) == ["--lr", "0.1"]
    assert job.script == (tmp_path / "train.sh").read_bytes()
    assert (job.gpus, job.nodes, job.gpus_per_node, list(job.gpu_types)) == (8, 2, 4, ["a100"])
    assert (job.time_limit_s, job.retries) == (5400, 3)
    assert job.working_directory == str(tmp_path)


def test_a_command_after_two_dashes_is_not_a_script(dlsched, accepts, script):
    done = dlsched("submit", "--gpus", "2", "--parsable", "--", "python", "train.py", "--", "--lr")
    assert done == (0, "11151\n", "")
    (job,) = accepts.request("Submit").jobs
    assert list(job.argv) == ["python", "train.py", "--", "--lr"]
    assert (job.name, job.script) == ("python", b"")


def test_two_dashes_after_a_script_belong_to_it(dlsched, accepts, script):
    assert dlsched("submit", script(), "--", "x").code == 0
    (job,) = accepts.request("Submit").jobs
    assert list(job.argv) == ["--", "x"]
    assert job.script


def test_a_line_for_the_shell(dlsched, accepts, script):
    assert dlsched("submit", "--wrap", "a && b", "-J", "both").code == 0
    (job,) = accepts.request("Submit").jobs
    assert job.script == b"#!/bin/sh\n# made by --wrap\na && b\n"
    assert job.name == "both"


def test_the_command_line_precedes_variables_and_these_precede_directives(
    dlsched, accepts, script, monkeypatch
):
    name = script("#DLSCHED -p slow -q low --gres=gpu:8 -t 10")
    monkeypatch.setenv("DLSCHED_SUBMIT_PARTITION", "mid")
    monkeypatch.setenv("DLSCHED_SUBMIT_PRIORITY_CLASS", "high")
    assert dlsched("submit", "-p", "fast", "--gpus", "2", name).code == 0
    (job,) = accepts.request("Submit").jobs
    assert (job.partition, job.priority_class, job.time_limit_s) == ("fast", "high", 600)
    assert (job.gpus, job.HasField("gpus_per_node")) == (2, False)


def test_every_submission_has_its_own_id_and_names_the_user(dlsched, accepts, script):
    dlsched("submit", "--", "true")
    dlsched("submit", "--", "true")
    first, second = (request.request_id for _, request in accepts.asked)
    assert first
    assert first != second
    assert "dlsched-user" in accepts.metadata[0]


def test_a_request_is_repeated_under_the_same_id_after_a_lost_answer(
    dlsched, control, script, refusal, one_a_call
):
    away = refusal(grpc.StatusCode.UNAVAILABLE, "not the leader; try again")
    control.answers["Submit"] = one_a_call(away, pb.SubmitReply(jobs=[pb.Submitted(job=7)]))
    assert dlsched("submit", "--", "true") == (0, "Submitted job 7\n", "")
    assert len({request.request_id for _, request in control.asked}) == 1
    assert len(control.asked) == 2


def test_a_submission_whose_answer_is_lost_names_its_id_and_can_be_asked_again(
    dlsched, control, script, refusal
):
    control.answers["Submit"] = refusal(grpc.StatusCode.UNAVAILABLE, "Socket closed")
    done = dlsched("submit", "--daemon-wait", "0", "--", "true")
    (asked,) = (request for _, request in control.asked)
    assert done.code == 1
    assert "whether it was submitted is not known: the same command with" in done.err
    assert f" --request-id {asked.request_id} submits nothing twice\n" in done.err
    control.answers["Submit"] = pb.SubmitReply(jobs=[pb.Submitted(job=7)])
    done = dlsched("submit", "--request-id", asked.request_id, "--", "true")
    assert done == (0, "Submitted job 7\n", "")
    assert control.asked[-1][1] == asked


def test_a_request_id_is_checked_before_it_is_sent(dlsched, control, script):
    done = dlsched("submit", "--request-id", "a#0", "--", "true")
    assert done == (
        2, "", "dlsched: request id: 'a#0' is not 1 to 100 letters, digits and ._:-\n",
    )  # fmt: skip
    assert not control.asked


def test_the_remaining_options_reach_the_request(dlsched, accepts, script):
    words = "-d afterok:5_2?afternotok:6 -a 0-9:3%2 -H --no-requeue --signal USR1@90 --grace 2m "
    words += "-w n[1-2] -x n[3-4] --mem 2G --launch node --fence lease --suspend cuda --share 0.5 "
    words += (
        "--set rank=3 --set kind=x --keep-on-broken-dependency --notify end,fail --no-slurm-env"
    )
    assert dlsched("submit", *words.split(), "--", "true").code == 0
    (job,) = accepts.request("Submit").jobs
    assert [(d.kind, d.job, d.task, d.or_next) for d in job.dependencies] == [
        ("afterok", 5, 2, True),
        ("afternotok", 6, 0, False),
    ]
    assert (job.array, job.held, job.no_requeue) == ("0-9:3%2", True, True)
    assert (job.warn_signal, job.warn_before_s, job.grace_s) == (10, 90, 120)
    assert (list(job.only_nodes), list(job.not_nodes)) == (["n1", "n2"], ["n3", "n4"])
    assert (job.memory_bytes, job.share, job.gpus) == (2 << 30, 0.5, 1)
    assert (job.mode, job.fence) == (run_pb2.LAUNCH_MODE_NODE, run_pb2.FENCE_LEASE)
    assert job.suspend_level == run_pb2.SUSPEND_LEVEL_CUDA
    assert job.broken_dependency == pb.BROKEN_KEEP
    assert dict(job.extra) == {"rank": "3", "kind": "x"}
    assert (job.notify, job.no_slurm_environment) == ("end,fail", True)


def test_the_environment_is_sent_once_without_variables_of_a_surrounding_job(
    dlsched, accepts, script, monkeypatch
):
    for name in ("DLSCHED_JOB_ID", "DLSCHED_ARRAY_TASK_ID", "SLURM_JOB_ID", "MASTER_PORT"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("MINE", "two\nlines")
    assert dlsched("submit", "-n", "4", "--", "true").code == 0
    request = accepts.request("Submit")
    sent = {each.name: each.value for each in request.environment}
    assert sent["MINE"] == "two\nlines"
    assert request.jobs[0].ntasks == 4
    assert "DLSCHED_DAEMON" in sent
    assert not {"DLSCHED_JOB_ID", "DLSCHED_ARRAY_TASK_ID", "SLURM_JOB_ID", "MASTER_PORT"} & set(
        sent
    )
    assert not request.jobs[0].environment


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--gpus", "x", "--", "true"], "--gpus: 'x' is not a number of GPUs (8, a100:8)"),
        (["-w", "n]1-3[", "--", "true"], "--nodelist: 'n]1-3[' is not a host list (n1,n[2-4,7])"),
        (["-t", "9" * 12, "--", "true"], f"--time: {'9' * 12} is too long (at most 10000d)"),
        (["-a", "5-1", "--", "true"], "--array: '5-1' holds no task"),
        (["-d", "afterok:x", "--", "true"],
         "--dependency: 'x' is not a job id (11160, 11160_3 or 11160_[2-5])"),
        (["-J", "a\x1b[31m", "--", "true"], "--name: holds a control character (\\x1b)"),
        (["-J", "x" * 300, "--", "true"], "--name: 300 bytes; at most 255"),
        (["--", "true", "\udcff"], "arguments: not valid UTF-8"),
        (["-o", "%q", "--", "true"],
         "--output: %q is not known; known: %j %A %a %b %J %x %u %N %n %t %s %%"),
        (["--mail-type", "END,STOP", "--", "true"],
         "--mail-type: 'STOP' is not known; known: all, array_tasks, begin, checkpoint, end, fail, "
         "invalid_depend, none, preempt, requeue, time_limit, time_limit_50, time_limit_80, "
         "time_limit_90"),
        (["--mem", "99999P", "--", "true"], "--mem: 99999P is more than any node has"),
        (["nofile.sh"], "nofile.sh: can't be read (No such file or directory)"),
        (["--interactive", "x"], "--interactive: a command comes after --, and no script"),
        (["--interactive", "--wrap", "x"],
         "--interactive: alone or with a command after --, and to be run now"),
        (["--interactive"],
         "standard input and output are no terminal, which an interactive job needs"),
        ([], "give a script, a command after --, --wrap, --from, --dag or --tasks, "
             "and only one of them"),
        (["--zzz", "x"], "no such option: --zzz"),
        (["-N", "2", "-G", "3", "--", "x"], "--gpus 3: not the same number on each of 2 nodes"),
    ],
)  # fmt: skip
def test_wrong_use_prints_one_line_and_sends_nothing(dlsched, control, script, words, line):
    done = dlsched("submit", *words)
    assert (done.code, done.out) == (2, "")
    assert done.err.rstrip(".\n") == f"dlsched: {line}"
    assert not control.asked


def test_unknown_directives_are_refused_by_name_and_line(dlsched, accepts, script):
    name = script("#SBATCH -J x", "#SBATCH --licenses=a:1")
    done = dlsched("submit", name)
    assert done.code == 2
    assert done.err == (
        "dlsched: train.sh:3: #SBATCH --licenses: not supported "
        "(--ignore-unknown-directives leaves it out)\n"
    )
    assert not accepts.asked
    done = dlsched("submit", "--ignore-unknown-directives", name)
    assert done.code == 0
    assert done.err == "dlsched: train.sh:3: #SBATCH --licenses: left out\n"


def test_the_daemons_refusal_is_shown_as_it_is(dlsched, control, script, refusal):
    line = "8 GPUs of type h100 are nowhere; types here: a100, v100"
    control.answers["Submit"] = refusal(grpc.StatusCode.FAILED_PRECONDITION, line)
    assert dlsched("submit", "-G", "h100:8", "--", "true") == (1, "", f"dlsched: {line}\n")


def test_a_dry_run_submits_nothing(dlsched, control, script):
    control.answers["Submit"] = pb.SubmitReply(warnings=["would start at once on n1"])
    done = dlsched("submit", "--test-only", "--", "true")
    assert done == (0, "", "dlsched: would start at once on n1\n")
    assert control.request("Submit").test_only


def test_a_test_submission_prints_the_predicted_start(dlsched, control):
    control.answers["Submit"] = pb.SubmitReply(
        warnings=["would be accepted: 3 jobs"],
        supposed=[
            pb.Supposed(start_at=1.0, basis="time limits"),
            pb.Supposed(start_at=4102444800.0, basis="time limits"),
            pb.Supposed(basis="not predicted while it waits: Held"),
        ],
    )
    done = dlsched("submit", "--test-only", "--", "true")
    assert done.code == 0
    assert done.out.splitlines() == [
        "job 1: would start at once (time limits)",
        "job 2: would start ~01-01 00:00 (time limits)",
        "job 3: start not predicted while it waits: Held",
    ]
    assert done.err == "dlsched: would be accepted: 3 jobs\n"


def test_wait_exits_with_the_jobs_own_code(dlsched, accepts, script, job_view):
    accepts.answers["Wait"] = lambda request: [
        pb.WaitReply(job=job_view(request.filter.jobs[0], state="FAILED", code=3, run_s=101))
    ]
    done = dlsched("submit", "--wait", "--", "false")
    assert done == (3, "Submitted job 11151\n", "dlsched: job 11151: FAILED 3:0 after 1:41\n")


def test_logs_are_followed_to_the_end(dlsched, accepts, script, job_view):
    accepts.answers["Logs"] = [pb.LogChunk(data=b"step 1\n"), pb.LogChunk(data=b"step 2\n")]
    accepts.answers["Wait"] = [pb.WaitReply(job=job_view(state="COMPLETED", code=0, run_s=2))]
    done = dlsched("submit", "--logs", "--", "true")
    assert done.code == 0
    assert done.out == "Submitted job 11151\nstep 1\nstep 2\n"
    assert accepts.request("Logs").follow


# -- many at once ---------------------------------------------------------------------------------


def test_a_table_of_jobs_is_one_request(dlsched, accepts, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "jobs.csv").write_text(
        'command,name,gpus,time\necho 1,one,2,10\n"echo 2, 3",two,,1h\n'
    )
    done = dlsched("submit", "-G", "4", "--from", "jobs.csv")
    assert done == (0, "11151\n11152\n", "")
    one, two = accepts.request("Submit").jobs
    assert (one.name, one.gpus, one.time_limit_s) == ("one", 2, 600)
    assert (two.name, two.gpus, two.time_limit_s) == ("two", 4, 3600)
    assert two.script.endswith(b"\necho 2, 3\n")


def test_json_lines_come_from_standard_input(accepts, tmp_path, monkeypatch, dlsched):
    path = tmp_path / "in"
    path.write_text(
        '{"argv": ["python", "x.py"], "gpus": 2, "hold": true, "set": {"a": 1}}\n\n'
        '{"command": "true", "gres": "gpu:v100:1"}\n'
    )
    with path.open() as file:
        monkeypatch.setattr("sys.stdin", file)
        assert dlsched("submit", "--from", "-").code == 0
    one, two = accepts.request("Submit").jobs
    assert (list(one.argv), one.gpus, one.held, dict(one.extra)) == (
        ["python", "x.py"], 2, True, {"a": "1"},
    )  # fmt: skip
    assert list(two.gpu_types) == ["v100"]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("command,gpus\ntrue,1\ntrue,x\n", "3: --gpus: 'x' is not a number of GPUs (8, a100:8)"),
        ("command,gups\ntrue,1\n", "1: 'gups' is not an option of submit"),
        ("command,gpus\ntrue\n", "2: 1 field where the header has 2"),
        ("gpus\n1\n", "1: no column 'command' or 'script'"),
        ('{"argv": ["a"]}\n{"argv": \n', "2: not JSON (Expecting value)"),
        ('{"argv": [1]}\n', "1: argv: not a list of texts"),
        ("", " holds no jobs"),
    ],
)
def test_a_bad_row_is_named_and_nothing_is_submitted(dlsched, accepts, tmp_path, text, line):
    path = tmp_path / "jobs"
    path.write_text(text)
    done = dlsched("submit", "--from", path)
    assert (done.code, done.out) == (2, "")
    assert done.err == f"dlsched: {path}:{line}\n"
    assert not accepts.asked
