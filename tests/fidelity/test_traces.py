"""Importers against the reference data: samples with their exact normal form, real logs."""

from __future__ import annotations

import csv
import gzip
import math
import os
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from dlsched.core.errors import BadInput
from simulate.traces.open import detect_format, open_trace
from simulate.traces.options import ReadOptions
from simulate.traces.status import STATUSES
from simulate.traces.trace import Trace

pytestmark = pytest.mark.fidelity

ROOT = Path(
    os.environ.get("DLSCHED_DATA") or Path(__file__).resolve().parents[2] / "../shared/data"
)
EVERYTHING = ReadOptions(drop_cpu_jobs=False, min_duration=0, status=STATUSES, on_missing="keep")

# Columns of the expected files, and what they are in a trace.
KEYS = ("job_id", "job", "name")
SAME_NUMBER = {
    "runtime_s": "duration",
    "duration_s": "duration",
    "run_s": "duration",
    "num_gpus": "num_gpus",
    "gpus_total": "num_gpus",
    "gpus": "num_gpus",
    "num_nodes": "num_nodes",
    "num_cpus": "num_cpus",
    "attempts": "attempts",
    "gang_instances": "num_instances",
    "gpu_seconds_by_attempt": "gpu_seconds",
}
SAME_TEXT = {"vc": "vc", "user": "user", "gpu_type": "gpu_type", "allowed_models": "gpu_type"}
TIMES = {
    "submit_s": "submit_time",
    "submit_utc": "submit_time",
    "submit_time": "submit_time",
    "start_s": "start_time",
    "start_utc": "start_time",
    "first_start": "start_time",
    "end_s": "end_time",
    "end_utc": "end_time",
    "last_end": "end_time",
}
WAITS = ("queue_s", "wait_s")
PROSE = ("note",)


def data(relative: str) -> Path:
    path = ROOT / relative
    if not path.exists():
        pytest.skip(f"reference data not there: {path} (set DLSCHED_DATA)")
    return path


def rows_of(path: Path) -> list[dict[str, str]]:
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt") as file:
        return list(csv.DictReader(file))


def expected_files() -> list[Path]:
    found = []
    for path in sorted(ROOT.rglob("expected_*.csv")):
        header = path.read_text().partition("\n")[0].split(",")
        if header[0] in KEYS and "status" in header:
            found.append(path)
    return found


def traces_beside(expected: Path) -> list[Trace]:
    """Read every file beside (or the folder around) an expected file that is a trace."""
    folder = expected.parent
    try:
        detect_format(folder)
    except BadInput:
        sources = []
        for path in sorted(folder.iterdir()):
            try:
                detect_format(path)
            except BadInput:
                continue
            sources.append(path)
        sources.remove(expected) if expected in sources else None
    else:
        sources = [folder]
    return [open_trace(path, options=EVERYTHING) for path in sources]


def column(trace: Trace, name: str):
    return trace.columns[name] if name in trace.columns else getattr(trace, name)


def as_number(text: str) -> float:
    """Seconds of a time in any of the expected files' spellings, or a plain number."""
    if not text:
        return math.nan
    if ":" in text:
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=ZoneInfo("UTC"))).timestamp()
    return float(text)


@pytest.mark.parametrize("expected", expected_files() or [None], ids=lambda p: p and p.parent.name)
def test_a_sample_gives_exactly_its_normal_form(expected):
    if expected is None:
        pytest.skip(f"no expected_*.csv under {ROOT} (set DLSCHED_DATA)")
    wanted = rows_of(expected)
    key = next(iter(wanted[0]))
    traces = traces_beside(expected)
    by_id = {
        job_id: (trace, row) for trace in traces for row, job_id in enumerate(trace.job_id.tolist())
    }
    assert set(by_id) == {row[key] for row in wanted}
    for row in wanted:
        trace, at = by_id[row[key]]
        for name, text in row.items():
            what = f"{row[key]}: {name}"
            if name == key or name in PROSE:
                continue
            if name == "cluster":
                assert trace.name.endswith(text), what
            elif name == "status":
                # What no log status fits is kept word for word in the note.
                got = trace.status[at] if text in STATUSES else trace.columns["note"][at]
                assert got == text, what
            elif name in SAME_TEXT:
                assert column(trace, SAME_TEXT[name])[at] == text, what
            elif name in SAME_NUMBER:
                got = column(trace, SAME_NUMBER[name])[at]
                assert got == as_number(text) or (math.isnan(got) and not text), what
            elif name in WAITS:
                got = trace.columns["start_time"][at] - trace.submit_time[at]
                assert got == as_number(text) or (math.isnan(got) and not text), what
            else:
                got = column(trace, TIMES[name])[at] + offset_of(trace, wanted, key)
                assert got == as_number(text) or (math.isnan(got) and not text), what


def offset_of(trace: Trace, wanted: list[dict[str, str]], key: str) -> float:
    """What lies between a trace's time and the expected file's: nothing, or the trace's epoch."""
    name = next(each for each in TIMES if each in wanted[0])
    first = next(row[name] for row in wanted if row[key] == trace.job_id[0])
    offset = as_number(first) - trace.submit_time[0]
    if ":" in first and "Z" not in first:  # wall time of a zone
        wall = datetime.fromisoformat(first).replace(tzinfo=ZoneInfo(trace.zone))
        assert wall.timestamp() == trace.epoch
    else:
        assert offset in (0, trace.epoch)
    return offset


def test_philly_passed_has_the_published_size():
    trace = open_trace(data("traces/philly-passed/philly_passed_jobs.csv.gz"))
    assert trace.source == "philly-passed"
    assert len(trace) == 82_247
    assert round(float(trace.num_gpus @ trace.duration) / 3600, 2) == 978_078.47
    assert any("only status Pass" in note for note in trace.notes)


def test_philly_attempts_are_folded_into_jobs():
    trace = open_trace(data("traces/philly-attempts/philly_attempts_15k.csv.gz"))
    assert len(trace) == 10_749
    assert trace.columns["attempts"].sum() == 15_000
    shares = {status: np.mean(trace.status == status) for status in STATUSES}
    assert shares["completed"] == pytest.approx(0.714, abs=5e-4)
    assert shares["failed"] == pytest.approx(0.157, abs=5e-4)
    assert shares["cancelled"] == pytest.approx(0.128, abs=5e-4)
    failed = trace.columns["attempts"][trace.status == "failed"]
    assert failed.mean() == pytest.approx(2.66, abs=5e-3)


def test_venus_has_the_published_gpu_jobs():
    trace = open_trace(data("traces/helios-venus-2020-05/venus_jobs_first10k.csv.gz"))
    assert len(trace) == 7_260
    assert trace.dropped == {"CPU job": 2_740}
    assert trace.duration.mean() == pytest.approx(11_667.4, abs=0.05)
    assert np.median(trace.duration) == 246


def test_venus_arrivals_equal_the_published_counts_slot_by_slot():
    published = rows_of(data("traces/helios-venus-2020-05/venus_throughput_10min.csv.gz"))
    trace = open_trace(
        data("traces/helios-venus-2020-05/venus_jobs_first10k.csv.gz"), options=EVERYTHING
    )
    slot = ((trace.submit_time + trace.epoch) // 600).astype(np.int64)
    first, last = as_number("2020-05-28 00:00:00"), as_number("2020-06-09 15:10:00")
    compared = 0
    for row in published:
        time = as_number(row["time"])
        if first <= time < last:
            mine = slot == time // 600
            gpus = trace.num_gpus[mine]
            assert int(row["submit_job_all"]) == mine.sum(), row["time"]
            assert int(row["submit_gpu_job"]) == (gpus > 0).sum(), row["time"]
            assert int(row["submit_gpu_num"]) == gpus.sum(), row["time"]
            compared += 1
    assert compared == (last - first) / 600


def test_alibaba_pods_have_the_published_shares():
    trace = open_trace(
        data("traces/alibaba-gpu-v2023/openb_pod_list_default.csv.gz"), options=EVERYTHING
    )
    assert len(trace) == 8_152
    assert np.mean(trace.num_gpus == 0) == pytest.approx(0.133, abs=1e-3)
    assert np.mean(trace.columns["note"] == "never_scheduled") == pytest.approx(0.11, abs=5e-3)
    assert np.nanmedian(trace.duration) == 616


def test_pod_lists_without_times_are_refused():
    with pytest.raises(BadInput, match="no times"):
        open_trace(data("traces/alibaba-gpu-v2023/openb_pod_list_multigpu50.csv.gz"))


@pytest.mark.parametrize("folder", ["tiresias", "blox"])
def test_research_traces_keep_their_numbers(folder):
    paths = [*sorted(data(folder).glob("trace_*.csv")), *data(folder).glob("input_*.csv.gz")]
    assert paths
    for path in paths:
        trace = open_trace(path)
        wanted = rows_of(path)
        submit = np.array([float(row.get("submit_time") or row["submit"]) for row in wanted])
        order = np.argsort(submit, kind="stable")
        gpus = np.array([float(row.get("num_gpus") or row["num_gpu"]) for row in wanted])
        assert np.array_equal(trace.submit_time, submit[order])
        assert np.array_equal(trace.num_gpus, gpus[order])
        assert trace.duration.tolist() == [float(wanted[at]["duration"]) for at in order]
        assert trace.job_id.tolist() == [
            wanted[at].get("job_id") or wanted[at]["job"] for at in order
        ]
        assert not trace.dropped
