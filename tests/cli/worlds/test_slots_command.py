"""`dlsched slots` as a user calls it."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from simulate.worlds.slots.baselines import BASELINES
from simulate.worlds.slots.jobs import COLUMNS

JOBS = f"""{",".join(COLUMNS)}
1,1,net,0,100,100,2,4,2,0
2,1,net,0,50,100,2,4,2,0
"""
SPEEDS = "model,num_ps,num_workers,speed_sum_batches_s\n" + "".join(
    f"net,{p},{w},{min(p, w)}\n" for p in (1, 2, 4) for w in (1, 2, 4)
)


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, ...]:
    jobs, speeds = tmp_path / "jobs.csv", tmp_path / "speeds.csv"
    jobs.write_text(JOBS)
    speeds.write_text(SPEEDS)
    return jobs, speeds


def test_policies_are_compared_side_by_side(
    dlsched: Any, files: tuple[Path, ...], tmp_path: Path
) -> None:
    jobs, speeds = files
    flags = ("--speeds", speeds, "--nodes", 1, "--slot", 1000, "--most-workers", 2)
    out = tmp_path / "out.csv"
    shown = dlsched("slots", jobs, *flags, "--jobs-out", out)
    assert shown.code == 0, shown.err
    lines = shown.out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["drf", "fifo", "srtf", "tetris", "optimus"]
    with out.open() as file:
        found = {row["job_id"]: row for row in csv.DictReader(file)}
    # a bundle each at one batch a second: 10 epochs a slot; fifo gives job 1 both, 20 a slot
    assert [float(found[each]["jct_ts_fifo"]) for each in "12"] == pytest.approx([5.0, 7.5])
    assert [float(found[each]["jct_ts_drf"]) for each in "12"] == pytest.approx([7.5, 5.0])
    told = json.loads(dlsched("slots", jobs, *flags, "--policy", "fifo", "--json").out)
    assert told["schema"] == "dlsched.slots/1"
    [only] = told["results"]
    assert (only["policy"], only["avg_jct_slots"], only["slots"]) == (
        "fifo",
        pytest.approx(6.25),
        8,
    )


def test_every_policy_passes_over_slots_without_jobs(
    dlsched: Any, files: tuple[Path, ...], tmp_path: Path
) -> None:
    jobs, speeds = files
    head, first, second = JOBS.splitlines()
    late = second.split(",")
    late[list(COLUMNS).index("arrival_ts")] = "60"
    jobs.write_text("\n".join((head, first, ",".join(late), "")))
    shown = dlsched("slots", jobs, "--speeds", speeds, "--nodes", 1, "--slot", 1000, "--json")
    assert shown.code == 0, shown.err
    found = {each["policy"]: each for each in json.loads(shown.out)["results"]}
    assert set(found) == set(BASELINES)
    assert all(each["slots"] > 60 for each in found.values())


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--nodes", 0), "--nodes must be at least 1 and at most 100,000, not 0"),
        (("--nodes", 1, "--slot", "nan"), "--slot must be above 0"),
        (
            ("--nodes", 1, "--most-workers", 999),
            "--most-workers must be at least 1 and at most 256, not 999",
        ),
        (("--nodes", 1, "--policy", "drf,lru"), "'lru' is not known"),
        (("--nodes", 1, "--speeds", "/no/such"), "/no/such"),
    ],
)
def test_what_cannot_be_is_one_line(
    dlsched: Any, files: tuple[Path, ...], flags: tuple[Any, ...], message: str
) -> None:
    jobs, speeds = files
    speeds_flag = () if "--speeds" in flags else ("--speeds", speeds)
    refused = dlsched("slots", jobs, *speeds_flag, *flags)
    assert refused.code == 2
    assert message in refused.err
    assert len(refused.err.splitlines()) == 1
