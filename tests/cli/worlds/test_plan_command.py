"""`dlsched plan` as a user calls it, and its speeds in a replay."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

OPERATIONS: list[dict[str, Any]] = [
    {"name": "conv", "us": {"v100": 4000, "t4": 8000}, "parameter_bytes": 1_000_000},
    {
        "name": "dense",
        "us": {"v100": 9000, "t4": 18000},
        "parameter_bytes": 60_000_000,
        "inputs": {"conv": 600_000},
    },
]
GPUS = ("--gpus", "2xv100,2xt4")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "net.json"
    path.write_text(json.dumps({"name": "net", "batch_size": 64, "operations": OPERATIONS}))
    return path


def test_a_plan_is_shown_beside_the_uniform_ones(dlsched: Any, file: Path, tmp_path: Path) -> None:
    shown = dlsched("plan", file, *GPUS, "--out", tmp_path / "plan.json")
    assert shown.code == 0, shown.err
    lines = shown.out.splitlines()
    assert lines[0].split() == ["Group", "GPUs", "Gradients"]
    assert [line.split()[0] for line in lines[1:3]] == ["conv", "dense"]
    assert any(line.startswith("all: even, all-reduce") for line in lines)
    told = json.loads(dlsched("plan", file, *GPUS, "--json").out)
    assert told == json.loads((tmp_path / "plan.json").read_text())
    assert told["schema"] == "dlsched.plan/1"
    best = min(each["iteration_us"] for each in told["uniform"].values())
    assert told["iteration_us"] <= best
    assert set(told["plan"]) == {"conv", "dense"}


def test_of_several_seeds_the_best_plan_is_taken(dlsched: Any, file: Path) -> None:
    drawn = ("plan", file, *GPUS, "--exhaustive", 0, "--steps", 20, "--seed", "1,2,3")
    told = json.loads(dlsched(*drawn, "--json").out)
    assert set(told["iteration_us_by_seed"]) == set("123")
    assert told["iteration_us"] == min(told["iteration_us_by_seed"].values())
    shown = dlsched(*drawn)
    assert shown.code == 0, shown.err
    assert any(line.startswith("this one") and " ± " in line for line in shown.out.splitlines())


def test_its_speeds_are_those_of_a_job_in_a_replay(
    dlsched: Any, file: Path, tmp_path: Path
) -> None:
    """Two GPUs of a type, at the speed of the best plan on two of them."""
    speeds, trace = tmp_path / "speeds.csv", tmp_path / "jobs.csv"
    made = dlsched("plan", file, *GPUS, "--throughputs-out", speeds)
    assert made.code == 0, made.err
    table = {
        (gpu, count): float(speed)
        for gpu, count, _, _, speed in (
            line.split(",") for line in speeds.read_text().splitlines()[1:]
        )
    }
    assert set(table) == {("v100", "1"), ("v100", "2"), ("t4", "1"), ("t4", "2")}
    trace.write_text(
        "job_id,submit_time,num_gpus,total_iterations,model,batch_size\na,0,2,10000,net,64\n"
    )
    out = tmp_path / "out.csv"
    replayed = dlsched(
        *("replay", trace, "--cluster", "1x2:v100", "--policy", "fifo", "--profiles", speeds),
        *("--jobs-out", out, "--clock", "events"),
    )
    assert replayed.code == 0, replayed.err
    header, row = (line.split(",") for line in out.read_text().splitlines())
    jct = float(dict(zip(header, row, strict=True))["jct"])
    assert jct == pytest.approx(10_000 / table["v100", "2"])


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--gpus", "v100"), "'v100' is not COUNTxTYPE, as in 2xv100,4xt4"),
        (("--gpus", "80xv100"), "80 GPUs; 64 are the most"),
        (("--gpus", "1xk80"), "operation conv has no time on k80; it has one on t4, v100"),
        ((*GPUS, "--order", "lifo"), "--order: 'lifo' is not known; known: upward, source, fifo"),
        ((*GPUS, "--memory", "v100"), "--memory must be TYPE=GB"),
        ((*GPUS, "--memory", "a100=40"), "--gpus 2xv100,2xt4 has none of this type"),
        ((*GPUS, "--memory", "v100=0.01", "--memory", "t4=0.01"), "no plan fits the memory"),
        ((*GPUS, "--steps", "-1"), "--steps must be at least 0 and at most 100,000, not -1"),
        ((*GPUS, "--nic-gbps", "0"), "--nic-gbps must be above 0, not 0"),
    ],
)
def test_a_wrong_option_is_one_line(
    dlsched: Any, file: Path, flags: tuple[str, ...], message: str
) -> None:
    refused = dlsched("plan", file, *flags)
    assert (refused.code, refused.out, refused.err.count("\n")) == (2, "", 1)
    assert message in refused.err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"us": {}}, "operation dense: us must give µs by GPU type"),
        (
            {"us": {"v100": 1.5}},
            "us of v100 must be a whole number from 0 to 9,007,199,254,740,992, not '1.5'",
        ),
        ({"inputs": {"softmax": 4}}, "takes from softmax, which is no operation before it"),
        ({"name": "conv", "inputs": {}}, "operation conv: is there twice"),
        ({"flops": 3}, "'flops' is not known; known: name, us"),
    ],
)
def test_a_wrong_model_is_one_line(
    dlsched: Any, tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    path = tmp_path / "net.json"
    path.write_text(json.dumps({"operations": [OPERATIONS[0], OPERATIONS[1] | change]}))
    refused = dlsched("plan", path, *GPUS)
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert message in refused.err
