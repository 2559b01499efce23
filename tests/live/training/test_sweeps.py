"""A sweep from the command line to its table: real jobs, of which halving stops the bad ones."""

from __future__ import annotations

import csv
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dlsched.torture.local_cluster import LocalCluster, eventually
from tests.live.conftest import SELDOM_POSTGRES, database_of

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).with_name("sweep_program.py")
RATES = ["0.1", "0.25", "0.31", "0.9", "5", "0.6"]  # task 3 is the best, task 5 diverges


@pytest.fixture(scope="module", params=SELDOM_POSTGRES)
def wide(request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    """One daemon, and one node with a GPU for each job of the sweep."""
    with LocalCluster(database_of(request), nodes=1, gpus=f"{len(RATES)}:v100") as running:
        yield running


def test_a_dry_run_leaves_nothing_behind(wide: LocalCluster) -> None:
    params = wide.folder / "tried.csv"
    params.write_text("\n".join(["lr", *RATES]))
    before = wide.submit("true")
    wide.until(before, "COMPLETED")

    def left() -> tuple[str, set[Path]]:
        jobs = wide.cli("queue", "--all", "-o", "id") + wide.cli(
            "history", "--all", "-o", "id,state"
        )
        return jobs, set(wide.folder.rglob("*.out"))

    known = left()
    words = ["submit", "--test-only", "--sweep", f"{params}%2", "-o", f"{wide.out}/{{lr}}.out"]
    tried = wide.cli(*words, "--gpus", "1", "--", "echo", "rate {lr}")
    assert tried.splitlines()[:3] == [
        f"{len(RATES)} jobs, 2 at once",
        f"  1: echo 'rate {RATES[0]}' (lr={RATES[0]})",
        f"  {len(RATES)}: echo 'rate {RATES[-1]}' (lr={RATES[-1]})",
    ]
    assert tried.splitlines()[3].startswith("the first would start at once, and end ~")
    assert wide.run(*words, "--gpus", "99", "--", "true").returncode == 1
    assert left() == known
    assert wide.submit("true") == before + 1


def test_halving_stops_what_is_behind_and_the_best_completes(wide: LocalCluster) -> None:
    params = wide.folder / "params.csv"
    # a value is one argument, whatever is in it
    rows = [f'{rate},"it\'s $HOME; {number}"' for number, rate in enumerate(RATES, 1)]
    params.write_text("\n".join(["lr,note", *rows]) + "\n")
    words = ["--sweep", str(params), "--halving", "metric=loss,eta=6,rung=20,max=20"]
    job = int(
        wide.cli(
            "submit", "--parsable", *words, "--name", "lr-{lr}", "-o", f"{wide.out}/{{lr}}-%a.out",
            "--", sys.executable, str(PROGRAM), "{lr}", str(wide.folder),
        )
    )  # fmt: skip

    def stopped() -> set[int]:
        with wide.client() as client:
            jobs = client.sweep(job).jobs
        return {each.array_task_id for each in jobs if each.state == "CANCELLED"}

    # none is stopped before the sixth has reached the rung, whatever their order is
    eventually("five of six are stopped", lambda: len(stopped()) == 5)
    assert 3 not in stopped()
    (wide.folder / "enough").touch()
    wide.until(job + 2, "COMPLETED")
    found: dict[str, Any] = json.loads(wide.cli("sweep", str(job), "--json"))
    assert found["halving"] == {"metric": "loss", "mode": "min", "eta": 6, "rung": 20, "most": 20}
    assert [each["array_task_id"] for each in found["jobs"]] == [3, 2, 1, 6, 4, 5]
    best, last = found["jobs"][0], found["jobs"][-1]
    assert (best["state"], best["parameters"]["lr"]) == ("COMPLETED", "0.31")
    assert last["not_finite"] == ["loss"]
    assert last["reason"].startswith(
        "stopped by successive halving at step 20: loss nan, rank 6 of 6"
    )
    assert [each["stopped"] for each in last["rungs"]] == [True]
    text = wide.cli("show", f"{job}_4")
    assert re.search(r"at step 20: loss 0\.6\d*, rank 5 of 6\)", text)
    assert text.count(" cancel by daemon") == 1
    assert "parameters  lr=0.9, note=it's $HOME; 4" in text
    assert "lr-0.9" in text.splitlines()[0]
    assert (wide.out / "0.9-4.out").read_text().startswith("rate 0.9 note it's $HOME; 4\n")
    line = wide.cli("sweep", str(job), "--by", "rate", "--order", "max").splitlines()[1]
    assert line.split()[:2] == [f"{job}_5", "5"]
    header, first, *_ = csv.reader(wide.cli("sweep", f"{job}_2", "--csv").splitlines())
    assert header[:6] == ["id", "lr", "note", "state", "reason", "step"]
    assert first[:4] == [f"{job}_3", "0.31", "it's $HOME; 3", "COMPLETED"]
    assert "lr-0.31" in wide.cli("history", "-n", "lr-0.31", "-o", "id,name")
