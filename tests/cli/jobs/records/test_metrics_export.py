"""The points of a job's metrics as a CSV, and as event files that TensorBoard itself reads."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from dlsched.cli.jobs.records.metrics import curve
from dlsched.cli.jobs.records.metrics_export import check_target, save_metrics
from dlsched.cli.output.file_output import plain_cell
from dlsched.client.records import Metrics, Point
from dlsched.core.errors import BadInput

FOUND = Metrics(
    curves={
        "loss": (Point(at=1.7e9, step=1, value=2.5), Point(at=1.7e9 + 60, step=9, value=1e-7)),
        "=accuracy, top 5": (Point(at=1.7e9, step=1, value=0.25),),
    }
)


def test_a_csv_has_every_point(tmp_path: Path) -> None:
    target = tmp_path / "m.csv"
    assert save_metrics(FOUND, str(target)) == 3
    with target.open(newline="") as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["metric", "time", "step", "value"]
    assert rows[1][0] == "loss"
    assert rows[1][1].endswith("Z")
    assert rows[3][0] == "'=accuracy, top 5"  # no formula of a spreadsheet program
    assert [float(row[3]) for row in rows[1:]] == [2.5, 1e-7, 0.25]
    assert list(tmp_path.iterdir()) == [target]


def test_a_cell_is_no_formula() -> None:
    for text in ("=1+1", "+cmd", "-x", "@sum", "\tx", "\r=1", "=", "-1-1"):
        assert plain_cell(text) == f"'{text}"
    for value in ("n1", "a=b", "-0.5", "+1e-3", "-inf", "", None, -1, -0.5, 3):
        assert plain_cell(value) is value


def test_tensorboard_reads_the_event_files(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_file_loader")
    save_metrics(FOUND, str(tmp_path / "events"))
    (file,) = (tmp_path / "events").iterdir()
    events = list(reader.RawEventFileLoader(str(file)).Load())
    assert len(events) == 4  # a header, and the points
    loaded = [event for event in reader.EventFileLoader(str(file)).Load() if event.step]
    assert [(event.step, event.wall_time) for event in loaded] == [
        (1, 1.7e9),
        (9, 1.7e9 + 60),
        (1, 1.7e9),
    ]
    assert loaded[0].summary.value[0].tag == "loss"


@pytest.mark.parametrize("target", ["no/such/folder/m.csv", "m.json", __file__.removesuffix(".py")])
def test_a_target_that_cannot_be_written_is_named(target: str, tmp_path: Path) -> None:
    file = tmp_path / "plain"
    file.touch()
    with pytest.raises(BadInput, match="--export"):
        check_target(target if "." in target else str(file))


def test_a_curve_fits_its_width() -> None:
    assert curve([1.0, 2.0, 3.0], 26, "_.-=") == "_-="
    assert len(curve([float(k) for k in range(1000)], 26, "_.-=")) == 26
    assert set(curve([5.0] * 90, 26, "_.-=")) == {"-"}
