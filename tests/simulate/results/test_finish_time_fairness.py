"""ρ after the fact: each variant by hand, and the comparison with an isolated run."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.cli.main import run
from simulate.results.finish_time_fairness import mean_active

TRACE = "job_id,submit_time,num_gpus,duration\n0,0,1,600\n1,0,2,900\n2,130,1,300\n3,4000,2,240\n"


@pytest.fixture
def replayed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any) -> Any:
    """Call `dlsched replay` on a small trace; the exit code, both files and what was printed."""
    trace = tmp_path / "trace.csv"
    trace.write_text(TRACE)

    def call(*words: str) -> Any:
        jobs, summary = tmp_path / "jobs.csv", tmp_path / "summary.json"
        given = ["--cluster", "1x2", "--jobs-out", str(jobs), "--summary-out", str(summary)]
        monkeypatch.setattr("sys.argv", ["dlsched", "replay", str(trace), *given, *words])
        with pytest.raises(SystemExit) as stop:
            run()
        if stop.value.code:
            return stop.value.code, None, None, capsys.readouterr().err
        with jobs.open() as file:
            rows = list(csv.DictReader(file))
        return 0, rows, json.loads(summary.read_text()), capsys.readouterr().out

    return call


def test_the_variant_is_named_wherever_a_figure_is(replayed: Any) -> None:
    _, rows, summary, out = replayed("--policy", "fifo", "--clock", "events")
    jct = np.array([float(row["jct"]) for row in rows])
    static = jct / (np.array([600, 900, 300, 240]) * 2)  # 4 jobs on 2 GPUs
    assert summary["finish_time_fairness"] == {
        "variant": "shockwave-static",
        "max": pytest.approx(static.max()),
        "mean": pytest.approx(static.mean()),
        "unfair_fraction": 0.25,
    }
    assert set(summary["finish_time_fairness_variants"]) == {"shockwave-static", "shockwave-themis"}
    assert "ρ shockwave-static" in out
    assert "rho" not in rows[0]


def test_against_an_isolated_run_every_job_has_its_rho(replayed: Any) -> None:
    _, alone, _, _ = replayed("--policy", "gavel", "-o", "objective=isolated")
    _, rows, summary, out = replayed("--policy", "fifo", "--compare-isolated")
    rho = [float(one["jct"]) / float(other["jct"]) for one, other in zip(rows, alone, strict=True)]
    assert [float(row["rho"]) for row in rows] == pytest.approx(rho)
    assert summary["policy"] == "fifo"  # one run, not two
    assert summary["finish_time_fairness"]["variant"] == "gavel-report"
    assert summary["finish_time_fairness"]["max"] == pytest.approx(max(rho))
    assert set(summary["finish_time_fairness_variants"]) == {
        "gavel-report",
        "shockwave-static",
        "shockwave-themis",
    }
    assert "ρ gavel-report" in out


def test_each_load_and_seed_has_an_isolated_run_of_its_own(replayed: Any) -> None:
    _, rows, summary, _ = replayed(
        "--policy", "las,gavel", "-o", "gavel.objective=makespan", "--load", "1,4",
        "--placement", "best-fit", "--compare-isolated", "--executor", "processes:1",
    )  # fmt: skip
    runs = [each for each in summary if "finish_time_fairness" in each]
    assert {each["finish_time_fairness"]["variant"] for each in runs} == {"gavel-report"}
    assert {row["policy"] for row in rows} == {"las", "gavel"}
    assert all(row["rho"] for row in rows)


def test_isolated_against_itself_is_fair(replayed: Any) -> None:
    _, rows, _, _ = replayed("--policy", "gavel", "-o", "objective=isolated", "--compare-isolated")
    assert {row["rho"] for row in rows} == {"1"}


def test_a_live_state_has_no_isolated_past(monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setattr("sys.argv", ["dlsched", "replay", "--snapshot", "x", "--compare-isolated"])
    with pytest.raises(SystemExit) as stop:
        run()
    assert stop.value.code == 2
    assert "--compare-isolated: does not go with --snapshot" in capsys.readouterr().err


def test_the_crowd_around_a_job_by_hand() -> None:
    submit, finish = np.array([0.0, 5.0, 20.0, 30.0]), np.array([10.0, 15.0, 20.0, np.nan])
    assert mean_active(submit, finish).tolist() == [1.5, 1.5, 0.0, 1.0]


@given(
    lives=st.lists(st.tuples(st.integers(0, 40), st.integers(1, 20)), min_size=1, max_size=8),
)
def test_the_crowd_is_what_counting_second_by_second_gives(lives: list[tuple[int, int]]) -> None:
    submit = np.array([float(start) for start, _ in lives])
    finish = np.array([float(start + length) for start, length in lives])
    here = [int(((submit <= t) & (finish > t)).sum()) for t in range(61)]
    counted = [sum(here[int(a) : int(b)]) / (b - a) for a, b in zip(submit, finish, strict=True)]
    assert mean_active(submit, finish) == pytest.approx(counted)
