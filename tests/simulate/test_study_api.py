"""`dlsched.study`: the same figures as the command line, as columns, with paired differences."""

from __future__ import annotations

import csv
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import dlsched
from dlsched.core.errors import BadInput
from simulate.traces.generate import generate_trace
from simulate.traces.write import write_trace

HERE = {"executor": "processes:1", "record": False}


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("study") / "small.csv"
    write_trace(generate_trace("philly", jobs=60, seed=3, gpus=16, load=1.2), path)
    return path


@pytest.fixture(scope="module")
def found(trace: Path) -> dlsched.StudyResults:
    return dlsched.study(
        trace,
        cluster="2x8",
        policies=["fifo", "srtf"],
        loads=[1.0, 2.0],
        seeds=[1, 2, 3],
        estimate="noise:1.0",
        **HERE,  # type: ignore[arg-type]
    )


def test_runs_and_jobs_are_rows(found: dlsched.StudyResults) -> None:
    runs, jobs = found.runs, found.jobs
    assert runs.rows == 12
    assert list(runs)[:4] == ["trace", "label", "load", "seed"]
    assert jobs.rows == 12 * 60
    assert set(runs["label"].tolist()) == {"fifo", "srtf"}
    one = jobs.where(label="srtf", load=2.0, seed=3)
    (row,) = (r for r in runs.records() if (r["label"], r["load"], r["seed"]) == ("srtf", 2.0, 3))
    assert row["avg_jct"] == pytest.approx(one["jct"][one["status"] == "completed"].mean())
    assert row["finish_time_fairness.max"] > 0


def test_means_and_differences_are_paired_by_seed(found: dlsched.StudyResults) -> None:
    means = found.means("avg_jct")
    assert [*means] == ["trace", "load", "label", "seeds", "avg_jct", "avg_jct_half_width"]
    assert means.rows == 4
    assert (means.where(label="fifo")["avg_jct_half_width"] == 0).all()  # nothing in it is random
    values = {name: found.runs.where(label=name, load=2.0)["avg_jct"] for name in ("srtf", "fifo")}
    gaps = values["srtf"] - values["fifo"]
    gap = found.difference("avg_jct", "srtf", "fifo", load=2.0)
    assert gap.mean == pytest.approx(gaps.mean())
    # Student's t for two degrees of freedom
    assert gap.half_width == pytest.approx(4.303 * gaps.std(ddof=1) / math.sqrt(3))
    for wrong in (
        lambda: found.means("avg_jtc"),
        lambda: found.difference("avg_jct", "sjf", "fifo", load=2.0),
        lambda: found.difference("avg_jct", "srtf", "fifo", load=3.0),
    ):
        with pytest.raises(BadInput):
            wrong()


def test_the_figures_are_those_of_the_command_line(
    trace: Path, found: dlsched.StudyResults, tmp_path: Path
) -> None:
    words = ["--cluster", "2x8", "--policy", "fifo,srtf", "--load", "1,2", "--seed", "1,2,3"]
    files = ["--summary-csv", str(tmp_path / "runs.csv"), "--latex", str(tmp_path / "t.tex")]
    more = ["--estimate", "noise:1.0", "--executor", "processes:1"]
    subprocess.run(
        [sys.executable, "-m", "dlsched", "replay", str(trace), *words, *more, *files],
        check=True,
        capture_output=True,
    )
    with (tmp_path / "runs.csv").open() as file:
        told = list(csv.DictReader(file))
    mine = list(found.runs.records())
    costs = {"wall_seconds", "cpu_seconds", "peak_rss_bytes"}
    assert [*told[0]] == [*mine[0]]
    for row, other in zip(told, mine, strict=True):
        for name in set(row) - costs:
            value = other[name]
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            assert row[name] == str(value) or (is_number and _same(row[name], value)), name
    assert (tmp_path / "t.tex").read_text() == found.latex()


def _same(text: str, value: float) -> bool:
    return math.isnan(value) if text == "" else float(text) == value


def test_a_table_for_a_paper_is_escaped_and_marks_the_best(found: dlsched.StudyResults) -> None:
    text = found.latex("avg_jct", "unfair_fraction")
    assert r"$\rho$ \textgreater{} 1 (\%)" in text
    assert text.count(r"\textbf{") >= 2
    assert text.count("&") == 2 * 5  # two figures, a head and four rows
    assert text.count(r"\begin{tabular}{lrr}") == text.count(r"\end{tabular}") == 1
    assert r"\multicolumn{3}{l}{Load 2}" in text


def test_tables_become_data_frames(found: dlsched.StudyResults, tmp_path: Path) -> None:
    polars = pytest.importorskip("polars")
    means = found.means("avg_jct", "makespan")
    frame = polars.DataFrame(means)
    assert frame.columns == [*means]
    assert frame["avg_jct"].to_list() == means["avg_jct"].tolist()
    assert polars.from_dataframe(found.jobs).height == found.jobs.rows
    means.write_csv(tmp_path / "means.csv.gz")
    again = polars.read_csv(tmp_path / "means.csv.gz")
    assert again["label"].to_list() == means["label"].tolist()
    assert "1000" not in repr(means)
    assert repr(found.jobs).endswith(f"… {found.jobs.rows - 20:,} more rows")


@pytest.mark.parametrize(
    ("library", "how"), [("pandas", "pip install pandas"), ("polars", "dlsched[parquet]")]
)
def test_a_missing_library_of_data_frames_is_named(
    library: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    some = dlsched.Columns({"a": [1, 2]})
    with pytest.raises(BadInput, match=f"^{library} is needed for a DataFrame: .*") as refused:
        getattr(some, f"to_{library}")()
    assert how in str(refused.value)


def test_columns_have_one_length_and_unknown_numbers_are_nan() -> None:
    with pytest.raises(ValueError, match="different lengths"):
        dlsched.Columns({"a": [1], "b": [1, 2]})
    some = dlsched.Columns({"a": [1.5, None], "b": ["x", None], "c": [1, 2]})
    assert np.isnan(some["a"][1])
    assert some["b"].tolist() == ["x", ""]
    assert some["c"].dtype.kind == "i"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ({"policies": ["fifo", "fifo"]}, "'fifo' is listed twice"),
        ({"policies": []}, "an empty list"),
        ({"policies": "fivo"}, "fivo"),
        ({"options": {"nonsense": 1}}, "-o nonsense"),
        ({"seeds": [1, 1]}, "1 is listed twice"),
    ],
)
def test_what_is_wrong_is_said_before_anything_runs(
    trace: Path, words: dict[str, object], line: str
) -> None:
    with pytest.raises(BadInput, match=line):
        dlsched.study(trace, cluster="2x8", **{**HERE, **words})  # type: ignore[arg-type]


def test_the_job_library_imports_none_of_it() -> None:
    program = "import dlsched.job, sys; assert not {'numpy', 'simulate'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)
    assert not hasattr(dlsched, "studdy")
