"""`dlsched dags` as a user calls it."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

WORKLOAD = """[capacity]
gpu = 4

[[jobs]]
id = "donor"
stages = [
  {name = "train", duration = 10, demand = {gpu = 1}},
  {name = "prepare", duration = 6, demand = {gpu = 1}},
  {name = "join", duration = 1, demand = {gpu = 1}, after = ["train", "prepare"]},
]

[[jobs]]
id = "wide"
arrival = 0.0
stages = [{name = "all", tasks = 1, duration = 2, demand = {gpu = 3}}]
"""
PUBLISHED = {
    "name": "one",
    "capacity_per_dim": 4,
    "jobs": [
        {
            "id": 0,
            "arrival": 0,
            "stages": [
                {"name": "A", "duration": 10, "demand": [1, 0], "tasks": 1},
                {"name": "B", "duration": 6, "demand": [1], "tasks": 1},
                {"name": "D", "duration": 1, "demand": [1], "tasks": 1},
            ],
            "edges": [["A", "D"], ["B", "D"]],
        },
        {
            "id": 1,
            "arrival": 0,
            "stages": [{"name": "A", "duration": 2, "demand": [3], "tasks": 1}],
        },
    ],
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "jobs.toml"
    path.write_text(WORKLOAD)
    return path


def test_disciplines_are_compared_on_one_workload(dlsched: Any, file: Path, tmp_path: Path) -> None:
    ends = tmp_path / "ends.csv"
    shown = dlsched("dags", file, "--jobs-out", ends)
    assert shown.code == 0, shown.err
    names = [line.split()[0] for line in shown.out.splitlines()[1:]]
    assert names == ["carbyne", "drf-cp", "drf-tetris", "srtf-cp", "srtf-tetris", "tetris"]
    with ends.open() as rows:
        found = {row["job_id"]: row for row in csv.DictReader(rows)}
    assert (found["donor"]["carbyne"], found["wide"]["carbyne"]) == ("11", "2")
    assert (found["donor"]["drf-cp"], found["wide"]["drf-cp"]) == ("11", "8")
    told = json.loads(dlsched("dags", file, "--discipline", "carbyne", "--json").out)
    assert (told["schema"], told["compat"]) == ("dlsched.dags/1", "exact")
    [only] = told["results"]
    assert (only["mean_jct_s"], only["last_end_s"]) == (6.5, 11)
    assert only["fullest"] == pytest.approx((10 + 6 + 1 + 6) / 44)
    drawn = ("dags", file, "--discipline", "carbyne", "--altruism", "0.5", "--seed", "1,2,3,4")
    seeds = json.loads(dlsched(*drawn, "--json").out)["results"]
    assert [each["seed"] for each in seeds] == [1, 2, 3, 4]
    assert {each["mean_jct_s"] for each in seeds} == {6.5, 9.5}
    shown = dlsched(*drawn, "--jobs-out", ends)
    assert len(shown.out.splitlines()) == 2
    assert " ± " in shown.out
    assert ends.read_text().startswith("seed,job_id,arrival,carbyne\n1,donor,0,")
    never = dlsched("dags", file, "--discipline", "carbyne", "--altruism", "0", "--json")
    assert json.loads(never.out)["results"][0]["mean_jct_s"] == 9.5


@pytest.mark.parametrize("compat", ["exact", "artifact2016"])
def test_the_published_layout_is_read(dlsched: Any, tmp_path: Path, compat: str) -> None:
    file, ends = tmp_path / "workloads.json", tmp_path / "ends.csv"
    file.write_text(json.dumps([{**PUBLISHED, "name": "other", "jobs": []}, PUBLISHED]))
    flags = ("--workload", "one", "--discipline", "carbyne", "--compat", compat)
    shown = dlsched("dags", file, *flags, "--jobs-out", ends)
    assert shown.code == 0, shown.err
    assert ends.read_text() == "job_id,arrival,carbyne\n0,0,11\n1,0,2\n"
    for chosen, message in (((), "has 2 workloads; choose one"), (flags[:1], "")):
        refused = dlsched("dags", file, *chosen)
        assert (refused.code, refused.err.count("\n")) == (2, 1)
        assert message in refused.err
    refused = dlsched("dags", file, "--workload", "onn")
    assert "workload 'onn' is not known; known: other, one (did you mean 'one'?)" in refused.err


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[capacity]", "[capacity", "jobs.toml:1: not TOML"),
        ("gpu = 4\n", "gpu = 0\n", "capacity of gpu must be a number above 0"),
        ("gpu = 4\n", "gpu = 1e400\n", "jobs.toml: 1e400 has too many digits"),
        ("[capacity]\ngpu = 4\n", "", "needs one of capacity and capacity_per_dim"),
        ('id = "wide"', 'id = "donor"', "job donor: is there twice"),
        ('id = "wide"', 'name = "wide"', "job 2: 'name' is not known; known: id, arrival"),
        ('"prepare", duration', '"train", duration', "job donor: stage train: is there twice"),
        ('"train", "prepare"]', '"trian"]', "stage join: after 'trian' is not known"),
        ("duration = 6,", 'duration = 6, after = ["join"],', "stages wait for each other: "),
        ("duration = 2", "duration = -2", "stage all: duration must be a number above 0"),
        ("duration = 2", 'duration = "2"', "stage all: duration must be a number above 0"),
        ("tasks = 1", "tasks = 0", "stage all: tasks must be a whole number from 1"),
        ("gpu = 3", "gpu = 5", "stage all: a task needs 5 gpu; the cluster has 4"),
        ("gpu = 3", "tpu = 3", "stage all: resource 'tpu' is not known; known: gpu"),
        ("gpu = 3", "gpu = 0", "job wide: its tasks need nothing"),
        ("arrival = 0.0", "arrival = -1", "job wide: arrival must be a number from 0 up"),
    ],
)
def test_what_is_wrong_in_a_file_is_one_line(
    dlsched: Any, file: Path, old: str, new: str, message: str
) -> None:
    assert old in WORKLOAD
    file.write_text(WORKLOAD.replace(old, new))
    refused = dlsched("dags", file)
    assert (refused.code, refused.out, refused.err.count("\n")) == (2, "", 1)
    assert message in refused.err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--discipline", "carbine"), "'carbine' is not known"),
        (("--discipline", ","), "--discipline ',' has an empty entry"),
        (("--compat", "artifact"), "(did you mean 'artifact2016'?)"),
        (("--altruism", "2"), "--altruism must be at least 0 and at most 1, not 2"),
        (("--seed", "-1"), "--seed must be a whole number of at least 0"),
        (("--workload", "one"), "has one workload; leave the name out"),
    ],
)
def test_a_wrong_option_is_one_line(
    dlsched: Any, file: Path, flags: tuple[str, ...], message: str
) -> None:
    refused = dlsched("dags", file, *flags)
    assert (refused.code, refused.out, refused.err.count("\n")) == (2, "", 1)
    assert message in refused.err


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("gpu = 4\n", "gpu = 4\ncpu = 8\n", "at most 6 resources, and the same capacity of each"),
        ("arrival = 0.0", "arrival = 0.5", "job wide arrives at 0.5; arrivals are whole seconds"),
        ("gpu = 3", "gpu = 0.125", "job wide: stage 1: demands have two decimals"),
    ],
)
def test_the_published_simulators_limits_are_said(
    dlsched: Any, file: Path, old: str, new: str, message: str
) -> None:
    file.write_text(WORKLOAD.replace(old, new))
    assert dlsched("dags", file).code == 0
    refused = dlsched("dags", file, "--compat", "artifact2016")
    assert (refused.code, refused.out, refused.err.count("\n")) == (2, "", 1)
    assert message in refused.err
