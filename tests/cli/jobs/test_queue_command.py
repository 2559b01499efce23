"""`dlsched queue`: the model listing, its filters, its JSON, and what a pipe gets."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import time

import pytest

from dlsched.cli.slurm.__main__ import main
from dlsched.rpc.columns import by_field, pack
from dlsched.rpc.v1 import control_pb2 as pb

MODEL = """\
           ID  NAME        USER   VC        ST  GPUS  TYPE     TIME  WHERE / WHY
11160_[2-9%2]  sweep       bob    research  PD     4  a100        -  array limit 2
        11157  gpt         alice  research  PD    32  any         -  Resources: 16 of 32 free
        11152  bert-large  bob    research  R    2x4  a100     1:41  n[3-4]
        11151  resnet50    alice  research  R      8  v100  1:02:13  n1
"""
FOOTER = (
    "2 running (16 GPUs), 2 pending (36 GPUs); 16 of 32 GPUs busy; "
    "policy las (round 812, 14 ms); 3 of other users (-a lists them)\n"
)


def by_column(page):
    """A page as a daemon gives it to this client; one that is older gives it as it is."""
    packed = pb.QueuePage(folded=page.folded)
    jobs = [{field.name: v for field, v in job.ListFields()} for job in page.jobs]
    pack(len(jobs), by_field(jobs), packed.columns)
    if page.HasField("summary"):
        packed.summary.CopyFrom(page.summary)
    return packed


@pytest.fixture(params=["daemon", "older daemon"])
def model(request, control, job_view):
    """The pages of the model, in another order than they are shown."""
    sweep = job_view(
        11162, array_job=11160, array_task=2, name="sweep", user="bob", state="PENDING", gpus=4,
        gpu_types=["a100"], reason="array limit 2", position=1,
    )  # fmt: skip
    gpt = job_view(
        11157, name="gpt", state="PENDING", gpus=32, reason="Resources: 16 of 32 free", position=2,
        predicted_start_at=1795243620.0, predicted_basis="+-12 min",
    )  # fmt: skip
    bert = job_view(
        11152, name="bert-large", user="bob", gang=[4, 4], gpu_types=["a100"], nodes=["n3", "n4"],
        started_at=1795242341.0, run_s=101.4,
    )  # fmt: skip
    resnet = job_view(
        11151, gpu_types=["v100"], nodes=["n1"], started_at=1795242342.0, run_s=3733.0,
        gang=[8],
    )  # fmt: skip
    summary = pb.QueueSummary(
        running=2, running_gpus=16, pending=2, pending_gpus=36, gpus=32, busy_gpus=16,
        policy="las", round=812, round_s=0.014, others=3,
    )  # fmt: skip
    pages = [
        pb.QueuePage(jobs=[resnet, gpt]),
        pb.QueuePage(
            jobs=[bert],
            folded=[pb.FoldedView(first=sweep, tasks="2-9%2", count=8)],
            summary=summary,
        ),
    ]
    control.answers["Queue"] = (
        pages if request.param == "older daemon" else [*map(by_column, pages)]
    )
    return control


def test_the_model_listing(dlsched, model):
    assert dlsched("queue") == (0, MODEL, "")
    assert not model.request("Queue").filter.all_users
    assert not model.request("Queue").unfold


def test_the_last_line_in_a_pipe_only_when_asked_for(dlsched, model):
    assert dlsched("queue", "--summary").out == MODEL + FOOTER


def test_an_empty_list_has_its_header(dlsched, control):
    control.answers["Queue"] = [pb.QueuePage(summary=pb.QueueSummary())]
    done = dlsched("queue")
    assert done == (0, "ID  NAME  USER  VC  ST  GPUS  TYPE  TIME  WHERE / WHY\n", "")


def test_predicted_starts_come_with_their_basis(dlsched, model):
    done = dlsched("queue", "--start", "-o", "id,where", "-h")
    line = done.out.splitlines()[1]
    assert line.startswith("        11157  Resources: 16 of 32 free; starts ~")
    assert line.endswith("(+-12 min)")
    assert model.request("Queue").predict


def test_filters_go_to_the_daemon(dlsched, model):
    words = "-u bob,eve -p main -A research -t PD,running -w n[1-2] -n gpt -r"
    assert dlsched("queue", *words.split()).code == 0
    request = model.request("Queue")
    chosen = request.filter
    assert (list(chosen.users), list(chosen.partitions)) == (["bob", "eve"], ["main"])
    assert (list(chosen.vcs), list(chosen.states)) == (["research"], ["PENDING", "RUNNING"])
    assert (list(chosen.nodes), list(chosen.names)) == (["n1", "n2"], ["gpt"])
    assert (request.unfold, chosen.all_users) == (True, True)


def test_ids_of_arrays_and_elements(dlsched, model):
    dlsched("queue", "-j", "11157,11160_[2-4,7]", "-j", "11163_1")
    chosen = model.request("Queue").filter
    assert list(chosen.jobs) == [11157]
    assert [(each.array_job, list(each.tasks)) for each in chosen.elements] == [
        (11160, [2, 3, 4, 7]),
        (11163, [1]),
    ]


def test_json_has_a_schema_words_utc_and_nulls(dlsched, model):
    told = json.loads(dlsched("queue", "--json").out)
    assert told["schema"] == "dlsched.queue/1"
    assert told["generated_at"].endswith("Z")
    assert model.request("Queue").unfold
    sweep, gpt, bert, _ = told["jobs"]
    assert (sweep["job_id"], sweep["array_job_id"], sweep["array_task_id"]) == (11162, 11160, 2)
    assert (gpt["state"], gpt["run_s"], gpt["started_at"]) == ("PENDING", None, None)
    assert gpt["predicted_start_at"] == "2026-11-21T06:47:00Z"
    assert (bert["run_s"], bert["gang"], bert["nodes"]) == (101.4, [4, 4], ["n3", "n4"])
    assert (bert["partition"], bert["time_limit_s"]) == (None, None)
    assert told["summary"]["round_s"] == 0.014


def test_json_has_intervals_of_predictions_on_request_only(dlsched, control, job_view):
    job = job_view(7, state="PENDING", predicted_start_p10_at=1795243620.0)
    control.answers["Queue"] = [pb.QueuePage(jobs=[job])]
    names = {f"predicted_{end}_{part}_at" for end in ("start", "end") for part in ("p10", "p90")}
    (told,) = json.loads(dlsched("queue", "--json", "--start").out)["jobs"]
    assert names <= told.keys()
    assert told["predicted_start_p10_at"] == "2026-11-21T06:47:00Z"
    assert told["predicted_end_p90_at"] is None
    (told,) = json.loads(dlsched("queue", "--json").out)["jobs"]
    assert not names & told.keys()
    assert {"predicted_start_at", "predicted_end_at", "predicted_basis"} <= told.keys()


def test_a_job_a_line(dlsched, model):
    lines = dlsched("queue", "--jsonl").out.splitlines()
    assert [json.loads(line)["job_id"] for line in lines] == [11162, 11157, 11152, 11151]


def test_columns_by_name(dlsched, model):
    done = dlsched("queue", "-o", "position,id,state", "-h")
    assert done.out.splitlines()[0] == "1  11160_[2-9%2]  PENDING"
    about = dlsched("queue", "--columns", "help").out.splitlines()
    assert "gpu_hours      GPUs times hours" in about


@pytest.mark.parametrize(
    ("words", "start"),
    [
        (["-o", "id,foo"], "-o: column 'foo' is not known; known: id, name,"),
        (["-t", "BAD"], "--state: 'BAD' is not known; known: PENDING (PD), "),
        (["-j", "x"], "'x' is not a job id"),
        (["--json", "--jsonl"], "--json and --jsonl: only one of them"),
        (["--json", "-o", "id"], "-o: JSON has all fields; leave it out"),
        (["--color", "red"], "--color: 'red' is not known"),
        (["-w", "n["], "--nodelist: 'n[' is not a host list"),
    ],
)
def test_wrong_use(dlsched, model, words, start):
    done = dlsched("queue", *words)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"dlsched: {start}")
    assert done.err.count("\n") == 1
    assert not model.asked


def test_names_cannot_drive_the_terminal(dlsched, control, job_view):
    name = "a\x1b]0;pwned\x07\u202eb\nc"
    control.answers["Queue"] = [pb.QueuePage(jobs=[job_view(name=name)])]
    out = dlsched("queue", "--color", "always", "-o", "name", "-h").out
    assert out == "a\\x1b]0;pwned\\x07\\u202eb\\nc\n"


def test_colours_only_where_wanted(dlsched, model, monkeypatch):
    assert "\x1b[" not in dlsched("queue").out
    assert "\x1b[33mPD" in dlsched("queue", "--color", "always").out


# -- on a terminal --------------------------------------------------------------------------------


def on_a_terminal(
    *words: str, columns: int = 60, until: bytes | None = None, module: str = "dlsched"
) -> tuple[int, str]:
    """Run with a terminal as standard output; Ctrl-C once `until` was seen."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(columns), "TERM": "xterm", "PYTHONUTF8": "1"}
    environment.pop("NO_COLOR", None)
    process = subprocess.Popen(
        [sys.executable, "-m", module, *words],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment,
        start_new_session=True,
    )
    os.close(theirs)
    seen = b""
    with open(ours, "rb", buffering=0) as terminal:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            try:
                chunk = terminal.read(65536)
            except OSError:  # the other end is closed
                break
            if not chunk:
                break
            seen += chunk
            if until is not None and until in seen:
                process.send_signal(2)
                until = None
    return process.wait(10), seen.decode().replace("\r\n", "\n")


def test_a_narrow_terminal_cuts_and_has_colours_and_the_last_line(model):
    code, out = on_a_terminal("queue", columns=64)
    assert code == 0
    assert "\x1b[33mPD" in out
    assert "…" in out
    footer = out[out.index("2 running (16 GPUs)") :].replace("\x1b[2m", "").replace("\x1b[0m", "")
    assert footer.startswith("2 running (16 GPUs), 2 pending (36 GPUs); 16 of 32 GPUs busy;\n")
    assert " ".join(footer.split()) == FOOTER.strip()


def test_a_narrow_terminal_breaks_values_of_show_between_words(control, job_view):
    detail = pb.JobDetail(job=job_view(11157), request=pb.JobRequest(argv=["some", "words"] * 15))
    control.answers["Show"] = pb.ShowReply(jobs=[detail])
    _, out = on_a_terminal("show", "11157", "--color", "never", columns=80)
    lines = out.splitlines()
    assert max(map(len, lines)) <= 80
    [at] = [k for k, line in enumerate(lines) if line.startswith("  command ")]
    assert len(lines[at + 1]) - len(lines[at + 1].lstrip()) == lines[at].index("some")
    assert " ".join(" ".join(lines[at : at + 3]).split()).count("some words") == 15


def test_a_narrow_terminal_breaks_events_between_words(control, job_view):
    event = pb.EventView(at=1795242340.0, kind="requeue", actor="n1", text="some words " * 9)
    detail = pb.JobDetail(job=job_view(11157), request=pb.JobRequest(argv=["true"]), events=[event])
    control.answers["Show"] = pb.ShowReply(jobs=[detail])
    _, out = on_a_terminal("show", "11157", "--color", "never", columns=80)
    first, *more = out[out.index("Events:") :].splitlines()[1:]
    assert more
    assert all(line.startswith("    ") for line in more)
    assert max(map(len, [first, *more])) <= 80
    assert " ".join(f"{first} {' '.join(more)}".split()).endswith("some words " * 8 + "some words")


def test_a_narrow_terminal_cuts_names_of_squeue_and_sacct_and_nothing_else(control, job_view):
    job = job_view(
        11151, name="a-very-long-name-of-a-training-of-a-large-model", nodes=["n1"], gang=[8],
        partition="main",
    )  # fmt: skip
    control.answers["Queue"] = [pb.QueuePage(jobs=[job], summary=pb.QueueSummary())]
    control.answers["History"] = [pb.HistoryPage(jobs=[job])]
    for command, ids in (("squeue", "11151 main alice R n1"), ("sacct", "11151 main RUNNING")):
        _, out = on_a_terminal(command, *(["-a"] * (command == "sacct")), columns=80,
                               module="dlsched.cli.slurm")  # fmt: skip
        titles, *_, row = out.splitlines()
        assert len(titles) <= 80
        assert set(ids.split()) <= set(row.split())
        assert "a-very-l" in row


@pytest.mark.parametrize(
    ("words", "brief"),
    [
        ("", True),
        ("-S -t,i", True),
        ("-o %i_%C", False),
        ("-S m", False),
        ("-O tres-alloc", False),
        ("-s", False),
    ],
)
def test_squeue_asks_for_what_jobs_asked_for_only_where_it_shows_that(control, words, brief):
    control.answers["Queue"] = [pb.QueuePage(summary=pb.QueueSummary())]
    assert main(["squeue", *words.split()]) == 0
    assert control.request("Queue").brief == brief


def test_a_wide_terminal_cuts_nothing(model):
    _, out = on_a_terminal("queue", "--color", "never", columns=200)
    assert out == MODEL + FOOTER


def test_a_history_fits_a_terminal_of_80_columns(control, job_view):
    done = job_view(
        1234567, name="a-long-name-of-a-job", state="COMPLETED", gpus=8, code=0, signal=0,
        submitted_at=1795242000.0, ended_at=1795245941.0, run_s=3600.0,
    )  # fmt: skip
    control.answers["History"] = [pb.HistoryPage(jobs=[done])]
    _, narrow = on_a_terminal("history", "--color", "never", columns=80)
    assert max(map(len, narrow.splitlines())) <= 80
    assert narrow.split()[:3] == ["ID", "NAME", "USER"]
    assert "GPU-HOURS" not in narrow
    _, wide = on_a_terminal("history", "--color", "never", columns=160)
    assert "GPU-HOURS" in wide


def test_ctrl_c_ends_a_watch_and_restores_the_screen(model):
    code, out = on_a_terminal("queue", "--watch", "0.2", until=b"Ctrl-C ends")
    assert code == 0
    assert out.startswith("\x1b[?1049h")
    assert out.endswith("\x1b[?25h\x1b[?1049l")
    assert "Traceback" not in out


def test_a_closed_pipe_is_no_error(model):
    process = subprocess.run(
        f"{sys.executable} -m dlsched queue --columns help | head -1; exit ${{PIPESTATUS[0]}}",
        shell=True,
        executable="/bin/bash",
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.stderr == ""
    assert process.stdout.startswith("id ")
