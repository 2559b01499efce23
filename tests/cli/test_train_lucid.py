"""`dlsched train lucid` as a user calls it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

WORKLOADS = "model,batch_size,gpu_util,gmem_util,share_score\n" + "".join(
    f"net-{name},{k},{busy},{memory},{score}\n"
    for name, busy, memory, score in (("a", 8, 4, 0), ("b", 20, 12, 1), ("c", 90, 60, 2))
    for k in (1, 2, 3)
)
PAIRS = "model1,batchsize1,speed1,model2,batchsize2,speed2\n"


@pytest.fixture
def workloads(tmp_path: Path) -> Path:
    path = tmp_path / "workloads.csv"
    path.write_text(WORKLOADS)
    return path


def test_the_limits_lie_between_the_classes_and_are_options_of_lucid(
    dlsched: Any, workloads: Path, tmp_path: Path
) -> None:
    shown = dlsched("train", "lucid", workloads)
    assert (shown.code, shown.err) == (0, "")
    options, verdict = shown.out.splitlines()
    # in the middle of 20 and 90, of 12 and 60, and of 8 and 20
    assert options.split()[1::2] == [
        "lucid.jumbo_util=55",
        "lucid.jumbo_memory_util=36",
        "lucid.tiny_util=14",
    ]
    assert verdict == "right for 9 of 9 workloads; with the defaults for 6"
    trace = tmp_path / "trace.csv"
    trace.write_text("job_id,submit_time,num_gpus,duration\n1,0,1,60\n")
    called = ("replay", trace, "--cluster", "2x4", "--policy", "lucid", *options.split())
    assert dlsched(*called).code == 0


def test_classes_follow_from_speeds_of_pairs(dlsched: Any, workloads: Path, tmp_path: Path) -> None:
    pairs = tmp_path / "pairs.csv"
    rows = [("a", 0.99, "b", 0.9), ("a", 0.97, "c", 0.6), ("b", 0.92, "c", 0.7)]
    pairs.write_text(PAIRS + "".join(f"net-{x},1,{s},net-{y},1,{r}\n" for x, s, y, r in rows))
    told = json.loads(dlsched("train", "lucid", workloads, "--pairs", pairs, "--json").out)
    assert told["schema"] == "dlsched.lucid-limits/1"
    assert (told["workloads"], told["right"]) == (3, 3)
    assert set(told["options"]) == {"tiny_util", "jumbo_util", "jumbo_memory_util"}


@pytest.mark.parametrize(
    ("text", "pairs", "message"),
    [
        (WORKLOADS.replace(",2\n", ",3\n"), None,
         "share_score is 3, not one of 0 tiny, 1 medium, 2 jumbo"),
        (WORKLOADS.replace("share_score", "iteration_ms"), None,
         "has no column share_score; name a table of pairs with --pairs"),
        (WORKLOADS.replace("gpu_util", "gpu_ms"), None, "has no column gpu_util"),
        (WORKLOADS, "model1,speed1,model2,speed2\nx,1,y,1\n",
         "workloads are told apart by model, in the other file by model, batch_size"),
        (WORKLOADS, PAIRS + "x,1,1,y,1,1\n", "has no pair of a workload of "),
    ],
)  # fmt: skip
def test_tables_that_say_too_little_are_refused(
    dlsched: Any, workloads: Path, text: str, pairs: str | None, message: str
) -> None:
    workloads.write_text(text)
    more: tuple[Any, ...] = ()
    if pairs is not None:
        more = ("--pairs", workloads.with_name("pairs.csv"))
        more[1].write_text(pairs)
    shown = dlsched("train", "lucid", workloads, *more)
    assert (shown.code, shown.out, shown.err.count("\n")) == (2, "", 1)
    assert message in shown.err
