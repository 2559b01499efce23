"""`dlsched submit --dag`: what is sent, what is printed, and what is wrong in a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dlsched.rpc.v1 import control_pb2 as pb

GRAPH = """[[jobs]]
name = "report"
argv = ["python", "report.py"]
gpus = 0
after = ["train", "afterany:tune"]

[[jobs]]
name = "train"
command = "python train.py"
gpus = 4
time = "2h"
after = "prepare"

[[jobs]]
name = "prepare"
command = "python prepare.py"
gpus = 0

[[jobs]]
name = "tune"
command = "python tune.py"
array = "0-3"
set = {lr = 0.1}
after = ["prepare"]
"""


@pytest.fixture
def accepts(control: Any) -> Any:
    control.answers["Submit"] = lambda request: pb.SubmitReply(
        jobs=[pb.Submitted(job=11 + place) for place in range(len(request.jobs))]
    )
    return control


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "jobs.toml"
    path.write_text(GRAPH)
    return path


def test_parents_are_sent_first_and_ids_are_printed_by_name(
    dlsched: Any, accepts: Any, file: Path
) -> None:
    done = dlsched("submit", "--partition", "a", "--dag", file)
    assert done == (0, "11 prepare\n12 train\n13 tune\n14 report\n", "")
    sent = accepts.request("Submit").jobs
    assert [each.name for each in sent] == ["prepare", "train", "tune", "report"]
    needs = [[(d.kind, d.in_call, d.job) for d in each.dependencies] for each in sent]
    one = ("afterok", 1, 0)
    assert needs == [[], [one], [one], [("afterok", 2, 0), ("afterany", 3, 0)]]
    assert {each.partition for each in sent} == {"a"}
    assert (sent[1].gpus, sent[1].time_limit_s) == (4, 7200)
    assert (sent[2].array, dict(sent[2].extra)) == ("0-3", {"lr": "0.1"})
    assert list(sent[3].argv) == ["python", "report.py"]
    assert dlsched("submit", "--parsable", "--dag", file).out == "11\n12\n13\n14\n"
    told = json.loads(dlsched("submit", "--json", "--dag", file).out)
    named = [(each["job_id"], each["name"]) for each in told["jobs"]]
    assert named == [(11, "prepare"), (12, "train"), (13, "tune"), (14, "report")]


def test_a_graph_may_be_json_and_wait_for_jobs_that_exist(
    dlsched: Any, accepts: Any, tmp_path: Path
) -> None:
    path = tmp_path / "jobs.json"
    jobs = [
        {"name": "b", "command": "true", "after": ["a"], "dependency": "afterok:7"},
        {"name": "a", "command": "true"},
    ]
    path.write_text(json.dumps({"jobs": jobs}))
    assert dlsched("submit", "--dag", path).out == "11 a\n12 b\n"
    _, b = accepts.request("Submit").jobs
    assert [(each.job, each.in_call) for each in b.dependencies] == [(7, 0), (0, 1)]


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        (GRAPH, "", ": holds no jobs; each is a table [[jobs]]"),
        (GRAPH, "jobs = 3\n", ": holds no jobs; each is a table [[jobs]]"),
        (GRAPH, "[[jobs]\n", ":1: not TOML: "),
        (GRAPH, '{"jobs": [{"name": "a", "name": "b"}]}', ": 'name' is there twice"),
        ('name = "train"', 'name = "tune"', ": job 4: the name 'tune' is there twice"),
        ('name = "train"\n', "", ": job 2: needs a name"),
        ('"python prepare.py"', '"true"\nafter = ["report"]', ": jobs wait for each other: "),
        ('after = "prepare"', 'after = "prepaer"', ": job train: after: 'prepaer' is not known"),
        ('"afterany:tune"', '"afterall:tune"', ": job report: after: 'afterall' is not known"),
        ('after = "prepare"', "after = 3", ": job train: after must be a list of names"),
        ("gpus = 4", "gpsu = 4", ": job train: 'gpsu' is not an option of submit"),
        ("gpus = 4", 'gpus = "x"', ": job train: --gpus: 'x' is not a number of GPUs"),
        ('command = "python train.py"\n', "", ": job train: one of command, argv and script"),
    ],
)
def test_a_bad_file_is_one_line_and_nothing_is_submitted(
    dlsched: Any, accepts: Any, file: Path, old: str, new: str, line: str
) -> None:
    assert old in GRAPH
    file.write_text(GRAPH.replace(old, new))
    refused = dlsched("submit", "--dag", file)
    assert (refused.code, refused.out, refused.err.count("\n")) == (2, "", 1)
    assert refused.err.startswith(f"dlsched: {file}{line}")
    assert not accepts.asked


def test_a_graph_is_the_only_thing_to_submit(dlsched: Any, accepts: Any, file: Path) -> None:
    for more in (["--wrap", "true"], ["--from", "x"], ["--interactive"]):
        refused = dlsched("submit", "--dag", file, *more)
        assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert dlsched("submit", "--dag", file.parent / "none.toml").code == 2
    assert not accepts.asked
