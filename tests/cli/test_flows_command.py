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
        (FLOWS.replace("10,\n", "0,\n"), LINKS, ":2: deadline is 0; it must be after the arrival"),
        (FLOWS.replace("80", "-1"), LINKS, ":3: size is -1; it must be more than 0"),
        (FLOWS.replace("unknown", "odd"), LINKS, ":4: kind 'odd' is not known"),
        (FLOWS.replace(",,\n", ",,deadline\n"), LINKS, ":3: a flow of kind deadline needs a dead"),
        (FLOWS.replace("ingest", "checkpoint"), LINKS, ":4: flow checkpoint is there twice"),
        (FLOWS, LINKS[:2], ":4: link 'rack' is not known; known: nic"),
        (FLOWS, (*LINKS, "--link", "x"), "--link must be NAME=RATE"),
        (FLOWS, (*LINKS, "--alpha", "5,3"), "--alpha must be ascending numbers"),
        (FLOWS, (*LINKS, "--discipline", "drr"), "'drr' is not known"),
        (FLOWS, (*LINKS, "--queues", "9"), "--queues must be 1 to 8"),
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
