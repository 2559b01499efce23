"""`dlsched replay --explain` as a user calls it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

CALL = ("--cluster", "2x1", "--clock", "events", "--policy", "lucid", "-o", "profiling_nodes=0")


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Users a and b take 50 and 500 s a job; at the end three jobs wait at once."""
    lines = ["job_id,submit_time,num_gpus,duration,user"]
    for k in range(120):
        lines.append(f"j{k},{400 * k},1,{50 if k % 2 else 500},{'ab'[k % 2 == 0]}")
    lines += [f"{name},47700,1,60,{name[0]}" for name in ("b1", "b2", "a1", "b3", "a2")]
    path = tmp_path / "jobs.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_job_is_explained_when_it_is_ranked_first(dlsched: Any, trace: Path) -> None:
    options = ("--estimate", "additive", "-o", "estimator.least=20")
    shown = dlsched("replay", trace, *CALL, *options, "--explain", "b3")
    assert (shown.code, shown.err) == (0, "")
    head, base, *terms = shown.out.splitlines()
    assert head == "job b3 at 13.2 h: rank 5 of 5 under lucid"
    assert base.split()[0] == "base"
    names = [line.split("  ")[1] for line in terms]
    assert {"user", "predicted seconds", "gpu seconds"} <= set(names)
    told = json.loads(
        dlsched("replay", trace, *CALL, *options, "--explain", "b3", "--summary-out", "-").out
    )
    assert told["rank"] == 5
    parts = [value for name, value in told["numbers"].items() if name.startswith("estimate ")]
    assert sum(parts) == pytest.approx(told["predicted_s"])
    assert told["numbers"]["estimate user"] > 0


def test_a_true_duration_has_no_terms_but_a_rank(dlsched: Any, trace: Path) -> None:
    shown = dlsched("replay", trace, *CALL, "--explain", "a1")
    assert shown.out.splitlines()[1:] == ["  gpu seconds  60.0"]


def test_an_unknown_job_and_several_policies_are_refused(dlsched: Any, trace: Path) -> None:
    done = dlsched("replay", trace, *CALL, "--explain", "nope")
    assert (done.code, done.err) == (2, "dlsched: --explain: job nope is not in jobs\n")
    done = dlsched("replay", trace, *CALL[:-4], "--policy", "sjf,lucid", "--explain", "a1")
    assert (done.code, done.err) == (2, "dlsched: --explain: one trace, policy, load and seed\n")
