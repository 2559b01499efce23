"""`dlsched replay --what-if` as a user calls it: table, JSON, page, and what is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

TRACE = """job_id,submit_time,num_gpus,duration,sla
r0,0,6,50,
q0,0,8,100,
q1,0,1,40,
new,0,2,65,"soft:200,100,60"
"""
CALL = ("--cluster", "1x8", "--clock", "events", "--what-if", "new")


@pytest.fixture
def queue(tmp_path: Path) -> Path:
    path = tmp_path / "queue.csv"
    path.write_text(TRACE)
    return path


def test_alternatives_are_answered_in_a_table_json_and_a_page(
    dlsched: Any, queue: Path, tmp_path: Path
) -> None:
    page, figures = tmp_path / "page.html", tmp_path / "told.json"
    shown = dlsched(
        "replay", queue, *CALL, "--policy", "easy,fifo", "--what-if-gpus", "1:120,8:19",
        "--report", page, "--summary-out", figures,
    )  # fmt: skip
    assert (shown.code, shown.err) == (0, "")
    head, titles, *rows, last, moves = shown.out.splitlines()
    assert head.startswith("job new, submitted at 0 s under easy, with 3 jobs before it")
    assert "On time" in titles
    assert "Reward" in titles
    told = json.loads(figures.read_text())
    assert (told["schema"], told["sla"]) == ("dlsched.supposed/1", "0:100 200:100 260:0")
    names = [each["alternative"] for each in told["outcomes"]]
    assert names == [
        *("as it is", "under fifo"),
        *("1 GPU", "1 GPU, under fifo", "8 GPUs", "8 GPUs, under fifo"),
    ]
    assert len(rows) == len(names)
    first = told["outcomes"][0]
    assert (first["start_in"], first["end_in"], first["on_time"]) == (150.0, 215.0, 0.25)
    assert first["reward"] == pytest.approx(0.5 * 75 + 0.25 * 100)
    assert last.startswith("deadline in 3.33 min: no alternative is sure to keep it; the earliest")
    named = ", ".join(told["must_move"])
    count = len(told["must_move"])
    ahead = f"{count} job{'s' if count > 1 else ''} ahead: {named}"
    assert moves == f"as it is, the deadline would be kept without {ahead}"
    text = page.read_text()
    assert "<h1>What if: job new</h1>" in text
    assert not re.search(r"(?:src|href)=\"http", text)
    for each in ("Predicted placements", "What the job earns by the time since its submit"):
        assert each in text
    labels = re.findall(r'<label for="reward-c-\d+">([^<]*)</label>', text)
    assert labels == names


def test_the_latest_submit_that_keeps_the_deadline_is_told(dlsched: Any, tmp_path: Path) -> None:
    """At the worst the GPUs come free after 75 s; it takes 60 s on 8 GPUs and 15 s on 4."""
    queue, figures = tmp_path / "queue.csv", tmp_path / "told.json"
    queue.write_text("job_id,submit_time,num_gpus,duration,deadline\nr0,0,8,50,\nnew,0,8,40,300\n")
    shown = dlsched(
        "replay", queue, *CALL, "--policy", "fifo", "--what-if-gpus", "4:10,8:180",
        "--summary-out", figures,
    )  # fmt: skip
    assert (shown.code, shown.err) == (0, "")
    _, titles, *rows, last = shown.out.splitlines()
    assert "Submit by" in titles
    assert ["4.00 min" in row for row in rows] == [True, False, False]
    outcomes = json.loads(figures.read_text())["outcomes"]
    assert [each["latest_submit_in"] for each in outcomes] == [240.0, 285.0, None]
    assert last == (
        "deadline in 5.00 min: kept at the least cost by: 4 GPUs (0.0 GPU-hours); the fewest "
        "GPUs that keep it: 4; the latest submit that keeps it is in 4.75 min: 4 GPUs"
    )


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--what-if", "gone"), "'gone' is not known"),
        (("--what-if-gpus", "x"), "--what-if-gpus: 'x' is not GPUS or GPUS:SECONDS"),
        (("--what-if-gpus", "2:0"), "--what-if-gpus: '2:0' is not GPUS"),
        (("--what-if-gpus", "64"), "asks for 64 GPUs"),
        (("--load", "1,2"), "only --policy may name several"),
        (("--jobs-out", "x.csv"), "only --report and --summary-out are written"),
        (("--policy", "fifo,nonsense"), "nonsense"),
    ],
)
def test_what_is_wrong_is_one_line(
    dlsched: Any, queue: Path, flags: tuple[str, ...], message: str
) -> None:
    refused = dlsched("replay", queue, *CALL, *flags)
    assert (refused.code, refused.out, refused.err.count("\n")) == (2, "", 1)
    assert message in refused.err


def test_its_options_need_it(dlsched: Any, queue: Path) -> None:
    refused = dlsched("replay", queue, "--cluster", "1x8", "--what-if-gpus", "2")
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert "only with --what-if JOB" in refused.err


def test_limits_of_classes_hold_in_the_answer(dlsched: Any, tmp_path: Path) -> None:
    cluster, trace, told = (tmp_path / name for name in ("c.toml", "t.csv", "told.json"))
    node = '[[nodes]]\nname = "n1"\ngpus = 8\n'
    cluster.write_text(f'{node}[[classes]]\nname = "urgent"\ngpus = 2\n')
    rows = "a,0,2,100,urgent\nb,10,2,50,urgent\nc,20,2,30,urgent\nd,20,2,5,\n"
    trace.write_text(f"job_id,submit_time,num_gpus,duration,class\n{rows}")
    words = ("--cluster", cluster, "--policy", "fifo", "--clock", "events", "--summary-out", told)
    starts = []
    for job in ("c", "d"):
        shown = dlsched("replay", trace, *words, "--what-if", job)
        assert shown.code == 0, shown.err
        starts.append(json.loads(told.read_text())["outcomes"][0]["start_in"])
    assert starts == [130.0, 0.0]  # after a and b, one after the other; d has no limit
