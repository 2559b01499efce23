"""`dlsched short-tasks` as a user calls it."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

TASKS = """job_id,arrival,stage,tasks,runtime,cores,memory,parents,spread
scan,0,map,40,2,1,2,,0.5
scan,0,reduce,8,4,2,2,map,
eval,3,,30,1,1,2,,
"""
SERVERS = ("--servers", "4x4x16+1x8x32@0.95")


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    path = tmp_path / "tasks.csv"
    path.write_text(TASKS)
    return path


def test_matchings_are_compared_side_by_side(dlsched: Any, tasks: Path, tmp_path: Path) -> None:
    ends = tmp_path / "ends.csv"
    flags = ("--matching", "stable,greedy,best,random", "--tokens", "16", "--jobs-out", ends)
    shown = dlsched("short-tasks", tasks, *SERVERS, *flags)
    assert shown.code == 0, shown.err
    names = [line.split()[0] for line in shown.out.splitlines()[1:]]
    assert names == ["stable", "greedy", "best", "random"]
    with ends.open() as file:
        rows = list(csv.DictReader(file))
    assert [row["job_id"] for row in rows] == ["scan", "eval"]
    assert all(float(row[name]) >= float(row["arrival"]) + 1 for row in rows for name in names)
    told = json.loads(dlsched("short-tasks", tasks, *SERVERS, "--json").out)
    assert told["schema"] == "dlsched.short-tasks/1"
    assert [each["counts"]["done"] for each in told["results"]] == [78, 78]


def test_several_seeds_are_means_in_the_table_and_rows_in_the_file(
    dlsched: Any, tasks: Path, tmp_path: Path
) -> None:
    ends = tmp_path / "ends.csv"
    drawn = ("short-tasks", tasks, *SERVERS, "--matching", "stable,random", "--seed", "1,2")
    told = json.loads(dlsched(*drawn, "--json", "--jobs-out", ends).out)["results"]
    assert [(each["matching"], each["seed"]) for each in told] == [
        (name, seed) for name in ("stable", "random") for seed in (1, 2)
    ]
    with ends.open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["seed"], row["job_id"]) for row in rows] == [
        (seed, job) for seed in "12" for job in ("scan", "eval")
    ]
    one, two = (each["mean_jct_s"] for each in told[:2])
    stable = dlsched(*drawn).out.splitlines()[1]
    assert stable.split()[:3] == ["stable", f"{(one + two) / 2:.4g}", "±"]
    for seed, jct in (("1", one), ("2", two)):
        [alone] = json.loads(dlsched(*drawn[:5], "stable", "--seed", seed, "--json").out)["results"]
        assert alone["mean_jct_s"] == jct


@pytest.mark.parametrize(
    ("text", "flags", "message"),
    [
        (TASKS.replace("map,40,2", "map,4.5,2"), (), ":2: tasks is 4.5; it must be a whole number"),
        (TASKS.replace("reduce,8,4", "reduce,8,0"), (), ":3: runtime is 0; it must be more than 0"),
        (TASKS.replace("2,2,map,", "2,2,mop,"), (), ":2: job scan: stage reduce: after 'mop'"),
        (
            TASKS.replace("1,2,,0.5", "1,2,reduce,0.5"),
            (),
            "job scan: stages wait for each other: map after reduce after map",
        ),
        (TASKS.replace("reduce", "map"), (), ":3: stage map of job scan is there twice"),
        (TASKS.replace("scan,0,reduce", "scan,9,reduce"), (), ":3: arrival differs from that of"),
        (TASKS.splitlines()[0] + "\n", (), "has no tasks"),
        (TASKS, ("--servers", "4by4"), "--servers: '4by4' is not COUNTxCORES"),
        (TASKS, ("--servers", "4x4@0"), "'4x4@0' needs servers, cores, and a success above 0"),
        (TASKS, ("--servers", "4x1x16"), "job scan, stage reduce: 2 cores and 2 of memory fit on"),
        (TASKS, ("--matching", "bets"), "--matching: 'bets' is not known"),
        (TASKS, ("--publish", "0"), "--publish must be at least 0.01, not 0"),
        (TASKS, ("--tokens", "0"), "--tokens must be at least 1, not 0"),
        (TASKS, ("--stragglers", "2"), "--stragglers must be at least 0 and at most 1, not 2"),
    ],
)
def test_what_is_wrong_with_short_tasks_is_one_line(
    dlsched: Any, tasks: Path, text: str, flags: tuple[str, ...], message: str
) -> None:
    tasks.write_text(text)
    refused = dlsched("short-tasks", tasks, *SERVERS, *flags)
    assert (refused.code, refused.out, refused.err.count("\n")) == (2, "", 1)
    assert message in refused.err
