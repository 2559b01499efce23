"""`submit --sweep` and `sweep`: what is sent, what is refused with its line, and the table."""

from __future__ import annotations

import csv
import json

import pytest

from dlsched.rpc.v1 import control_pb2 as pb

ROWS = "lr,model\n0.1,bert\n0.2,\"gpt; rm -rf 'x'\"\n"


@pytest.fixture
def accepts(control):
    control.answers["Submit"] = lambda request: pb.SubmitReply(
        jobs=[pb.Submitted(job=11160, elements=2)]
    )
    return control


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def write(text: str = ROWS, name: str = "params.csv") -> str:
        (tmp_path / name).write_bytes(text.encode("utf-8", "surrogateescape"))
        return name

    return write


def test_each_row_is_a_task_and_the_words_stay_as_they_were_written(dlsched, accepts, file):
    words = ("--sweep", file(), "-J", "{model}-{lr}", "-o", "{lr}/%a.out", "--gpus", "2")
    done = dlsched("submit", *words, "--", "python", "train.py", "--lr={lr}", "{{{model}}}")
    assert done == (0, "Submitted job 11160\n", "")
    (job,) = accepts.request("Submit").jobs
    assert (job.array, job.gpus) == ("1-2", 2)
    assert list(job.argv) == ["python", "train.py", "--lr={lr}", "{{{model}}}"]
    assert (job.name, job.output) == ("{model}-{lr}", "{lr}/%a.out")
    assert list(job.sweep.columns) == ["lr", "model"]
    assert [list(row.values) for row in job.sweep.rows] == [
        ["0.1", "bert"],
        ["0.2", "gpt; rm -rf 'x'"],
    ]
    assert not job.sweep.HasField("halving")


@pytest.mark.parametrize(
    ("words", "first", "last"),
    [
        (["--", "train.py", "--lr={lr}", "{model}"], "train.py --lr=0.1 bert",
         """train.py --lr=0.2 'gpt; rm -rf '"'"'x'"'"''"""),
        (["train.sh", "{lr}"], "train.sh 0.1", "train.sh 0.2"),
        (["--wrap", 'train "$lr"'], 'train "$lr"', 'train "$lr"'),
    ],
    ids=["command", "script", "line"],
)  # fmt: skip
def test_a_dry_run_shows_the_first_and_the_last_command(dlsched, control, file, words, first, last):
    control.answers["Submit"] = pb.SubmitReply(
        warnings=["would be accepted: 2 jobs"], supposed=[pb.Supposed(start_at=1.0, basis="why")]
    )
    file("#!/bin/sh\n", "train.sh")
    done = dlsched("submit", "--sweep", f"{file()}%1", "--test-only", *words)
    assert done.code == 0
    assert done.out.splitlines() == [
        "2 jobs, 1 at once",
        f"  1: {first} (lr=0.1, model=bert)",
        f"  2: {last} (lr=0.2, model=gpt; rm -rf 'x')",
        "the first would start at once (why)",
    ]
    assert control.request("Submit").test_only


@pytest.mark.parametrize(
    ("words", "array"),
    [
        (["--sweep", "params.csv%1"], "1-2%1"),
        (["--sweep", "params.csv", "--sweep-concurrent", "3"], "1-2%3"),
        (["--sweep", "odd%7"], "1-2"),  # there is a file of that name
    ],
)
def test_so_many_at_once(dlsched, accepts, file, words, array):
    file()
    file(name="odd%7")
    assert dlsched("submit", *words, "--", "true").code == 0
    assert accepts.request("Submit").jobs[0].array == array


def test_a_script_and_its_directives_may_have_a_sweep(dlsched, accepts, file):
    file()
    text = "#!/bin/sh\n#DLSCHED --sweep params.csv --halving rung=50,metric=acc,mode=max,max=900\n"
    assert dlsched("submit", file(text, "train.sh"), "--lr", "{lr}").code == 0
    (job,) = accepts.request("Submit").jobs
    rule = job.sweep.halving
    assert (rule.metric, rule.mode, rule.eta, rule.rung, rule.most) == ("acc", "max", 3, 50, 900)
    assert list(job.argv) == ["--lr", "{lr}"]


def test_json_lines_are_a_table_too(dlsched, accepts, file):
    text = '{"lr": 0.1, "model": "a"}\n\n{"model": "b", "lr": 2}\n'
    assert dlsched("submit", "--sweep", file(text), "--", "true").code == 0
    (job,) = accepts.request("Submit").jobs
    assert [list(row.values) for row in job.sweep.rows] == [["0.1", "a"], ["2", "b"]]


def test_equal_rows_are_told_and_submitted(dlsched, accepts, file):
    done = dlsched("submit", "--sweep", file("lr\n1\n2\n1\n"), "--", "true")
    assert done.code == 0
    assert done.err == "dlsched: params.csv:4: the same parameters as in line 2\n"
    assert accepts.request("Submit").jobs[0].array == "1-3"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "params.csv: has no row below its header"),
        ("lr,wd\n", "params.csv: has no row below its header"),
        ("lr,lr\n1,2\n", "params.csv:1: column 'lr' stands there twice"),
        ("lr,\n1,2\n", "params.csv:1: column '' is not the name of a variable"),
        ("l r\n1\n", "params.csv:1: column 'l r' is not the name of a variable"),
        ("lr,RANK\n1,2\n", "params.csv:1: column 'RANK' is a variable that the job has already"),
        ("CUDA_VISIBLE_DEVICES\n1\n", "is a variable that the job has already; give it another"),
        ("SLURM_X\n1\n", "params.csv:1: column 'SLURM_X' is a variable that the job has already"),
        ("lr,wd\n1,2\n3\n", "params.csv:3: 1 field where the header has 2"),
        ("lr,wd\n1,2\n3,\n", "params.csv:3: column 'wd': is empty"),
        ("lr\na\x07\n", "params.csv:2: column 'lr': holds a control character"),
        ('lr\n"a\nb"\n', "params.csv:3: column 'lr': holds a control character"),
        ("lr\n" + "x" * 4097 + "\n", "params.csv:2: column 'lr': 4097 bytes; at most 4096"),
        ("lr\n\udcff\n", "params.csv:2: not valid UTF-8"),
        ('lr\n"1\n', "params.csv:2: not CSV"),
        (",".join(f"c{k}" for k in range(65)) + "\n", "params.csv:1: 65 columns, at most 64"),
        ('{"lr": 1}\n{"wd": 1}\n', "params.csv:2: not the same columns as before: lr"),
        ('{"lr": [1]}\n', "params.csv:1: column 'lr': not a text or a number"),
        ('{"lr": true}\n', "params.csv:1: column 'lr': not a text or a number"),
    ],
)
def test_what_is_wrong_with_a_table_is_told_with_its_line(dlsched, accepts, file, text, line):
    done = dlsched("submit", "--sweep", file(text), "--", "true")
    assert (done.code, done.out) == (2, "")
    assert line in done.err
    assert done.err.count("\n") == 1
    assert not accepts.asked


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--", "a", "{wd}"], "arguments: '{wd}': {wd} is no column; columns: lr, model"),
        (["--", "a", "{"], "arguments: '{': a single {; write {{ for a brace"),
        (["-J", "x{y}", "--", "a"], "--name: 'x{y}': {y} is no column; columns: lr, model"),
        (["-o", "{y}", "--", "a"], "--output: '{y}': {y} is no column"),
        (["-a", "0-3", "--", "a"], "--array: not together with --sweep"),
        (["--wrap", "train --lr {lr}"], "--wrap: {lr} is not replaced in a line for the shell; "),
        (["--sweep-concurrent", "0", "--", "a"], "--sweep-concurrent: 0 is out of bounds"),
        (["--halving", "eta=3", "--", "a"], "--halving: rung=STEPS is needed, such as metric="),
        (["--halving", "rung=0", "--", "a"], "--halving: rung: 0 is out of bounds"),
        (["--halving", "rung=9,eta=1", "--", "a"], "--halving: eta: 1 is out of bounds"),
        (["--halving", "rung=9,mode=up", "--", "a"], "--halving: mode 'up' is neither min nor"),
        (["--halving", "rung=9,max=8", "--", "a"], "--halving: max 8 is before the first rung, 9"),
        (["--halving", "rung=9,rung=8", "--", "a"], "--halving: rung stands there twice"),
        (["--halving", "fast", "--", "a"], "--halving: 'fast' is not one of metric=loss,mode="),
    ],
)
def test_wrong_use_is_told_before_anything_is_sent(dlsched, accepts, file, words, line):
    done = dlsched("submit", "--sweep", file(), *words)
    assert (done.code, done.out) == (2, "")
    assert line in done.err
    assert done.err.count("\n") == 1
    assert not accepts.asked


def test_a_line_for_the_shell_uses_the_variables(dlsched, accepts, file):
    line = 'for x in {1,2}; do train --lr "$lr" ${model}; done'
    assert dlsched("submit", "--sweep", file(), "--wrap", line).code == 0


@pytest.mark.parametrize("words", [["--halving", "rung=9"], ["--sweep-concurrent", "2"]])
def test_options_of_a_sweep_need_one(dlsched, accepts, file, words):
    done = dlsched("submit", *words, "--", "true")
    assert (done.code, done.err) == (2, f"dlsched: {words[0]}: only with --sweep\n")


def test_a_missing_file_is_named(dlsched, accepts, file):
    done = dlsched("submit", "--sweep", "none.csv", "--", "true")
    assert done == (
        2,
        "",
        "dlsched: --sweep: none.csv: can't be read (No such file or directory)\n",
    )


# -- the table -------------------------------------------------------------------------------------


@pytest.fixture
def swept(control):
    """Four jobs: one stopped, one that diverged, one that waits, and the best one."""
    stopped = "stopped by successive halving at step 100: loss 0.9, rank 3 of 3"
    rungs = [pb.RungView(rung=100, step=104, value=0.9, stopped=True)]
    jobs = [
        pb.SweepElement(job=11160, task=1, values=["0.1", "a"], state="CANCELLED", reason=stopped,
                        step=120, metrics={"loss": 0.75, "acc": 0.25}, rungs=rungs),
        pb.SweepElement(job=11161, task=2, values=["9", "a"], state="RUNNING", step=90,
                        metrics={"loss": 4.5, "acc": 0.5}, not_finite=["loss"]),
        pb.SweepElement(job=11162, task=3, values=["0.2", "b"], state="PENDING",
                        reason="Resources"),
        pb.SweepElement(job=11163, task=4, values=["0.3", "b"], state="COMPLETED", step=900,
                        metrics={"loss": 0.125, "acc": 0.75}),
    ]  # fmt: skip
    table = pb.SweepTable(columns=["lr", "model"], halving=pb.Halving(
        metric="loss", mode="min", eta=3, rung=100))  # fmt: skip
    control.answers["Sweep"] = pb.SweepReply(job=11160, name="x", table=table, elements=jobs)
    return control


def test_the_best_is_first_and_what_reports_nothing_last(dlsched, swept):
    done = dlsched("sweep", "11160")
    assert [line.split()[:7] for line in done.out.splitlines()] == [
        ["ID", "lr", "model", "ST", "STEP", "LOSS", "WHY"],
        ["11160_4", "0.3", "b", "CD", "900", "0.125"],
        ["11160_1", "0.1", "a", "CA", "120", "0.75", "stopped"],
        ["11160_2", "9", "a", "R", "90", "nan"],
        ["11160_3", "0.2", "b", "PD", "-", "-", "Resources"],
    ]
    assert swept.request("Sweep").job == 11160


def test_by_another_metric_the_largest_first(dlsched, swept):
    done = dlsched("sweep", "11160_2", "--by", "acc", "--order", "max", "--jsonl")
    found = [json.loads(line) for line in done.out.splitlines()]
    assert [each["array_task_id"] for each in found] == [4, 2, 1, 3]
    assert found[2]["rungs"] == [{"rung": 100, "step": 104, "value": 0.9, "stopped": True}]
    assert found[1]["parameters"] == {"lr": "9", "model": "a"}
    assert found[1]["not_finite"] == ["loss"]
    whole = json.loads(dlsched("sweep", "11160", "--json").out)
    assert (whole["schema"], whole["by"], whole["order"]) == ("dlsched.sweep/1", "loss", "min")
    assert whole["halving"] == {
        "metric": "loss",
        "mode": "min",
        "eta": 3,
        "rung": 100,
        "most": None,
    }


def test_csv_has_all_metrics(dlsched, swept):
    rows = list(csv.DictReader(dlsched("sweep", "11160", "--csv").out.splitlines()))
    assert list(rows[0]) == ["id", "lr", "model", "state", "reason", "step", "acc", "loss"]
    assert (rows[0]["id"], rows[0]["loss"], rows[2]["loss"]) == ("11160_4", "0.125", "nan")
    assert (rows[3]["step"], rows[3]["loss"]) == ("", "")


@pytest.mark.parametrize(
    ("words", "code", "line"),
    [
        (["--order", "best"], 2, "--order: 'best' is neither min nor max"),
        (["--json", "--csv"], 2, "--json, --jsonl and --csv: only one of them"),
        (["--by", "f1"], 1, "--by: no job has reported 'f1'; reported: acc, loss"),
    ],
)
def test_wrong_use_of_the_table(dlsched, swept, words, code, line):
    done = dlsched("sweep", "11160", *words)
    assert (done.code, done.out, done.err) == (code, "", f"dlsched: {line}\n")


def test_the_table_fits_a_narrow_terminal(dlsched, swept, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    lines = dlsched("sweep", "11160").out.splitlines()
    assert len(lines) == 5
    assert max(map(len, lines)) <= 80
