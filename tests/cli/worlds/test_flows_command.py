"""`dlsched flows` as a user calls it."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

FLOWS = """flow_id,arrival,size,path,deadline,kind
gradients,0,20,nic,10,
checkpoint,0,80,nic,,
ingest,0,30,nic|rack,,unknown
"""
LINKS = ("--link", "nic=10", "--link", "rack=10")


@pytest.fixture
def flows(tmp_path: Path) -> Path:
    path = tmp_path / "flows.csv"
    path.write_text(FLOWS)
    return path


def test_disciplines_are_compared_side_by_side(dlsched: Any, flows: Path, tmp_path: Path) -> None:
    ends = tmp_path / "ends.csv"
    flags = ("--beta", "50", "--alpha", "50", "--floor", "0", "--flows-out", ends)
    shown = dlsched("flows", flows, *LINKS, *flags)
    assert shown.code == 0, shown.err
    names = [line.split()[0] for line in shown.out.splitlines()[1:]]
    assert names == ["karuna", "edf-first-queues", "edf-first", "srpt", "fair"]
    with ends.open() as file:
        found = {row["flow_id"]: row for row in csv.DictReader(file)}
    assert [found[name]["karuna"] for name in ("gradients", "ingest", "checkpoint")] == [
        *("10", "3.75", "13")
    ]
    assert found["gradients"]["edf-first"] == "2"
    told = json.loads(dlsched("flows", flows, *LINKS, "--discipline", "fair", "--json").out)
    assert told["schema"] == "dlsched.flows/1"
    [only] = told["results"]
    assert (only["discipline"], only["deadlines"], only["missed"]) == ("fair", 1, 0)
    assert len(told["beta"]) == 6  # they follow from the sizes


@pytest.mark.parametrize(
    ("text", "flags", "message"),
    [
        (FLOWS.replace("10,\n", "0,\n"), LINKS, ":2: deadline is 0; it must be more than 0"),
        (FLOWS.replace("80", "-1"), LINKS, ":3: size is -1; it must be more than 0"),
        (FLOWS.replace("unknown", "odd"), LINKS, ":4: kind 'odd' is not known"),
        (FLOWS.replace(",,\n", ",,deadline\n"), LINKS, ":3: a flow of kind deadline needs a dead"),
        (FLOWS.replace("ingest", "checkpoint"), LINKS, ":4: flow checkpoint is there twice"),
        (FLOWS, LINKS[:2], ":4: link 'rack' is not known; known: nic"),
        (FLOWS, (*LINKS, "--link", "x"), "--link must be NAME=RATE"),
        (FLOWS, (*LINKS, "--alpha", "5,3"), "--alpha must be ascending numbers"),
        (FLOWS, (*LINKS, "--discipline", "drr"), "'drr' is not known"),
        (FLOWS, (*LINKS, "--queues", "9"), "--queues must be at least 1 and at most 8, not 9"),
        (FLOWS.splitlines()[0] + "\n", LINKS, "has no flows"),
    ],
)
def test_what_is_wrong_is_one_line(
    dlsched: Any, flows: Path, text: str, flags: tuple[str, ...], message: str
) -> None:
    flows.write_text(text)
    refused = dlsched("flows", flows, *flags)
    assert (refused.code, refused.out, refused.err.count("\n")) == (2, "", 1)
    assert message in refused.err


JOBS = """job_id,submit_time,num_gpus,duration,ingest_gb,gradient_gb,checkpoint_gb,priority
wide,0,8,100,50,400,5,0
small,0,4,40,20,,5,0
"""


def test_the_flows_of_a_replays_jobs_are_followed(dlsched: Any, tmp_path: Path) -> None:
    """A gang on two nodes exchanges gradients; the other one, on one node, comes after it."""
    trace, flows = tmp_path / "jobs.csv", tmp_path / "flows.csv"
    trace.write_text(JOBS)
    call = ("replay", trace, "--cluster", "2x4", "--clock", "events")
    shown = dlsched(*call, "--flows-out", flows)
    assert shown.code == 0, shown.err
    with flows.open() as file:
        rows = {row["flow_id"]: row for row in csv.DictReader(file)}
    assert list(rows) == [
        *("wide@0/gradient", "wide@0/ingest/n1", "wide@0/ingest/n2", "small@100/ingest/n1"),
    ]
    gradient = rows["wide@0/gradient"]
    assert (gradient["path"], gradient["size"], gradient["deadline"]) == ("n1|n2", "400", "100")
    links = ("--link", "n1=10", "--link", "n2=10")
    told = json.loads(dlsched("flows", flows, *links, "--floor", "0", "--json").out)
    karuna, fair = told["results"][0], told["results"][-1]
    assert (karuna["discipline"], karuna["deadlines"], karuna["missed"]) == ("karuna", 1, 0)
    # 4 GB/s for gradients, which leaves 6: 50/6 s twice, and 2 s
    assert karuna["mean_others_s"] == pytest.approx((50 / 6 * 2 + 2) / 3)
    assert fair["mean_others_s"] > karuna["mean_others_s"]
    for flags, message in (
        (("--policy", "fifo,las"), "--flows-out: of one run only"),
        (("--flows-out", tmp_path / "no" / "x.csv"), "--flows-out"),
    ):
        refused = dlsched(*call, "--flows-out", flows, *flags)
        assert (refused.code, refused.err.count("\n")) == (2, 1)
        assert message in refused.err
    trace.write_text("job_id,submit_time,num_gpus,duration\na,0,1,1\n")
    refused = dlsched(*call, "--flows-out", flows)
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert "has none of the columns ingest_gb, gradient_gb, checkpoint_gb" in refused.err


def test_a_job_that_loses_its_gpus_writes_a_checkpoint(dlsched: Any, tmp_path: Path) -> None:
    trace, flows = tmp_path / "jobs.csv", tmp_path / "flows.csv"
    trace.write_text(
        "job_id,submit_time,num_gpus,duration,checkpoint_gb\nlong,0,4,100,5\nshort,10,4,20,5\n"
    )
    call = ("replay", trace, "--cluster", "1x4", "--clock", "events", "--policy", "srtf")
    assert dlsched(*call, "--flows-out", flows).code == 0
    with flows.open() as file:
        [only] = csv.DictReader(file)
    assert (only["flow_id"], only["arrival"], only["kind"]) == (
        *("long@0/checkpoint", "10", "unknown"),
    )
